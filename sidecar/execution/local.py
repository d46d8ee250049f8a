"""A dataflow in this process, or one shard of it, with its place in checkpoints, and others that begin beside it.

Always: what `hold` gives writes the state of one moment, whatever was stepped since; a checkpoint of as many shards is
continued as it is, one of another count is sharded anew by table, and all else is made from the tables. What begins
beside shares every immutable batch. Called by wiring, and by workers, which are one shard each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from headrace.engine.batch import Batch
from headrace.engine.batch.description import Description
from headrace.engine.batch.partitioning import shard_positions
from headrace.engine.batch.redeclared_rows import redeclared_updates
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Updates, Upserts
from headrace.engine.dataflow import Dataflow, Output
from headrace.engine.dataflow.arrange import TableNode
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.node import Node
from headrace.engine.dataflow.shard import ALONE, Shard
from headrace.engine.operators.delta import concat, take
from headrace.engine.schema import Schema
from headrace.engine.trace.lookup import content
from headrace.sidecar.execution.dataflow_host import (
    NOTHING,
    ArrangementFacts,
    Build,
    Change,
    ExchangeFacts,
    Flow,
    LateFacts,
    WorkerFacts,
)  # fmt: skip
from headrace.sidecar.execution.error_shards import shards_of
from headrace.sidecar.execution.malloc import give_back
from headrace.sidecar.state.batch_store import BatchStore, CheckpointError, Files, load_batches
from headrace.sidecar.state.objects import Counts
from headrace.sidecar.transactions.references import HandedRuns, KeptRuns

Held = Mapping[str, Sequence[Batch]]
"""The batches of each arrangement."""


class KeptDataflow(Dataflow):
    """A dataflow whose batches go to `store`. `outputs`: by view; `began`: the frontier at which it began, where it began beside
    another. Single writer: the loop that owns it.
    """

    def __init__(self, store: BatchStore, shard: Shard = ALONE) -> None:
        super().__init__(shard)
        self.began = 0
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

    def beside(self, redeclared: Mapping[str, Schema] = NOTHING, shard: Shard = ALONE) -> Callable[[], KeptDataflow]:
        """As `Flow.beside`; `shard`: how those that begin beside all shards meet."""
        tables = {name: node.schema for name, node in self._tables.items()}
        held = self.held()
        before = {name: _TableState.of(self._tables[name], held) for name in redeclared}
        return partial(_begun, self._store, shard, {**tables, **redeclared}, self.frontier, held, before)

    def change(self, change: Change, beside: Flow | None) -> None:
        """As `Flow.change`."""
        assert beside is None or isinstance(beside, KeptDataflow), "it began beside this one"
        self.changed(change, {} if beside is None else beside.held())

    def changed(self, change: Change, held: Held) -> None:
        """Change the plans, of which `held` is computed already."""
        self.adopt(held)
        let_go = [self.redeclare(table) for table in change.redeclared]
        made, before = change.build(self), self.outputs
        self.outputs = {n: before[n] if n in change.stay else c.output(n) for n, c in made.items()}
        self.hydrate()
        self.forget_restored()
        for name, output in before.items():
            if self.outputs.get(name) is not output:
                self.drop(output)
        for table in change.tables_gone:
            self.drop_table(table)
        for free in let_go:
            free()

    def rows_of(self, table: str, upserts: Upserts) -> Upserts:  # noqa: ARG002
        """As `Flow.rows_of`: they are."""
        return upserts

    def hand_over(self, folder: Path) -> HandedRuns:  # noqa: ARG002
        """As `Flow.hand_over`: what this process decodes stays in it."""
        return HandedRuns(KeptRuns(), {})

    def take_over(self, handed: HandedRuns) -> None:
        """As `Flow.take_over`: one process, which reads by itself, has no workers that keep rows."""
        assert not handed.files, "the driver refers to rows of workers"

    def limit_steps(self, work: int) -> None:
        """As `Flow.limit_steps`."""
        self.late.step_work = work

    @property
    def is_late(self) -> bool:
        """As `Flow.is_late`."""
        return bool(self.late)

    def evaluate(self, work: int) -> bool:
        """As `Flow.evaluate`."""
        self.late.go_on(work)
        return self.late.ended

    def late_groups(self) -> Sequence[LateFacts]:
        """As `Flow.late_groups`."""
        reads = (
            {name: reachable([output.collection.node]) for name, output in self.outputs.items()} if self.late else {}
        )
        nodes = [group for group in self.late if isinstance(group, Node) and group.is_told]
        return [LateFacts(g.standing, frozenset(name for name, some in reads.items() if g in some)) for g in nodes]

    def turned_behind(self, beside: Flow) -> Set[str]:
        """As `Flow.turned_behind`."""
        assert isinstance(beside, KeptDataflow), "it began beside this one"
        return beside.readers_of(self.turned_since(beside.began))

    def turned_since(self, frontier: int) -> Set[str]:
        """The fingerprints of nodes that became late, or came back, since."""
        return {node.fingerprint for node in self._known.values() if node.has_turned(frontier)}

    def readers_of(self, fingerprints: Set[str]) -> Set[str]:
        """The views that read one of these nodes."""
        reads = {n: reachable([o.collection.node]) for n, o in self.outputs.items()} if fingerprints else {}
        return {name for name, nodes in reads.items() if any(node.fingerprint in fingerprints for node in nodes)}

    def give_back(self) -> None:
        """As `Flow.give_back`."""
        give_back()

    def hold(self) -> Callable[[], Files]:
        """As `Flow.hold`."""
        return partial(self._store.write, self.held())

    def held(self) -> Held:
        """The batches of each arrangement as of now."""
        return {name: arranged.spine.batches() for name, arranged in self.arrangements().items()}

    def write(self, held: Held, number: int | None = None) -> Files:
        """Write what was held, as the write of this number; another thread may."""
        return self._store.write(held, number)

    def recover(self, frontier: int, files: Files, count: int) -> frozenset[str]:
        """As `Flow.recover`; all shards do so."""
        layouts = {name: arranged.layout for name, arranged in self.registry.arrangements().items()}
        self._store.place.keep_only({f.name for some in files.values() for f in some})
        if count == self.count:
            mine = {name: [f for f in some if f.shard == self.shard.index] for name, some in files.items()}
            batches = load_batches(mine, self._store.place, layouts)
            self._store.adopt(batches, mine)
        else:
            batches = self._dealt(frontier, files, count, layouts)
        self.restore(frontier, batches)
        if self.shard.is_alone or count == self.count:
            self.hydrate()  # what was late goes on, also while nothing arrives
        return frozenset(batches)

    def _dealt(self, frontier: int, files: Files, count: int, layouts: Mapping[str, Layout]) -> dict[str, list[Batch]]:
        """This shard's part of every table of a checkpoint of `count` shards."""
        batches: dict[str, list[Batch]] = {}
        for table, node in self._tables.items():
            rows, errors = (trace.name for trace in node.traces())
            if rows not in files or errors not in files:
                continue
            layout, as_of = layouts[rows], Description.epochs(0, frontier, frontier - 1)
            mine = [self._mine(part, layout) for part in self._parts(rows, frontier, files, count, layouts)]
            found = concat([part for part in mine if part is not None])
            batches[rows] = [Batch.empty(layout, as_of) if found is None else Batch.seal(layout, found, as_of)]
            told = concat([part for part in self._parts(errors, frontier, files, count, layouts) if len(part)])
            live = None if told is None else self._my_errors(table, node.schema, layout, told)
            batches[errors] = [
                Batch.empty(layouts[errors], as_of) if live is None else Batch.seal(layouts[errors], live, as_of)
            ]
        return batches

    def _my_errors(self, table: str, schema: Schema, layout: Layout, told: Updates) -> Updates | None:
        """Of a table's live errors those that belong to this shard."""
        try:
            shards = shards_of(table, schema, layout, told.rows.column(0).to_pylist(), self.count)
        except ValueError as error:
            raise CheckpointError(
                f"a live error of a table cannot be sharded to another count of workers: {error}", table=table,
                workers=self.count,
                hint="run with as many workers as before until the table is mended (`headrace status` tells what is wrong), "
                     "or start with an empty state folder",
            ) from error  # fmt: skip
        at = np.flatnonzero(shards == self.shard.index)
        return take(told, at) if len(at) else None

    def _parts(
        self, name: str, frontier: int, files: Files, count: int, layouts: Mapping[str, Layout]
    ) -> Sequence[Updates]:
        """What each shard of a checkpoint held of an arrangement at its last epoch."""
        parts = []
        for shard in range(count):
            mine = [f for f in files[name] if f.shard == shard]
            batches = load_batches({name: mine}, self._store.place, layouts)[name]
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
        beside = self.beside_arrangements()
        return {
            name: ArrangementFacts(
                len(arranged),
                arranged.nbytes + beside.get(name, 0),
                len(arranged.readers) - 1,
                frozenset(view for view, names in made_of.items() if name in names),
            )
            for name, arranged in self.registry.arrangements().items()
        }

    def workers(self) -> Sequence[WorkerFacts]:
        """None."""
        return ()

    def exchanges(self) -> Sequence[ExchangeFacts]:
        """None: a shard tells of its own by its port."""
        return ()

    slot_seconds = 0.0

    def store(self) -> Counts:
        """As `Flow.store`: none beside this one has."""
        return Counts()

    def asked(self) -> Counts:
        """What this very process has asked of the store."""
        return self._store.place.counts

    def close(self) -> None:
        """Nothing is to be closed."""


