"""The nodes at which rows change shards, and what is known of where the others' rows are.

Always: rows with equal values in the columns by which they are exchanged are on one shard afterwards; errors stay where
they arose; every shard takes part in every step and question, quiet or not, and takes in what it got by shard, so that
the same input gives the same result. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.batch.layout import layout_of
from engine.batch.payload import Assembly
from engine.batch.shards import shard_positions
from engine.batch.updates import Int64s, Updates
from engine.batch.wire import NOTHING, Message, received, sent
from engine.dataflow.exchange import Shard
from engine.dataflow.nodes import ConcatNode, FilterNode, KeyCheckNode, Memo, NegateNode, Node, ProjectNode, merged
from engine.dataflow.stateful import ArrangeNode, JoinNode, ReduceNode, TableNode
from engine.dataflow.top import TopNode
from engine.errors import InvariantBroken
from engine.operators.delta import Delta
from engine.operators.expressions.ir import ColumnRef

Columns = tuple[int, ...]


class MovingNode(Node):
    """A collection of which each shard has other rows than its input has there."""

    label = "moved"

    def __init__(self, fingerprint: str, source: Node, shard: Shard) -> None:
        super().__init__(fingerprint, source.schema, [source])
        self.source = source
        self.shard = shard
        self._about = int(fingerprint[:15], 16)
        arrow = source.schema.arrow
        self._arrow = arrow
        self._assembly = Assembly.of(arrow, range(len(arrow)))

    def step(self, lower: int, upper: int) -> None:
        """Exchange the delta of the step; a source that failed anywhere fails it everywhere, and the source says so."""
        delta = self.source.delta
        failed = self.source.failed
        rows, lost = self._moved(None if failed else delta.rows, failed=failed)
        self.failed = self.failed or lost
        self.delta = merged(Delta(None if self.failed else rows, None), Delta(None, delta.errors))
        if self.delta.rows is not None and not bool(
            ((self.delta.rows.times >= lower) & (self.delta.rows.times < upper)).all()
        ):
            raise InvariantBroken("an update was sent outside of its step", node=self.label, lower=lower, upper=upper)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The source's content, exchanged."""
        found = self.source.content(as_of, memo)
        return Delta(self._moved(found.rows)[0], found.errors)

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:
        """The source's errors."""
        return self.source.errors(as_of, memo)

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The source's changes, exchanged."""
        found = self.source.changes(lower, upper, memo)
        return Delta(self._moved(found.rows)[0], found.errors)

    def _moved(self, updates: Updates | None, *, failed: bool = False) -> tuple[Updates | None, bool]:
        """The rows that belong here after all shards have sent theirs, and whether one of them failed."""
        rows = updates if updates is not None and len(updates) else None
        parts = [None] * self.shard.count if rows is None else self._parts(rows)
        messages = [self._message(rows, part, k) for k, part in enumerate(parts)]
        found, lost = self.shard.exchange(self._about, messages, marked=failed)
        return (None, True) if lost else (self._gathered(rows, parts[self.shard.index], found), False)

    def _parts(self, updates: Updates) -> Sequence[Int64s | None]:
        """For each shard the positions of its rows; None for all of them."""
        raise NotImplementedError

    def _message(self, rows: Updates | None, positions: Int64s | None, shard: int) -> Message:
        if rows is None or shard == self.shard.index:
            return NOTHING
        if positions is None:
            return sent(rows)
        if not len(positions):
            return NOTHING
        lanes = np.zeros((2, 1, len(positions)), np.int64)
        lanes[1] = positions
        taken = self._assembly.rows(np.array([rows.struct.address]), lanes[0], lanes[1])
        return sent(Updates(taken, rows.times[positions], rows.diffs[positions]))

    def _gathered(self, own: Updates | None, kept: Int64s | None, found: Sequence[Message]) -> Updates | None:
        """The own rows at `kept` and what was received, by shard."""
        others = [received(message, self._arrow) for message in found]
        others[self.shard.index] = own
        some: list[tuple[Updates, Int64s]] = []
        for k, part in enumerate(others):
            if part is not None:
                positions = np.arange(len(part)) if kept is None or k != self.shard.index else kept
                some += [(part, positions)] if len(positions) else []
        if not some:
            return None
        if len(some) == 1 and len(some[0][0]) == len(some[0][1]):
            return some[0][0]
        sizes = [len(positions) for _, positions in some]
        lanes = np.empty((2, 1, sum(sizes)), np.int64)
        lanes[0, 0] = np.repeat(np.arange(len(some)), sizes)
        np.concatenate([positions for _, positions in some], out=lanes[1, 0])
        structs = np.array([part.struct.address for part, _ in some])
        return Updates(
            self._assembly.rows(structs, lanes[0], lanes[1]),
            np.concatenate([part.times[positions] for part, positions in some]),
            np.concatenate([part.diffs[positions] for part, positions in some]),
        )


class ExchangeNode(MovingNode):
    """A collection by the hash of some columns: rows that are equal there are on one shard."""

    label = "exchange"

    def __init__(self, fingerprint: str, source: Node, columns: Columns, shard: Shard) -> None:
        super().__init__(fingerprint, source, shard)
        self.columns = columns
        self._layout = layout_of(source.schema, columns)

    def _parts(self, updates: Updates) -> Sequence[Int64s | None]:
        if self.columns:
            return shard_positions(self._layout.keys_of(updates).hash, self.shard.count)
        none = np.empty(0, np.int64)
        return [None, *[none] * (self.shard.count - 1)]


class ReplicateNode(MovingNode):
    """A collection of which every shard has every row: what all are to be joined with."""

    label = "replicate"

    def _parts(self, updates: Updates) -> Sequence[Int64s | None]:  # noqa: ARG002
        return [None] * self.shard.count


def placed_by(node: Node) -> frozenset[Columns]:
    """By which columns the rows of `node` are on their shards: any of these, each in the order in which it was hashed."""
    if isinstance(node, TableNode):
        return frozenset([node.key])
    if isinstance(node, ExchangeNode):
        return frozenset([node.columns])
    if isinstance(node, ProjectNode):
        to: dict[int, int] = {}
        for place, expr in enumerate(node.exprs):
            if isinstance(expr, ColumnRef):
                to.setdefault(expr.index, place)
        return _passed(node, 0, to)
    if isinstance(node, JoinNode):
        left, right = node.held
        there = {column: len(left) + place for place, column in enumerate(right)}
        return _passed(node, 0, {column: place for place, column in enumerate(left)}) | _passed(node, 1, there)
    if isinstance(node, ConcatNode):
        return frozenset.intersection(*(_kept(node, k) for k in range(len(node.inputs))))
    if isinstance(node, (FilterNode, NegateNode, KeyCheckNode, ArrangeNode, ReduceNode, TopNode)):
        return _kept(node, 0)
    return frozenset()


def _kept(node: Node, side: int) -> frozenset[Columns]:
    """Of a node that sends the first columns of an input in their places."""
    width = node.key if isinstance(node, ReduceNode) else len(node.schema.columns)
    return _passed(node, side, {column: column for column in range(width)})


def _passed(node: Node, side: int, to: Mapping[int, int]) -> frozenset[Columns]:
    """How rows that came by an input are placed, where all columns that say so are passed on as values of one type."""
    before, after = node.inputs[side].schema.columns, node.schema.columns
    same = {c: place for c, place in to.items() if before[c].type == after[place].type}
    known = placed_by(node.inputs[side])
    return frozenset(tuple(same[c] for c in columns) for columns in known if all(c in same for c in columns))
