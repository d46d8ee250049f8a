"""`headrace-publish follow`: a lake table's own changes, one version of the table as one version of ours, without a JVM.

Always: the number that a version of the table has among ours is told by the table alone, so that the topic's last records tell
where to go on, and nothing else is kept. A version is published whole, or again as a further attempt. Called by the command.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.formats.topic_names import table_topic
from headrace.connectors.spark import versions
from headrace.connectors.spark.envelope import Stamp, TableCounts, write_ends
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.kafka_producer import Wire
from headrace.connectors.spark.publisher_state import Manifest
from headrace.connectors.spark.row_json import json_texts, json_values

SHOWN = 10
CHANGE_TYPE = "_change_type"
_BESIDE = (CHANGE_TYPE, "_commit_version", "_commit_timestamp")
_POSTGRES: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer", pa.int64(): "bigint",
    pa.float32(): "real", pa.float64(): "double precision", pa.string(): "text", pa.large_string(): "text",
    pa.string_view(): "text", pa.binary(): "bytea", pa.large_binary(): "bytea", pa.binary_view(): "bytea",
    pa.date32(): "date",
}  # fmt: skip


@dataclass(frozen=True)
class Followed:
    """One version of the table that is whole in Kafka. `of`: how the lake calls it. `snapshot`: it holds all rows, as nothing was
    published before."""

    version: int
    attempt: int
    of: str
    counts: TableCounts
    snapshot: bool = False


@dataclass(frozen=True)
class At:
    """A version of a lake table: its number among ours, and how the lake calls it."""

    version: int
    name: str


class Feed(Protocol):
    """A lake table that tells what each of its versions changed. Raises PublishError."""

    @property
    def table(self) -> str:
        """Our name of it, "schema.table"."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns now."""

    def newest(self) -> At:
        """Its version now; what is asked afterwards is asked of the table as it is then."""

    def after(self, version: int) -> Sequence[At]:
        """Its versions after this one of ours, up to the newest, oldest first."""

    def at(self, version: int) -> At:
        """The version that has this number among ours."""

    def named(self, own: int) -> At:
        """The version that the lake calls so."""

    def snapshot(self, at: At) -> pa.Table:
        """All rows of a version."""

    def changes(self, at: At) -> pa.Table:
        """What a version changed: rows, with a column `_change_type` beside: insert, update_preimage, update_postimage or
        delete."""


def postgres_type(kind: pa.DataType) -> str | None:
    """The Postgres type that holds every value; None: there is none.

    >>> postgres_type(pa.decimal128(10, 2)), postgres_type(pa.timestamp("us", "UTC")), postgres_type(pa.list_(pa.int8()))
    ('numeric(10,2)', 'timestamp with time zone', None)
    """
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    return _POSTGRES.get(kind)


def describe(feed: Feed) -> dict[str, object]:
    """The `tables:` entry of headrace.yaml. Raises PublishError."""
    schema = feed.schema
    check_schema(feed.table, feed.key, schema)
    columns = [
        {"name": f.name, "data_type": postgres_type(f.type), **({"nullable": False} if f.name in feed.key else {})}
        for f in schema
    ]
    return {"name": feed.table, "key": list(feed.key), "columns": columns}


def follow(
    feed: Feed, prefix: str, wire: Wire, *, partitions: int = 4, source: str | None = None, snapshot: bool = False,
    previous: pa.Table | None = None, loaded: int | None = None, until_now: bool = True, pause: float = 1.0,
    clock: Callable[[], int] = time.time_ns, sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Followed]:  # fmt: skip
    """Publish each version that the topic lacks, and give it. Where the topic has none, or `snapshot` is asked for, the table as
    it is now comes first; it is compared with `previous`, or else with the table's own version that was published last.
    `loaded`: readers have this version of ours already, so that it goes on after it. `until_now`: end at the table's newest
    version. Raises PublishError.
    """
    topic = table_topic(prefix, feed.table)
    count = wire.ensure(topic, partitions)
    whole = snapshot or previous is not None
    while True:
        now = feed.newest()
        found = versions.seen(wire, [(topic, count)])
        if loaded is not None and not found.completed:
            found = replace(found, completed=loaded)
        if whole or not found.completed:
            if found.completed < now.version:
                changes = _replacing(feed, found.completed, now, previous)
                yield _publish(feed, topic, count, wire, found, now, changes, source or prefix, clock, snapshot=True)
                found = versions.seen(wire, [(topic, count)])
            whole = False
        for at in feed.after(found.completed):
            rows = feed.changes(at)
            seen = versions.seen(wire, [(topic, count)])
            yield _publish(feed, topic, count, wire, seen, at, _net(feed, rows), source or prefix, clock)
        if until_now:
            return
        sleep(pause)


@dataclass(frozen=True)
class _Change:
    key: bytes
    image: bytes | None
    op: str


def _replacing(feed: Feed, completed: int, newest: At, previous: pa.Table | None) -> list[_Change]:
    """The whole table as changes; where versions were published, also what these had and it has no more."""
    now, before = _images(feed, feed.snapshot(newest)), dict[bytes, bytes]()
    if completed:
        before = _images(feed, feed.snapshot(feed.at(completed)) if previous is None else previous)
    gone = [_Change(key, None, "d") for key in before.keys() - now.keys()]
    kept = [_Change(k, image, "u" if k in before else "c") for k, image in now.items() if before.get(k) != image]
    return kept + gone


