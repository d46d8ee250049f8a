"""Which transactions a Postgres snapshot shows, told by their ids.

Invariant: a transaction is shown exactly when it had committed before the snapshot was taken. Ids of the log have 32 bits, those
of a snapshot 64: the nearest one is meant. Called by a load, which notes the snapshot, and by the intake, which leaves out
what the loaded rows have already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.sidecar.transactions.model import SourceTransaction, Transaction

LOADED = "loaded"
"""The name under which a manifest keeps the snapshot that a source's tables were filled from."""
_CYCLE = 1 << 32


@dataclass(frozen=True)
class PgSnapshot:
    """As Postgres's type pg_snapshot: all before `first` are over, none from `beyond` on, and of those between all but `open`.

    >>> seen = PgSnapshot.parse("10:20:12,15")
    >>> [seen.shows(id) for id in (9, 11, 12, 19, 20)]
    [True, True, False, True, False]
    """

    first: int
    beyond: int
    open: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> PgSnapshot:
        """Read 'xmin:xmax:xip,…'. Raises ValueError."""
        first, beyond, listed = text.split(":")
        return cls(int(first), int(beyond), frozenset(int(x) for x in listed.split(",") if x))

    def __str__(self) -> str:
        return f"{self.first}:{self.beyond}:{','.join(map(str, sorted(self.open)))}"

    def shows(self, id: int) -> bool:
        """Whether the snapshot shows what a transaction did, by its id of 32 bits or more."""
        full = id
        if id < _CYCLE:
            full = (self.beyond // _CYCLE) * _CYCLE + id
            if full - self.beyond > _CYCLE // 2:
                full -= _CYCLE
            elif self.beyond - full > _CYCLE // 2:
                full += _CYCLE
        return full < self.first or (full < self.beyond and full not in self.open)


@dataclass(frozen=True)
class Loaded:
    """What a source's tables were filled from: a snapshot, of which no transaction is beyond `lsn`."""

    seen: PgSnapshot
    lsn: int

    @classmethod
    def of(cls, body: Mapping[str, Any] | None) -> Loaded | None:
        """As a manifest keeps it; None where it tells of no snapshot."""
        return (
            None
            if body is None or "snapshot" not in body
            else cls(PgSnapshot.parse(body["snapshot"]), int(body["lsn"]))
        )

    def json(self) -> dict[str, Any]:
        """The inverse of `of`."""
        return {"snapshot": str(self.seen), "lsn": self.lsn}

    def rest(self, transaction: Transaction) -> Transaction:
        """The transaction, without its rows where they were loaded."""
        if isinstance(transaction, SourceTransaction) and transaction.id >= 0 and self.seen.shows(transaction.id):
            return replace(transaction, slices=(), errors={})
        return transaction
