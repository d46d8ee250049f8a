"""Delta joins: a join of several collections that keeps nothing but an arrangement of each of them.

Always: what changes in one collection is taken through the arrangements of the others one after the other, and each
combination of rows is found once: by the one of its updates that is last in the order of (epoch, place of its
collection), at that update's epoch (McSherry's delta queries). In a loop that order is (step, round, place), and the
combination stands at the least time that is ≥ those of all its updates. Between two look-ups rows are a stream and
no arrangement. Called by whoever builds plans: `delta_join`.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from headrace.engine.dataflow.arrange import ArrangeNode, TableNode
from headrace.engine.dataflow.collection import Collection
from headrace.engine.dataflow.delta_join_nodes import ChangesNode, LookUpNode
from headrace.engine.dataflow.delta_join_round import LookUpRoundNode, RoundDelayNode, StampNode
from headrace.engine.dataflow.enter import EnterNode
from headrace.engine.dataflow.graph import Graph, own_key
from headrace.engine.dataflow.iterate import Iteration
from headrace.engine.dataflow.node import Node, fingerprint_of
from headrace.engine.dataflow.stateless import FilterNode
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.conditions import cannot_fail, columns_of, placed
from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.schema import Schema

Place = tuple[int, int]
"""A column: of which input, and which there."""

_STAMP: Place = (-1, 0)
"""Of rows on their way in a loop."""


def delta_join(inputs: Sequence[Collection], equal: Sequence[Sequence[Place]], columns: Sequence[Place]) -> Collection:
    """The inner join of `inputs` where the columns of each class of `equal` are equal (NULL equals nothing).

    Rows are `columns`. Each input is arranged by the keys that it is looked up by, and nothing else is kept. Raises
    InvariantBroken for inputs that no chain of classes connects, or a class whose columns have several lanes.
    """
    for some in equal:
        lanes = {inputs[i].schema.columns[c].type.arrow for i, c in some}
        if len(lanes) > 1 or len({i for i, _ in some}) < len(some):
            raise InvariantBroken("keys of two lanes never meet", columns=list(some), hint="cast one; filter one input")
    read = {*columns, *(p for some in equal for p in some)}
    sources = [_Source(c, i, read, equal) for i, c in enumerate(inputs)]
    paths = [_path(sources, equal, columns, first) for first in range(len(inputs))]
    return paths[0].concat(*paths[1:])


class _Step(NamedTuple):
    """A look-up by columns `key` of an input in what holds its `columns`; `all_held`: the rows get all of these.

    `condition`: of what is found, over the input's columns. Plans that differ in it alone share the look-up.
    """

    key: tuple[int, ...]
    arranged: ArrangeNode
    columns: tuple[int, ...]
    all_held: bool = False
    condition: Expr | None = None


class _Source:
    """An input, and of it the columns that are read, which are what is arranged unless a table's own arrangement serves.

    `classes`: of each class of equal columns that it has one of, by its number, that column. What entered a loop is
    arranged outside.
    """

    def __init__(
        self, whole: Collection, place: int, read: AbstractSet[Place], equal: Sequence[Sequence[Place]]
    ) -> None:
        self.whole = whole
        self.classes = {k: c for k, some in enumerate(equal) for i, c in some if i == place}
        self.columns = tuple(c for c in range(len(whole.schema.columns)) if (place, c) in read)
        self._loop = whole.flow if isinstance(whole.flow, Iteration) and isinstance(whole.node, EnterNode) else None
        self._outside: _Source | None = None
        if self._loop is not None:
            self._outside = _Source(self._loop.outside(whole), place, read, equal)
        self._steps: dict[tuple[int, ...], list[_Step]] = {}

    def steps(self, key: tuple[int, ...]) -> list[_Step]:
        """How rows are found by `key`: in one step, or in two."""
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._entered(key) or self._index(key) or [self._arranged(key)]
        return found

    def _entered(self, key: tuple[int, ...]) -> list[_Step]:
        """As `steps`, of what entered a loop."""
        if self._loop is None or self._outside is None:
            return []
        return [step._replace(arranged=self._loop.enter_arranged(step.arranged)) for step in self._outside.steps(key)]

    def _index(self, key: tuple[int, ...]) -> list[_Step]:
        """Where a table's rows are looked up by `key` in two steps: its primary key, an index of that by `key`, and itself.

        Nowhere if one step does: the key is its own, or nothing else is read. What is kept is small, and the same for all
        plans, whatever columns they read; both steps see the table at one time.
        """
        flow, node = self.whole.flow, self.whole.node
        table = node.inputs[0] if isinstance(node, FilterNode) else node
        if not isinstance(table, TableNode) or not table.is_keyed or table.key == key:
            return []
        columns = tuple(sorted({*key, *table.key}))
        if set(self.columns) <= set(columns):
            return []
        part = self.whole.pick(columns, Schema(tuple(self.whole.schema.columns[c] for c in columns)))
        at = tuple(columns.index(k) for k in key)
        index = flow.indexed(flow.by_key(part.node, at, exactly=True), at)
        whole = flow.indexed(flow.by_key(table, table.key, exactly=True), table.key)
        return [_Step(key, index, columns, all_held=True), _Step(table.key, whole, self._all())]

    def _arranged(self, key: tuple[int, ...]) -> _Step:
        """Where rows are looked up by `key` in one step: the columns that are read, or all, where these stand so anyhow."""
        flow, node = self.whole.flow, self.whole.node
        if isinstance(node, FilterNode) and own_key(node) == key and cannot_fail(node.predicate):
            below = flow.indexed(flow.by_key(node.inputs[0], key, exactly=True), key)
            return _Step(key, below, self._all(), condition=node.predicate)
        if own_key(node) == key or len(self.columns) == len(self.whole.schema.columns):
            return _Step(key, flow.indexed(flow.by_key(node, key, exactly=True), key), self._all())
        at = tuple(self.columns.index(k) for k in key)
        part = self.whole.pick(self.columns, Schema(tuple(self.whole.schema.columns[c] for c in self.columns)))
        return _Step(key, flow.indexed(flow.by_key(part.node, at, exactly=True), at), self.columns)

    def _all(self) -> tuple[int, ...]:
        return tuple(range(len(self.whole.schema.columns)))


def _path(
    inputs: Sequence[_Source], equal: Sequence[Sequence[Place]], columns: Sequence[Place], first: int
) -> Collection:
    """What changes of input `first` make: looked up in one input after the other, those of most equalities first."""
    flow, begin = inputs[first].whole.flow, inputs[first].whole
    begun, places = _set_out(flow, begin.node, first)
    node = begun
    bound = set(inputs[first].classes)
    left = [i for i in range(len(inputs)) if i != first]
    while left:
        at = max(left, key=lambda i: (len(inputs[i].classes.keys() & bound), -i))
        keys = {column: k for k, column in inputs[at].classes.items() if k in bound}
        if not keys:
            raise InvariantBroken("inputs of a delta join that nothing connects", input=at, hint="join them apart")
        left.remove(at)
        bound |= inputs[at].classes.keys()
        wanted = {
            _STAMP,
            *columns,
            *(p for k in set[int]().union(*(inputs[i].classes for i in left)) for p in equal[k]),
        }
        # What must equal a column stands for it, until the column is there.
        known = {(at, column): next(places[p] for p in equal[k] if p in places) for column, k in keys.items()}
        for step in inputs[at].steps(tuple(sorted(keys))):
            mine = [p for p in places if p in wanted]
            theirs = [c for c in step.columns if (at, c) not in places and (step.all_held or (at, c) in wanted)]
            condition = step.condition
            read = [] if condition is None else [c for c in sorted(columns_of(condition)) if c not in theirs]
            own = {c: k for k, c in enumerate([*theirs, *read], len(mine))}
            held = tuple(places[p] for p in mine), tuple(step.columns.index(c) for c in own)
            key = tuple(known[at, c] for c in step.key)
            node = _looked_up(flow, node, key, step.arranged, held, strictly=at > first, sets_out=node is begun)
            if condition is not None:
                node = Collection(flow, node, node.schema).filter(placed(condition, own)).node
            known = places = {p: k for k, p in enumerate([*mine, *((at, c) for c in theirs)])}
    schema = Schema(tuple(inputs[i].whole.schema.columns[c] for i, c in columns))
    whole = Collection(flow, node if flow.scope is None else _arrived(flow, node), node.schema)
    return whole.pick([places[p] for p in columns], schema)


def _set_out(flow: Graph, source: Node, first: int) -> tuple[Node, dict[Place, int]]:
    """The stream that the path of input `first` begins with, and where its columns stand there."""
    width = len(source.schema.columns)
    if flow.scope is not None:
        fingerprint = fingerprint_of("set out", source.fingerprint)
        node: Node = flow.intern(fingerprint, lambda: StampNode(fingerprint, source))
        return node, {_STAMP: 0, **{(first, c): c + 1 for c in range(width)}}
    places = {(first, c): c for c in range(width)}
    if first == 0:
        return source, places
    fingerprint = fingerprint_of("changes", source.fingerprint)
    return flow.intern(fingerprint, lambda: ChangesNode(fingerprint, source.schema, [source])), places


def _arrived(flow: Graph, stream: Node) -> Node:
    fingerprint = fingerprint_of("arrive", stream.fingerprint)
    return flow.intern(fingerprint, lambda: RoundDelayNode(fingerprint, stream))


def _looked_up(
    flow: Graph,
    stream: Node,
    key: tuple[int, ...],
    arranged: ArrangeNode,
    held: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    strictly: bool,
    sets_out: bool,
) -> Node:
    stream = flow.by_key(stream, key, exactly=True)
    fingerprint = fingerprint_of("look up", stream.fingerprint, arranged.fingerprint, key, *held, strictly)
    kind = LookUpNode if flow.scope is None else LookUpRoundNode
    return flow.intern(
        fingerprint, lambda: kind(fingerprint, stream, arranged, key, held, strictly=strictly, sets_out=sets_out)
    )
