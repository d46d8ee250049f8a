"""A loop's limit of rows: a variable that would come to hold more stops growing at that round, and the loop is in error.

What a rule makes beyond the limit is held back with its round, so that a loop that does not end stops after so many rows, and
goes on from there by itself once rows before it are gone. Invariant: rows are counted by round as of the end of each epoch, as
they would be from nothing, so that the same changes give the same error in any cut and any number of shards; the rows that it
shows are some of those that came last. Single writer: the loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.arrangement import Registry
from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.dataflow.shard import Shard
from headrace.engine.dataflow.variable import VariableNode
from headrace.engine.operators.delta import concat, errors_at, negated, take
from headrace.engine.operators.expressions.core.columns import MESSAGE
from headrace.engine.schema import BIGINT, Column, Schema

COUNTS = Schema((Column("variable", BIGINT, nullable=False), Column("round", BIGINT, nullable=False)))
_SHOWN = 3
"""Rows that an error shows."""


class MostRows(NamedTuple):
    """`most` rows of each variable; `said`: of a variable, by its place, how an error names it; `remedy`: what to do.

    `texts`: the texts of some rows of a variable, for the error.
    """

    most: int
    said: Sequence[str]
    remedy: str
    texts: Callable[[pa.RecordBatch], list[str]]

    def text(self, variable: int, own: int, so_far: int, more: int, examples: Sequence[str]) -> str:
        """The error of a variable that in a round would come to more rows; `examples`: some of those."""
        shown = f", as {'; '.join(examples)}" if examples else ""
        return (
            f"{self.said[variable]} comes to more than {self.most} rows: {so_far} rows so far in round {own}, which brings "
            f"{more} more{shown}; {self.remedy}"
        )

    def shown(self, rows: pa.RecordBatch) -> list[str]:
        """The least texts of rows."""
        return sorted(self.texts(rows))[:_SHOWN]


@dataclass(frozen=True)
class _Over:
    """Where an epoch stopped: the variable, the round, how many rows it had and how many more there would be."""

    variable: int
    round: int
    so_far: int
    more: int


class RowLimit:
    """What is counted and held back of a loop's variables. `begin`, then `turn` each round that is visited, then `end`."""

    def __init__(self, registry: Registry, shard: Shard, limit: MostRows, variables: Sequence[VariableNode]) -> None:
        self._shard = shard
        self._limit = limit
        self._variables = variables
        self._counts = Trace(registry, "row-counts", "row-counts", COUNTS, ())
        self._kept = [
            Trace(registry, "held-back", f"held-back-{k}", _with_round(v.schema), ()) for k, v in enumerate(variables)
        ]
        self.traces = [self._counts, *self._kept]
        count = len(variables)
        self._base: list[dict[int, int]] = [{} for _ in range(count)]
        self._held: list[dict[int, Updates]] = [{} for _ in range(count)]
        self._standing = 0
        self._said: str | None = None
        self._restored = False
        self._lower, self._epochs = 0, 1

    # One step.

    def begin(self, lower: int, upper: int, said: Callable[[int], Sequence[str]]) -> None:
        """A step begins; `said`: the errors that left the loop as of an epoch."""
        if not self._restored:
            self._restore(lower - 1, said)
        self._lower, self._epochs = lower, upper - lower
        count = len(self._variables)
        self._stopped = np.zeros(self._epochs, np.bool_)
        self._over: dict[int, _Over] = {}
        self._examples: list[str] = []
        self._added: list[dict[int, int]] = [{} for _ in range(count)]
        self._in_step = np.zeros((count, self._epochs), np.int64)
        self._before = [dict(held) for held in self._held]
        self._has_held = any(self._held)
        self._most_so_far = self._standing
        self._whole: list[tuple[Int64s, Int64s]] | None = None
        self._due: int | None = None

    def turn(self, own: int) -> list[bool]:
        """What each variable takes into the next round, after the round `own`; whether that is anything."""
        if own == 0:
            for k, variable in enumerate(self._variables):
                rows = None if variable.initial is None else variable.initial.delta.rows
                if rows is not None:
                    self._count(k, 0, rows)
        if not self._has_held and self._shard.is_alone:
            here = [_positive(v.next) for v in self._variables]
            if self._most_so_far + sum(here) <= self._limit.most:
                self._due = None
                for k, variable in enumerate(self._variables):
                    if variable.next is not None:
                        self._count(k, own, variable.next, here[k])
                return [v.next is not None for v in self._variables]
        return self._turned(own)

    def _turned(self, own: int) -> list[bool]:
        """As `turn`, where something is held back, or there may be too much, or other shards have some."""
        held = [held.get(own) for held in self._held]
        here = sum(_positive(v.next) for v in self._variables) + sum(map(_positive, held))
        near = self._shard.agree(self._most_so_far + here, sum) > self._limit.most
        if near:
            self._sift(own)
        else:
            for k, variable in enumerate(self._variables):
                if held[k] is not None:
                    del self._held[k][own]
                    variable.next = self._both(held[k], variable.next)
        for k, variable in enumerate(self._variables):
            if variable.next is not None:
                self._count(k, own, variable.next)
        self._due = self._first_beyond(own) if near else None
        return [v.next is not None for v in self._variables]

    def due(self, own: int) -> int | None:
        """The next round that has to be visited for what is held back, or for what stands there and is too much."""
        rounds = [] if self._stopped.all() else [r for held in self._held for r in held if r > own]
        if self._due is not None:
            rounds.append(self._due)
        return min(rounds, default=None)

    def end(self, upper: int) -> Updates | None:
        """The step ends: what is counted and held back is kept, and the changes of the error are given."""
        rows = []
        for k, added in enumerate(self._added):
            for own, diff in added.items():
                if diff:
                    rows.append((k, own, diff))
                    stood = self._base[k].get(own, 0)
                    self._base[k][own] = stood + diff
                    self._standing += max(stood + diff, 0) - max(stood, 0)
        if rows:
            columns = np.array(rows, np.int64).T
            batch = pa.RecordBatch.from_arrays([pa.array(c) for c in columns[:2]], schema=COUNTS.arrow)
            times = np.full(len(rows), upper - 1, np.int64)
            self._counts.insert(Updates(batch, times, np.ascontiguousarray(columns[2])), upper)
        if not self._has_held:
            return self._errors()
        for trace, before, held in zip(self._kept, self._before, self._held, strict=True):
            changed = [r for r in {*before, *held} if before.get(r) is not held.get(r)]
            parts = [negated(_rounded(before[r], r, upper - 1)) for r in changed if r in before]
            parts += [_rounded(held[r], r, upper - 1) for r in changed if r in held]
            found = concat(parts)
            found = None if found is None else consolidate(found)
            if found is not None and len(found):
                trace.insert(found, upper)
        return self._errors()

    # Beyond the limit.

    def _sift(self, own: int) -> None:
        """Hold back what is made in the epochs in which it is too much; what was held back goes on where it is not."""
        most = self._limit.most
        pending = [self._both(h.pop(own, None), v.next) for h, v in zip(self._held, self._variables, strict=True)]
        here = np.stack([self._by_epoch(p) for p in pending])
        made = np.cumsum(self._shard.summed(here), axis=1)
        before = np.cumsum(self._shard.summed(self._in_step), axis=1)
        before += np.array([_until(base, own - 1) for base in self._bases()])[:, None]
        made += np.array([_until(base, own) - _until(base, own - 1) for base in self._bases()])[:, None]
        over = (before + made > most).any(axis=0)
        new = over & ~self._stopped
        for epoch in np.flatnonzero(new).tolist():
            k = int(np.argmax(before[:, epoch] + made[:, epoch] > most))
            self._over[epoch] = _Over(k, own, int(before[k, epoch]), int(made[k, epoch]))
        last = self._epochs - 1
        if new[last]:
            self._examples = self._shown(pending[self._over[last].variable])
        self._stopped |= over
        # Of each epoch the first from it on that goes on.
        free = np.where(self._stopped, self._epochs, np.arange(self._epochs))
        to = np.minimum.accumulate(free[::-1])[::-1]
        for k, (variable, some) in enumerate(zip(self._variables, pending, strict=True)):
            variable.next = None
            self._has_held = True
            if some is None:
                continue
            target = to[some.times - self._lower]
            goes, stays = np.flatnonzero(target < self._epochs), np.flatnonzero(target == self._epochs)
            if len(goes):
                moved = take(some, goes)
                moved = consolidate(moved.at(self._lower + target[goes]))
                variable.next = moved if len(moved) else None
            if len(stays):
                kept = take(some, stays)
                kept = consolidate(kept.at(np.full(len(stays), self._lower, np.int64)))
                if len(kept):
                    self._held[k][own] = kept

    def _first_beyond(self, own: int) -> int | None:
        """The next round whose rows, which stand there from before, are too many with those of this step."""
        if self._stopped.all():
            return None
        step = np.cumsum(self._shard.summed(self._in_step), axis=1)[:, ~self._stopped].max(axis=1)
        found = []
        for (rounds, until), more in zip(self._bases(), step, strict=True):
            later = np.flatnonzero((rounds > own) & (until + more > self._limit.most))
            found += rounds[later[:1]].tolist()
        return min(found, default=None)

    def _errors(self) -> Updates | None:
        """The changes of the error, from epoch to epoch; the shard that holds the whole tells them."""
        if not self._shard.holds_the_whole or (self._said is None and not self._over):
            return None
        texts, times, diffs = [], [], []
        for epoch in range(self._epochs):
            over = self._over.get(epoch)
            said = None if over is None else self._text(over, self._examples if epoch == self._epochs - 1 else ())
            if said != self._said:
                for text, diff in ((self._said, -1), (said, 1)):
                    if text is not None:
                        texts.append(text)
                        times.append(self._lower + epoch)
                        diffs.append(diff)
                self._said = said
        if not texts:
            return None
        return errors_at(pa.array(texts, MESSAGE), np.array(times, np.int64), np.array(diffs, np.int64))

    def _text(self, over: _Over, examples: Sequence[str]) -> str:
        return self._limit.text(over.variable, over.round, over.so_far, over.more, examples)

    # Counting.

    def _count(self, k: int, own: int, rows: Updates, positive: int | None = None) -> None:
        total = int(rows.diffs.sum())
        if self._epochs == 1:
            self._in_step[k, 0] += total
        else:
            self._in_step[k] += self._by_epoch(rows)
        self._added[k][own] = self._added[k].get(own, 0) + total
        self._most_so_far += _positive(rows) if positive is None else positive

    def _by_epoch(self, rows: Updates | None) -> Int64s:
        found = np.zeros(self._epochs, np.int64)
        if rows is not None and self._epochs == 1:
            found[0] = rows.diffs.sum()
        elif rows is not None:
            np.add.at(found, np.maximum(rows.times - self._lower, 0), rows.diffs)
        return found

    def _both(self, held: Updates | None, made: Updates | None) -> Updates | None:
        """What was held back, as of this step, and what is made now."""
        if held is None:
            return made
        found = consolidate(concat([held.at(np.full(len(held), self._lower, np.int64)), made]) or held)
        return found if len(found) else None

    def _bases(self) -> list[tuple[Int64s, Int64s]]:
        """Of each variable the rounds in which it had rows when the step began, and how many until each, in all shards."""
        if self._whole is None:
            self._whole = []
            for base in self._base:
                own = self._shard.union(np.fromiter(base, np.int64, len(base)))
                counts = self._shard.summed(np.array([base.get(r, 0) for r in own.tolist()], np.int64))
                self._whole.append((own, np.cumsum(counts)))
        return self._whole

    def _shown(self, rows: Updates | None) -> list[str]:
        """The least texts of rows that are made until the last epoch, in all shards."""
        own: list[str] = []
        if rows is not None:
            rows = consolidate(rows.at(np.full(len(rows), self._lower, np.int64)))
            at = np.flatnonzero(rows.diffs > 0)
            own = self._limit.shown(take(rows, at).rows)
        if self._shard.is_alone:
            return own
        found = self._shard.exchange(0, [[json.dumps(own).encode()]] * self._shard.count).messages
        return sorted([*own, *(t for m in found for b in m for t in json.loads(bytes(b)))])[:_SHOWN]

    def _restore(self, as_of: int, said: Callable[[int], Sequence[str]]) -> None:
        """What a checkpoint, or the dataflow that this one comes from, has."""
        self._restored = True
        if not self._counts.loaded:
            return
        found = self._counts.snapshot(as_of)
        variables, rounds = (found.rows.column(i).to_pylist() for i in (0, 1))
        for k, own, diff in zip(variables, rounds, found.diffs.tolist(), strict=True):
            self._base[k][own] = self._base[k].get(own, 0) + diff
        self._standing = sum(n for base in self._base for n in base.values() if n > 0)
        for k, trace in enumerate(self._kept):
            held = trace.snapshot(as_of)
            columns = held.rows.columns
            rounds_of = np.asarray(columns[-1], np.int64)
            schema = Schema(self._variables[k].schema.columns).arrow
            for own in np.unique(rounds_of).tolist():
                at = np.flatnonzero(rounds_of == own)
                some = take(held, at)
                rows = pa.RecordBatch.from_arrays(some.rows.columns[:-1], schema=schema)
                self._held[k][own] = Updates(rows, some.times, some.diffs)
        begins = tuple(f"{name} comes to more than {self._limit.most} rows" for name in self._limit.said)
        self._said = next((text for text in said(as_of) if text.startswith(begins)), None)


_FEW = 64


def _positive(rows: Updates | None) -> int:
    if rows is None:
        return 0
    if len(rows) < _FEW:
        return sum(d for d in rows.diffs.tolist() if d > 0)
    return int(rows.diffs[rows.diffs > 0].sum())


def _until(base: tuple[Int64s, Int64s], own: int) -> int:
    """How many rows a variable had until a round."""
    at = int(np.searchsorted(base[0], own, "right"))
    return int(base[1][at - 1]) if at else 0


def _with_round(schema: Schema) -> Schema:
    return Schema((*schema.columns, Column(" round", BIGINT, nullable=False)))


def _rounded(rows: Updates, own: int, epoch: int) -> Updates:
    """The rows with their round, at an epoch."""
    columns = [*rows.rows.columns, pa.array(np.full(len(rows), own, np.int64))]
    schema = pa.schema([*rows.rows.schema, pa.field(" round", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return Updates(batch, np.full(len(rows), epoch, np.int64), rows.diffs)


__all__ = ["MostRows", "RowLimit"]
