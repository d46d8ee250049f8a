"""Views in SQL: TPC-H's 22 queries beside Postgres's REFRESH MATERIALIZED VIEW, ten views shared and not, and the cost of one
change against the rows that are stored.

Rows are TPC-H's own, in one random order, an epoch and a step a transaction; figures are processor seconds of each side, and
Postgres has the same rows, indexed, one process. Writes build/bench/sql.json. Run it as `make bench-sql`.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import psycopg
import pyarrow as pa

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Dataflow, Output
from headrace.engine.schema import BIGINT, Column, DataType, Schema
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_views
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from tests.bench.peers import pathway
from tests.bench.peers.contest import Side, Unequal
from tests.bench.peers.crate import NAME
from tests.bench.peers.options import Options, options
from tests.bench.peers.tpch import QUERIES as BY_HAND
from tests.bench.peers.tpch import Query
from tests.bench.report import Row, publish, row
from tests.bench.tpch import READS, Table
from tests.bench.tpch import tables as peer_tables
from tests.bench.tpch import write as peer_write
from tests.oracle.test_tpch import columns_of, schema_of
from tests.oracle.test_views import connect
from tests.oracle.tpch.__main__ import SETTINGS
from tests.oracle.tpch.rows import Tables, tables
from tests.oracle.tpch.trial import INDEXES, compiled, write
from tests.views.tpch import QUERIES, TABLES

SCALE = 0.1
LOADED = 10_000
"""Rows a transaction while tables are loaded."""

TAIL = {10_000: 2, 100: 30, 1: 100}
"""Rows a transaction → how many such transactions are timed, once all other rows are there."""

REFRESH = "REFRESH MATERIALIZED VIEW"
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


class Feed:
    """The rows of some tables in one random order, each as a change of its table."""

    def __init__(self, made: Tables, names: list[str]) -> None:
        random = np.random.default_rng(6)
        sizes = [made[n].num_rows for n in names]
        self.total = sum(sizes)
        order = random.permutation(self.total)
        starts = np.cumsum([0, *sizes])
        self._tables: dict[str, tuple[np.ndarray, pa.RecordBatch]] = {}
        for k, name in enumerate(names):
            when = order[starts[k] : starts[k + 1]]
            sorted_ = np.argsort(when)
            self._tables[name] = (when[sorted_], made[name].take(pa.array(sorted_)))

    def within(self, lower: int, upper: int, epoch: int) -> Mapping[str, Upserts]:
        """The changes from place `lower` to `upper`, as one transaction."""
        found = {}
        for name, (when, rows) in self._tables.items():
            first, last = np.searchsorted(when, (lower, upper)).tolist()
            if first < last:
                count = last - first
                kinds = np.full(count, UPSERT, np.uint8)
                found[name] = Upserts(rows.slice(first, count), np.full(count, epoch), kinds)
        return found


class Kept(NamedTuple):
    """A dataflow of some views, and its output ports."""

    flow: Dataflow
    outputs: list[object]

    @classmethod
    def of(cls, views: tuple[CompiledView, ...], names: list[str]) -> Kept:
        """Of these views over these tables."""
        flow = Dataflow()
        for table in names:
            flow.table(f"public.{table}", schema_of(table))
        return cls(flow, [render(v, flow, {}).output(v.name) for v in views])

    def take(self, changes: Mapping[str, Upserts]) -> float:
        """One transaction through; processor seconds."""
        began = time.process_time()
        for table, some in changes.items():
            self.flow.push(f"public.{table}", some)
        upper = self.flow.frontier + 1
        self.flow.step(upper)
        for output in self.outputs:
            output.take()  # type: ignore[attr-defined]
        self.flow.advance_since(upper - 1)
        return time.process_time() - began

    def load(self, feed: Feed, upper: int) -> float:
        """The first `upper` changes, in transactions of LOADED; processor seconds."""
        return sum(
            self.take(feed.within(at, min(at + LOADED, upper), self.flow.frontier)) for at in range(0, upper, LOADED)
        )

    @property
    def bytes(self) -> int:
        """Of all arrangements."""
        return sum(arranged.nbytes for arranged in self.flow.arrangements().values())


def read_by(view: CompiledView) -> list[str]:
    """The tables that a view reads."""
    words = set(view.spec.sql.replace(",", " ").replace(")", " ").split())
    return [table for table in TABLES if table in words]


def refreshes(made: Tables) -> dict[str, float]:
    """Processor seconds of Postgres to refresh each query's materialized view."""
    found = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder), settings=SETTINGS | {"max_parallel_workers_per_gather": "0"}) as postgres,
        connect(postgres, "bench") as connection,
    ):
        for table, rows in made.items():
            columns = ", ".join(f"{n} {t} not null" for n, t in columns_of(table))
            connection.execute(f"create table {table} ({columns}, primary key ({', '.join(TABLES[table][1])}))")
            all_ = Upserts(rows, np.zeros(rows.num_rows, np.int64), np.full(rows.num_rows, UPSERT, np.uint8))
            with connection.cursor() as cursor:
                write(cursor, table, all_)
        for index in INDEXES:
            connection.execute(f"create index on {index}")
        connection.execute(f"vacuum analyze {', '.join(made)}")
        for view in compiled():
            connection.execute(f"create materialized view {view.name} as {view.spec.sql}")
            found[view.name] = min(_refreshed(connection, view.name) for _ in range(2))
    return found


