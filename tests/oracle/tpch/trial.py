"""TPC-H's 22 views on trial: kept by one dataflow through a history, and asked of a Postgres to which the same transactions
are applied; equal at every tenth frontier and the last.

Always: both have the same rows at each comparison; the steps of the dataflow are cut at random. Called by the command and its
test.
"""

from __future__ import annotations

import io
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Dataflow, Output
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_views
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from tests.oracle.test_tpch import answer, columns_of, schema_of
from tests.oracle.test_views import Rows, add
from tests.oracle.tpch.history import History
from tests.views.tpch import QUERIES, TABLES

INDEXES = ("lineitem (l_partkey, l_suppkey)", "orders (o_custkey)", "partsupp (ps_suppkey)", "customer (c_nationkey)")
"""For Postgres alone: without them the oracle takes longer than all else."""

EVERY = 10


@dataclass
class Kept:
    """One view: what it holds, and what became of it. `asked`: seconds that Postgres took."""

    view: CompiledView
    output: Output
    rows: Rows = field(default_factory=Counter)
    errors: Rows = field(default_factory=Counter)
    changes: int = 0
    compared: int = 0
    asked: float = 0.0
    different: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Frontier:
    """A comparison: at `epoch`, after `changes` rows changed since the last one, which cost us `seconds`."""

    epoch: int
    changes: int
    seconds: float


def compiled(queries: dict[int, str] = QUERIES) -> tuple[CompiledView, ...]:
    """The views."""
    catalog = Catalog({f"public.{t}": schema_of(t) for t in TABLES})
    return compile_views([ViewSpec(f"q{n}", sql) for n, sql in queries.items()], catalog)


def flow_of(views: tuple[CompiledView, ...]) -> tuple[Dataflow, dict[str, Output]]:
    """A dataflow of all tables and these views."""
    flow = Dataflow()
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    return flow, {v.name: render(v, flow, {}).output(v.name) for v in views}


class Trial:
    """One run of `queries` over `history`, in the database of `connection`, which is empty."""

    def __init__(
        self, connection: psycopg.Connection, history: History, seed: int, queries: dict[int, str] = QUERIES
    ) -> None:
        views = compiled(queries)
        self._flow, outputs = flow_of(views)
        self.kept = {v.name: Kept(v, outputs[v.name]) for v in views}
        self._history = history
        self._random = np.random.default_rng(seed)
        self._connection = connection
        for table in TABLES:
            columns = ", ".join(f"{n} {t} not null" for n, t in columns_of(table))
            connection.execute(f"create table {table} ({columns}, primary key ({', '.join(TABLES[table][1])}))")
        for index in INDEXES:
            connection.execute(f"create index on {index}")
        for view in views:
            connection.execute(f"create view {view.name} as {view.spec.sql}")

    def run(self) -> Iterator[Frontier]:
        """Each comparison as it was made."""
        lower = 0
        while lower < self._history.epochs:
            upper = min(lower + EVERY, self._history.epochs)
            for epoch in range(lower, upper):
                self._apply(epoch)
            spent = time.process_time()
            self._step(lower, upper)
            spent = time.process_time() - spent
            self._compare(upper - 1)
            yield Frontier(upper - 1, self._history.count(lower, upper), spent)
            lower = upper

    def _step(self, lower: int, upper: int) -> None:
        while lower < upper:
            until = int(self._random.integers(lower, upper)) + 1
            for table in TABLES:
                some = self._history.within(table, lower, until)
                if some is not None:
                    self._flow.push(f"public.{table}", some)
            self._flow.step(until)
            self._flow.advance_since(until - 1)
            lower = until

    def _apply(self, epoch: int) -> None:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            for table in TABLES:
                some = self._history.within(table, epoch, epoch + 1)
                if some is not None:
                    write(cursor, table, some)

    def _compare(self, epoch: int) -> None:
        if epoch < EVERY:  # so that it plans for tables that are not empty
            self._connection.execute(f"analyze {', '.join(TABLES)}")
        for name, kept in self.kept.items():
            good, bad = kept.output.take()
            kept.changes += len(good)
            add(kept.rows, kept.errors, (good, bad), kept.view.schema)
            kept.rows = Counter({row: n for row, n in kept.rows.items() if n})
            began = time.perf_counter()
            theirs = answer(self._connection, name)
            kept.asked += time.perf_counter() - began
            kept.compared += 1
            failing = [m[0] for m, n in kept.errors.items() if n]
            if failing:
                kept.different.append(f"epoch {epoch}: {failing[0]}")
            elif kept.rows != theirs:
                kept.different.append(
                    f"epoch {epoch}: ours alone {_some(kept.rows, theirs)}, Postgres alone {_some(theirs, kept.rows)}"
                )


def write(cursor: psycopg.Cursor, table: str, changes: Upserts) -> None:
    """Apply one transaction's changes of a table."""
    going = np.flatnonzero(changes.kinds != UPSERT)
    if len(going):
        key = TABLES[table][1]
        gone = changes.rows.select(list(key)).take(pa.array(going))
        listed = ", ".join(["unnest(%s::int[])"] * len(key))
        values = [column.to_pylist() for column in gone.columns]
        cursor.execute(f"delete from {table} where ({', '.join(key)}) in (select {listed})", values)
    if len(going) == len(changes):
        return
    coming = changes.rows.filter(pc.equal(pa.array(changes.kinds), UPSERT))
    text = io.BytesIO()
    pa.csv.write_csv(coming, text, pa.csv.WriteOptions(include_header=False))
    with cursor.copy(f"copy {table} from stdin (format csv)") as copy:
        copy.write(text.getvalue())


def _some(one: Rows, other: Rows, most: int = 3) -> str:
    alone = Counter({row: n - other[row] for row, n in one.items() if n != other[row]})
    return f"{dict(alone.most_common(most))}{f' and {len(alone) - most} more' if len(alone) > most else ''}"
