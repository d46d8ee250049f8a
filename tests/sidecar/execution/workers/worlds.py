"""A world of tables and views, run by workers: what they publish is checked against the twin as one dataflow's is."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

import numpy as np
import pyarrow as pa

from headrace.connectors.changes import TableChanges, lanes
from headrace.engine.batch.gather_rows import take_rows
from headrace.engine.batch.updates import Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.sidecar.execution.workers.channel import Channel, moved
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.kept_rows import KeptRows, hashes_of
from headrace.sidecar.execution.workers.worker import Task
from headrace.sidecar.transactions.references import KeptRun, referring
from tests.engine.dataflow.pairs import Pair, World
from tests.reference.dataflow import TwinTable
from tests.sidecar.execution.workers.threads import Threads


class Shared(World):
    """The world's views, whose tables' changes go to so many shards."""

    def __init__(self, world: World, count: int) -> None:
        super().__init__(world.schemas, world.shape, world.ops)
        self.twins = {name: TwinTable(name, schema, list(self.ops[name])) for name, schema in self.schemas.items()}
        self.build()
        columns = {name: view.real.schema for name, view in self.views.items()}
        self._folder = TemporaryDirectory()
        task = Task(self._built, Path(self._folder.name))
        self.workers = Workers(Threads(count, task), self.schemas, columns)

    def _built(self, flow: Dataflow) -> dict[str, Collection]:
        tables = {n: Pair(flow.table(n, s), self.twins[n]) for n, s in self.schemas.items()}
        return {n: v.real for n, v in self.shape(tables).items()}

    def hand(self, table: str, changes: Upserts) -> None:
        self.workers.push(table, changes)

    def compact(self, since: int) -> None:
        self.workers.advance_since(since)
        self.workers.exert(100)

    def step(self, upper: int) -> None:
        self.workers.step(upper)
        for name, output in self.workers.outputs.items():
            rows, errors = output.take()
            if len(rows) or len(errors):
                self.seen[name].append((rows, errors))

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.workers.close()
        self._folder.cleanup()


_KEPT: dict[int, list[KeptRows]] = {}


@dataclass(frozen=True)
class Lends:
    """What a worker is told to read: nothing; the test puts rows into what it keeps."""

    world: int

    def __call__(self, channel: Channel, kept: KeptRows, scratch: Path) -> None:
        _KEPT[self.world].append(kept)
        moved([channel], lambda: not channel.arrived, lambda: None)


class Kept(Shared):
    """The same, where the workers have read the rows: every run of some rows is kept by some worker, whatever their keys."""

    def __init__(self, world: World, count: int) -> None:
        super().__init__(world, count)
        _KEPT[id(self)] = []
        self._guests = self.workers.begin_intake("lends", Lends(id(self)))
        until = time.monotonic() + 20
        while len(_KEPT[id(self)]) < count:
            assert time.monotonic() < until, "a worker does not begin"
            time.sleep(0.001)
        self._held: list[KeptRun] = []
        self._draw = random.Random(count)

    def hand(self, table: str, changes: Upserts) -> None:
        if not len(changes):
            return
        kept = _KEPT[id(self)]
        runs = np.array([self._draw.randrange(2 * len(kept)) for _ in range(len(changes))], np.int64)
        rows: list[pa.RecordBatch] = []
        order: list[np.ndarray] = []
        for run in range(2 * len(kept)):
            if len(at := np.flatnonzero(runs == run)):
                rows.append(self._keep(table, changes, at, kept[run % len(kept)]))
                order.append(at)
        together = pa.concat_batches(rows)
        references = take_rows(together, np.argsort(np.concatenate(order)))
        self.workers.push(table, Upserts(references, changes.epochs, changes.kinds, {}, changes.fill_from))

    def _keep(self, table: str, changes: Upserts, at: np.ndarray, kept: KeptRows) -> pa.RecordBatch:
        size = len(at)
        run = TableChanges(
            table, table, 0, take_rows(changes.rows, at), changes.kinds[at], np.arange(size), lanes(size), lanes(size),
            lanes(size), lanes(size), np.zeros(size, np.uint8), np.ones(size, np.bool_), lanes(size),
            {c: mask[at] for c, mask in changes.unchanged.items()},
        )  # fmt: skip
        hashes = hashes_of(run, self.schemas[table])
        number = kept.keep(run, hashes[0])
        self._held.append(self.workers.rows.kept.refer(number))
        return referring(number, size, *hashes)

    def step(self, upper: int) -> None:
        super().step(upper)
        self._held.clear()

    def check_let_go(self) -> None:
        """Nothing is kept that was taken in."""
        self.workers.exert(1)
        self.workers.facts()
        assert [len(kept) for kept in _KEPT[id(self)]] == [0] * len(_KEPT[id(self)])

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._guests.close()
        super().__exit__(kind, error, at)
        del _KEPT[id(self)]
