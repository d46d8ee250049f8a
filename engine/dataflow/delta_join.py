"""Delta joins: a join of several collections that keeps nothing but an arrangement of each of them.

Always: what changes in one collection is taken through the arrangements of the others one after the other, and each
combination of rows is found once: by the one of its updates that is last in the order of (epoch, place of its
collection), at that update's epoch (paper: "Shared Arrangements", section 5.3.2; McSherry's delta queries). Between two
look-ups rows are a stream and no arrangement. Called by whoever builds plans: `delta_join`.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np

from engine.batch.layout import layout_of
from engine.batch.updates import Updates
from engine.dataflow.collection import Collection
from engine.dataflow.graph import Graph, own_key
from engine.dataflow.nodes import FilterNode, Memo, Node, fingerprint_of, merged
from engine.dataflow.stateful import ArrangeNode, TableNode
from engine.errors import InvariantBroken
from engine.operators.delta import QUIET, Delta
from engine.operators.join import Joined, Probes, look_up_earlier, without_nulls
from engine.schema import Schema

Place = tuple[int, int]
"""A column: of which input, and which there."""


class ChangesNode(Node):
    """The changes of a collection without its content: the stream that a path of look-ups but the first begins with."""

    label = "changes"

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The source's changes."""
        return self.inputs[0].delta

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """No rows: the first path has them all. The errors are every path's own."""
        return Delta(None, self.inputs[0].errors(as_of, memo))

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The source's changes."""
        return self.inputs[0].changes(lower, upper, memo)


class LookUpNode(Node):
    """The rows of a stream with their partners in an arrangement, as it was at the stream's times.

    `key`: the stream's columns that are looked up; `held`: of both sides the columns that the rows have;
    `strictly`: partners must be earlier, and not of the same epoch.
    """

    label = "look up"

    def __init__(
        self,
        fingerprint: str,
        stream: Node,
        arranged: ArrangeNode,
        key: tuple[int, ...],
        held: tuple[tuple[int, ...], tuple[int, ...]],
        *,
        strictly: bool,
    ) -> None:
        columns = [*(stream.schema.columns[k] for k in held[0]), *(arranged.schema.columns[k] for k in held[1])]
        super().__init__(fingerprint, Schema(tuple(columns)), [stream, arranged])
        self._stream = stream
        self._arranged = arranged
        self._key = key
        self._layout = layout_of(stream.schema, key)
        self._joined = Joined.of(self.schema.arrow, held)
        self._strictly = strictly
        self._reader = arranged.trace.read_by(f"{self.label}-{fingerprint[:12]}")

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The partners of what the stream brings."""
        delta = self._stream.delta
        return merged(self._partners(delta.rows, lower - 1, strictly=self._strictly), Delta(None, delta.errors))

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The partners, at `as_of`, of the stream's content."""
        content = self._stream.content(as_of, memo)
        self._arranged.trace.check_faithful(as_of)
        return merged(self._partners(content.rows, as_of, strictly=False), Delta(None, content.errors))

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The partners of the stream's changes, as the steps of these epochs found them."""
        self._arranged.trace.check_faithful(max(lower - 1, 0))
        delta = self._stream.changes(lower, upper, memo)
        return merged(self._partners(delta.rows, lower - 1, strictly=self._strictly), Delta(None, delta.errors))

    def _partners(self, rows: Updates | None, since: int, *, strictly: bool) -> Delta:
        if rows is None or not len(rows):
            return QUIET
        keys, positions = self._layout.keys_of(rows), np.arange(len(rows))
        times, diffs = rows.times, rows.diffs
        valid = without_nulls(rows.struct, self._key)
        if valid is not None:
            keys, positions, times, diffs = keys.take(valid), valid, times[valid], diffs[valid]
        probes = Probes(rows.struct, positions, keys, times, diffs)
        return look_up_earlier(probes, self._arranged.index, since, self._joined, strictly=strictly)

    def release(self) -> None:
        """Stop reading the arrangement."""
        self._reader.release()


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
    """A look-up by columns `key` of an input in what holds its `columns`; `all_held`: the rows get all of these."""

    key: tuple[int, ...]
    arranged: ArrangeNode
    columns: tuple[int, ...]
    all_held: bool = False


