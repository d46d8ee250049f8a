"""Publish changes that a job already has, rather than two snapshots: folded to at most one net change a key, as a version.

Always: nothing is written before keys, operations and order are checked; what a key was before the batch does not
matter, only that its last state is sent. A version that is whole already is left alone, so a batch of a stream may be
repeated with its own number. Called by jobs of one's own, inside `foreachBatch` too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.connectors.spark import versions
from headrace.connectors.spark.envelope import Stamp
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.kafka_producer import KafkaWire, Wire
from headrace.connectors.spark.publish import Published, Target, planned, write_version
from headrace.connectors.spark.publisher_state import Manifest, State, no_snapshot
from headrace.connectors.spark.snapshot_diff import SHOWN
from headrace.connectors.spark.types import check_columns, exact_casts, image, quoted

OPERATIONS = ("c", "u", "d", "r")


@dataclass(frozen=True)
class Changes:
    """One table's changes: the row after each, beside `op`: c (created), u (updated), d (deleted) or r (read).

    `before`: the column with the row before as a struct, which a change of key needs; it may be missing. `order`: columns
    that tell which change of a key came later; without them a key may change once. `columns`: the table's columns; unless
    given, all but these.
    """

    table: str
    rows: DataFrame
    key: Sequence[str]
    order: Sequence[str] = ()
    op: str = "op"
    before: str = "before"
    columns: Sequence[str] | None = None

    @property
    def schema(self) -> T.StructType:
        """The table's columns, as they are in the rows."""
        beside = {self.op, self.before, *self.order}
        names = [n for n in self.rows.columns if n not in beside] if self.columns is None else list(self.columns)
        missing = sorted({*names, self.op, *self.order} - set(self.rows.columns))
        if missing:
            raise PublishError("the changes have no such column", table=self.table, column=missing[0],
                               columns=", ".join(self.rows.columns))  # fmt: skip
        return T.StructType([self.rows.schema[n] for n in names])


