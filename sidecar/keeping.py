"""A dataflow in this process, or one shard of it, with its place in checkpoints, and others that begin beside it.

Always: what `hold` gives writes the state of one moment, whatever was stepped since; a checkpoint of as many shards is
continued as it is, one of another count is dealt out anew by table, and all else is made from the tables. What begins
beside shares every immutable batch. Called by wiring, and by workers, which are one shard each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from engine.batch import Batch
from engine.batch.description import Description
from engine.batch.layout import Layout
from engine.batch.shards import shard_positions
from engine.batch.updates import Updates
from engine.dataflow import Dataflow, Output
from engine.dataflow.exchange import ALONE, Shard
from engine.dataflow.graph import reachable
from engine.dataflow.nodes import Node
from engine.operators.delta import concat, take
from engine.schema import Schema
from engine.trace.lookup import content
from sidecar.allocators import give_back
from sidecar.batches import BatchStore, CheckpointError, Files, load_batches
from sidecar.flow import ArrangementFacts, Build, Change, Flow, WorkerFacts

Held = Mapping[str, Sequence[Batch]]
"""The batches of each arrangement."""


class KeptDataflow(Dataflow):
    """A dataflow whose batches go to `store`. `outputs`: by view. Single writer: the loop that owns it."""

    def __init__(self, store: BatchStore, shard: Shard = ALONE) -> None:
        super().__init__(shard)
        self.outputs: Mapping[str, Output] = {}
        self._store = store
        self.registry.place = store.placed

    @property
    def count(self) -> int:
        """Of how many shards this is one."""
        return self.shard.count

    def build(self, build: Build, views: Mapping[str, Schema]) -> None:  # noqa: ARG002
        """As `Flow.build`."""
        self.outputs = {name: collection.output(name) for name, collection in build(self).items()}

    def hydrating(self) -> Iterator[tuple[int, int]]:
        """As `Flow.hydrating`: the updates are those that nodes are computed from."""
        weights = {node: _rows_before(node) for node in self.unhydrated()}
        done, of = 0, sum(weights.values())
        for node in self.filling():
            yield done, of
            done += weights.get(node, 0)

    def beside(self, shard: Shard = ALONE) -> Callable[[], KeptDataflow]:
        """As `Flow.beside`; `shard`: how those that begin beside all shards meet."""
        tables = {name: node.schema for name, node in self._tables.items()}
        return partial(_begun, self._store, shard, tables, self.frontier, self.held())

    def change(self, change: Change, beside: Flow | None) -> None:
        """As `Flow.change`."""
        assert beside is None or isinstance(beside, KeptDataflow), "it began beside this one"
        self.changed(change, {} if beside is None else beside.held())

    def changed(self, change: Change, held: Held) -> None:
        """Change the plans, of which `held` is computed already."""
        self.adopt(held)
        made, before = change.build(self), self.outputs
        self.outputs = {n: before[n] if n in change.stay else c.output(n) for n, c in made.items()}
        self.hydrate()
        self.forget_restored()
        for name, output in before.items():
            if self.outputs.get(name) is not output:
                self.drop(output)
        for table in change.tables_gone:
            self.drop_table(table)

    def give_back(self) -> None:
        """As `Flow.give_back`."""
        give_back()

    def hold(self) -> Callable[[], Files]:
        """As `Flow.hold`."""
        return partial(self._store.write, self.held())

    def held(self) -> Held:
        """The batches of each arrangement as of now."""
        return {name: arranged.spine.batches() for name, arranged in self.arrangements().items()}

    def write(self, held: Held) -> Files:
        """Write what was held; another thread may."""
        return self._store.write(held)

    def recover(self, frontier: int, files: Files, count: int) -> frozenset[str]:
        """As `Flow.recover`; all shards do so."""
        layouts = {name: arranged.layout for name, arranged in self.registry.arrangements().items()}
        if count == self.count:
            mine = {name: [f for f in some if f.shard == self.shard.index] for name, some in files.items()}
            batches = load_batches(mine, self._store.folder, layouts, self._store.disk)
            self._store.adopt(batches, mine)
        else:
            batches = self._dealt(frontier, files, count, layouts)
        self.restore(frontier, batches)
        return frozenset(batches)

    def _dealt(self, frontier: int, files: Files, count: int, layouts: Mapping[str, Layout]) -> dict[str, list[Batch]]:
        """This shard's part of every table of a checkpoint of `count` shards."""
        batches: dict[str, list[Batch]] = {}
        for table, node in self._tables.items():
            rows, errors = (trace.name for trace in node.traces())
            if rows not in files or errors not in files:
                continue
            if any(len(b) for b in self._parts(errors, frontier, files, count, layouts)):
                raise CheckpointError(
                    "a table with live errors cannot be dealt out to another count of workers", table=table,
                    workers=self.count, checkpoint=count,
                    hint=f"run with engine: {{workers: {count}}} until the table is mended (`headrace status` tells "
                         "what is wrong), or start with an empty state folder",
                )  # fmt: skip
            layout, as_of = layouts[rows], Description.epochs(0, frontier, frontier - 1)
            mine = [self._mine(part, layout) for part in self._parts(rows, frontier, files, count, layouts)]
            found = concat([part for part in mine if part is not None])
            batches[rows] = [Batch.empty(layout, as_of) if found is None else Batch.seal(layout, found, as_of)]
            batches[errors] = [Batch.empty(layouts[errors], as_of)]
        return batches

    def _parts(
        self, name: str, frontier: int, files: Files, count: int, layouts: Mapping[str, Layout]
    ) -> Sequence[Updates]:
        """What each shard of a checkpoint held of an arrangement at its last epoch."""
        parts = []
        for shard in range(count):
            mine = [f for f in files[name] if f.shard == shard]
            batches = load_batches({name: mine}, self._store.folder, layouts, self._store.disk)[name]
            parts.append(content(layouts[name], batches, frontier - 1))
        return parts

    def _mine(self, updates: Updates, layout: Layout) -> Updates | None:
        """The rows that belong to this shard."""
        if not len(updates) or self.shard.is_alone:
            return updates if len(updates) else None
        at = shard_positions(layout.keys_of(updates).hash, self.count)[self.shard.index]
        return take(updates, at) if len(at) else None

    def facts(self) -> Mapping[str, ArrangementFacts]:
        """As `Flow.facts`, of this shard."""
        made_of = {name: self.arrangements_of(output) for name, output in self.outputs.items()}
        return {
            name: ArrangementFacts(
                len(arranged),
                arranged.nbytes,
                len(arranged.readers) - 1,
                frozenset(view for view, names in made_of.items() if name in names),
            )
            for name, arranged in self.registry.arrangements().items()
        }

    def workers(self) -> Sequence[WorkerFacts]:
        """None."""
        return ()

    def close(self) -> None:
        """Nothing is to be closed."""


def _begun(store: BatchStore, shard: Shard, tables: Mapping[str, Schema], frontier: int, held: Held) -> KeptDataflow:
    flow = KeptDataflow(store, shard)
    for name in sorted(tables):
        flow.table(name, tables[name])
    flow.restore(frontier, held)
    return flow


def _rows_before(node: Node) -> int:
    """Updates in the arrangements that stand already and that `node` is computed from."""
    return sum(len(t.arranged) for n in reachable(node.inputs) for t in n.traces() if t.loaded)
