"""What sinks hold of a state folder that was lost (DECISIONS.md 16): nothing is written before each source has passed it again.

Always: what is read counts as passed, whatever it gives, once the source waits for nothing. Where it gives less than the sinks
have, as the last snapshot found no row, and no record tells its LSN, an epoch without rows says that the source stands where
they have it: so no frontier goes back, and what is gone since goes at once. A snapshot that is not whole says nothing: it may
be all that retention has left of it. The log keeps the epoch like any other. Filled at a start, owned by the runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from connectors.sink import SourceFrontier
from connectors.source import Positions
from sidecar.bindings import OF_NO_TRANSACTION, Stamp
from sidecar.held import reached
from sidecar.ingest import Intake
from sidecar.transactions import ADOPTED, RESNAPSHOT, Transaction

WITHOUT_LSN = OF_NO_TRANSACTION | {RESNAPSHOT}
"""Kinds of epochs that may say an LSN of what came before them."""


class Adopted:
    """By source, the furthest of what the sinks hold; empty once all of it is passed."""

    def __init__(self) -> None:
        self.frontiers: dict[str, SourceFrontier] = {}

    def __bool__(self) -> bool:
        return bool(self.frontiers)

    def add(self, name: str, frontier: SourceFrontier) -> None:
        """A sink holds this of a source; another one may hold more."""
        had = self.frontiers.get(name, SourceFrontier({}, -1, -1))
        self.frontiers[name] = SourceFrontier(
            _furthest(had.positions, frontier.positions),
            max(had.lsn, frontier.lsn),
            max(had.commit_us, frontier.commit_us),
        )

    def are_passed(self, sources: Mapping[str, SourceFrontier], intakes: Iterable[Intake]) -> bool:
        """Whether every source stands beyond it; `sources`: where they do. Of one that has read all of it, and been given less,
        the epoch that says so is to be bound next."""
        for intake in intakes:
            wanted = self.frontiers.get(intake.name)
            if wanted is None:
                continue
            if not reached(intake.positions(), wanted.positions):
                return False
            at = sources.get(intake.name)
            if at is None or at.lsn < wanted.lsn:
                if not intake.injected and intake.assembler.waiting() is None:
                    intake.injected.append(Transaction(ADOPTED, -1, wanted.lsn, wanted.commit_us, ()))
                return False
        self.frontiers = {}
        return True


def stands_at(stamp: Stamp, positions: Positions, before: SourceFrontier | None) -> SourceFrontier:
    """Where a source is once an epoch is in; what has no LSN of its own moves none back."""
    if before is None or stamp.kind not in WITHOUT_LSN:
        return SourceFrontier(positions, stamp.lsn, stamp.commit_us)
    return SourceFrontier(positions, max(stamp.lsn, before.lsn), max(stamp.commit_us, before.commit_us))


def _furthest(one: Positions, other: Positions) -> Positions:
    """Beyond both."""
    out = {topic: dict(partitions) for topic, partitions in one.items()}
    for topic, partitions in other.items():
        found = out.setdefault(topic, {})
        found |= {p: max(offset, found.get(p, 0)) for p, offset in partitions.items()}
    return out
