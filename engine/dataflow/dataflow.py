"""The dataflow: tables in, views out, in lock step over epochs.

Always: after `step(upper)` every epoch before `upper` is complete everywhere, and what each epoch changed does not
depend on how epochs were cut into steps. Nothing that depends on data raises out of `step`: a multiplicity that does
not fit stops the views that need it, each with an error, and no other. Called by headrace.views.render and the sidecar's runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.arrangement import Arranged
from headrace.engine.batch.batch import Batch, DiffOverflow
from headrace.engine.batch.updates import Updates, Upserts
from headrace.engine.dataflow.arrange import TableNode
from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.graph import Graph, reachable
from headrace.engine.dataflow.iterate import MOST, Iteration
from headrace.engine.dataflow.node import Node, fingerprint_of
from headrace.engine.dataflow.output import Output
from headrace.engine.dataflow.shard import ALONE, Shard
from headrace.engine.dataflow.subscription import Reading
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.delta import QUIET, errors_at
from headrace.engine.operators.expressions.core.columns import MESSAGE
from headrace.engine.schema import Schema


class Dataflow(Graph):
    """A dataflow at depth 0, whose loops are nodes, or one shard of it. Single writer: the loop that owns it."""

    def __init__(self, shard: Shard = ALONE) -> None:
        super().__init__(shard)
        self._tables: dict[str, TableNode] = {}
        self._outputs: dict[Node, dict[Output, None]] = {}

    def table(self, name: str, schema: Schema) -> Collection:
        """The input of a table; with a key, upserts meet its own arrangement; without one it is a multiset.

        The same name again gives the same collection; with another schema it raises InvariantBroken.
        """
        columns = [(c.name, c.type) for c in schema.columns]
        fingerprint = fingerprint_of("table", name, columns, schema.key)
        known = self._tables.get(name)
        if known is not None and known.fingerprint != fingerprint:
            raise InvariantBroken("a table was declared twice, differently", table=name)
        node = self.intern(fingerprint, lambda: TableNode(fingerprint, self.registry, name, schema))
        if known is None:
            self._tables[name] = node
            self.retain(node)
        return Collection(self, node, node.schema)

    def iterate(self, name: str, most: int = MOST) -> Iteration:
        """The body of a loop, to be built and closed; see `Iteration`."""
        return Iteration(self, name, most)

    def push(self, table: str, upserts: Upserts) -> None:
        """Changes of a table, of epochs ≥ frontier, in their order. Raises KeyError for no table, InvariantBroken."""
        node = self._tables[table]
        node.push(upserts, self.frontier)
        self.schedule.call(node)

    def push_errors(self, table: str, errors: Mapping[str, int], epoch: int) -> None:
        """Changes of a table's own errors at `epoch`, which the next step takes in: message → change of multiplicity.

        They stay until they are taken back, whatever becomes of the rows. Raises KeyError.
        """
        texts, diffs = pa.array(list(errors), MESSAGE), np.array(list(errors.values()), np.int64)
        node = self._tables[table]
        node.push_errors(errors_at(texts, np.full(len(diffs), epoch, np.int64), diffs))
        self.schedule.call(node)

    def schema_of(self, table: str) -> Schema:
        """The columns of a table. Raises KeyError for no table."""
        return self._tables[table].schema

    def table_node(self, table: str) -> TableNode:
        """The node of a table. Raises KeyError for no table."""
        return self._tables[table]

    def look_up(self, table: str, keys: pa.RecordBatch) -> Updates | None:
        """The rows that stand under the keys of `keys`, which are rows of the table: only their keys are read."""
        return self._tables[table].look_up(keys, self.frontier - 1)

    def step(self, upper: int) -> None:
        """Take every change of the epochs before `upper` through the nodes that have input; then they are complete."""
        lower = self.frontier
        if upper < lower:
            raise InvariantBroken("a frontier went back", frontier=lower, upper=upper)
        if upper == lower:
            return
        self.hydrate()
        self.forget_restored()
        with self.shard.together():
            if lower and self.shard.is_alone:
                visited = self.schedule.run(lower, upper)
            else:
                visited = self.schedule.run_all(self._known.values(), lower, upper)
        self.frontier = upper
        for node in visited:
            if isinstance(node, TableNode) and node.waits:
                self.schedule.call(node)
            outputs = self._outputs.get(node)
            if outputs:
                delta = node.made(lower)
                for output in outputs if delta is not QUIET else ():
                    output.receive(delta)

    def exert(self, fuel: int) -> None:
        """Spend about `fuel` updates of merging on each arrangement that changed while there is nothing else to do."""
        unmerged = self.schedule.unmerged
        for node in list(unmerged):
            del unmerged[node]
            for trace in () if node.failed else node.traces():
                try:
                    if trace.spine.exert(fuel) < fuel or trace.spine.merging:
                        unmerged[node] = None
                except DiffOverflow as why:
                    node.fail(why)
                    self.schedule.call(node)

    def advance_since(self, epoch: int) -> None:
        """Give up questions about times before `epoch` (at most the last complete epoch)."""
        since = min(epoch, self.frontier - 1)
        if not self.shard.is_alone:
            self._advance_all(since)
            return
        ahead = self.schedule.ahead
        for node in list(ahead):
            del ahead[node]
            for trace in node.traces():
                if not trace.advance(since):
                    ahead[node] = None

    def _advance_all(self, since: int) -> None:
        """As `advance_since`: what can be asked is the same in all shards. What was never filled would seem complete."""
        self.hydrate()
        for node in self._known.values():
            for trace in node.traces():
                if not (node.failed or trace.under_way):
                    trace.catch_up(self.frontier)
                trace.advance(since)

    def arrangements(self) -> Mapping[str, Arranged]:
        """Every arrangement by its stable name, complete up to the frontier: for checkpoints.

        Those of nodes that failed are left out, and those in the middle of a late loop's rounds: a restart makes them anew from
        what they are made of.
        """
        self.hydrate()
        lost = set()
        for node in self._known.values():
            for trace in node.traces():
                if node.failed or trace.under_way:
                    lost.add(trace.name)
                else:
                    trace.complete(self.frontier)
        return {name: a for name, a in self.registry.arrangements().items() if name not in lost}

    def beside_arrangements(self) -> Mapping[str, int]:
        """The bytes that nodes keep beside arrangements, by the names of these."""
        return {name: held for node in self._known.values() for name, held in node.beside().items()}

    def arrangements_of(self, output: Output) -> frozenset[str]:
        """The names of the arrangements that `output` is made from."""
        return frozenset(t.name for node in reachable([output.collection.node]) for t in node.traces())

    def restore(self, frontier: int, batches: Mapping[str, Sequence[Batch]]) -> None:
        """Continue a checkpoint: call before the first step, before or after building.

        Arrangements named in `batches` resume; others are hydrated from their input's content at frontier - 1; a table
        that is not named begins empty. Raises InvariantBroken once something was stepped.
        """
        if self.frontier != 0:
            raise InvariantBroken("a dataflow that has run cannot be restored", frontier=self.frontier)
        self.resume(frontier, batches)

    def adopt(self, batches: Mapping[str, Sequence[Batch]]) -> None:
        """Plans made from now to the next step resume from `batches`, arrangements of another dataflow at this very frontier.

        Those that are not named are hydrated, as after `restore`; those that stand already stay as they are.
        """
        self._restored = batches

    def add_output(self, output: Output) -> Output:
        """Called by `Collection.output`."""
        node = output.collection.node
        self.check_stands(node)
        self._outputs.setdefault(node, {})[output] = None
        self.retain(node)
        return output

    def read(self, collection: Collection, reader: str, since: int | None = None) -> Reading:
        """Hold `collection` for questions at epochs ≥ `since`; without it at the last complete epoch, or 0.

        Raises NotFaithful where that is compacted already.
        """
        return Reading(collection, reader, max(self.frontier - 1, 0) if since is None else since)

    def drop(self, output: Output) -> None:
        """A view goes; nodes and arrangements that nothing else reads go with it. Raises KeyError if it went before."""
        node = output.collection.node
        del self._outputs[node][output]
        if not self._outputs[node]:
            del self._outputs[node]
        self.let_go(node)

    def redeclare(self, name: str) -> Callable[[], None]:
        """A table's name is free for other columns from now on; what this gives lets the old table go. Raises KeyError."""
        node = self._tables.pop(name)
        return lambda: self.let_go(node)

    def drop_table(self, name: str) -> None:
        """A table takes no more changes; it goes with the last plan that reads it. Raises KeyError for no table."""
        self.let_go(self._tables.pop(name))


__all__ = ["Collection", "Dataflow", "Output"]
