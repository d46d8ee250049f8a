"""Our Spark publisher's messages → changes and version marks.

Its records are Debezium's envelope without schema, with a version where Debezium has a transaction, and the attempt
that wrote them; each partition of a version ends with a marker. Made by wiring, one a source; the other side of the
format is `connectors/spark`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from headrace.connectors.changes import Decoded, MessageBatch, VersionEnd
from headrace.connectors.formats.control_events import MessagePlace
from headrace.connectors.formats.debezium import read_marks
from headrace.connectors.formats.envelope import EnvelopeDecoder
from headrace.connectors.formats.schema_cache import Shapes
from headrace.connectors.formats.table_specs import Encodings, TableSpec
from headrace.connectors.formats.topic_names import table_topic
from headrace.engine.schema import Schema

END_KEY: Final = "headrace.end"
"""The only field of an END marker's key; its value is the version."""

ENCODINGS: Final = Encodings(time_precision_mode="microseconds", decimal_handling_mode="string")
"""How the publisher writes values: microseconds, decimal strings, base64, ISO timestamps at UTC."""

_END_PREFIX: Final = b'{"headrace.end"'


class SparkFormat:
    """The format of one Spark source: `tables` by name, all of them declared. A column that they have no more is told as lost."""

    def __init__(self, source: str, topic_prefix: str, tables: Mapping[str, TableSpec]) -> None:
        self.source = source
        self.topic_prefix = topic_prefix
        self._envelopes = EnvelopeDecoder(tables, ENCODINGS, versions=True, loses=True)
        self._shapes = Shapes()
        self._topics = tuple(table_topic(topic_prefix, name) for name in tables)

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """Nothing: every table is declared."""
        return self._envelopes.left_out

    def topics(self) -> Sequence[str] | None:
        """None: a table that was never published has no topic yet."""
        return None

    def data_topics(self) -> Sequence[str]:
        """The topics of the tables."""
        return self._topics

    def wants(self, topic: str) -> bool:
        """Whether a topic is one of the tables'."""
        return topic in self._topics

    def add_table(self, name: str, schema: Schema, partitions: Sequence[str], precisions: Mapping[str, int]) -> None:
        """From now on the records of one declared table more are decoded; one that is declared already changes nothing. Raises
        ConfigurationRefused for a column that cannot be."""
        spec = TableSpec(name, schema, tuple(partitions), precisions)
        ENCODINGS.check(spec)
        self._envelopes.add_table(spec)
        self._topics = tuple(dict.fromkeys((*self._topics, table_topic(self.topic_prefix, name))))

    def add_partition(self, partition: str, table: str) -> None:
        """A publisher's table has no partitions of other names."""

    def decode(self, messages: MessageBatch) -> Decoded:
        """The changes in `messages` and the marks that end their versions."""
        ends = [i for i, key in enumerate(messages.keys) if key is not None and key.startswith(_END_PREFIX)]
        if not ends:
            return self._envelopes.decode(messages)
        marks = read_marks(messages.at(ends), version_mark, self._shapes)
        ended = frozenset(ends)
        rest = self._envelopes.decode(messages.at([i for i in range(len(messages)) if i not in ended]))
        undecodable = sorted([*rest.undecodable, *marks.undecodable], key=lambda record: record.offset)
        return replace(rest, marks=marks.marks, undecodable=undecodable)


def version_ends(messages: MessageBatch) -> list[VersionEnd]:
    """The END markers in `messages`, whatever else is there."""
    at = [i for i, key in enumerate(messages.keys) if key is not None and key.startswith(_END_PREFIX)]
    marks = read_marks(messages.at(at), version_mark, Shapes()).marks if at else ()
    return [mark for mark in marks if isinstance(mark, VersionEnd)]


def version_mark(payload: Mapping[str, Any], place: MessagePlace) -> VersionEnd:
    """An END marker. Its `partition` must be the one it stands in: nothing may have moved it."""
    if payload["headrace"] != "end" or int(payload["partition"]) != place.partition:
        raise ValueError("not an END marker of this partition")
    return VersionEnd(
        str(payload["table"]), int(payload["version"]), int(payload["attempt"]), int(payload["count"]),
        int(payload["partitions"]), tuple(str(t) for t in payload["tables"]), int(payload["ts_us"]),
        place.topic, place.partition, place.offset, {str(t): int(v) for t, v in (payload.get("after") or {}).items()},
    )  # fmt: skip
