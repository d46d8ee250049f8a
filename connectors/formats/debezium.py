"""Debezium's messages (Postgres connector, JSON converter, with and without schemas) become changes and control events.

The topic says what kind of message it is, the `source` block which table it belongs to. Invariant: what can be decoded
exactly is decoded; everything else is `Undecodable`, with its reason. Wiring makes one for each source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from headrace.connectors.changes import Decoded, Mark, MessageBatch, Undecodable
from headrace.connectors.formats import control_events
from headrace.connectors.formats.envelope import EnvelopeDecoder
from headrace.connectors.formats.row_path import DATA_ERRORS
from headrace.connectors.formats.schema_cache import Shapes
from headrace.connectors.formats.table_specs import CannotDecode, Encodings, TableSpec
from headrace.connectors.formats.topic_names import table_topic
from headrace.engine.schema import Schema

_Reader = Callable[[Mapping[str, Any], control_events.MessagePlace], Mark | None]

_NAMES: Final = 4096
"""Names of tables that a format remembers as folded."""


class DebeziumFormat:
    """The format of one Debezium source.

    topic_prefix: the connector's topic.prefix. tables: by name, those wanted; None where messages carry their schema
    and every table is wanted. Topics other than a table's are named as the connector is configured to name them.
    Raises ConfigurationRefused for a mode under which declared tables cannot be decoded, unless `carried`: the source
    is known to send schemas. `beats`: the heartbeat table, whose rows are marks unless it is declared. `loses`: columns
    that cannot be decoded are told as lost, where the row is known without them.
    """

    def __init__(
        self,
        source: str,
        topic_prefix: str,
        tables: Mapping[str, TableSpec] | None = None,
        encodings: Encodings | None = None,
        *,
        notification_topic: str | None = None,
        transaction_topic: str | None = None,
        heartbeat_topic: str | None = None,
        beats: str | None = None,
        message_topic: str | None = None,
        carried: bool = False,
        loses: bool = False,
    ) -> None:
        self.source = source
        self.topic_prefix = topic_prefix
        encodings = self._encodings = encodings or Encodings()
        if not carried:
            for spec in (tables or {}).values():
                encodings.check(spec)
        self._envelopes = EnvelopeDecoder(tables, encodings, prefix=topic_prefix, loses=loses)
        self._shapes = Shapes()
        self.transaction_topic = transaction_topic or f"{topic_prefix}.transaction"
        self.notification_topic = notification_topic
        heartbeats = heartbeat_topic or f"__debezium-heartbeat.{topic_prefix}"
        self._ignored = frozenset((topic_prefix, message_topic or f"{topic_prefix}.message"))
        table_of = self._folded = lru_cache(_NAMES)(self._table_of)
        self._readers: dict[str, _Reader] = {
            self.transaction_topic: lambda p, place: control_events.transaction_mark(p, place, table_of),
            heartbeats: control_events.heartbeat,
        }
        if beats is not None and tables and beats not in tables:
            self._readers[table_topic(topic_prefix, beats)] = control_events.beat
        if notification_topic:
            self._readers[notification_topic] = lambda p, place: control_events.snapshot_mark(p, place, table_of)
        self._data = (
            frozenset(table_topic(topic_prefix, t) for s in tables.values() for t in (s.name, *s.partitions))
            if tables
            else None
        )

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """table → column → why a learnt table does not have it."""
        return self._envelopes.left_out

    def add_table(self, name: str, schema: Schema, partitions: Sequence[str], precisions: Mapping[str, int]) -> None:
        """From now on the records of one declared table more are decoded; one that is declared already changes nothing. Raises
        ConfigurationRefused for modes under which it cannot be."""
        assert self._data is not None, "tables are declared"
        spec = TableSpec(name, schema, tuple(partitions), precisions)
        self._encodings.check(spec)
        self._envelopes.add_table(spec)
        self._data |= {table_topic(self.topic_prefix, name) for name in (name, *partitions)}
        self._folded.cache_clear()

    def add_partition(self, partition: str, table: str) -> None:
        """From now on the records of `partition` are those of a declared table."""
        assert self._data is not None, "only declared tables have partitions"
        self._envelopes.add_partition(partition, table)
        self._data |= {table_topic(self.topic_prefix, partition)}
        self._folded.cache_clear()

    def topics(self) -> Sequence[str] | None:
        """None: a table without rows has no topic yet, so topics are found by `wants` as they appear."""
        return None

    def data_topics(self) -> Sequence[str] | None:
        """The topics of the declared tables and their leaf tables, or None where tables are learnt."""
        return None if self._data is None else sorted(self._data)

    def wants(self, topic: str) -> bool:
        """Whether a topic holds this source's changes or marks."""
        if topic in self._readers:
            return True
        if topic in self._ignored:
            return False
        return topic in self._data if self._data is not None else topic.startswith(f"{self.topic_prefix}.")

    def decode(self, messages: MessageBatch) -> Decoded:
        """The changes and marks in `messages`; logical messages and tables not wanted leave nothing."""
        reader = self._readers.get(messages.topic)
        if reader is not None:
            return read_marks(messages, reader, self._shapes)
        if messages.topic in self._ignored:
            return Decoded()
        return self._envelopes.decode(messages)

    def _table_of(self, name: str) -> str:
        """A table as Debezium names it, the database perhaps in front, folded into the table it is a leaf of."""
        table = self._envelopes.table_of(name)
        if table == name and name.count(".") == 2:
            return self._envelopes.table_of(name.partition(".")[2])
        return table


def read_marks(messages: MessageBatch, reader: _Reader, shapes: Shapes) -> Decoded:
    """Marks of a topic that holds no rows; a tombstone leaves nothing, a message that is none is undecodable."""
    found: list[Mark] = []
    undecodable: list[Undecodable] = []
    for offset, sent, value in zip(
        messages.offsets.tolist(), messages.timestamps.tolist(), messages.values, strict=True
    ):
        if value is None:
            continue
        place = control_events.MessagePlace(messages.topic, messages.partition, offset, sent)
        try:
            payload = shapes.payload(value)
            mark = None if payload is None else reader(payload, place)
        except DATA_ERRORS as error:
            reason = error.reason if isinstance(error, CannotDecode) else "not a record of this topic"
            if isinstance(error, orjson.JSONDecodeError):
                reason = "not JSON"
            hint = "nothing but the connector may write to this topic"
            undecodable.append(Undecodable(None, messages.topic, messages.partition, offset, reason, hint))
            continue
        if mark is not None:
            found.append(mark)
    return Decoded(marks=found, undecodable=undecodable)
