"""Workers on Spark, 1, 2 and 4 of them: what the busiest uses of a processor for the same rows.

Three pools stand side by side on one standalone Spark and take the same transactions turn by turn; their outputs must be the
same bytes. The driver deals rows out by primary key, and the views need them by other columns, so that workers exchange most
rows. A rate is of processor time, the worker's whole process, so four workers may share two cores. Writes
build/bench/spark-scaling.json. Run it as `make bench-spark-scaling`.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.kernels import warm
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.pool import Maker
from headrace.sidecar.execution.workers.worker import Task
from headrace.sidecar.wiring.worker_pools import make_pool
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_views
from headrace.views.spec import ViewSpec
from tests.bench.bench_sql import Feed, read_by
from tests.bench.peers.columns import mixed
from tests.bench.report import FOLDER, Row, publish, row
from tests.bench.spark_cluster import end_session, engine_on, settings_with, standalone
from tests.oracle.test_tpch import schema_of
from tests.oracle.tpch.rows import tables
from tests.oracle.tpch.trial import compiled
from tests.views.tpch import QUERIES, TABLES

COUNTS = (1, 2, 4)
GOALS = {2: 1.8, 4: 3.2}
"""Workers → how many times the rate of one theirs is to be."""
SLOTS = 8
ONE = "one worker"
EPOCH, EPOCHS, WARM = 500_000, 8, 2
"""Rows of a transaction of count and join, how many are measured, and how many come before them."""
KEYS = 1_000_000
PLACES = 2_000_000
SF, LOADED = 0.1, 50_000
"""TPC-H's scale, and the rows of a transaction while its tables are filled."""
CHOSEN = (1, 3, 5, 6, 9, 18)

FACTS = Schema.of([Column("id", BIGINT, False), Column("key", BIGINT, False)], ["id"])
PLACED = Schema.of([Column("id", BIGINT, False), Column("key", BIGINT, False), Column("value", BIGINT, False)], ["id"])

Changes = Mapping[str, Upserts]


class Session(NamedTuple):
    """What all pools do: `plans`, fed with what `epoch` gives for 0 … `count` - 1, the first `warm` of which are not measured."""

    name: str
    plans: Plans
    count: int
    warm: int
    epoch: Callable[[int], Changes]


def upserts(schema: Schema, epoch: int, *lanes: np.ndarray) -> Upserts:
    """Rows of whole numbers that come in one epoch."""
    rows = pa.RecordBatch.from_arrays([pa.array(lane) for lane in lanes], schema=schema.arrow)
    return Upserts(rows, np.full(len(rows), epoch), np.full(len(rows), UPSERT, np.uint8))


def _plans(sql: str, known: Mapping[str, Schema]) -> Plans:
    views = compile_views([ViewSpec("v", sql)], Catalog(dict(known)))
    return Plans.of(views, known, {"v"})


def _scattered(ids: np.ndarray, whole: int) -> np.ndarray:
    keys: np.ndarray = (mixed(ids.astype(np.uint64)) % np.uint64(whole)).view(np.int64)
    return keys


def counting(scale: float) -> Session:
    """Rows counted by a column: each transaction brings new ones."""
    size, whole = max(int(EPOCH * scale), 1000), max(int(KEYS * scale), 1000)

    def epoch(at: int) -> Changes:
        ids = np.arange(at * size, (at + 1) * size)
        return {"public.facts": upserts(FACTS, at, ids, _scattered(ids, whole))}

    plans = _plans("select key, count(*) as n from facts group by key", {"public.facts": FACTS})
    return Session(f"count, transactions of {size:,}", plans, WARM + EPOCHS, WARM, epoch)


