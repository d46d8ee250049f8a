"""Loops: a body of nodes that runs round after round, until no round brings anything new.

Invariant: a variable is its initial collection, and in each later round what its rule made of the one before; what leaves is the
body's collection after the last round. The rounds of all epochs of a step are worked off together, and a round in which nothing
is due is not visited (paper: "Shared Arrangements", section 5.4). The body reads arrangements from outside as they are; to the
graph around it a loop is one node, which plans that recurse use. A loop that does not come to rest fails by name, unless it is
closed with doors for what is left over, through which that leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.enter import EnteredArrangementNode, EnterNode
from headrace.engine.dataflow.graph import Graph, reachable
from headrace.engine.dataflow.late_loop import OutermostLoopNode
from headrace.engine.dataflow.loop_exit import LoopExit
from headrace.engine.dataflow.loop_node import IterateNode, LoopOutputNode
from headrace.engine.dataflow.node import Node, fingerprint_of
from headrace.engine.dataflow.row_limit import MostRows, RowLimit
from headrace.engine.dataflow.variable import VariableNode
from headrace.engine.errors import InvariantBroken
from headrace.engine.iteration.scope import Scope
from headrace.engine.schema import Schema

MOST = 1 << 20
"""Rounds after which a loop is taken not to end, unless its maker says otherwise."""


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
            is_outer = self.outer.scope is None
            loop_exits = [(c.node, LoopExit(self.registry, c.node, k, is_outer=is_outer)) for k, c in enumerate(leave)]
            ends = [
                (c.node, LoopExit(self.registry, c.node, len(leave) + k, is_outer=is_outer))
                for k, c in enumerate(left_over)
                if isinstance(c.node, VariableNode)
            ]
            variables = [node for node in body if isinstance(node, VariableNode)]
            limit = None if limited is None else RowLimit(self.registry, self.shard, limited, variables)
            parts = fingerprint, self.name, self.most, body, loop_exits, ends, limit
            if is_outer:
                said = self.name if limited is None else limited.said[0]
                made.append(OutermostLoopNode(*parts, registry=self.registry, late=self.outer.late, said=said))
            else:
                made.append(IterateNode(*parts))
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