class _Source:
    """An input, and of it the columns that are read, which are what is arranged unless a table's own arrangement serves.

    `classes`: of each class of equal columns that it has one of, by its number, that column.
    """

    def __init__(
        self, whole: Collection, place: int, read: AbstractSet[Place], equal: Sequence[Sequence[Place]]
    ) -> None:
        self.whole = whole
        self.classes = {k: c for k, some in enumerate(equal) for i, c in some if i == place}
        self.columns = tuple(c for c in range(len(whole.schema.columns)) if (place, c) in read)
        self._part = whole.pick(self.columns, Schema(tuple(whole.schema.columns[c] for c in self.columns)))
        self._steps: dict[tuple[int, ...], list[_Step]] = {}

    def steps(self, key: tuple[int, ...]) -> list[_Step]:
        """How rows are found by `key`: in one step, or in two."""
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = self._index(key) or [self._arranged(key)]
        return found

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
        if own_key(node) == key or len(self.columns) == len(self.whole.schema.columns):
            return _Step(key, flow.indexed(flow.by_key(node, key, exactly=True), key), self._all())
        at = tuple(self.columns.index(k) for k in key)
        return _Step(key, flow.indexed(flow.by_key(self._part.node, at, exactly=True), at), self.columns)

    def _all(self) -> tuple[int, ...]:
        return tuple(range(len(self.whole.schema.columns)))


def _path(
    inputs: Sequence[_Source], equal: Sequence[Sequence[Place]], columns: Sequence[Place], first: int
) -> Collection:
    """What changes of input `first` make: looked up in one input after the other, those of most equalities first."""
    flow, begin = inputs[first].whole.flow, inputs[first].whole
    node: Node = begin.node if first == 0 else _changes(flow, begin.node)
    places = {(first, c): c for c in range(len(begin.schema.columns))}
    bound = set(inputs[first].classes)
    left = [i for i in range(len(inputs)) if i != first]
    while left:
        at = max(left, key=lambda i: (len(inputs[i].classes.keys() & bound), -i))
        keys = {column: k for k, column in inputs[at].classes.items() if k in bound}
        if not keys:
            raise InvariantBroken("inputs of a delta join that nothing connects", input=at, hint="join them apart")
        left.remove(at)
        bound |= inputs[at].classes.keys()
        wanted = {*columns, *(p for k in set[int]().union(*(inputs[i].classes for i in left)) for p in equal[k])}
        # What must equal a column stands for it, until the column is there.
        known = {(at, column): next(places[p] for p in equal[k] if p in places) for column, k in keys.items()}
        for step in inputs[at].steps(tuple(sorted(keys))):
            mine = [p for p in places if p in wanted]
            theirs = [c for c in step.columns if (at, c) not in places and (step.all_held or (at, c) in wanted)]
            held = tuple(places[p] for p in mine), tuple(step.columns.index(c) for c in theirs)
            key = tuple(known[at, c] for c in step.key)
            node = _looked_up(flow, node, key, step.arranged, held, strictly=at > first)
            known = places = {p: k for k, p in enumerate([*mine, *((at, c) for c in theirs)])}
    schema = Schema(tuple(inputs[i].whole.schema.columns[c] for i, c in columns))
    whole = Collection(flow, node, node.schema)
    return whole.pick([places[p] for p in columns], schema)


def _changes(flow: Graph, source: Node) -> Node:
    fingerprint = fingerprint_of("changes", source.fingerprint)
    return flow.intern(fingerprint, lambda: ChangesNode(fingerprint, source.schema, [source]))


def _looked_up(
    flow: Graph,
    stream: Node,
    key: tuple[int, ...],
    arranged: ArrangeNode,
    held: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    strictly: bool,
) -> Node:
    stream = flow.by_key(stream, key, exactly=True)
    fingerprint = fingerprint_of("look up", stream.fingerprint, arranged.fingerprint, key, *held, strictly)
    return flow.intern(fingerprint, lambda: LookUpNode(fingerprint, stream, arranged, key, held, strictly=strictly))
