"""What of one source waits for its turn in the reclock log.

Always: transactions stand in commit order, and rows of incremental snapshots apart from them: the log says before which of them
these go, and what it does not say goes where the assembler gave it. Owned by the reclock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from connectors.source import Positions
from sidecar.pending import Slice
from sidecar.transactions import CHUNK, Transaction


@dataclass
class Held:
    """`whole`: the transactions. `put`: how many there were, ever; `chunks`: the others, each with how many came before it."""

    whole: deque[Transaction] = field(default_factory=deque)
    put: int = 0
    chunks: deque[tuple[int, Transaction]] = field(default_factory=deque)

    def add(self, transactions: Iterable[Transaction]) -> None:
        """Behind what is here."""
        for transaction in transactions:
            if transaction.kind == CHUNK:
                self.chunks.append((self.put, transaction))
            else:
                self.whole.append(transaction)
                self.put += not transaction.more

    def take(self) -> list[Transaction]:
        """Take all of it out, in its order."""
        out: list[Transaction] = []
        taken = self.put - sum(not t.more for t in self.whole)
        while self.whole or self.chunks:
            if self.chunks and self.chunks[0][0] <= taken:
                out.append(self.chunks.popleft()[1])
            else:
                out.append(self.whole.popleft())
                taken += not out[-1].more
        return out

    def take_rows(self, limits: Positions) -> tuple[Slice, ...]:
        """Take the rows of incremental snapshots before `limits` out."""
        inside: list[Slice] = []
        left: deque[tuple[int, Transaction]] = deque()
        for before, transaction in self.chunks:
            here, beyond = split(transaction.slices, limits)
            inside += here
            if beyond:
                left.append((before, replace(transaction, slices=tuple(beyond))))
        self.chunks = left
        return tuple(inside)


def split(slices: Iterable[Slice], limits: Positions) -> tuple[list[Slice], list[Slice]]:
    """Rows before the limit of their partition, and the others."""
    inside: list[Slice] = []
    beyond: list[Slice] = []
    for s in slices:
        limit = limits.get(s.changes.topic, {}).get(s.changes.partition, 0)
        cut = s.start + int(np.searchsorted(s.changes.offsets[s.start : s.stop], limit))
        inside += [Slice(s.changes, s.start, cut)] if cut > s.start else []
        beyond += [Slice(s.changes, cut, s.stop)] if cut < s.stop else []
    return inside, beyond


def limits_of(slices: Iterable[Slice]) -> Positions:
    """The next offset in each partition."""
    out: dict[str, dict[int, int]] = {}
    for s in slices:
        of_topic = out.setdefault(s.changes.topic, {})
        last = int(s.changes.offsets[s.stop - 1])
        of_topic[s.changes.partition] = max(of_topic.get(s.changes.partition, 0), last + 1)
    return out