def _refreshed(connection: psycopg.Connection, name: str) -> float:
    backend = psutil.Process(connection.info.backend_pid)
    before = sum(backend.cpu_times()[:2])
    connection.execute(f"refresh materialized view {name}")
    return float(sum(backend.cpu_times()[:2]) - before)


def queries(chosen: Options, made: Tables, scale: float) -> list[Row]:
    """Each query's changes a second: loading, beside the Rust peer; afterwards by size of transaction, beside Postgres."""
    asked, rows = refreshes(made), []
    hand = peer_tables(scale) if chosen.binary is not None else {}
    for view in compiled():
        names = read_by(view)
        feed, kept = Feed(made, names), Kept.of((view,), names)
        at = feed.total - sum(size * times for size, times in TAIL.items())
        assert at > 0, "too small a scale"
        title = f"{view.name.upper()}, SF {scale:g}"
        peer = None
        if chosen.binary is not None and view.name in READS:
            count = peer_write(chosen.data / view.name, hand, view.name)
            side = Side([str(chosen.binary), view.name])
            peer = count / sum(side.ask("run", chosen.data / view.name, LOADED).cpu)
            side.close()
        loaded = at / kept.load(feed, at)
        goal = 0.35 * peer if peer else None
        rows.append(row(f"{title}, loading", "rows/s", loaded, goal, peer=NAME if peer else None, peer_value=peer))
        other = _of_pathway(chosen, view.name, hand)
        if other is not None:
            name = f"{title}, loading, ten times {pathway.NAME}"
            rows.append(row(name, "rows/s", loaded, 10 * other, peer=pathway.NAME, peer_value=other))
        for size, times in TAIL.items():
            spent = []
            for _ in range(times):
                spent.append(kept.take(feed.within(at, at + size, kept.flow.frontier)))
                at += size
            name = f"{title}, transactions of {size:,}"
            theirs = size / max(asked[view.name], 0.01)  # the system counts in hundredths
            goal = theirs if size == LOADED else None
            rows.append(row(name, "rows/s", size / float(np.median(spent)), goal, peer=REFRESH, peer_value=theirs))
    return rows


def _of_pathway(chosen: Options, query: str, hand: Mapping[str, Table]) -> float | None:
    """Rows a processor second that Pathway takes in of the Rust peer's rows; None where it is not built or has no such plan.

    Raises Unequal where its answer is not that of our plan by hand.
    """
    if query not in READS or chosen.binary is None:
        return None
    told = pathway.ask(chosen.data / query, query, LOADED)
    if told is None:
        return None
    ours = Query(next(q for q in BY_HAND if q.__name__ == query))
    ours.run(str(chosen.data / query), LOADED)
    rows = ours.outputs[0].snapshot(ours.flow.frontier - 1)[0].rows
    answer = sorted([v.strip() if isinstance(v, str) else int(v) for v in row.values()] for row in rows.to_pylist())
    if answer != told.answer:
        raise Unequal(f"{query}: {len(answer)} rows, of Pathway's {len(told.answer)} not all the same")
    return told.rows / told.cpu


TEN = (3, 4, 5, 7, 8, 9, 10, 12, 18, 21)
"""Queries over lineitem, orders and what these refer to."""