def publish_changes(
    spark: SparkSession,  # noqa: ARG001 - beside its sisters' first parameter; the rows have their own
    changes: Sequence[Changes],
    target: Target,
    *,
    version: int | None = None,
    state: str | Path | None = None,
    wire: Wire | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> Published:
    """Publish `changes` as one version, and so as one epoch; see `publish_version` for `version`, `state` and `wire`.

    In `foreachBatch` give `version=batch_id + 1`: a batch that Spark repeats is then left alone. Raises PublishError, and
    nothing is then completed.
    """
    _check(changes)
    held = State(Path(state)) if state is not None else None
    through = wire or KafkaWire(target.kafka, target.replication)
    with held.locked() if held else nullcontext():
        plans = planned(through, target, [c.table for c in changes])
        found = versions.seen(through, [(p.topic, p.partitions) for p in plans])
        manifest = versions.remembered(held, found) if held else Manifest()
        chosen = versions.choose(version, manifest, found)
        if chosen is None:
            return Published(version or found.completed, manifest.begun[1], repeated=True)
        number, attempt = chosen
        net = [folded(c) for c in changes]
        if held:
            held.begin(number, attempt, {c.table: no_snapshot(number, attempt) for c in changes})
        stamp = Stamp(target.source_name or target.topic_prefix, number, attempt, clock() // 1000, manifest.versions)
        counts = write_version(through, plans, net, stamp)
        if held:
            held.complete()
    return Published(number, attempt, counts)


def folded(changes: Changes) -> DataFrame:
    """At most one change a key: columns `key`, `after` and `op`, frozen. Raises PublishError."""
    rows = _elementary(changes).localCheckpoint(eager=True)
    _check_operations(rows, changes.table)
    place = F.struct("at", "step")
    net = rows.groupBy("key").agg(
        F.min_by("existed", place).alias("existed"),
        F.min_by("before", place).alias("before"),
        F.max_by("after", place).alias("after"),
        F.count(F.lit(1)).alias("n"),
        F.count_distinct(place).alias("places"),
    )
    net = net.localCheckpoint(eager=True)
    _check_order(net, changes)
    gone, same = F.col("after").isNull(), F.col("after").eqNullSafe(F.col("before"))
    nothing = (gone & ~F.col("existed")) | (~gone & same)
    op = F.when(gone, "d").when(F.col("existed"), "u").otherwise("c")
    return net.where(~nothing).select("key", "after", op.alias("op"))


def _elementary(changes: Changes) -> DataFrame:
    """A row for each key that a change touches: an update that changes the key deletes one and creates the other."""
    schema = changes.schema
    kinds = {f.name: f.dataType for f in schema.fields}
    keys = {n: kinds[n] for n in changes.key}
    op = F.col(quoted(changes.op)).cast("string")
    with exact_casts(changes.rows.sparkSession):
        after, key = image(kinds), image(keys)
        old, old_key = _before(changes, kinds)
        at = F.struct(*(F.col(quoted(n)) for n in changes.order)) if changes.order else F.lit(0)
        rows = changes.rows.select(
            op.alias("op"), at.alias("at"), old.alias("old"), after.alias("after"),
            F.when(op == "d", F.coalesce(old_key, key)).otherwise(key).alias("key"), old_key.alias("old_key"),
            _null_key(changes).alias("null_key"),
        )  # fmt: skip
    moved = (F.col("op") == "u") & F.col("old_key").isNotNull() & (F.col("old_key") != F.col("key"))
    deleted = F.col("op") == "d"
    existed = F.col("op").isin("u", "d") & ~moved
    last = F.struct(
        "key", F.lit(1).alias("step"), existed.alias("existed"),
        F.when(~moved, F.col("old")).alias("before"), F.when(~deleted, F.col("after")).alias("after"),
    )  # fmt: skip
    first = F.struct(
        F.col("old_key").alias("key"), F.lit(0).alias("step"), F.lit(True).alias("existed"),
        F.col("old").alias("before"), F.lit(None).cast("string").alias("after"),
    )  # fmt: skip
    steps = F.when(moved, F.array(first, last)).otherwise(F.array(last))
    return rows.select("op", "at", "null_key", F.explode(steps).alias("each")).select("op", "at", "null_key", "each.*")


def _before(changes: Changes, kinds: dict[str, T.DataType]) -> tuple[Column, Column]:
    """The row before as JSON where all of it is there, and its key; NULL where they are not."""
    none = F.lit(None).cast("string")
    if changes.before not in changes.rows.columns:
        return none, none
    held = changes.rows.schema[changes.before].dataType
    if not isinstance(held, T.StructType):
        raise PublishError("`before` is no struct", table=changes.table, column=changes.before,
                           hint="make one: struct(columns…)")  # fmt: skip
    within, there = quoted(changes.before) + ".", F.col(quoted(changes.before)).isNotNull()
    names = set(held.names)
    keyed = set(changes.key) <= names
    whole = kinds.keys() <= names and all(held[n].dataType == k for n, k in kinds.items())
    old_key = F.when(there, image({n: kinds[n] for n in changes.key}, within)) if keyed else none
    return (F.when(there, image(kinds, within)) if whole else none), old_key


def _null_key(changes: Changes) -> Column:
    null = F.lit(False)
    for name in changes.key:
        null = null | F.col(quoted(name)).isNull()
    held = changes.rows.schema[changes.before].dataType if changes.before in changes.rows.columns else None
    if isinstance(held, T.StructType) and set(changes.key) <= set(held.names):
        # a deleted row may be there as `before` alone
        old = F.lit(False)
        for name in changes.key:
            old = old | F.col(f"{quoted(changes.before)}.{quoted(name)}").isNull()
        there = F.col(quoted(changes.before)).isNotNull()
        null = F.when(there & (F.col(quoted(changes.op)) == "d"), old).when(there, old | null).otherwise(null)
    return null


def _check(changes: Sequence[Changes]) -> None:
    if not changes:
        raise PublishError("a version needs a table", hint="name one")
    tables = [c.table for c in changes]
    for c in changes:
        if c.table.count(".") != 1 or not all(c.table.split(".")):
            raise PublishError("a table is named schema.table", table=c.table)
        if tables.count(c.table) > 1:
            raise PublishError("a table stands twice in one version", table=c.table)
        if c.rows.isStreaming:
            raise PublishError(
                "a stream is published batch by batch", table=c.table,
                hint="write it with `rows.writeStream.format('headrace')`, or call this inside `foreachBatch`",
            )  # fmt: skip
        check_columns(c.schema, c.table, c.key)


def _check_operations(rows: DataFrame, table: str) -> None:
    bad = rows.where(F.col("op").isNull() | ~F.col("op").isin(*OPERATIONS)).limit(1).collect()
    if bad:
        raise PublishError("an operation is none of c, u, d, r", table=table, op=bad[0]["op"], key=bad[0]["key"])
    null = rows.where("null_key").limit(1).collect()
    if null:
        raise PublishError("a key is NULL", table=table, key=null[0]["key"], hint="leave such rows out")


def _check_order(net: DataFrame, changes: Changes) -> None:
    twice = net.where("places < n").orderBy("key").limit(SHOWN).collect()
    if twice:
        listed = "; ".join(f"{r['key']} ({r['n']} times)" for r in twice)
        hint = (
            "name columns under `order` that tell which came later" if not changes.order else "add a column to `order`"
        )
        raise PublishError(f"nothing tells the order of several changes of a key: {listed}", table=changes.table,
                           hint=hint)  # fmt: skip
