"""A dataflow and its naive twin built side by side, fed alike and compared epoch by epoch. Called by the tests here."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import Batch
from headrace.engine.batch.keys import fingerprint
from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, TRUNCATE, UPSERT, Updates, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.operators.expressions.core.ir import Aggregate, Expr
from headrace.engine.operators.top import Order
from headrace.engine.recursion.late import LATE
from headrace.engine.schema import DataType, Kind, Schema
from tests.reference import partners, top
from tests.reference.dataflow import NaiveAggregate, Op, Row, Twin, TwinTable

Fn = Callable[[Row], Any]


@dataclass(frozen=True)
class Both:
    """An expression and what it means."""

    expr: Expr
    fn: Fn


@dataclass(frozen=True)
class Agg:
    """An aggregate and its twin."""

    real: Aggregate
    naive: NaiveAggregate


@dataclass(frozen=True)
class Pair:
    """A collection and its twin."""

    real: Collection
    twin: Twin

    def project(self, exprs: Sequence[Both], schema: Schema) -> Pair:
        return Pair(
            self.real.project([e.expr for e in exprs], schema), self.twin.project([e.fn for e in exprs], schema)
        )

    def filter(self, predicate: Both) -> Pair:
        return Pair(self.real.filter(predicate.expr), self.twin.filter(predicate.fn))

    def concat(self, *others: Pair) -> Pair:
        return Pair(self.real.concat(*(o.real for o in others)), self.twin.concat(*(o.twin for o in others)))

    def negate(self) -> Pair:
        return Pair(self.real.negate(), self.twin.negate())

    def join(self, other: Pair, lk: Sequence[int], rk: Sequence[int], residual: Both | None = None) -> Pair:
        expr, fn = (None, None) if residual is None else (residual.expr, residual.fn)
        return Pair(self.real.join(other.real, lk, rk, expr), self.twin.join(other.twin, lk, rk, fn))

    def reduce(self, key: Sequence[int], aggregates: Sequence[Agg], schema: Schema) -> Pair:
        return Pair(
            self.real.reduce(key, [a.real for a in aggregates], schema),
            self.twin.reduce(key, [a.naive for a in aggregates], schema),
        )

    def distinct(self) -> Pair:
        return Pair(self.real.distinct(), self.twin.distinct())

    def at_least(self, copies: int) -> Pair:
        return Pair(self.real.at_least(copies), partners.at_least(self.twin, copies))

    def count(self) -> Pair:
        return Pair(self.real.count(), partners.count(self.twin))

    def semijoin(self, other: Pair, lk: Sequence[int], rk: Sequence[int]) -> Pair:
        twin = partners.partners(self.twin, other.twin, lk, rk, among=True)
        return Pair(self.real.semijoin(other.real, lk, rk), twin)

    def antijoin(self, other: Pair, lk: Sequence[int], rk: Sequence[int]) -> Pair:
        twin = partners.partners(self.twin, other.twin, lk, rk, among=False)
        return Pair(self.real.antijoin(other.real, lk, rk), twin)

    def left_join(self, other: Pair, lk: Sequence[int], rk: Sequence[int]) -> Pair:
        return Pair(self.real.left_join(other.real, lk, rk), partners.left_join(self.twin, other.twin, lk, rk))

    def top_k(self, key: Sequence[int], order: Sequence[Order], limit: int, offset: int = 0) -> Pair:
        schema = self.real.schema

        def tie(row: Row) -> tuple[int, int]:
            null = bool(order) and row[order[0].column] is None
            columns = [pa.array([value_of(v, c.type)], c.type.arrow) for v, c in zip(row, schema.columns, strict=True)]
            flagged = pa.RecordBatch.from_arrays(
                [*columns, pa.array([null])], names=[str(k) for k in range(len(row) + 1)]
            )
            high, low = fingerprint(flagged)
            return int(high[0]), int(low[0])

        return Pair(self.real.top_k(key, order, limit, offset), top.top_k(self.twin, key, order, limit, offset, tie))

    def check_key(self, key: Sequence[int], view: str) -> Pair:
        names = ", ".join(self.real.schema.columns[k].name for k in key)

        def message(values: Row) -> str:
            shown = ", ".join("null" if v is None else str(v) for v in values)
            return f"view {view}: more than one row for the key ({names}) = ({shown})"

        return Pair(self.real.check_key(key, view), self.twin.check_key(key, message))


Shape = Callable[[Mapping[str, Pair]], Mapping[str, Pair]]
"""Builds views over tables."""


class World:
    """Tables, views over them, and the twin's history, to be run in any cut of steps."""

    def __init__(self, schemas: Mapping[str, Schema], shape: Shape, ops: Mapping[str, Sequence[Op]]) -> None:
        self.schemas = schemas
        self.shape = shape
        self.ops = ops
        self.end = 1 + max((o.epoch for some in ops.values() for o in some), default=0)
        self.twins = {name: TwinTable(name, schema, list(ops[name])) for name, schema in schemas.items()}
        self.flow = Dataflow()
        self.views: dict[str, Pair] = {}
        self.outputs: dict[str, Output] = {}
        self.seen: dict[str, list[tuple[Updates, Updates]]] = {}

    def tables(self) -> dict[str, Pair]:
        return {n: Pair(self.flow.table(n, s), self.twins[n]) for n, s in self.schemas.items()}

    def build(self) -> None:
        self.views = dict(self.shape(self.tables()))
        self.outputs = {n: v.real.output(n) for n, v in self.views.items()}
        for name in self.views:
            self.seen.setdefault(name, [])

    def push(self, start: int, stop: int) -> None:
        """Hand in the ops of start ≤ epoch < stop."""
        for name, some in self.ops.items():
            at = [i for i, o in enumerate(some) if start <= o.epoch < stop]
            if at:
                self.hand(name, upserts(self.schemas[name], some, at))

    def hand(self, table: str, changes: Upserts) -> None:
        """Where a table's changes go."""
        self.flow.push(table, changes)

    def compact(self, since: int) -> None:
        """Give up the past before `since`, and merge some."""
        self.flow.advance_since(since)
        self.flow.exert(100)

    def step(self, upper: int) -> None:
        self.flow.step(upper)
        for name, output in self.outputs.items():
            self.seen[name].append(output.take())

    def restart(self) -> None:
        """A new process with the same views, from what a checkpoint holds."""
        frontier = self.flow.frontier
        batches: dict[str, Sequence[Batch]] = {n: a.spine.batches() for n, a in self.flow.arrangements().items()}
        self.flow = Dataflow(self.flow.shard)
        if frontier % 2:
            self.build()
            self.flow.restore(frontier, batches)
        else:
            self.flow.restore(frontier, batches)
            self.build()

    def run(
        self,
        cuts: Sequence[int],
        *,
        start: int = 0,
        restart_after: int | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Step through the history from `start` on; `cuts`: uppers, ascending. With `rng` the past is given up at random."""
        last = start
        for upper in cuts:
            self.push(last, upper)
            self.step(upper)
            last = upper
            if rng is not None and rng.random() < 0.5:
                self.compact(rng.randrange(upper + 1))
            if restart_after == upper:
                self.restart()

    def check_changes(self, start: int = 0) -> None:
        for name, pair in self.views.items():
            got: dict[int, tuple[Counter[Any], Counter[Any]]] = {}
            for rows, errors in self.seen[name]:
                for side, updates in enumerate((rows, errors)):
                    for t, row, d in triples(updates, pair.real.schema if side == 0 else None):
                        counter = got.setdefault(t, (Counter(), Counter()))[side]
                        assert row not in counter, f"{name}: {row} at {t} is not consolidated"
                        counter[row] = d
            for epoch in range(start, self.end):
                rows, errors = pair.twin.delta(epoch)
                mine = got.pop(epoch, (Counter(), Counter()))
                assert dict(mine[0]) == rows, f"{name} rows at {epoch}"
                assert dict(mine[1]) == errors, f"{name} errors at {epoch}"
            assert not got, f"{name}: changes at epochs that never were"

    def check_unless_late(self, epochs: Sequence[int], twin_at: int | None = None) -> None:
        """What was put out adds up to what is held, and to the twin's content, unless that is marked as late.

        `twin_at`: all is back, and the content is that of the twin at this epoch.
        """
        for name, pair in self.views.items():
            for epoch in epochs:
                held: list[Counter[Any]] = []
                for side, updates in enumerate(pair.real.snapshot(epoch)):
                    schema = None if side else pair.real.schema
                    held.append(Counter({row: d for _, row, d in triples(updates, schema)}))
                    put_out: Counter[Any] = Counter()
                    for sides in self.seen[name]:
                        for t, row, d in triples(sides[side], schema):
                            put_out[row] += d if t <= epoch else 0
                    assert {r: n for r, n in put_out.items() if n} == held[-1], f"{name} at {epoch}"
                if twin_at is None and any(text.startswith(LATE) for text in held[1]):
                    continue
                assert tuple(held) == pair.twin.at(epoch if twin_at is None else twin_at), f"{name} at {epoch}"

    def check_snapshots(self, epochs: Sequence[int]) -> None:
        for name, pair in self.views.items():
            for epoch in epochs:
                rows, errors = pair.real.snapshot(epoch)
                mine = Counter({row: d for _, row, d in triples(rows, pair.real.schema)})
                theirs = Counter({row: d for _, row, d in triples(errors, None)})
                twin_rows, twin_errors = pair.twin.at(epoch)
                assert mine == twin_rows, f"{name} at {epoch}"
                assert theirs == twin_errors, f"{name} errors at {epoch}"


def triples(updates: Updates, schema: Schema | None) -> list[tuple[int, Any, int]]:
    """(time, row of images, diff); an error's row is its message."""
    columns = [column.to_pylist() for column in updates.rows.columns]
    if schema is None:
        rows: list[Any] = columns[0]
    else:
        images = [[image(v, c.type) for v in col] for c, col in zip(schema.columns, columns, strict=True)]
        rows = list(zip(*images, strict=True)) if images else [()] * len(updates)
    return list(zip(updates.times.tolist(), rows, updates.diffs.tolist(), strict=True))


def image(value: Any, kind: DataType) -> Any:
    if value is not None and kind.kind in (Kind.REAL, Kind.DOUBLE):
        return repr(value)
    return value


def value_of(image: Any, kind: DataType) -> Any:
    return float(image) if image is not None and kind.kind in (Kind.REAL, Kind.DOUBLE) else image


def upserts(schema: Schema, ops: Sequence[Op], at: Sequence[int]) -> Upserts:
    """The ops at these places as upserts; columns not sent hold null."""
    place = {p: i for i, p in enumerate(at)}
    columns = []
    for c, column in enumerate(schema.columns):
        values = [None if c in ops[p].unchanged or ops[p].kind == TRUNCATE else ops[p].row[c] for p in at]
        columns.append(pa.array([value_of(v, column.type) for v in values], column.type.arrow))
    touched = sorted({c for p in at for c in ops[p].unchanged})
    fills = np.array([place.get(ops[p].fill_from, -1) for p in at], np.int64)
    return Upserts(
        pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        np.array([ops[p].epoch for p in at], np.int64),
        np.array([ops[p].kind for p in at], np.uint8),
        {c: np.array([c in ops[p].unchanged for p in at]) for c in touched},
        fills if (fills >= 0).any() else None,
    )


def cuts_of(rng: random.Random, end: int) -> list[int]:
    """A random cut of [0, end) into steps."""
    inner = [e for e in range(1, end) if rng.random() < 0.4]
    return [*inner, end]


Draw = Callable[[random.Random], Row]


def keyed_ops(rng: random.Random, draw: Draw, schema: Schema, epochs: int, rate: int) -> list[Op]:
    """Random upserts, deletes, truncates, unchanged columns and key changes."""
    ops: list[Op] = []
    key = schema.key
    assert key is not None
    others = [c for c in range(len(schema.columns)) if c not in key]
    for epoch in range(epochs):
        for _ in range(rng.randrange(rate + 1)):
            what = rng.random()
            row = draw(rng)
            if what < 0.03:
                ops.append(Op(epoch, TRUNCATE, row))
            elif what < 0.25:
                ops.append(Op(epoch, DELETE, row))
            elif what < 0.35 and others:
                ops.append(Op(epoch, UPSERT, row, frozenset(rng.sample(others, 1 + rng.randrange(len(others))))))
            elif what < 0.42 and others:
                ops.append(Op(epoch, DELETE, row))
                if rng.random() < 0.5:
                    ops.append(Op(epoch, UPSERT, draw(rng)))
                    fill = len(ops) - 2
                else:
                    fill = len(ops) - 1
                ops.append(Op(epoch, UPSERT, draw(rng), frozenset(rng.sample(others, 1)), fill))
            else:
                ops.append(Op(epoch, UPSERT, row))
    return ops


def keyless_ops(rng: random.Random, draw: Draw, epochs: int, rate: int) -> list[Op]:
    """Random inserts, retractions (mostly of rows that are there) and truncates."""
    ops: list[Op] = []
    live: list[Row] = []
    for epoch in range(epochs):
        for _ in range(rng.randrange(rate + 1)):
            what = rng.random()
            if what < 0.03:
                ops.append(Op(epoch, TRUNCATE, draw(rng)))
                live = []
            elif what < 0.35 and live:
                ops.append(Op(epoch, RETRACT, live.pop(rng.randrange(len(live)))))
            elif what < 0.4:
                ops.append(Op(epoch, RETRACT, row := draw(rng)))
                if row in live:
                    live.remove(row)
            else:
                live.append(row := draw(rng))
                ops.append(Op(epoch, INSERT, row))
    return ops