def sharing(made: Tables, scale: float) -> list[Row]:
    """Ten views in one dataflow and each in its own: bytes, and what the tenth costs to install."""
    views = compiled({n: QUERIES[n] for n in TEN})
    names = [t for t in TABLES if any(t in read_by(v) for v in views)]
    feed = Feed(made, names)
    alone, last = 0, 0.0
    for view in views:
        own = Kept.of((view,), read_by(view))
        last = own.load(Feed(made, read_by(view)), feed.total)
        alone += own.bytes
    shared = Kept.of(views[:-1], names)
    shared.load(feed, feed.total)
    epoch = shared.flow.frontier - 1
    catalog = _catalog()  # stands since the first view
    gc.collect()
    gc.freeze()  # as a sidecar does when it has started

    def install() -> Output:
        (tenth,) = compile_views([views[-1].spec], catalog)
        return render(tenth, shared.flow, {}).output(tenth.name)

    began = time.process_time()
    output = install()
    installed = time.process_time()
    shared.flow.hydrate()
    hydrated = time.process_time()
    output.snapshot(epoch)
    answered = time.process_time()
    again = []
    for _ in range(9):
        shared.flow.drop(output)
        dropped = time.process_time()
        output = install()
        again.append(time.process_time() - dropped)
    title = f"ten views, SF {scale:g}"
    return [
        row(f"{title}, memory, shared : unshared", "", shared.bytes / alone, 1 / 3),
        row(f"{title}, memory, shared", "MB", shared.bytes / 1e6),
        row(f"{title}, tenth, install", "ms", (installed - began) * 1e3, 10.0),
        row(f"{title}, tenth, installed again, p50 of nine", "ms", float(np.median(again)) * 1e3, 10.0),
        row(f"{title}, tenth, its own arrangements", "ms", (hydrated - installed) * 1e3),
        row(f"{title}, tenth, first answer", "ms", (answered - hydrated) * 1e3),
        row(f"{title}, tenth, unshared : install", "×/s", last / (installed - began), 100.0),
        row(f"{title}, tenth, unshared : all of it", "×/s", last / (answered - began)),
    ]


def _catalog() -> Catalog:
    return Catalog({f"public.{t}": schema_of(t) for t in TABLES})


FACTS = Schema.of(
    [Column("id", BIGINT, False), Column("place", BIGINT, False), Column("amount", DataType.parse("numeric(12,2)"))],
    ["id"],
)
PLACES = Schema.of([Column("id", BIGINT, False), Column("region", BIGINT, False)], ["id"])
VIEWS = {
    "a group's sum and count": "select place, sum(amount) as amount, count(*) as n from facts group by place",
    "a join of two, grouped": "select region, sum(amount) as amount from facts f join places p on p.id = f.place group by region",
    "a group's greatest": "select place, max(amount) as amount from facts group by place",
    "the first ten": "select id, amount from facts order by amount desc, id limit 10",
}


def stored(chosen: Options, changes: int = 200) -> list[Row]:
    """One change's cost, an epoch and a step each, over so many rows of one table, by view."""
    rows = []
    catalog = Catalog({"public.facts": FACTS, "public.places": PLACES})
    for title, sql in VIEWS.items():
        (view,) = compile_views([ViewSpec("v", sql)], catalog)
        first = 0.0
        for size in (max(int(s * chosen.scale), 1000) for s in SIZES):
            kept = _filled(view, size)
            random = np.random.default_rng(size)
            spent = [
                kept.take({"facts": _facts(random.integers(0, size, 1), random, kept.flow.frontier)})
                for _ in range(changes)
            ]
            cost = float(np.median(spent)) * 1e6
            first = first or cost
            rows.append(
                row(f"one change, {title}, over {size:,} rows, p50", "µs", cost, None if cost is first else 2 * first)
            )
    return rows


def _filled(view: CompiledView, size: int) -> Kept:
    flow = Dataflow()
    flow.table("public.facts", FACTS)
    flow.table("public.places", PLACES)
    kept = Kept(flow, [render(view, flow, {}).output("v")])
    random = np.random.default_rng(size)
    ids = pa.array(np.arange(1000))
    places = pa.RecordBatch.from_arrays([ids, pa.array(np.arange(1000) % 50)], schema=PLACES.arrow)
    kept.take({"places": Upserts(places, np.zeros(1000, np.int64), np.full(1000, UPSERT, np.uint8))})
    for at in range(0, size, 500_000):
        kept.take({"facts": _facts(np.arange(at, min(at + 500_000, size)), random, flow.frontier)})
    flow.exert(1 << 40)
    return kept


def _facts(ids: np.ndarray, random: np.random.Generator, epoch: int) -> Upserts:
    amounts = pa.array(random.integers(0, 10**8, len(ids))).cast(pa.decimal128(20, 0)).cast(pa.decimal128(38, 2))
    columns = [pa.array(ids), pa.array(ids % 1000), amounts]
    rows = pa.RecordBatch.from_arrays(columns, schema=FACTS.arrow)
    return Upserts(rows, np.full(len(ids), epoch), np.full(len(ids), UPSERT, np.uint8))


def main() -> None:
    """Run all of it."""
    chosen = options("sql", __doc__, rounds=1)
    scale = SCALE * chosen.scale
    made = tables(scale)
    rows = queries(chosen, made, scale) + sharing(made, scale) + stored(chosen)
    publish("sql", rows, folder=chosen.folder, arguments=chosen.arguments)


if __name__ == "__main__":
    main()
