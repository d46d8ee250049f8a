"""The nodes at which rows change shards, and what is known of where the others' rows are.

Always: rows with equal values in the columns by which they are exchanged are on one shard afterwards, and where equal
rows are many they are added up before they go; errors stay where they arose; every shard takes part in every step and
question, quiet or not, and takes in what it got by shard, so that the same input gives the same result. Single writer:
the dataflow that holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.consolidation import thinned
from headrace.engine.batch.exchange_codec import NOTHING, compact, received, sent
from headrace.engine.batch.gather_rows import indices, take_rows, without_columns
from headrace.engine.batch.partitioning import shard_positions
from headrace.engine.batch.sort_layout import layout_of, stretched
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.dataflow.arrange import ArrangeNode, TableNode
from headrace.engine.dataflow.count import CountNode
from headrace.engine.dataflow.enter import EnterNode
from headrace.engine.dataflow.grouped import LoopGroupsNode
from headrace.engine.dataflow.join import JoinNode
from headrace.engine.dataflow.node import Memo, Node, merged
from headrace.engine.dataflow.reduce import ReduceNode
from headrace.engine.dataflow.shard import Shard
from headrace.engine.dataflow.stateless import ConcatNode, FilterNode, KeyCheckNode, NegateNode, ProjectNode
from headrace.engine.dataflow.top import TopNode
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.delta import Delta
from headrace.engine.operators.expressions.core.ir import ColumnRef

Columns = tuple[int, ...]
Piece = tuple[Updates | None, Int64s | None]
"""Some updates and the positions that are meant; None for all."""


class RepartitionNode(Node):
    """A collection of which each shard has other rows than its input has there.

    `counted`: in a loop, the work that this shard has done when it sends its rows, and that all have done once it has theirs.
    """

    label = "moved"
    counted = 0

    def __init__(self, fingerprint: str, source: Node, shard: Shard) -> None:
        super().__init__(fingerprint, source.schema, [source])
        self.source = source
        self.shard = shard
        self._about = int(fingerprint[:15], 16)
        self._arrow = source.schema.arrow

    def step(self, lower: int, upper: int) -> None:
        """Exchange the delta of the step; a source that failed anywhere fails it everywhere, and the source says so."""
        delta = self.source.made(lower)
        failed = self.source.failed
        rows, lost = self._moved(None if failed else delta.rows, failed=failed is not None)
        if lost and not self.failed:
            self.failed = failed or DiffOverflow()
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
        rows = compact(thinned(updates)) if updates is not None and len(updates) else None
        parts = [None] * self.shard.count if rows is None else self._parts(rows)
        own = self.shard.index
        messages = [NOTHING if k == own else sent(_picked(rows, part)) for k, part in enumerate(parts)]
        found, lost, self.counted = self.shard.exchange(self._about, messages, marked=failed, counted=self.counted)
        if lost:
            return None, True
        pieces: list[Piece] = [(received(message, self._arrow), None) for message in found]
        pieces[own] = rows, parts[own]
        return _joined([(some, at) for some, at in pieces if some is not None and (at is None or len(at))]), False

    def _parts(self, updates: Updates) -> Sequence[Int64s | None]:
        """For each shard the positions of its rows; None for all of them."""
        raise NotImplementedError


def _picked(rows: Updates | None, positions: Int64s | None) -> Updates | None:
    """The rows at `positions`, or all; None if that is none."""
    if rows is None or positions is None:
        return rows
    size = len(positions)
    if not size:
        return None
    times, diffs = (
        stretched(lane[:1], size) if lane.strides[0] == 0 else lane[positions] for lane in (rows.times, rows.diffs)
    )
    return Updates(take_rows(rows.rows, positions), times, diffs)


def _joined(pieces: Sequence[tuple[Updates, Int64s | None]]) -> Updates | None:
    """One after the other; a lane of one value stays so."""
    if len(pieces) < 2:
        return _picked(*pieces[0]) if pieces else None
    sizes = [len(some) if at is None else len(at) for some, at in pieces]
    lanes = []
    for lane in ("times", "diffs"):
        parts = [getattr(some, lane) for some, _ in pieces]
        if all(part.strides[0] == 0 and part[0] == parts[0][0] for part in parts):
            lanes.append(stretched(parts[0][:1], sum(sizes)))
        else:
            lanes.append(np.concatenate([p if at is None else p[at] for p, (_, at) in zip(parts, pieces, strict=True)]))
    schema = pieces[0][0].rows.schema
    if not len(schema):
        return Updates(without_columns(schema, sum(sizes)), *lanes)
    columns = [
        _column([(some.rows.column(c), at) for some, at in pieces], field.type, sizes) for c, field in enumerate(schema)
    ]
    return Updates(pa.RecordBatch.from_arrays(columns, schema=schema), *lanes)


def _column(parts: Sequence[tuple[pa.Array, Int64s | None]], arrow: pa.DataType, sizes: Sequence[int]) -> pa.Array:
    """Values one after the other, each copied once where they are words."""
    if _is_word(arrow) and not any(part.null_count for part, _ in parts):
        out = np.empty(sum(sizes), np.int64)
        for (part, at), size, end in zip(parts, sizes, np.cumsum(sizes).tolist(), strict=True):
            words = np.frombuffer(part.buffers()[1], np.int64, len(part), part.offset * 8)
            if at is None:
                out[end - size : end] = words
            else:
                np.take(words, at, out=out[end - size : end], mode="clip")
        return pa.Array.from_buffers(arrow, len(out), [None, pa.py_buffer(out)], 0)
    return pa.concat_arrays([part if at is None else part.take(indices(at)) for part, at in parts])


def _is_word(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(arrow) and not pa.types.is_boolean(arrow) and arrow.bit_width == 64)


class ExchangeNode(RepartitionNode):
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


class ReplicateNode(RepartitionNode):
    """A collection of which every shard has every row: what all are to be joined with."""

    label = "replicate"

    def _parts(self, updates: Updates) -> Sequence[Int64s | None]:  # noqa: ARG002
        return [None] * self.shard.count


class GatherNode(RepartitionNode):
    """A collection of which one shard, `home`, has every row: what is not worked on in parts."""

    label = "gather"

    def __init__(self, fingerprint: str, source: Node, shard: Shard, home: int) -> None:
        super().__init__(fingerprint, source, shard)
        self._home = home

    def _parts(self, updates: Updates) -> Sequence[Int64s | None]:  # noqa: ARG002
        none = np.empty(0, np.int64)
        return [None if k == self._home else none for k in range(self.shard.count)]


def placed_by(node: Node) -> frozenset[Columns]:
    """By which columns the rows of `node` are on their shards: any of these, each in the order in which it was hashed."""
    if isinstance(node, TableNode):
        return frozenset([node.key])
    if isinstance(node, ExchangeNode):
        return frozenset([node.columns])
    if isinstance(node, EnterNode):
        return placed_by(node.outside)
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
    if isinstance(
        node, (FilterNode, NegateNode, KeyCheckNode, ArrangeNode, CountNode, ReduceNode, LoopGroupsNode, TopNode)
    ):
        return _kept(node, 0)
    return frozenset()


def _kept(node: Node, side: int) -> frozenset[Columns]:
    """Of a node that sends the first columns of an input in their places."""
    width = node.key if isinstance(node, (CountNode, ReduceNode, LoopGroupsNode)) else len(node.schema.columns)
    return _passed(node, side, {column: column for column in range(width)})


def _passed(node: Node, side: int, to: Mapping[int, int]) -> frozenset[Columns]:
    """How rows that came by an input are placed, where all columns that say so are passed on as values of one type."""
    before, after = node.inputs[side].schema.columns, node.schema.columns
    same = {c: place for c, place in to.items() if before[c].type == after[place].type}
    known = placed_by(node.inputs[side])
    return frozenset(tuple(same[c] for c in columns) for columns in known if all(c in same for c in columns))