def joining(scale: float) -> Session:
    """Rows joined with four times as many, which come first; neither table is kept by what it is joined by."""
    size, whole = max(int(EPOCH * scale), 1000), max(int(PLACES * scale), 4000)
    parts = -(-whole // size)

    def epoch(at: int) -> Changes:
        if at < parts:
            ids = np.arange(at * size, min((at + 1) * size, whole))
            return {"public.places": upserts(PLACED, at, ids, ids * 7919 % whole, ids % 1000)}
        ids = np.arange((at - parts) * size, (at - parts + 1) * size)
        return {"public.facts": upserts(FACTS, at, ids, _scattered(ids, whole))}

    known = {"public.facts": FACTS, "public.places": PLACED}
    plans = _plans("select f.id, p.value from facts f join places p on p.key = f.key", known)
    name = f"join, transactions of {size:,} with {whole:,} rows"
    return Session(name, plans, parts + WARM + EPOCHS, parts + WARM, epoch)


def tpch(numbers: Sequence[int], scale: float, batch: int) -> Session:
    """Queries of TPC-H as views of one dataflow, while their tables are filled in one random order."""
    views = compiled({n: QUERIES[n] for n in numbers})
    names = [table for table in TABLES if any(table in read_by(view) for view in views)]
    feed = Feed(tables(SF * scale), names)

    def epoch(at: int) -> Changes:
        found = feed.within(at * batch, min((at + 1) * batch, feed.total), at)
        return {f"public.{table}": some for table, some in found.items()}

    plans = Plans.of(views, {f"public.{table}": schema_of(table) for table in names}, {v.name for v in views})
    said = f"Q{numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} views together"
    name = f"TPC-H {said}, SF {SF * scale:g}, transactions of {batch:,}"
    count = -(-feed.total // batch)
    return Session(name, plans, count, min(WARM, count - 1), epoch)


class Side:
    """One pool, and what its workers have used of a processor since `begin`."""

    def __init__(self, maker: Maker, count: int, session: Session, folder: Path) -> None:
        plans = session.plans
        self.count = count
        self.workers = Workers.start(count, Task(plans, folder), plans.tables, plans.schemas, maker=maker)
        self._before: Sequence[float] = [0.0] * count

    def take(self, changes: Changes, epoch: int) -> str:
        """One transaction through; what the views have put out, in short."""
        for table, some in changes.items():
            self.workers.push(table, some)
        self.workers.step(epoch + 1)
        told = hashlib.sha256()
        for name in sorted(self.workers.outputs):
            rows, errors = self.workers.outputs[name].take()
            assert not len(errors), f"{name} is in error"
            if len(rows):
                told.update(rows.rows.serialize())
                told.update(rows.diffs.tobytes())
        self.workers.advance_since(epoch)
        return told.hexdigest()

    def begin(self) -> None:
        """Count from here."""
        self._before = list(self.workers.cpu_seconds)

    @property
    def used(self) -> list[float]:
        """Seconds, by worker."""
        return [now - then for now, then in zip(self.workers.cpu_seconds, self._before, strict=True)]


def contest(maker: Maker, session: Session, folder: Path) -> tuple[int, dict[int, list[float]]]:
    """Rows that were measured, and what each worker used, by count of workers. Raises AssertionError for other outputs."""
    total = 0
    with ExitStack() as undo:
        sides = []
        for count in COUNTS:
            sides.append(Side(maker, count, session, folder / f"{count}"))
            undo.callback(sides[-1].workers.close)
        for epoch in range(session.count):
            if epoch == session.warm:
                for side in sides:
                    side.begin()
            changes = session.epoch(epoch)
            total += sum(len(some) for some in changes.values()) if epoch >= session.warm else 0
            told = {side.take(changes, epoch) for side in (sides if epoch % 2 else reversed(sides))}
            assert len(told) == 1, f"{session.name}: the views differ after transaction {epoch}"
        return total, {side.count: side.used for side in sides}


def measured(name: str, rows: int, used: Mapping[int, Sequence[float]]) -> Iterator[Row]:
    """The rates of more workers beside that of one: of the busiest, and of all together, which tells exchange from imbalance."""
    one = rows / max(used[1])
    for count, goal in GOALS.items():
        yield row(f"{name}: {count} workers, processor time of the busiest", "rows/s", rows / max(used[count]), goal * one,
                  peer=ONE, peer_value=one)  # fmt: skip
        yield row(f"{name}: {count} workers, processor time of all", "rows/s", rows / sum(used[count]),
                  peer=ONE, peer_value=one)  # fmt: skip


def sessions(scale: float, batch: int) -> Mapping[str, Callable[[], Session]]:
    """By the name that `--only` knows."""
    found: dict[str, Callable[[], Session]] = {"count": lambda: counting(scale), "join": lambda: joining(scale)}
    for number in CHOSEN:
        found[f"q{number}"] = partial(tpch, [number], scale, batch)
    return {**found, "tpch": lambda: tpch(CHOSEN, scale, batch)}


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows; 1 is the full size")
    parser.add_argument("--batch", type=int, default=LOADED, help="rows of a transaction that fills TPC-H's tables")
    parser.add_argument("--only", nargs="*", default=[], help="of count, join, q1, q3, q5, q6, q9, q18, tpch")
    chosen = parser.parse_args()
    warm()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as text, ExitStack() as undo:
        folder = Path(text)
        master = undo.enter_context(standalone(folder, SLOTS))
        maker = make_pool(settings_with(engine_on(master, max(COUNTS), SLOTS), folder), 1)
        undo.callback(end_session)
        for name, made in sessions(chosen.scale, chosen.batch).items():
            if not chosen.only or name in chosen.only:
                session = made()
                rows += measured(session.name, *contest(maker, session, folder / name))
    given = [] if chosen.scale == 1 else [f"--scale {chosen.scale:g}"]
    given += [] if chosen.batch == LOADED else [f"--batch {chosen.batch}"]
    given += [f"--only {' '.join(chosen.only)}"] if chosen.only else []
    publish("spark-scaling", rows, folder=FOLDER / "partial" if given else FOLDER, arguments=" ".join(given))


if __name__ == "__main__":
    main()