def _images(feed: Feed, rows: pa.Table) -> dict[bytes, bytes]:
    keys, images, _ = _texts(feed, rows)
    found = dict(zip(keys, images, strict=True))
    if len(found) < len(keys):
        twice = [k.decode() for k, n in Counter(keys).items() if n > 1][:SHOWN]
        raise PublishError(f"a primary key stands in several rows: {'; '.join(twice)}", table=feed.table,
                           key=",".join(feed.key), hint="nothing was written")  # fmt: skip
    return found


def _net(feed: Feed, rows: pa.Table) -> list[_Change]:
    """At most one change a key. The images before tell what was there; those after, what is."""
    keys, images, kinds = _texts(feed, rows)
    before: dict[bytes, bytes] = {}
    after: dict[bytes, bytes] = {}
    for key, image, kind in zip(keys, images, kinds, strict=True):
        side = after if kind in ("insert", "update_postimage") else before
        if kind not in ("insert", "update_postimage", "delete", "update_preimage"):
            raise PublishError("a change of an unknown kind", table=feed.table, kind=kind)
        if key in side:
            raise PublishError("a primary key stands in several rows of one version", table=feed.table, key=key.decode(),
                               hint="name columns under the key that identify a row")  # fmt: skip
        side[key] = image
    changed = [_Change(k, i, "u" if k in before else "c") for k, i in after.items() if before.get(k) != i]
    return changed + [_Change(k, None, "d") for k in before.keys() - after.keys()]


def _texts(feed: Feed, rows: pa.Table) -> tuple[list[bytes], list[bytes], list[str]]:
    """Key, image and kind of change of each row. Raises PublishError for a NULL key."""
    names = [n for n in rows.schema.names if n not in _BESIDE]
    keys: list[bytes] = []
    images: list[bytes] = []
    kinds: list[str] = []
    for batch in rows.to_batches(max_chunksize=50_000):
        for name in feed.key:
            if batch.column(name).null_count:
                raise PublishError("a key is NULL", table=feed.table, column=name, hint="leave such rows out")
        values = {n: json_values(batch.column(n)) for n in names}
        keys += json_texts({n: values[n] for n in feed.key}, batch.num_rows)
        images += json_texts(values, batch.num_rows)
        if CHANGE_TYPE in rows.schema.names:
            kinds += batch.column(CHANGE_TYPE).to_pylist()
    return keys, images, kinds


def _publish(
    feed: Feed, topic: str, partitions: int, wire: Wire, found: versions.Seen, at: At, changes: Sequence[_Change],
    source: str, clock: Callable[[], int], *, snapshot: bool = False,
) -> Followed:  # fmt: skip
    chosen = versions.choose(at.version, Manifest(), found)
    if chosen is None:
        raise PublishError("the version is in the topic already", table=feed.table, version=at.version)
    stamp = Stamp(source, *chosen, clock() // 1000)
    head, middle, tail = (text.encode() for text in stamp.around(feed.table))
    producer = wire.producer()
    sent: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
    ops = {"c": 0, "u": 0, "d": 0}
    for change in changes:
        value = head + (change.image or b"null") + middle + change.op.encode() + tail
        sent[zlib.crc32(change.key) % partitions].append((change.key, value))
        ops[change.op] += 1
    for partition, records in enumerate(sent):
        producer.produce_batch(topic, partition, records)
    producer.flush()
    by_partition = [len(records) for records in sent]
    write_ends(wire, {feed.table: topic}, {feed.table: by_partition}, stamp)
    counts = TableCounts(ops["c"], ops["u"], ops["d"], tuple(by_partition))
    return Followed(*chosen, at.name, counts, snapshot)


def checked(table: str, key: Sequence[str], rows: pa.Table) -> pa.Table:
    """`rows` of types that JSON is made of. Raises PublishError for what cannot be carried exactly."""
    check_schema(table, key, pa.schema([f for f in rows.schema if f.name not in _BESIDE]))
    views = {f.name: pa.large_string() for f in rows.schema if f.type == pa.string_view()}
    views |= {f.name: pa.large_binary() for f in rows.schema if f.type == pa.binary_view()}
    for name, kind in views.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, pc.cast(rows.column(at), kind))
    return rows


def check_schema(table: str, key: Sequence[str], schema: pa.Schema) -> None:
    """Raise PublishError for a key that is none, or a column that has no type of Postgres."""
    for name in key:
        if name not in schema.names:
            raise PublishError("the key names a column that is not there", table=table, column=name,
                               columns=", ".join(schema.names))  # fmt: skip
        if pa.types.is_floating(schema.field(name).type):
            raise PublishError("a floating-point column cannot be part of a key", table=table, column=name)
    for field in schema:
        if postgres_type(field.type) is None:
            raise PublishError(f"a column of type {field.type} cannot be carried exactly", table=table,
                               column=field.name, hint="keep it as text in the table")  # fmt: skip