@dataclass(frozen=True)
class _TableState:
    """A table as it was declared: the layout of its rows, and the batches of rows and errors."""

    layout: Layout
    rows: Sequence[Batch]
    errors: Sequence[Batch]

    @classmethod
    def of(cls, node: TableNode, held: Held) -> _TableState:
        rows, errors = node.traces()
        return cls(rows.layout, held[rows.name], held[errors.name])

    def under(self, node: TableNode, frontier: int) -> Held:
        """The same rows and errors as `node` has them: its columns are declared otherwise, its key is the same."""
        rows, errors = node.traces()
        found = redeclared_updates(content(self.layout, self.rows, frontier - 1), node.schema)
        as_of = Description.epochs(0, frontier, frontier - 1)
        batch = Batch.seal(rows.layout, found, as_of) if len(found) else Batch.empty(rows.layout, as_of)
        return {rows.name: [batch], errors.name: self.errors}


def _begun(
    store: BatchStore, shard: Shard, tables: Mapping[str, Schema], frontier: int, held: Held,
    redeclared: Mapping[str, _TableState],
) -> KeptDataflow:  # fmt: skip
    flow = KeptDataflow(store, shard)
    flow.began, flow.late.returns = frontier, False
    for name in sorted(tables):
        flow.table(name, tables[name])
    more = [state.under(flow.table_node(name), frontier) for name, state in redeclared.items()]
    flow.restore(frontier, {name: batches for some in (held, *more) for name, batches in some.items()})
    return flow


def _rows_before(node: Node) -> int:
    """Updates in the arrangements that stand already and that `node` is computed from."""
    return sum(len(t.arranged) for n in reachable(node.inputs) for t in n.traces() if t.loaded)
