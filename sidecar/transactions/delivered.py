"""Delivered transactions: recognises a connector's repetitions by transaction id and END's LSN.

Invariant: each id it knows has the LSN that was added last. It keeps the newest `most` transactions and forgets older ones span
by span, except those that must stay. A span is sorted by id and needs 16 bytes a transaction. Only the source's assembler
writes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.connectors.changes import TransactionMark
from headrace.sidecar.transactions.model import ContinuityError

SPAN = 1 << 14
"""So many of the newest lie in a dictionary; then they become a span."""
MOST = 1_000_000
KEPT = 1000
"""How many of those that came again a checkpoint names: of one that the log has forgotten, an event may come behind its END, or
again, where something before it was held."""


@dataclass(frozen=True)
class _Span:
    """Transactions that were given one after the other. `first`: the LSN of the oldest."""

    ids: NDArray[np.int64]
    lsns: NDArray[np.int64]
    first: int

    def get(self, txid: int) -> int:
        at = int(np.searchsorted(self.ids, txid))
        return int(self.lsns[at]) if at < len(self.ids) and self.ids[at] == txid else -1


class DeliveredTransactions:
    """`most`: how many are known at least, a span less; `span`: how many make one."""

    def __init__(self, *, most: int = MOST, span: int = SPAN) -> None:
        self._most, self._span = most, span
        self._newest: dict[int, int] = {}
        self._spans: deque[_Span] = deque()
        self._highest = -1
        self._repeated: dict[int, int] = {}

    def add(self, txid: int, lsn: int, *, keep: bool = False) -> None:
        """A transaction was given; the oldest span is forgotten where there are too many, unless told to `keep` them all."""
        self._newest.pop(txid, None)
        self._newest[txid] = lsn
        if len(self._newest) >= self._span:
            ids = np.fromiter(self._newest.keys(), np.int64, len(self._newest))
            lsns = np.fromiter(self._newest.values(), np.int64, len(ids))
            order = np.argsort(ids)
            self._spans.append(_Span(ids[order], lsns[order], int(lsns[0])))
            self._highest = max(self._highest, int(ids[order[-1]]))
            self._newest = {}
        if not keep and len(self._spans) * self._span > self._most:
            self._spans.popleft()

    def get(self, txid: int) -> int:
        """The LSN of its END, -1 where it is not known."""
        found = self._newest.get(txid, -1)
        if found < 0 and txid <= self._highest:  # ids grow: a new one is looked for in no span
            found = next((lsn for span in reversed(self._spans) if (lsn := span.get(txid)) >= 0), -1)
        return found if found >= 0 else self._repeated.get(txid, -1)

    def repeated(self, txid: int, lsn: int) -> None:
        """Its END came again, or an event of it, and is passed over."""
        self._repeated.pop(txid, None)
        self._repeated[txid] = lsn
        if len(self._repeated) > KEPT:
            del self._repeated[next(iter(self._repeated))]

    def json(self) -> Sequence[tuple[int, int]]:
        """The id and LSN of each transaction that was repeated recently, as a manifest keeps them."""
        return list(self._repeated.items())

    def restore(self, body: Iterable[tuple[int, int]]) -> None:
        """Of a manifest."""
        self._repeated = dict(body)

    def check_repetition(self, end: TransactionMark, snapshot: int, last: int, *, hint: str) -> None:
        """Raise ContinuityError for an END before the `last` bound that is none of those bound, nor before the snapshot's LSN:
        the source's went back."""
        if self.get(end.transaction) == end.lsn or end.lsn < self.oldest or end.lsn <= snapshot:
            return
        raise ContinuityError(
            "the source's LSN went back: it has lost transactions that were read", transaction=end.transaction, lsn=end.lsn,
            bound=last, topic=end.topic, partition=end.partition, offset=end.offset,
            hint=f"it was restored, or a standby that was behind took over: have the connector take a new snapshot, then {hint}",
        )  # fmt: skip

    @property
    def oldest(self) -> int:
        """The LSN of the oldest that is known, 0 where none is."""
        return self._spans[0].first if self._spans else next(iter(self._newest.values()), 0)
