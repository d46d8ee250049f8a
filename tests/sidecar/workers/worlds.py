"""A world of tables and views, run by workers: what they publish is checked against the twin as one dataflow's is."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from engine.batch.updates import Upserts
from engine.dataflow import Collection, Dataflow
from sidecar.workers.driver import Workers
from sidecar.workers.serving import Task
from tests.engine.dataflow.pairs import Pair, World
from tests.reference.dataflow import TwinTable
from tests.sidecar.workers.threads import Threads


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
