"""The nodes of a loop as the graph around it sees it: one that runs the body's rounds, and one for each collection that leaves.

Invariant: the rounds of all epochs of a step are worked off together, a round in which nothing is due is not visited, and what
leaves is the changes of all rounds added up. The rounds are work in portions: where they stop, and for how long, changes nothing
of what leaves. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.enter import EnteredArrangementNode, EnterNode
from headrace.engine.dataflow.loop_exit import LoopExit
from headrace.engine.dataflow.node import Memo, Node
from headrace.engine.dataflow.overflow import Endless
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.dataflow.round_work import RoundWork
from headrace.engine.dataflow.row_limit import RowLimit
from headrace.engine.dataflow.shard_exchange import RepartitionNode
from headrace.engine.dataflow.variable import VariableNode
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.recursion.portions import Portions, Progress, whole
from headrace.engine.schema import Schema

MOST_EVER = 1 << 40
"""More than any round."""


class IterateNode(Node):
    """A loop as one node of the graph around it; what leaves it are the `LoopOutputNode`s behind it."""

    label = "loop"
    waits_for_input = False

    def __init__(
        self,
        fingerprint: str,
        label: str,
        most: int,
        body: Sequence[Node],
        exits: Sequence[tuple[Node, LoopExit]],
        left_over: Sequence[tuple[VariableNode, LoopExit]] = (),
        row_limit: RowLimit | None = None,
    ) -> None:
        self.body = tuple(body)
        outside = [node.outside for node in body if isinstance(node, EnterNode | EnteredArrangementNode)]
        super().__init__(fingerprint, Schema(()), list(dict.fromkeys(outside)))
        scope = self.body[0].scope
        assert scope is not None
        self.label = label
        self._body_scope = scope
        self._most = min(most, scope.most)
        self._variables = [node for node in body if isinstance(node, VariableNode)]
        self._entered = [node for node in body if isinstance(node, EnterNode)]
        self._steps = [
            (node, node if isinstance(node, IterateNode) else None, node if isinstance(node, RepartitionNode) else None)
            for node in body
        ]
        self._through = tuple(exits)
        self._left_over = tuple(left_over)
        self.exits: tuple[tuple[Node, LoopExit], ...] = (*exits, *left_over)
        self._traces = [trace for node in body for trace in node.traces()]
        self._traces += [trace for _, loop_exit in self.exits for trace in loop_exit.traces]
        self._row_limit = row_limit
        if row_limit is not None:
            self._traces += row_limit.traces
        self._began = False
        self._ends = list(
            dict.fromkeys([*(v.rule for v in self._variables if v.rule), *(node for node, _ in self.exits)])
        )
        for node in self._ends:
            node.readers += 1

    def step(self, lower: int, upper: int) -> None:
        """All rounds of the step, if anything entered in any shard."""
        whole(self.stepping(lower, upper, RoundWork(self.shard)))

    def stepping(self, lower: int, upper: int, work: RoundWork) -> Portions[None]:
        """As `step`, in portions; `work` counts them."""
        if not self.begins(lower):
            return
        try:
            yield from self.rounds(lower, upper, lower if self.scope is None else self.scope.floor, work)
        except DiffOverflow as why:
            self.fail(why)
            self.delta = self.failure(lower)

    def begins(self, lower: int) -> bool:
        """Whether there are rounds in the step that begins at `lower`; nothing leaves so far but that the loop has failed."""
        for _, loop_exit in self.exits:
            loop_exit.delta = QUIET
        for node in self.inputs:
            node.made(lower)
        self.hear_of_loss(self.shard.gathered(self.loss))
        due = self.is_due(lower)
        failed = self.failed is not None or any(node.failed for node in self.inputs)
        self.delta = self.failure(lower) if due and failed else QUIET
        return due and not failed

    @property
    def loss(self) -> int:
        """What the other shards are told: 1 where it has failed here, 2 where an input has."""
        return int(self.failed is not None) + 2 * any(node.failed for node in self.inputs)

    def hear_of_loss(self, told: Sequence[int]) -> bool:
        """Whether it, or an input, has failed in any shard, each of which told its `loss`; then it has failed here too."""
        if not any(loss & 3 for loss in told):
            return False
        if any(loss & 1 for loss in told) and not self.failed:
            self.fail(DiffOverflow())
        elif not self.loss:
            self.failed = DiffOverflow()  # the input says so
        return True

    def is_due(self, lower: int) -> bool:
        """As for any node, in any shard."""
        return bool(self.shard.agree(int(super().is_due(lower))))

    def fail(self, why: DiffOverflow) -> None:
        """All shards fail together, and one of them says so."""
        super().fail(why)
        self._owes = self.shard.holds_the_whole

    def is_eager(self, lower: int) -> bool:  # noqa: ARG002
        """In the first step, and where a loop around this one is in a round in which something is due."""
        outer = self.scope
        if outer is None:
            return not self._began
        if outer.first_step and not outer.own:
            return True
        return any(self._body_scope.own_of(now) is not None for now in self._due())

    def later(self) -> set[int]:
        """Of a loop in a loop: the outer rounds in which something is due here."""
        outer = self._body_scope.parent
        return set() if outer is None else {now & outer.moment.outer for now in self._due()}

    def _due(self) -> set[int]:
        return {now for node in self.body for now in node.later()}

    def rounds(self, lower: int, upper: int, floor: int, work: RoundWork) -> Portions[Progress]:
        """All rounds of the epochs [lower, upper). Raises DiffOverflow, and Endless; then the loop has failed."""
        scope = self._body_scope
        scope.lower, scope.floor = lower, floor
        scope.first_step = not self._began if self.scope is None else self.scope.first_step
        for _, loop_exit in self.exits:
            loop_exit.open()
        if self._row_limit is not None:
            self._row_limit.begin(lower, upper, self._said)
        own: int | None = 0
        while own is not None:
            if own > self._most:
                raise Endless(self.label, self._most)
            scope.begin(own)
            for node, loop, moved in self._steps:
                if loop is not None:
                    yield from loop.stepping(lower, upper, work)
                    continue
                stops = False
                if moved is None:
                    node.step(lower, upper)
                else:
                    moved.counted = work.here
                    moved.step(lower, upper)
                    stops = work.met(moved.counted)
                if (node.delta is not QUIET and work.of(node.delta)) or stops:
                    yield work.progress
            for node in self._ends:
                node.made(lower)
            lost = next((node.failed for node in self.body if node.failed), None)
            if self.shard.agree(int(lost is not None)):
                raise lost or DiffOverflow
            rules = [v.rule.delta.errors for v in self._variables if v.rule is not None]
            for node, loop_exit in self._through:
                loop_exit.pass_through(node.delta, rules)
            # No variable is asked but all: each takes its own.
            turned = [variable.turn() for variable in self._variables]
            if own == self._most and self._left_over:
                for variable, loop_exit in self._left_over:
                    loop_exit.pass_through(Delta(variable.next, None), ())
                for variable in self._variables:
                    variable.next = None
                turned = []
            elif self._row_limit is not None:
                turned = self._row_limit.turn(own)
            brought = [variable.next for variable in self._variables]
            goes_on = work.turned(own, brought, goes_on=any(turned), is_outer=self.scope is None)
            yield work.progress
            own = own + 1 if goes_on else self._next_due(own)
        self._began = True
        if self._row_limit is not None:
            errors = self._row_limit.end(upper)
            for _, loop_exit in self._through:
                loop_exit.pass_through(Delta(None, errors), ())
        for _, loop_exit in self.exits:
            loop_exit.close(upper, self.scope.now if self.scope else 0)
        for node in self.body:
            # Nobody reads it after the last round, which may be as large as all the others together.
            node.delta = QUIET
        return work.progress

    def _next_due(self, own: int) -> int | None:
        owns = [self._body_scope.own_of(now) for now in self._due()]
        if self._row_limit is not None and own < self._most:
            owns.append(self._row_limit.due(own))
        never = MOST_EVER
        found = self.shard.agree(min((at for at in owns if at is not None and at > own), default=never), min)
        return None if found == never else found

    def _said(self, as_of: int) -> list[str]:
        """The errors that left as of an epoch."""
        return [str(text) for text in self._through[0][1].errors(as_of).rows.column(0).to_pylist()]

    def hydrate(self, frontier: int, memo: Memo) -> None:
        """Run all rounds upon the content of the collections that enter."""
        self._began = True
        if all(trace.loaded for trace in self._traces):
            return
        self._began = False
        for node in self._entered:
            node.imported = node.outside.content(frontier - 1, memo)
        # All that lies in the arrangements from outside is of this step.
        whole(self.rounds(frontier - 1, frontier, 0, RoundWork(self.shard)))
        for node in self._entered:
            node.imported = None
        for trace in self._traces:
            trace.catch_up(frontier)
            trace.advance(frontier - 1)
            trace.loaded = True

    def traces(self) -> Sequence[Trace]:
        """All arrangements of the body."""
        return self._traces

    def release(self) -> None:
        """Let all of the body go, readers first."""
        for node in reversed(self.body):
            node.release()
        kept = [trace for _, loop_exit in self.exits for trace in (*loop_exit.traces, *loop_exit.apart)]
        for trace in (*kept, *([] if self._row_limit is None else self._row_limit.traces)):
            trace.release()


class LoopOutputNode(Node):
    """One of the collections that leave a loop."""

    label = "leave"
    waits_for_input = False

    def __init__(self, fingerprint: str, loop: IterateNode, k: int) -> None:
        node, self._exit = loop.exits[k]
        super().__init__(fingerprint, Schema(node.schema.columns), [loop])
        self._loop = loop

    def is_eager(self, lower: int) -> bool:  # noqa: ARG002
        """What leaves stands at the door."""
        return self._exit.delta is not QUIET

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """What leaves."""
        return self._exit.delta

    def compute(self, as_of: int, memo: Memo) -> Delta:  # noqa: ARG002
        """What left so far. Raises DiffOverflow once the loop has failed: what is kept at the door is not all."""
        self._check_loop()
        return self._exit.content(as_of)

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:  # noqa: ARG002
        """The errors that left so far."""
        self._check_loop()
        return self._exit.errors(as_of)

    def _check_loop(self) -> None:
        if self._loop.failed:
            raise self._loop.failed

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The difference of the contents, wherever what enters changes, or the loop became late or came back."""
        entered = [node.changes(lower, upper, memo) for node in self._loop.inputs]
        return self.differences([*entered, self._exit.changes(lower, upper)], lower, upper)
