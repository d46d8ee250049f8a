"""The envelope decoder: messages of one data topic → changes by table, whatever is wrong with single ones.

A run is decoded in chunks, each as columns; a chunk that cannot be is halved until the messages that are at fault stand
alone, so that the good ones are never lost with them. What a table's own messages taught about its columns is kept from
run to run; nothing else is. Owned by one format; its only writer is that format's `decode`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

import orjson

from headrace.connectors.changes import Decoded, Event, MessageBatch, MissingColumn, TableChanges, Undecodable
from headrace.connectors.formats.fast_path import CHUNK, DOUBTS, Reader, read, reader
from headrace.connectors.formats.row_path import DATA_ERRORS, Run, build, concat, event_of
from headrace.connectors.formats.schema_cache import Shape, Shapes
from headrace.connectors.formats.table_decoders import Plan, declared_plan, learnt_plan
from headrace.connectors.formats.table_specs import CannotDecode, Encodings, TableSpec
from headrace.connectors.formats.topic_names import table_topic
from headrace.engine.schema import Schema

BLOCK: Final = 2048
BLOCK_BYTES: Final = 8 << 20
"""Messages, and their bytes, that are made columns at a time."""

_MOST_PLACES: Final = 4096
_SCHEMALESS_HINT: Final = "declare the table in headrace.yaml (headrace init writes it), or let messages carry schemas"

_ENVELOPE: Final = frozenset(("op", "source", "after"))
_SOURCE: Final = itemgetter("source")
_NAME: Final = itemgetter("schema", "table")

_Route = tuple[str, str, Shape | None, Shape | None]


@dataclass
class _Segment:
    plan: Plan
    positions: list[int]
    docs: list[Mapping[str, Any]]


@dataclass
class _Found:
    """What a run of messages has given so far, in offset order."""

    pieces: list[tuple[Plan, TableChanges]] = field(default_factory=list)
    undecodable: list[Undecodable] = field(default_factory=list)
    schemas: dict[str, Schema] = field(default_factory=dict)
    lost: dict[tuple[str, str, bool], MissingColumn] = field(default_factory=dict)


class EnvelopeDecoder:
    """Debezium's envelope, with or without schema; with `versions` it is our Spark publisher's.

    tables: those declared, by name; None or empty where the messages' own schemas are to be learnt. prefix: of the topics,
    by which a record that stands in the topic of another table is known; None where topics tell nothing. loses: columns
    of declared tables that cannot be decoded are told as lost, where the rest of the row can be.
    """

    def __init__(
        self,
        tables: Mapping[str, TableSpec] | None,
        encodings: Encodings,
        versions: bool = False,
        prefix: str | None = None,
        *,
        loses: bool = False,
    ) -> None:
        self._tables = dict(tables or {})
        self._leaves = {leaf: spec for spec in self._tables.values() for leaf in (spec.name, *spec.partitions)}
        self._encodings = encodings
        self._versions = versions
        self._prefix = prefix
        self._loses = loses
        self._without: dict[tuple[Plan, str, bool], Plan] = {}
        self._earlier: dict[tuple[Plan, tuple[str, ...]], Plan] = {}
        self._at_home: set[tuple[str, Any, Any]] = set()
        self._values, self._keys = Shapes(), Shapes()
        self._plans: dict[_Route, Plan | None] = {}
        self._learnt: dict[str, Plan] = {}
        self._readers: dict[Plan, Reader | None] = {}
        self._read: dict[tuple[str, Shape | None], tuple[tuple[str, str], Reader]] = {}

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """table → column → why it is not among the learnt columns."""
        return {table: plan.left_out for table, plan in self._learnt.items() if plan.left_out}

    def add_table(self, spec: TableSpec) -> None:
        """One declared table more, or one that is declared otherwise."""
        leaves = [leaf for leaf, known in self._leaves.items() if known.name == spec.name]
        self._tables[spec.name] = spec
        self._leaves |= dict.fromkeys((spec.name, *spec.partitions, *leaves), spec)
        for route in [r for r, plan in self._plans.items() if plan is None or plan.table == spec.name]:
            del self._plans[route]
        self._read, self._without, self._earlier = {}, {}, {}

    def add_partition(self, partition: str, table: str) -> None:
        """From now on `partition` is a leaf of a declared table."""
        self._leaves[partition] = self._tables[table]
        self._plans = {route: plan for route, plan in self._plans.items() if plan is not None}

    def table_of(self, name: str) -> str:
        """The table that a leaf table's changes belong to; itself where it is no leaf."""
        spec = self._leaves.get(name)
        return name if spec is None else spec.name

    def decode(self, messages: MessageBatch) -> Decoded:
        """Every change in `messages`, and every message that could not become one."""
        found = _Found()
        low = 0
        while low < len(messages):
            high = _block(messages, low)
            if not self._typed(messages, low, high, found):
                for at in range(low, high, CHUNK):
                    self._narrow(messages, at, min(at + CHUNK, high), found)
            low = high
        return Decoded(_merged(found.pieces), [], found.undecodable, found.schemas, [*found.lost.values()])

    def _typed(self, messages: MessageBatch, low: int, high: int, found: _Found) -> bool:
        """Decode a block by the typed path; False, and nothing done, where the row path must decide."""
        positions, values = _written(messages, low, high)
        try:
            bare = self._values.bare(values)
            if bare is None:
                return False
            shape, payloads = bare
            # what one run taught is good for the next, until a run is in doubt
            known = self._read.pop((messages.topic, shape), None)
            if known is None:
                known = self._route_of(messages, positions, payloads[0], shape)
            if known is None:
                return False
            route, made = known
            changes = read(made, messages, positions, payloads, route)
        except DOUBTS:
            return False
        if self._tables:
            self._read[messages.topic, shape] = known
        found.pieces.append((made.plan, changes))
        self._note(made.plan, changes, found)
        return True

    def _route_of(
        self, messages: MessageBatch, positions: list[int], payload: bytes, shape: Shape | None
    ) -> tuple[tuple[str, str], Reader] | None:
        """The (schema, table) of a run's first message, and its plan's reader."""
        doc = orjson.loads(payload)
        plan = self._one_plan(messages, positions, [doc], [shape])
        if plan is None:
            return None
        if plan not in self._readers:
            self._readers[plan] = reader(plan, self._versions)
        made = self._readers[plan]
        return None if made is None else (_NAME(doc["source"]), made)

    def _narrow(self, messages: MessageBatch, low: int, high: int, found: _Found) -> None:
        try:
            pieces, refused = self._chunk(messages, low, high)
        except DATA_ERRORS as error:
            if high - low == 1:
                found.undecodable.append(self._at_fault(messages, low, error))
                return
            middle = (low + high) // 2
            self._narrow(messages, low, middle, found)
            self._narrow(messages, middle, high, found)
            return
        found.undecodable.extend(refused)
        for plan, changes in pieces:
            found.pieces.append((plan, changes))
            self._note(plan, changes, found)

    def _note(self, plan: Plan, changes: TableChanges, found: _Found) -> None:
        for column, why in plan.lost.items():
            place = (changes.topic, changes.partition, int(changes.offsets[0]))
            lsn = int(changes.lsns.max())
            lost = MissingColumn(plan.table, column, *place, why.reason, why.hint, why.gone, lsn)
            first = found.lost.setdefault((plan.table, column, why.gone), lost)
            found.lost[plan.table, column, why.gone] = replace(first, lsn=max(first.lsn, lsn))
        known = self._learnt.get(plan.table)
        if not plan.learnt or plan is known or plan.provisional:
            return
        if known is None or known.schema != plan.schema:
            found.schemas[plan.table] = plan.schema
        self._learnt[plan.table] = plan

    def _chunk(
        self, messages: MessageBatch, low: int, high: int
    ) -> tuple[list[tuple[Plan, TableChanges]], list[Undecodable]]:
        """All or nothing: raises when any message of the chunk is bad."""
        positions, values = _written(messages, low, high)
        docs, shapes = self._values.payloads(values)
        pieces: list[tuple[Plan, TableChanges]] = []
        refused: list[Undecodable] = []

        def key_of(position: int) -> Any:
            key = messages.keys[position]
            return None if key is None else self._keys.split(key)[1]

        for segment in self._segments(messages, positions, docs, shapes):
            plan = segment.plan
            if plan.refusal is not None:
                refused.extend(
                    _undecodable(messages, i, plan.table, plan.refusal, event_of(doc))
                    for i, doc in zip(segment.positions, segment.docs, strict=True)
                )
                continue
            run = Run(messages, segment.positions, segment.docs, key_of)
            pieces.append(self._built(plan, run))
        return pieces, refused

    def _built(self, plan: Plan, run: Run) -> tuple[Plan, TableChanges]:
        """The changes of a run, by its plan or, where a column of it is at fault in all of them, by one without it."""
        while True:
            try:
                return plan, build(plan, run, self._versions)
            except CannotDecode as error:
                column = error.column
                earlier = plan.earlier(column) if column is not None and error.gone and run.lacks(column) else None
                if earlier is not None:
                    plan = self._earlier.setdefault((plan, earlier.sent), earlier)
                    continue
                if column is None or column in plan.lost or not (self._loses and plan.may_lose(column)):
                    raise
                if len(run.docs) > 1 and not (error.gone and run.lacks(plan.renamed.get(column, column))):
                    raise
                way = plan, column, error.gone
                if way not in self._without:
                    self._without[way] = plan.without(column, error)
                plan = self._without[way]

    def _segments(
        self, messages: MessageBatch, positions: list[int], docs: list[Any], shapes: list[Shape | None] | None
    ) -> list[_Segment]:
        """Runs of one plan. Tables that share the topic are taken apart; each one's own order is kept."""
        plan = self._one_plan(messages, positions, docs, shapes)
        if plan is not None:
            return [_Segment(plan, positions, docs)]
        segments: list[_Segment] = []
        open_: dict[str, _Segment] = {}
        for i, doc in enumerate(docs):
            if doc is None:
                continue
            plan = self._route(messages, positions[i], doc, None if shapes is None else shapes[i])
            if plan is None:
                continue
            segment = open_.get(plan.table)
            if segment is None or segment.plan is not plan:
                segment = open_[plan.table] = _Segment(plan, [], [])
                segments.append(segment)
            segment.positions.append(positions[i])
            segment.docs.append(doc)
        return segments

    def _one_plan(
        self, messages: MessageBatch, positions: list[int], docs: list[Any], shapes: list[Shape | None] | None
    ) -> Plan | None:
        """The plan of all messages, where they have but one, as nearly every run does; None where they may differ."""
        if not docs or None in docs or not _ENVELOPE.issubset(docs[0]):
            return None
        names = set(map(_NAME, map(_SOURCE, docs)))
        of_values = set(shapes or (None,))
        if len(names) != 1 or len(of_values) != 1:
            return None
        schema, table = names.pop()
        if not self._is_at_home(messages.topic, schema, table):
            return None
        shape = of_values.pop()
        if self._tables:
            return self._plan((schema, table, shape, None))
        keys = [messages.keys[i] for i in positions]
        if shape is None or None in keys:
            return None
        of_keys = {self._keys.shape(key) for key in keys if key is not None}
        return self._plan((schema, table, shape, of_keys.pop())) if len(of_keys) == 1 and None not in of_keys else None

    def _is_at_home(self, topic: str, schema: Any, table: Any) -> bool:
        """Whether a topic is that of a table (several tables may share one, as names are sanitised)."""
        place = (topic, schema, table)
        if place in self._at_home:
            return True
        if self._prefix is not None and not (
            isinstance(schema, str)
            and isinstance(table, str)
            and topic == table_topic(self._prefix, f"{schema}.{table}")
        ):
            return False
        if len(self._at_home) >= _MOST_PLACES:
            self._at_home.clear()
        self._at_home.add(place)
        return True

    def _route(self, messages: MessageBatch, position: int, doc: Mapping[str, Any], shape: Shape | None) -> Plan | None:
        """The plan of one message; None where it is nobody's: a table not declared, a logical message."""
        if doc.get("op") == "m" and all(doc["source"].get(k) in (None, "") for k in ("schema", "table")):
            return None
        if "op" not in doc or "source" not in doc:
            raise CannotDecode(
                "not a Debezium envelope", "remove transforms such as ExtractNewRecordState from the connector"
            )
        source = doc["source"]
        if not self._is_at_home(messages.topic, source["schema"], source["table"]):
            raise CannotDecode(
                "a record of another table than its topic's", "nothing but the connector may write to this topic"
            )
        if self._tables:
            return self._plan((source["schema"], source["table"], shape, None))
        name = f"{source['schema']}.{source['table']}"
        if shape is None:
            raise CannotDecode(f"table {name} is not declared and its messages carry no schema", _SCHEMALESS_HINT)
        key = messages.keys[position]
        if key is None and doc["op"] == "t":
            # a truncate has no key, which says nothing about the table's
            known = self._learnt.get(name)
            return known or replace(learnt_plan(name, self._encodings, shape, None), provisional=True)
        key_shape = None if key is None else self._keys.split(key)[0]
        if key is not None and key_shape is None:
            raise CannotDecode("a value with schema and a key without", "set key.converter.schemas.enable=true too")
        return self._plan((source["schema"], source["table"], shape, key_shape))

    def _plan(self, route: _Route) -> Plan | None:
        if route not in self._plans:
            schema, table, shape, key_shape = route
            name = f"{schema}.{table}"
            spec = self._leaves.get(name)
            if spec is not None:
                # leaf tables share the plan of the table that they are leaves of
                whole = (spec.name, "", shape, None)
                if whole not in self._plans:
                    self._plans[whole] = declared_plan(spec, self._encodings, shape, loses=self._loses)
                self._plans[route] = self._plans[whole]
            elif self._tables or shape is None:
                self._plans[route] = None
            else:
                key = None if key_shape is None else tuple(key_shape.fields)
                self._plans[route] = learnt_plan(name, self._encodings, shape, key)
        return self._plans[route]

    def _at_fault(self, messages: MessageBatch, position: int, error: BaseException) -> Undecodable:
        table = event = None
        value = messages.values[position]
        try:
            doc = self._values.split(value or b"null")[1]
            schema, name = _NAME(doc["source"])
            if self._is_at_home(messages.topic, schema, name):
                table = self.table_of(f"{schema}.{name}")
            event = event_of(doc)
        except DATA_ERRORS:
            pass
        if isinstance(error, orjson.JSONDecodeError):
            error = CannotDecode("not JSON", "use Kafka Connect's JsonConverter for keys and values")
        if not isinstance(error, CannotDecode):
            error = CannotDecode(f"not a well-formed change event ({type(error).__name__})", "remove transforms")
        return _undecodable(messages, position, table, error, event)


