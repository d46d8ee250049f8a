"""The nodes that keep arrangements: tables, arrangements for readers, joins and reduces.

Always: a trace holds its collection up to the end of the step before its readers run, and a restored or hydrated trace
holds exactly what the steps would have left. Single writer: the dataflow that holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.arrangement import Registry
from engine.batch.consolidation import netted
from engine.batch.keys import Keys, columns_plan
from engine.batch.updates import Int64s, Updates, Upserts
from engine.dataflow.intake import Intake
from engine.dataflow.nodes import Memo, Node, merged
from engine.dataflow.trace import Trace
from engine.operators.delta import ERRORS, QUIET, Delta, concat
from engine.operators.expressions.ir import Expr
from engine.operators.join import Probes, Span, join_trace, joined, without_nulls
from engine.operators.multiset import count_rows
from engine.operators.reduce import State, reduce_changes, results_from
from engine.operators.shape import Shape
from engine.operators.upsert import upsert
from engine.schema import Schema


class TableNode(Node):
    """A table's intake and its own arrangement: by primary key, or by all columns where it has none."""

    def __init__(self, fingerprint: str, registry: Registry, name: str, schema: Schema) -> None:
        super().__init__(fingerprint, schema, ())
        self.name = name
        self.label = name
        self.is_keyed = bool(schema.key)
        self.key = schema.key if schema.key else tuple(range(len(schema.columns)))
        self.trace = Trace(registry, name, fingerprint, schema, self.key)
        self._errors = Trace(registry, f"{name}-errors", f"{fingerprint}-errors", ERRORS, ())
        self._intake = Intake(name)
        self._told: list[Updates] = []

    def push(self, upserts: Upserts, frontier: int) -> None:
        """Changes for later steps."""
        self._intake.push(upserts, frontier)

    def push_errors(self, errors: Updates) -> None:
        """Changes of the table's errors, of the epochs of the next step."""
        self._told.append(errors)

    def step(self, lower: int, upper: int) -> None:
        """Turn the upserts of the step into updates, and insert those into the table's trace."""
        waiting = self._intake.take(upper)
        told, self._told = self._told, []
        if waiting is None and not told:
            self.delta = QUIET
            return
        delta = QUIET if waiting is None else self._changed(waiting, lower)
        if told:
            delta = Delta(delta.rows, concat([delta.errors, *told]))
        if delta.rows is not None:
            self.trace.insert(delta.rows, upper)
        if delta.errors is not None:
            self._errors.insert(delta.errors, upper)
        self.delta = merged(delta)

    def look_up(self, keys: pa.RecordBatch, as_of: int) -> Updates | None:
        """The rows under these keys at the last complete epoch `as_of`; one asked for twice comes twice."""
        found = self.trace.spine.gather(self.trace.layout.keys(keys), as_of)
        return found.updates() if len(found) else None

    def _changed(self, waiting: Upserts, lower: int) -> Delta:
        make = upsert if self.is_keyed else count_rows
        self.trace.catch_up(lower)
        errors = self._errors.snapshot(lower - 1) if len(self._errors.spine) else None
        live = errors if errors is not None and len(errors) else None
        return make(self.name, self.schema, self.trace.spine, waiting, lower - 1, live)

    def compute(self, as_of: int, memo: Memo) -> Delta:  # noqa: ARG002
        """The table at `as_of`, from its trace."""
        return Delta(self.trace.snapshot(as_of), self._errors.snapshot(as_of))

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:  # noqa: ARG002
        """The table's errors, from their trace."""
        return self._errors.snapshot(as_of)

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:  # noqa: ARG002
        """What happened to the table, from its trace."""
        return Delta(self.trace.window(lower, upper), self._errors.window(lower, upper))

    def hydrate(self, frontier: int, memo: Memo) -> None:  # noqa: ARG002
        """A table that no checkpoint knows begins empty."""
        for trace in self.traces():
            if not trace.loaded:
                trace.fill(None, frontier)

    def traces(self) -> Sequence[Trace]:
        """Rows and errors."""
        return (self.trace, self._errors)

    def release(self) -> None:
        """Drop both arrangements."""
        for trace in self.traces():
            trace.release()


