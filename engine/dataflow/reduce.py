"""The node of a reduce, with its state in an arrangement of its output.

Always: what it looks its groups up in holds the step before it runs; in a loop, groups whose round is yet to come wait
for it. Single writer: the dataflow that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.engine.arrangement import Registry
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.node import Memo, Node, merged
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.iteration.reduce_round import Round, reduce_round
from headrace.engine.iteration.scope import Scope
from headrace.engine.operators.delta import Delta
from headrace.engine.operators.filtered_trace import Index
from headrace.engine.operators.reduce import Reduced, State, reduce_changes, results_from
from headrace.engine.operators.reduce_layout import Shape
from headrace.engine.operators.small_reduce import Plan


class Lookups(NamedTuple):
    """What a reduce looks its groups up in: see `State`. `distinct`: the nodes whose deltas are summed up beside."""

    distinct: Sequence[Node] = ()
    extremes: Sequence[ArrangeNode] = ()
    wholes: Sequence[ArrangeNode] = ()
    images: ArrangeNode | None = None

    @property
    def arranged(self) -> list[ArrangeNode]:
        """All arrangements that are read."""
        return [*self.extremes, *self.wholes, *([] if self.images is None else [self.images])]


class ReduceNode(Node):
    """Reduce, with its state in an arrangement of its output, `kept`."""

    label = "reduce"

    def __init__(self, fingerprint: str, registry: Registry, source: Node, shape: Shape, lookups: Lookups) -> None:
        super().__init__(fingerprint, shape.schema, [source, *lookups.distinct, *lookups.arranged])
        self._source = source
        self.shape = shape
        self._distinct = lookups.distinct
        self._lookups = lookups
        kept = shape.accumulators
        self.kept = Trace(registry, "accumulators", f"{fingerprint}-accumulators", kept, tuple(range(shape.key)))
        self._state = State(
            self.kept.layout,
            self.kept.spine,
            [node.trace.spine for node in lookups.extremes],
            [node.trace.spine for node in lookups.wholes],
            None if lookups.images is None else lookups.images.trace.spine,
            Plan.of(shape, self.kept.layout),
        )
        reader = f"{self.label}-{fingerprint[:12]}"
        self._readers = [node.trace.read_by(reader) for node in lookups.arranged]
        self._later: dict[int, list[Keys]] = {}
        """Groups due in later rounds of a loop; empty between its steps."""

    @property
    def key(self) -> int:
        """How many columns its rows begin with that are the group's."""
        return self.shape.key

    @property
    def _is_whole_here(self) -> bool:
        """True if there is no key, and the one group's row is this shard's."""
        return self.shape.key == 0 and self.shard.holds_the_whole

    def is_eager(self, lower: int) -> bool:
        """The group without a key has its row from the first step on; in a loop, groups may be due in this round."""
        if self.scope is not None:
            return self.scope.now in self._later or self._begins(self.scope)
        return lower == 0 and self._is_whole_here

    def later(self) -> Iterable[int]:
        """Rounds in which groups are due."""
        return self._later

    def _begins(self, scope: Scope) -> bool:
        return self._is_whole_here and scope.first_step and not len(self.kept.spine)

    def run(self, lower: int, upper: int) -> Delta:
        """The corrections of the groups that change."""
        source = self._source.delta
        distinct = [node.delta.rows for node in self._distinct]
        scope = self.scope
        if scope is not None:
            come = Round(source.rows, distinct, self._later.pop(scope.now, ()), self._begins(scope))
            kept, delta, later = reduce_round(self.shape, self._state, come, scope.moment, first_step=scope.first_step)
            for now, keys in later:
                self._later.setdefault(now, []).append(keys)
            if kept is not None:
                self.kept.insert(kept, upper, scope.now)
            return merged(delta, source)
        self.kept.settle()
        made, delta = reduce_changes(
            self.shape, self._state, source.rows, distinct, lower, initial=self.is_eager(lower)
        )
        if made is not None:
            self.kept.insert_later(made.updates, upper)
        return merged(delta, source)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The results of the groups in the trace."""
        return merged(self.kept_content(as_of), Delta(None, self._source.errors(as_of, memo)))

    def kept_content(self, as_of: int) -> Delta:
        """The results of the groups in the trace, without the errors of what is reduced."""
        return results_from(self.shape, self.kept.snapshot(as_of))

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The corrections of the groups in the trace."""
        kept = self.kept.window(lower, upper)
        errors = self._source.changes(lower, upper, memo).errors
        return merged(results_from(self.shape, kept), Delta(None, errors))

    def hydrate(self, frontier: int, memo: Memo) -> None:
        """Reduce the source's content at frontier - 1."""
        if not self.kept.loaded:
            as_of = frontier - 1
            rows = self._source.content(as_of, memo).rows
            distinct = [node.content(as_of, memo).rows for node in self._distinct]
            nothing = self._state._replace(kept=None)
            initial = self._is_whole_here
            made, _ = reduce_changes(self.shape, nothing, rows, distinct, as_of, initial=initial)
            self.kept.fill(None if made is None else made.updates(), frontier)

    def traces(self) -> Sequence[Trace]:
        """The accumulators."""
        return (self.kept,)

    def release(self) -> None:
        """Drop the accumulators, and stop reading the others."""
        self.kept.release()
        for reader in self._readers:
            reader.release()

    def read_anew(self) -> None:
        """Of what it looks groups up in what enters."""
        lookups = self._lookups
        self._state = self._state._replace(
            extremes=[node.trace.spine for node in lookups.extremes],
            wholes=[node.trace.spine for node in lookups.wholes],
            images=None if lookups.images is None else lookups.images.trace.spine,
        )


class ReducedNode(ArrangeNode):
    """What a reduce shows, looked up by its key in its state: nothing is arranged once more. Outside of loops alone."""

    label = "reduced"

    def __init__(self, fingerprint: str, source: ReduceNode) -> None:
        Node.__init__(self, fingerprint, source.schema, [source])
        key = tuple(range(source.key))
        self._shape = source.shape
        self._stand(source, key, source.kept, layout_of(source.schema, key))
        self.index = self.index_over(self.trace)

    def index_over(self, trace: Trace) -> Index:
        """What the reduce shows of its state."""
        return Reduced(self._shape, trace.settled, self.layout, Plan.of(self._shape, trace.layout))