def _block(messages: MessageBatch, low: int) -> int:
    """Where the block that starts at `low` ends: after BLOCK messages, or fewer where they are large."""
    high = min(low + BLOCK, len(messages))
    while high - low > 1 and sum(map(len, filter(None, messages.values[low:high]))) > BLOCK_BYTES:
        high = low + (high - low) // 2
    return high


def _written(messages: MessageBatch, low: int, high: int) -> tuple[list[int], list[bytes]]:
    """(positions, values) of the messages that are no tombstones."""
    found = [value for value in messages.values[low:high] if value is not None]
    if len(found) == high - low:
        return list(range(low, high)), found
    return [i for i in range(low, high) if messages.values[i] is not None], found


def _undecodable(
    messages: MessageBatch, position: int, table: str | None, error: CannotDecode, event: Event | None
) -> Undecodable:
    offset = int(messages.offsets[position])
    return Undecodable(table, messages.topic, messages.partition, offset, error.reason, error.hint, event)


def _merged(pieces: list[tuple[Plan, TableChanges]]) -> list[TableChanges]:
    return [pieces[0][1]] if len(pieces) == 1 else [concat(group) for group in _groups(pieces)]


def _groups(pieces: list[tuple[Plan, TableChanges]]) -> Iterator[list[TableChanges]]:
    """Pieces of a table under one plan together, as long as no other plan of that table comes between."""
    groups: list[tuple[Plan, list[TableChanges]]] = []
    last: dict[str, int] = {}
    for plan, changes in pieces:
        at = last.get(plan.table)
        if at is not None and groups[at][0] is plan:
            groups[at][1].append(changes)
        else:
            last[plan.table] = len(groups)
            groups.append((plan, [changes]))
    return (group for _, group in groups)