class ArrangeNode(Node):
    """A collection indexed by a key for its readers; a table's own arrangement is taken as it is.

    `_clean`: an epoch from which on it is known to be without errors; `_stained`: an epoch after which no error came or went.
    """

    label = "arrange"

    def __init__(
        self, fingerprint: str, registry: Registry, source: Node, key: tuple[int, ...], order: tuple[int, ...] = ()
    ) -> None:
        super().__init__(fingerprint, source.schema, [source])
        self.source = source
        self.key = key
        self._clean: int | None = None
        self._stained = 0
        self._own = not (isinstance(source, TableNode) and source.key == key and not order)
        if isinstance(source, TableNode) and not self._own:
            self.trace = source.trace
        else:
            self.trace = Trace(registry, source.label, source.fingerprint, source.schema, key, order)

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """Insert the step's updates; they pass on as they are."""
        delta = self.source.delta
        if self._own and delta.rows is not None:
            self.trace.insert(delta.rows, upper)
        if delta.errors is not None:
            self._clean, self._stained = None, upper - 1
        return delta

    def keys(self, rows: Updates) -> tuple[Keys, Int64s | None]:
        """The key identities of `rows`, and the positions of those without NULL (None: all)."""
        return self.trace.layout.keys_of(rows), without_nulls(rows.rows, self.key)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The source's content, its rows from the trace if that goes so far back."""
        if not self._own or not self.trace.covers(as_of):
            return self.source.content(as_of, memo)
        return Delta(self.trace.snapshot(as_of), self.errors(as_of, memo))

    def compute_errors(self, as_of: int, memo: Memo) -> Updates | None:
        """The source's errors, which are not asked for again while there are known to be none."""
        if self.shard.every(holds=self._clean is not None and as_of >= self._clean):
            return None
        errors = self.source.errors(as_of, memo)
        if errors is None and as_of >= self._stained:
            self._clean = as_of
        return errors

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The source's changes."""
        return self.source.changes(lower, upper, memo)

    def hydrate(self, frontier: int, memo: Memo) -> None:
        """Import the source's content at frontier - 1."""
        self._stained = frontier - 1
        if self._own and not self.trace.loaded:
            content = self.source.content(frontier - 1, memo)
            self.trace.fill(content.rows, frontier)
            self._clean = frontier - 1 if content.errors is None else None

    def traces(self) -> Sequence[Trace]:
        """The trace, unless it is the table's."""
        return (self.trace,) if self._own else ()

    def release(self) -> None:
        """Drop the arrangement, unless it is the table's."""
        if self._own:
            self.trace.release()


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
        self._slim = None if whole else columns_plan(arranged.schema.arrow, kept)

    @property
    def size(self) -> int:
        """How many updates its trace holds, those of all shards together."""
        return self.arranged.shard.agree(len(self.arranged.trace.spine), sum)

    def probes(self, updates: Updates) -> Probes:
        """A delta of this side as the join looks it up; changes of other columns alone cancel and cost nothing."""
        keys, valid = self.arranged.keys(updates)
        if self._slim is None:
            times, diffs, positions = updates.times, updates.diffs, np.arange(len(updates))
        else:
            times, diffs, positions = netted(updates, self._slim)
        if valid is not None:
            kept = np.isin(positions, valid)
            times, diffs, positions = times[kept], diffs[kept], positions[kept]
        elif self._slim is None:
            return Probes(updates.struct, positions, keys, times, diffs)
        return Probes(updates.struct, positions, keys.take(positions), times, diffs)


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
        self._from_left, self._from_right = joined(schema.arrow, self._left.held, self._right.held, residual)
        reader = f"{self.label}-{fingerprint[:12]}"
        self._readers = [left.trace.read_by(reader), right.trace.read_by(reader)]

    @property
    def held(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Which columns of the left its rows begin with, and which of the right follow."""
        return self._left.held, self._right.held

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """New left with all of the right, old left with new right: each pair once."""
        return self._pairs(self._left.arranged.delta, self._right.arranged.delta, lower, None)

    def _pairs(self, left: Delta, right: Delta, lower: int, upper: int | None) -> Delta:
        """What changes of the two sides at epochs [lower, upper) make; `upper` None: the traces go no further."""
        one = self._half(left.rows, self._left, self._right, Span(lower - 1, upper))
        two = self._half(right.rows, self._right, self._left, Span(lower - 1, lower))
        return merged(_both(one, two), left, right)

    def _half(self, updates: Updates | None, mine: _Side, other: _Side, span: Span) -> Delta:
        if updates is None or not len(updates):
            return QUIET
        joined = self._from_left if mine is self._left else self._from_right
        return join_trace(mine.probes(updates), other.arranged.trace.spine, span, joined)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The smaller side's content looked up in the other's trace at `as_of`, if that goes so far back."""
        left, right = self._left, self._right
        mine, other = (left, right) if left.size <= right.size else (right, left)
        if not other.arranged.trace.covers(as_of):
            mine, other = other, mine
        other.arranged.trace.check_faithful(as_of)
        pairs = self._half(mine.arranged.content(as_of, memo).rows, mine, other, Span(as_of, as_of + 1))
        return merged(pairs, *(Delta(None, side.arranged.errors(as_of, memo)) for side in (left, right)))

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """As the steps of these epochs made them."""
        left, right = self._left.arranged, self._right.arranged
        for side in (left, right):
            side.trace.check_faithful(max(lower - 1, 0))
        return self._pairs(left.changes(lower, upper, memo), right.changes(lower, upper, memo), lower, upper)

    def release(self) -> None:
        """Stop reading both arrangements."""
        for reader in self._readers:
            reader.release()


def _both(one: Delta, two: Delta) -> Delta:
    if two is QUIET:
        return one
    if one is QUIET:
        return two
    return Delta(concat([one.rows, two.rows]), concat([one.errors, two.errors]))


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
    """Reduce, with its state in an arrangement of its output."""

    label = "reduce"

    def __init__(self, fingerprint: str, registry: Registry, source: Node, shape: Shape, lookups: Lookups) -> None:
        super().__init__(fingerprint, shape.schema, [source, *lookups.distinct, *lookups.arranged])
        self._source = source
        self._shape = shape
        self._distinct = lookups.distinct
        kept = shape.accumulators
        self._trace = Trace(registry, "accumulators", f"{fingerprint}-accumulators", kept, tuple(range(shape.key)))
        self._state = State(
            self._trace.layout,
            self._trace.spine,
            [node.trace.spine for node in lookups.extremes],
            [node.trace.spine for node in lookups.wholes],
            None if lookups.images is None else lookups.images.trace.spine,
        )
        reader = f"{self.label}-{fingerprint[:12]}"
        self._readers = [node.trace.read_by(reader) for node in lookups.arranged]

    @property
    def key(self) -> int:
        """How many columns its rows begin with that are the group's."""
        return self._shape.key

    @property
    def _is_whole_here(self) -> bool:
        """True if there is no key, and the one group's row is this shard's."""
        return self._shape.key == 0 and self.shard.holds_the_whole

    def is_eager(self, lower: int) -> bool:
        """The group without a key has its row from the first step on."""
        return lower == 0 and self._is_whole_here

    def run(self, lower: int, upper: int) -> Delta:
        """The corrections of the groups that change."""
        source = self._source.delta
        distinct = [node.delta.rows for node in self._distinct]
        kept, delta = reduce_changes(
            self._shape, self._state, source.rows, distinct, lower, initial=self.is_eager(lower)
        )
        if kept is not None:
            self._trace.insert(kept, upper)
        return merged(delta, source)

    def compute(self, as_of: int, memo: Memo) -> Delta:
        """The results of the groups in the trace."""
        kept = self._trace.snapshot(as_of)
        return merged(results_from(self._shape, kept), Delta(None, self._source.errors(as_of, memo)))

    def compute_changes(self, lower: int, upper: int, memo: Memo) -> Delta:
        """The corrections of the groups in the trace."""
        kept = self._trace.window(lower, upper)
        errors = self._source.changes(lower, upper, memo).errors
        return merged(results_from(self._shape, kept), Delta(None, errors))

    def hydrate(self, frontier: int, memo: Memo) -> None:
        """Reduce the source's content at frontier - 1."""
        if not self._trace.loaded:
            as_of = frontier - 1
            rows = self._source.content(as_of, memo).rows
            distinct = [node.content(as_of, memo).rows for node in self._distinct]
            nothing = self._state._replace(kept=None)
            initial = self._is_whole_here
            kept, _ = reduce_changes(self._shape, nothing, rows, distinct, as_of, initial=initial)
            self._trace.fill(kept, frontier)

    def traces(self) -> Sequence[Trace]:
        """The accumulators."""
        return (self._trace,)

    def release(self) -> None:
        """Drop the accumulators, and stop reading the others."""
        self._trace.release()
        for reader in self._readers:
            reader.release()
