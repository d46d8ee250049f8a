"""Loops: a body of nodes that runs round after round, until no round brings anything new.

Invariant: a variable is its initial collection, and in each later round what its rule made of the one before; what leaves is the
body's collection after the last round. The rounds of all epochs of a step are worked off together, and a round in which nothing
is due is not visited (paper: "Shared Arrangements", section 5.4). The body reads arrangements from outside as they are; to the
graph around it a loop is one node, which plans that recurse use. A loop that does not come to rest fails by name, unless it is
closed with doors for what is left over, through which that leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.enter import EnteredArrangementNode, EnterNode
from headrace.engine.dataflow.graph import Graph, reachable
from headrace.engine.dataflow.loop_exit import LoopExit
from headrace.engine.dataflow.node import Memo, Node, fingerprint_of
from headrace.engine.dataflow.overflow import Endless
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.dataflow.row_limit import MostRows, RowLimit
from headrace.engine.dataflow.variable import VariableNode
from headrace.engine.errors import InvariantBroken
from headrace.engine.iteration.scope import Scope
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.schema import Schema

MOST = 1 << 20
"""Rounds after which a loop is taken not to end, unless its maker says otherwise."""


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
        for _, loop_exit in self.exits:
            loop_exit.delta = QUIET
        for node in self.inputs:
            node.made(lower)
        lost = self.failed is not None or any(node.failed for node in self.inputs)
        if self.shard.agree(int(lost)) and not lost:
            self.failed = DiffOverflow()  # whoever failed says so
        super().step(lower, upper)

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

    def run(self, lower: int, upper: int) -> Delta:
        """All rounds of the step."""
        self._rounds(lower, upper, lower if self.scope is None else self.scope.floor)
        return QUIET

    def _due(self) -> set[int]:
        return {now for node in self.body for now in node.later()}

    def _rounds(self, lower: int, upper: int, floor: int) -> None:
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
            for node in self.body:
                node.step(lower, upper)
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
            own = own + 1 if self.shard.agree(int(any(turned))) else self._next_due(own)
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
        self._rounds(frontier - 1, frontier, 0)
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
        for _, loop_exit in self.exits:
            for trace in loop_exit.traces:
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
        """The difference of the contents, wherever what enters changes."""
        return self.differences([node.changes(lower, upper, memo) for node in self._loop.inputs], lower, upper)


class Iteration(Graph):
    """The body of a loop while it is built: collections enter, variables stand for the round before, rules close it.

    `name`: of the view, for errors; `most`: so many rounds after the first may bring something new. Raises TooDeep.
    """

    def __init__(self, outer: Graph, name: str, most: int = MOST) -> None:
        super().__init__(outer.shard, Scope(outer.scope))
        self.outer = outer
        self.name = name
        self.most = most
        self._variables: list[VariableNode] = []

    def enter(self, collection: Collection) -> Collection:
        """A collection from outside, the same in every round. Raises InvariantBroken for one of another graph."""
        if collection.flow is not self.outer:
            raise InvariantBroken("a collection was entered from elsewhere", loop=self.name, node=collection.node.label)
        node = self._entered(collection.node)
        return Collection(self, node, collection.schema)

    def variable(self, schema: Schema, initial: Collection | None = None) -> Collection:
        """What the loop works out: `initial`, entered before, in the first round (or nothing), then what its rule says."""
        if initial is not None and not isinstance(initial.node, EnterNode):
            raise InvariantBroken("a variable begins as what entered", loop=self.name, hint="concat it in the rule")
        schema = Schema(schema.columns)
        assert self.scope is not None
        types = [c.type for c in schema.columns]
        begin = None if initial is None else initial.node
        spelled = "" if begin is None else begin.fingerprint
        fingerprint = fingerprint_of("variable", self.scope.depth, len(self._variables), types, spelled)
        node = self.intern(fingerprint, lambda: VariableNode(fingerprint, schema, begin))
        self._variables.append(node)
        return Collection(self, node, schema)

    def iterate(self, name: str, most: int = MOST) -> Iteration:
        """A loop in this loop."""
        return Iteration(self, name, most)

    def close(
        self,
        rules: Mapping[Collection, Collection],
        leave: Sequence[Collection],
        left_over: Sequence[Collection] = (),
        most_rows: MostRows | None = None,
    ) -> list[Collection]:
        """Let each variable be in the next round what its rule is in this one; the collections that `leave`, outside.

        `left_over`: variables of which leaves, behind these, what would be new in them after the last round: nothing, where the
        loop comes to rest within its rounds. Without any a loop that does not fails. `most_rows`: how many rows each variable
        may have before the loop is in error; of a loop in a loop it is not asked. Raises InvariantBroken unless every
        variable has one rule of the same lanes.
        """
        for variable, rule in rules.items():
            assert isinstance(variable.node, VariableNode)
            lanes = [[c.type.arrow for c in x.schema.columns] for x in (variable, rule)]
            if lanes[0] != lanes[1]:
                raise InvariantBroken(
                    "a rule makes rows of other types", loop=self.name, variable=lanes[0], rule=lanes[1]
                )
            variable.node.rule = rule.node
        if any(v.rule is None for v in self._variables):
            raise InvariantBroken("a variable has no rule", loop=self.name)
        spelled = [(v.fingerprint, v.rule.fingerprint) for v in self._variables if v.rule is not None]
        left = [c.fingerprint for c in leave]
        over = [c.fingerprint for c in left_over]
        limited = most_rows if self.outer.scope is None else None
        limits = [] if limited is None else [["rows", limited.most]]
        fingerprint = fingerprint_of("loop", self.name, self.most, spelled, left, *over, *limits)
        made: list[IterateNode] = []

        def make() -> IterateNode:
            roots = [*(c.node for c in rules.values()), *rules_of(self._variables), *(c.node for c in leave)]
            wanted = reachable(roots)
            body = [node for node in self._known.values() if node in wanted]
            loop_exits = [(c.node, LoopExit(self.registry, c.node, k)) for k, c in enumerate(leave)]
            ends = [
                (c.node, LoopExit(self.registry, c.node, len(leave) + k))
                for k, c in enumerate(left_over)
                if isinstance(c.node, VariableNode)
            ]
            variables = [node for node in body if isinstance(node, VariableNode)]
            limit = None if limited is None else RowLimit(self.registry, self.shard, limited, variables)
            made.append(IterateNode(fingerprint, self.name, self.most, body, loop_exits, ends, limit))
            for k, trace in enumerate(made[0].traces()):
                trace.adopt(self.outer.registry, f"loop-{fingerprint[:20]}-{k}")
            return made[0]

        node = self.outer.intern(fingerprint, make)
        kept = set(made[0].body) if made else set()
        for other in reversed([n for n in self._known.values() if n not in kept]):
            other.release()
        return [self._left(node, k, c) for k, c in enumerate((*leave, *left_over))]

    def from_outside(self, make: Callable[[Graph], Node]) -> Node:
        """As `Graph.from_outside`; it enters."""
        return self._entered(self.outer.from_outside(make))

    def arrange(self, source: Node, key: tuple[int, ...], order: tuple[int, ...] = ()) -> ArrangeNode:
        """As `Graph.arrange`; what entered is arranged outside, once for all who read it so."""
        if not isinstance(source, EnterNode):
            return super().arrange(source, key, order)
        return self._as_it_lies(source, self.outer.arrange(source.outside, key, order))

    def indexed(self, source: Node, key: tuple[int, ...]) -> ArrangeNode:
        """As `Graph.indexed`; what entered is looked up outside."""
        if not isinstance(source, EnterNode):
            return super().indexed(source, key)
        return self._as_it_lies(source, self.outer.indexed(source.outside, key))

    def outside(self, entered: Collection) -> Collection:
        """What entered, as it is outside."""
        assert isinstance(entered.node, EnterNode)
        return Collection(self.outer, entered.node.outside, entered.schema)

    def enter_arranged(self, outside: ArrangeNode) -> ArrangeNode:
        """An arrangement from outside."""
        return self._as_it_lies(self._entered(outside.source), outside)

    def _as_it_lies(self, entered: EnterNode, outside: ArrangeNode) -> ArrangeNode:
        fingerprint = fingerprint_of("entered", outside.fingerprint)
        return self.intern(fingerprint, lambda: EnteredArrangementNode(fingerprint, entered, outside))

    def by_key(self, source: Node, key: tuple[int, ...], *, exactly: bool = False) -> Node:
        """As `Graph.by_key`; what entered is exchanged outside."""
        if isinstance(source, EnterNode):
            return self._entered(self.outer.by_key(source.outside, key, exactly=exactly))
        return super().by_key(source, key, exactly=exactly)

    def _entered(self, outside: Node) -> EnterNode:
        fingerprint = fingerprint_of("enter", outside.fingerprint)
        return self.intern(fingerprint, lambda: EnterNode(fingerprint, outside))

    def _left(self, loop: IterateNode, k: int, collection: Collection) -> Collection:
        fingerprint = fingerprint_of("leave", loop.fingerprint, k)
        node = self.outer.intern(fingerprint, lambda: LoopOutputNode(fingerprint, loop, k))
        return Collection(self.outer, node, Schema(collection.schema.columns))


def rules_of(variables: Sequence[VariableNode]) -> list[Node]:
    """The variables themselves and what each becomes."""
    return [*variables, *(v.rule for v in variables if v.rule is not None)]
