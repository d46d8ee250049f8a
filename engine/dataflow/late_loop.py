"""The node of an outermost loop, which leaves a step whose rounds take more work than there is, and is late until it is back.

Its rounds stop where they are and go on between steps, over the arrangements from outside as they were in that step; what comes
in meanwhile is then followed as one step more. Invariant: while it is late what has left stays as it was, with an error beside
it, and the first step after all has ended sends what the rounds brought. A restart makes the body anew, also in portions, as the
checkpoint has what left and no more. All shards leave, stop and come back together, by the work that all of them count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.arrangement import Registry
from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.enter import EnteredArrangementNode, EnterNode
from headrace.engine.dataflow.late_groups import LateGroups
from headrace.engine.dataflow.loop_exit import LoopExit
from headrace.engine.dataflow.loop_node import IterateNode
from headrace.engine.dataflow.node import Memo, Node, merged
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.dataflow.round_work import RoundWork
from headrace.engine.dataflow.row_limit import RowLimit
from headrace.engine.dataflow.variable import VariableNode
from headrace.engine.operators.chunked_delta import Pieced
from headrace.engine.operators.delta import QUIET, Delta, concat, errors_at
from headrace.engine.operators.expressions.core.columns import MESSAGE
from headrace.engine.recursion.late import LATE, Evaluation, Standing
from headrace.engine.recursion.portions import Portions, Progress
from headrace.engine.schema import BIGINT, Column, Schema

_ACCOUNT = Schema((Column("late since", BIGINT, nullable=False),))

Entered = Mapping[EnterNode, Delta]
"""What enters at the epochs of a step."""


class OutermostLoopNode(IterateNode):
    """A loop in no other loop. `late`: the dataflow's groups that are; `said`: how its error names the query."""

    def __init__(
        self,
        fingerprint: str,
        label: str,
        most: int,
        body: Sequence[Node],
        exits: Sequence[tuple[Node, LoopExit]],
        left_over: Sequence[tuple[VariableNode, LoopExit]],
        row_limit: RowLimit | None,
        *,
        registry: Registry,
        late: LateGroups,
        said: str,
    ) -> None:
        super().__init__(fingerprint, label, most, body, exits, left_over, row_limit)
        self._within = [trace for node in body for trace in node.traces()]
        self._within += [] if row_limit is None else row_limit.traces
        self._account = Trace(registry, "late", "late", _ACCOUNT, ())
        self._traces += [*(trace for _, loop_exit in self.exits for trace in loop_exit.apart), self._account]
        self._late = late
        self._message = (
            f"{LATE}{said} takes more than a step may, and is evaluated between steps; it comes back by itself"
        )
        self._left: Evaluation[Entered, Progress] | None = None
        self._since = self._turned = -1
        self._frontier = 0
        self._followed = 0
        """The end of the epochs that the rounds follow, or have followed; 0 where they begin from nothing."""

    def step(self, lower: int, upper: int) -> None:
        """All rounds of the step; or as many as it has work for."""
        self._frontier = upper
        if self._left is not None:
            self._missed(self._left, lower, upper)
        elif not self._late.step_work:
            super().step(lower, upper)
        elif self.begins(lower):
            left = Evaluation(self._following, self.rounds(lower, upper, lower, RoundWork(self.shard)))
            try:
                if not left.advance(self._late.step_work):
                    self._leave(left, lower, upper)
            except DiffOverflow as why:
                self.fail(why)
                self.delta = self.failure(lower)
        if self.failed and self._left is not None:
            self._let_go()

    # Being late.

    @property
    def standing(self) -> Standing:
        """As `LateGroup.standing`."""
        assert self._left is not None, "it is late"
        return Standing(self._since, self._left.work, *self._left.progress[1:3], self._left.ended or bool(self.failed))

    @property
    def is_told(self) -> bool:
        """As `LateGroup.is_told`."""
        return self.shard.holds_the_whole

    def has_turned(self, since: int) -> bool:
        """As of any node."""
        return self._turned > since

    def go_on(self, work: int) -> None:
        """As `LateGroup.go_on`; all shards do so, and where it has failed in one it fails in all."""
        if self._left is None or self._left.ended:
            return
        with self.shard.together():
            if self.failed:
                raise self.failed
            self._left.advance(work)

    def _leave(self, left: Evaluation[Entered, Progress], lower: int, upper: int) -> None:
        """Its rounds go on after this step."""
        error = None
        if self.shard.holds_the_whole:
            error = errors_at(pa.array([self._message], MESSAGE), np.array([lower]), np.ones(1, np.int64))
        through = {id(loop_exit) for _, loop_exit in self._through}
        for _, loop_exit in self.exits:
            loop_exit.hold(lower, upper, error if id(loop_exit) in through else None)
        for entered in self._entered:
            entered.imported = entered.outside.delta
        for node in _all_of(self.body):
            if isinstance(node.delta, Pieced) and node.delta.waits:
                # What is still to be made of it looks up what is there now.
                node.made(lower)
        self._followed = upper
        self._hold_outside(upper)
        self._begin(left, lower, upper)
        self._account.insert(self._stated(1, upper - 1), upper)

    def _begin(self, left: Evaluation[Entered, Progress], since: int, frontier: int) -> None:
        self._left, self._since, self._turned = left, since, frontier
        for trace in self._within:
            trace.under_way = True
        self._late.add(self)

    def _missed(self, left: Evaluation[Entered, Progress], lower: int, upper: int) -> None:
        """A step while it is late: what enters waits. If all of before is followed, and this with the step's work, it is back."""
        for _, loop_exit in self.exits:
            loop_exit.delta = QUIET
        entered = {node: node.outside.made(lower) for node in self._entered}
        some = any(delta is not QUIET for delta in entered.values())
        told = self.shard.gathered(self.loss + 4 * some)
        if self.hear_of_loss(told):
            self.delta = self.failure(lower)
            return
        self.delta, most, ended = QUIET, self._late.step_work, left.ended
        if any(told):
            left.add(entered)
        try:
            if self._late.returns and (ended or not most) and left.advance(most):
                self._come_back(lower, upper)
        except DiffOverflow as why:
            self.fail(why)
            self.delta = self.failure(lower)

    def _come_back(self, lower: int, upper: int) -> None:
        for _, loop_exit in self.exits:
            loop_exit.come_back(lower, upper)
        self._account.insert(self._stated(-1, upper - 1), upper)
        self._let_go()
        self._since, self._turned = -1, upper
        for trace in self._within:
            trace.catch_up(upper)
            trace.loaded = True

    def _let_go(self) -> None:
        self._left = None
        self._late.remove(self)
        for trace in self._within:
            trace.under_way = False
        for entered in self._entered:
            entered.imported = None
        for node in self.body:
            if isinstance(node, EnteredArrangementNode):
                node.unpin()
        self._read_anew()

    def _following(self, changes: Sequence[Entered]) -> Portions[Progress]:
        """The rounds of all that waited up to the frontier; or of all that there is, from nothing."""
        lower, upper = self._followed, self._frontier
        if lower:
            for node in self._entered:
                some = [entered[node] for entered in changes]
                node.imported = merged(Delta(concat([d.rows for d in some]), concat([d.errors for d in some])))
        else:
            memo: Memo = {}
            for node in self._entered:
                node.imported = node.outside.content(upper - 1, memo)
        self._hold_outside(upper)
        self._followed = upper
        # From nothing all that lies in the arrangements from outside is of this step.
        begins = (lower, lower) if lower else (upper - 1, 0)
        return self.rounds(begins[0], upper, begins[1], RoundWork(self.shard))

    def _hold_outside(self, frontier: int) -> None:
        """Let the body read the arrangements from outside as they are at `frontier`, whatever comes later."""
        for node in self.body:
            if isinstance(node, EnteredArrangementNode):
                node.pin(frontier)
        self._read_anew()

    def _read_anew(self) -> None:
        for node in _all_of(self.body):
            node.read_anew()

    # Checkpoints.

    def _stated(self, diff: int, now: int) -> Updates:
        """What the account says while the loop is late."""
        rows = pa.RecordBatch.from_arrays([pa.array([self._since])], schema=_ACCOUNT.arrow)
        return Updates(rows, np.array([now]), np.array([diff], np.int64))

    def resumable(self) -> Sequence[Sequence[Trace]]:
        """All, or where it was late what had left."""
        left = [trace for _, loop_exit in self.exits for trace in (*loop_exit.traces, *loop_exit.apart)]
        return (self._traces, [*left, self._account])

    def hydrate(self, frontier: int, memo: Memo) -> None:
        """As of any loop; one that was late is so again, and begins from nothing."""
        stated = self._account.snapshot(frontier - 1).rows.column(0).to_pylist() if self._account.loaded else []
        if stated:
            self._frontier, self._followed, self._began = frontier, 0, False
            left: Evaluation[Entered, Progress] = Evaluation(self._following)
            left.add({})
            self._begin(left, stated[0], frontier)
        else:
            super().hydrate(frontier, memo)
        for _, loop_exit in self.exits:
            loop_exit.resume(late=bool(stated))

    def release(self) -> None:
        """Let all of it go."""
        if self._left is not None:
            self._let_go()
        super().release()
        self._account.release()


def _all_of(body: Sequence[Node]) -> Iterator[Node]:
    """The nodes of a body, each before those that read it, with those of the loops in it."""
    for node in body:
        yield node
        if isinstance(node, IterateNode):
            yield from _all_of(node.body)


__all__ = ["OutermostLoopNode"]
