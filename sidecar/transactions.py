"""What an assembler makes of a source's changes, and its port: whole transactions, and what still waits.

Always: a transaction is whole, and is never changed once it is given. Made by the assemblers and by Spark's versions;
reclock, ingest and the runtime pass them on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Protocol

from connectors.changes import Decoded, TableChanges, Undecodable
from engine.errors import HeadraceError
from sidecar.pending import Place, Slice
from sidecar.stops import Stop


class ContinuityError(HeadraceError):
    """The stream of a source cannot be continued without guessing (P5)."""

    code = "continuity"


@dataclass(frozen=True)
class Transaction:
    """One whole source transaction, ready to become an epoch.

    `kind`: transaction, snapshot, version, cut (a source without metadata: what one poll brought), mended (what stopped
    tables missed), resnapshot (what a later snapshot read, in place of what its tables held), resync (what a table
    lacked), chunk (rows of an incremental snapshot), or adopted (no rows: where its sinks had the source). `id`: txId or version,
    -1 for snapshots, chunks, cuts and adopted, -2 for mended, -3 for resync. `lsn`: of its END (version for Spark).
    `commit_us`: µs since 1970 UTC. `errors`: what becomes of tables' errors: table → message → change. `whole`: of resync, the
    table that is as the source has it from here on. `more`: the transaction goes on in the next epoch (`sidecar.portions`).
    `gone`: of a chunk, which its table does not have any more, and which counts where the log has it. `supplied`: records that
    were passed over, and of which it has copies.
    """

    kind: str
    id: int
    lsn: int
    commit_us: int
    slices: tuple[Slice, ...]
    errors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    whole: str = ""
    more: bool = False
    gone: bool = False
    supplied: tuple[Place, ...] = ()


def as_bound(held: deque[Transaction], bound: Iterable[tuple[int, int]]) -> None:
    """Make as many portions of the transactions at the front of `held` as were `bound`, (id, lsn) each: of a transaction there
    are fewer rows where a table stood still, now or then.

    >>> held = deque([Transaction("transaction", 7, 9, 0, ()), Transaction("transaction", 8, 12, 0, ())])
    >>> as_bound(held, [(7, 9), (7, 9), (8, 12)])
    >>> [(t.id, t.more) for t in held]
    [(7, True), (7, False), (8, False)]
    """
    out: list[Transaction] = []
    for key, portions in groupby(bound):
        if not held or (held[0].id, held[0].lsn) != key:
            break
        found, count = [held.popleft()], len(list(portions))
        while found[-1].more:
            found.append(held.popleft())
        first, rest = found[: count - 1], found[count - 1 :]
        if rest:
            out += [*first, replace(rest[-1], slices=tuple(s for t in rest for s in t.slices))]
        else:
            out += [replace(found[-1], slices=(), more=True, errors={})] * (count - len(found)) + found
    held.extendleft(reversed(out))


@dataclass(frozen=True)
class Waiting:
    """What the oldest incomplete transaction waits for: table → events still missing."""

    kind: str
    id: int
    missing: Mapping[str, int]
    since_us: int

    @property
    def name(self) -> str:
        """What waits.

        >>> Waiting("transaction", 7, {"public.t": 2}, 0).name, Waiting("snapshot", -1, {}, -1).name
        ('transaction 7', 'snapshot')
        """
        return self.kind if self.id < 0 else f"{self.kind} {self.id}"

    @property
    def lacks(self) -> str:
        """What is missing; nothing where that is not known yet.

        >>> Waiting("transaction", 7, {"public.t": 2, "public.a": 1}, 0).lacks
        '1 of public.a, 2 of public.t'
        """
        return ", ".join(f"{n} of {table}" for table, n in sorted(self.missing.items()))

    def __str__(self) -> str:
        return f"{self.name} lacks {self.lacks}" if self.missing else self.name


@dataclass(frozen=True)
class Ahead:
    """What of a source the log has, and comes again. Stopped tables may go on after the END at `lsn`; `exactly`: right there,
    as the log has it.

    `before_snapshot`: where the log has a later snapshot, the END before it (-1: none is); `later`: its LSN. `through`: the
    last END that the log has. `snapshot`: the LSN of the first snapshot, -1 where the log has none. `chunks`: whether it has any.
    """

    lsn: int
    exactly: bool
    before_snapshot: int | None = None
    later: int = -1
    through: int = -1
    snapshot: int = -1
    chunks: bool = False

    def last_before_snapshot(self, *, begun: bool) -> int | None:
        """The END after which a later snapshot comes, None where none does: where the log has it, else, once it has `begun`,
        after all that the log has, which the sinks may hold.

        >>> Ahead(-1, exactly=False, through=7).last_before_snapshot(begun=True)
        7
        """
        return self.through if begun and self.before_snapshot is None else self.before_snapshot


RESNAPSHOT = "resnapshot"
"""The kind of a later snapshot."""
CHUNK = "chunk"
"""The kind of rows of an incremental snapshot."""
ADOPTED = "adopted"
"""The kind of an epoch without rows: its source stands where the sinks of a lost state folder had it."""


class Assembler(Protocol):
    """Makes transactions of one source's changes."""

    def accept(self, decoded: Decoded) -> None:
        """Take in what a format decoded."""

    def complete(self) -> list[Transaction]:
        """The longest complete prefix that was not given yet."""

    def pending_positions(self) -> dict[tuple[str, int], int]:
        """(topic, partition) → the oldest offset of what is not given yet."""

    def waiting(self) -> Waiting | None:
        """What holds the prefix up, or None."""

    @property
    def overdue(self) -> int:
        """The LSN of the last END that the log has before a later snapshot, where that is here and waits for it; else -1."""

    def finish(self) -> None:
        """Nothing more comes (a recording's end)."""

    @property
    def stops(self) -> Sequence[Stop]:
        """The tables that stand still."""

    def stop(self, table: str, record: Undecodable, text: str) -> bool:
        """A record of a table cannot be decoded: the table alone stops, `text` its error. False: not without the others."""

    def skip(self, record: Undecodable, *, known: bool = False) -> None:
        """A record is passed over, at the user's word: where its event can be read, it counts as here."""

    def follow(self, log: Ahead) -> None:
        """What the log has of this source comes again, in its order; before anything else."""

    def remembered(self) -> Mapping[str, Any]:
        """What of what was given a later run must know that neither the log nor the topics tell, as a manifest keeps it."""

    def outlived(self, row: TableChanges) -> bool | None:
        """Whether all that its table had when this event was committed was taken away since; None where nobody can tell."""

    def standing(self, rows: Slice, lsn: int) -> Sequence[Slice]:
        """What of rows of an incremental snapshot is as it was read, once all was given up to the END at `lsn`."""

    def resume(
        self, bound: Iterable[tuple[int, int]], stops: Iterable[Stop] = (), remembered: Mapping[str, Any] | None = None
    ) -> None:
        """Continue after these bound transactions, (id, lsn) each, oldest first; the snapshot is behind us.

        `stops`: tables that stood still then, whose partitions are read again from there; `remembered`: as it was then.
        """
