"""What of one source waits for its turn in the reclock log.

Always: transactions stand in commit order, and rows of incremental snapshots apart from them: the log says before which of them
these go, and what it does not say goes where the assembler gave it. Where the log is beyond that, they go with the first
transaction that has an event behind them (their table was suspended then), or behind all, unless they are gone since. Owned by
the reclock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headrace.connectors.commit_place import CommitPlace
from headrace.connectors.source import Positions
from headrace.sidecar.epochs.epoch_binding import BoundTransaction
from headrace.sidecar.transactions.model import IncrementalRows, Transaction, goes_on
from headrace.sidecar.transactions.partial import RowRange


@dataclass
class Held:
    """`whole`: the transactions that wait. `put`: how many were ever put in. `chunks`: rows of incremental snapshots, each with
    how many transactions came before them. `standing`: gives which of their rows still count after the END at an LSN."""

    whole: deque[Transaction] = field(default_factory=deque)
    put: int = 0
    chunks: deque[tuple[int, IncrementalRows]] = field(default_factory=deque)
    standing: Callable[[RowRange, int], Sequence[RowRange]] = lambda rows, _: (rows,)

    def add(self, transactions: Iterable[Transaction]) -> None:
        """Behind what is here."""
        for transaction in transactions:
            if isinstance(transaction, IncrementalRows):
                self.chunks.append((self.put, transaction))
            else:
                self.whole.append(transaction)
                self.put += not goes_on(transaction)

    def take(self, last: BoundTransaction | None) -> list[Transaction]:
        """Take all of it out, in its order; `last`: what was bound before, if anything was."""
        out: list[Transaction] = []
        taken = passed = self.put - sum(not goes_on(t) for t in self.whole)
        while self.whole or self.chunks:
            if self.chunks and self.chunks[0][0] <= taken:
                before, chunk = self.chunks.popleft()
                if before < passed:  # the log is beyond its place
                    place, at_us = _behind(chunk, last)
                    live = tuple(rows for s in chunk.slices for rows in self.standing(s, place.order))
                    chunk = replace(chunk, place=place, commit_us=at_us, slices=live)
                out += [chunk] if chunk.slices and not chunk.stale else []
            else:
                out.append(self.whole.popleft())
                taken += not goes_on(out[-1])
        return out

    def take_rows(self, starts: Positions, limits: Positions) -> tuple[RowRange, ...]:
        """Take the rows of incremental snapshots from `starts` up to `limits` out."""
        inside: list[RowRange] = []
        left: deque[tuple[int, IncrementalRows]] = deque()
        for before, transaction in self.chunks:
            here, beyond = split(transaction.slices, limits)
            passed, here = split(here, starts)
            inside += here
            if passed or beyond:
                left.append((before, replace(transaction, slices=(*passed, *beyond))))
        self.chunks = left
        return tuple(inside)

    def with_rows(self, transaction: Transaction) -> Transaction:
        """A transaction of the log, and the rows that it has an event behind: no epoch of theirs is before it."""
        if not self.chunks:
            return transaction
        inside = self.take_rows({}, limits_of(transaction.slices))
        before = (rows for s in inside for rows in self.standing(s, transaction.place.order - 1))
        return replace(transaction, slices=(*before, *transaction.slices))


def _behind(chunk: IncrementalRows, last: BoundTransaction | None) -> tuple[CommitPlace, int]:
    """Place and time of rows that go behind what was bound last."""
    if last is None:
        return chunk.place, chunk.commit_us
    return max(chunk.place, last.place), max(chunk.commit_us, last.commit_us)


def reached(here: Positions, wanted: Positions) -> bool:
    """Whether nothing before the wanted positions is still to be read.

    >>> reached({"t": {0: 5}}, {"t": {0: 5}}), reached({"t": {0: 5}}, {"t": {0: 5, 1: 1}})
    (True, False)
    """
    return all(
        here.get(topic, {}).get(p, 0) >= o for topic, partitions in wanted.items() for p, o in partitions.items()
    )


def split(slices: Iterable[RowRange], limits: Positions) -> tuple[list[RowRange], list[RowRange]]:
    """Rows before the limit of their partition, and the others."""
    inside: list[RowRange] = []
    beyond: list[RowRange] = []
    for s in slices:
        limit = limits.get(s.changes.topic, {}).get(s.changes.partition, 0)
        cut = s.start + int(np.searchsorted(s.changes.offsets[s.start : s.stop], limit))
        inside += [RowRange(s.changes, s.start, cut)] if cut > s.start else []
        beyond += [RowRange(s.changes, cut, s.stop)] if cut < s.stop else []
    return inside, beyond


def starts_of(slices: Iterable[RowRange]) -> Positions:
    """The first offset in each partition."""
    out: dict[str, dict[int, int]] = {}
    for s in slices:
        of_topic, first = out.setdefault(s.changes.topic, {}), int(s.changes.offsets[s.start])
        of_topic[s.changes.partition] = min(of_topic.get(s.changes.partition, first), first)
    return out


def limits_of(slices: Iterable[RowRange]) -> Positions:
    """The next offset in each partition."""
    out: dict[str, dict[int, int]] = {}
    for s in slices:
        of_topic = out.setdefault(s.changes.topic, {})
        last = int(s.changes.offsets[s.stop - 1])
        of_topic[s.changes.partition] = max(of_topic.get(s.changes.partition, 0), last + 1)
    return out
