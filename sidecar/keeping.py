"""A dataflow in this process, or one shard of it, with its place in checkpoints.

Always: what `hold` gives writes the state of one moment, whatever was stepped since; a checkpoint of as many shards is
continued as it is, one of another count is dealt out anew by table, and all else is made from the tables. Called by
wiring, and by workers, which are one shard each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from engine.batch import Batch
from engine.batch.description import Description
from engine.batch.layout import Layout
from engine.batch.shards import shard_positions
from engine.batch.updates import Updates
from engine.dataflow import Dataflow, Output
from engine.dataflow.exchange import ALONE, Shard
from engine.operators.delta import concat, take
from engine.trace.lookup import content
from sidecar.batches import BatchStore, CheckpointError, Files, load_batches
from sidecar.flow import ArrangementFacts, WorkerFacts


class KeptDataflow(Dataflow):
    """A dataflow whose batches go to `store`. Single writer: the loop that owns it."""

    def __init__(self, store: BatchStore, shard: Shard = ALONE) -> None:
        super().__init__(shard)
        self._store = store
        self.registry.place = store.placed

    @property
    def count(self) -> int:
        """Of how many shards this is one."""
        return self.shard.count

    @property
    def outputs(self) -> Mapping[str, Output]:
        """By view."""
        return {output.name: output for output in self._outputs}

    def hold(self) -> Callable[[], Files]:
        """As `Flow.hold`."""
        return partial(self._store.write, self.held())

    def held(self) -> Mapping[str, Sequence[Batch]]:
        """The batches of each arrangement as of now."""
        return {name: arranged.spine.batches() for name, arranged in self.arrangements().items()}

    def write(self, held: Mapping[str, Sequence[Batch]]) -> Files:
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
