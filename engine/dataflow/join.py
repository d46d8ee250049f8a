"""The node of a join: what changes on either side, looked up in the other's arrangement.

Always: both arrangements hold the step before it runs; in a loop, pairs whose round is yet to come wait for it. Single
writer: the dataflow that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from headrace.engine.batch.consolidation import netted
from headrace.engine.batch.keys import columns_plan
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.node import Memo, Node, merged
from headrace.engine.kernels.times import EPOCHS
from headrace.engine.operators.chunked_delta import Total, each, joined
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.operators.join import Joined, Probes, Span, join_round, join_trace, without_nulls
from headrace.engine.operators.linear import filter_rows
from headrace.engine.operators.small_join import Side, join_few
from headrace.engine.schema import Schema
from headrace.engine.trace.spine import Spine

_MANY = 256
"""Sorting fewer probes costs less than finding the lanes of a batch."""


class _Side:
    """One input of a join, and which of its columns the join's rows hold.

    `held`: positions in the side's own columns. `slim`: how rows of those and the key, which is all of a delta that a
    join needs, are hashed; None where that is all columns.
    """

    def __init__(self, arranged: ArrangeNode, held: tuple[int, ...]) -> None:
        self.arranged = arranged
        self.held = held
        kept = tuple(sorted({*held, *arranged.key}))
        whole = len(kept) == len(arranged.schema.columns)
        self.slim = None if whole else columns_plan(arranged.schema.arrow, kept)

    @property
    def size(self) -> int:
        """How many updates its trace holds, those of all shards together."""
        return self.arranged.shard.agree(len(self.arranged.index), sum)

    def changed(self, updates: Updates | None) -> Side:
        """A delta of this side for the join of few."""
        return Side(updates, self.arranged.layout, self.slim, self.arranged.index)

    def probes(self, updates: Updates) -> Probes:
        """A delta of this side as the join looks it up; changes of other columns alone cancel and cost nothing."""
        sealed = self.arranged.sealed
        is_whole = self.slim is None and updates is self.arranged.delta.rows
        if (
            is_whole
            and sealed is not None
            and len(sealed) >= _MANY
            and without_nulls(sealed.struct, self.arranged.key) is None
        ):
            # In the order of their keys they need not be sorted again.
            return Probes(sealed.struct, sealed.positions, sealed.keys, sealed.times & EPOCHS, sealed.diffs, self.slim)
        keys, valid = self.arranged.keys(updates)
        if self.slim is None:
            times, diffs, positions = updates.times, updates.diffs, np.arange(len(updates))
        else:
            times, diffs, positions = netted(updates, self.slim)
        if valid is not None:
            kept = np.isin(positions, valid)
            times, diffs, positions = times[kept], diffs[kept], positions[kept]
        elif self.slim is None:
            return Probes(updates.struct, positions, keys, times, diffs, self.slim)
        return Probes(updates.struct, positions, keys.take(positions), times, diffs, self.slim)


class JoinNode(Node):
    """Inner equi-join of two arrangements."""

    label = "join"

    def __init__(
        self,
        fingerprint: str,
        left: ArrangeNode,
        right: ArrangeNode,
        schema: Schema,
        residual: Expr | None,
        columns: Sequence[int],
    ) -> None:
        super().__init__(fingerprint, schema, [left, right])
        width = len(left.schema.columns)
        self._left = _Side(left, tuple(c for c in columns if c < width))
        self._right = _Side(right, tuple(c - width for c in columns if c >= width))
        self._from_left, self._from_right = (Joined.of(schema.arrow, self.held, residual, side) for side in (0, 1))
        reader = f"{self.label}-{fingerprint[:12]}"
        self._readers = [left.trace.read_by(reader), right.trace.read_by(reader)]
        self._later: dict[int, Total] = {}
        """Pairs of later rounds of a loop; empty between its steps."""

    @property
    def held(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Which columns of the left its rows begin with, and which of the right follow."""
        return self._left.held, self._right.held

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """Each change of the left with the right as it is at its time, of the right with the left just before."""
        left, right = self._left.arranged.delta, self._right.arranged.delta
        return merged(self._pairs(left.rows, right.rows, lower, None), left, right)

    def _few(self, left: Updates | None, right: Updates | None, since: int) -> Delta | None:
        """The pairs of a few changes, in one call of a kernel; None where that takes more."""
        found = join_few(self._left.changed(left), self._right.changed(right), since, self._from_left.assembly)
        residual = self._from_left.residual
        if found is None or found.rows is None or residual is None:
            return found
        return filter_rows(found.rows, residual)

    def is_eager(self, lower: int) -> bool:  # noqa: ARG002
        """In a loop, pairs of this round may have been found in an earlier one."""
        return self.scope is not None and self.scope.now in self._later

    def later(self) -> Iterable[int]:
        """Rounds of pairs found already."""
        return self._later

    def _pairs(self, left: Updates | None, right: Updates | None, lower: int, upper: int | None) -> Delta:
        """What changes of the two sides at epochs [lower, upper) make; `upper` None: the traces go no further.

        In a loop: what those of the round make, and what waited for it.
        """
        few = self._few(left, right, lower - 1) if self.scope is None and upper is None else None
        if few is not None:
            return few
        span = Span(lower - 1, upper)
        one = self._half(left, self._left, self._right, span)
        two = self._half(right, self._right, self._left, span, strictly=True)
        waited = None if self.scope is None else self._later.pop(self.scope.now, None)
        return joined([one, two] if waited is None else [waited.all(), one, two])

    def _half(self, updates: Updates | None, mine: _Side, other: _Side, span: Span, *, strictly: bool = False) -> Delta:
        """Changes of one side with the other as it is at their times, or (`strictly`) just before.

        In a loop: with all of the other up to its moment, or (`strictly`) before it.
        """
        index = other.arranged.index
        if updates is None or not len(updates) or (isinstance(index, Spine) and not len(index)):
            return QUIET
        is_left = mine is self._left
        how = self._from_left if is_left else self._from_right
        probes = mine.probes(updates)
        if self.scope is None:
            return join_trace(probes, index, span, how, strictly=strictly)
        return join_round(probes, index, self.scope.moment, how, self._wait, old=strictly)

    def _wait(self, now: int, pairs: Delta) -> None:
        self._later.setdefault(now, Total()).add(pairs)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The smaller side's content looked up in the other's trace at `as_of`, if that goes so far back."""
        left, right = self._left, self._right
        mine, other = (left, right) if left.size <= right.size else (right, left)
        if not other.arranged.trace.covers(as_of):
            mine, other = other, mine
        other.arranged.trace.check_faithful(as_of)
        content = mine.arranged.content_in_pieces(as_of, memo)
        pairs = each(content, lambda delta: self._half(delta.rows, mine, other, Span(as_of, as_of + 1)))
        return merged(pairs, *(Delta(None, side.arranged.errors(as_of, memo)) for side in (left, right)))

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """As the steps of these epochs made them."""
        left, right = self._left.arranged, self._right.arranged
        for side in (left, right):
            side.trace.check_faithful(max(lower - 1, 0))
        some = left.changes(lower, upper, memo), right.changes(lower, upper, memo)
        return merged(self._pairs(some[0].rows, some[1].rows, lower, upper), *some)

    def release(self) -> None:
        """Stop reading both arrangements."""
        for reader in self._readers:
            reader.release()
