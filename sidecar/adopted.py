"""What sinks hold of a state folder that was lost (DECISIONS.md 16): nothing is written before each source has passed it again.

Always: what is read counts as passed, whatever it gives, once the source waits for nothing. Where it gives less than the sinks
have, as the last snapshot found no row, and no record tells its LSN, an epoch without rows says that the source stands where
they have it: so no frontier goes back, and what is gone since goes at once. A snapshot that is not whole says nothing: it may
be all that retention has left of it. The log keeps the epoch like any other. Where all that was read tells of less than a sink
has, and something of it was given, the topics are of another history (of a source that was restored, made anew and by now as
long as the old ones): the sink begins a new incarnation. Filled at a start, owned by the runtime.
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
    """By source, the furthest of what the sinks hold; empty once all of it is passed. `set_back`: the sinks that hold more of a
    source than its topics tell of, once that is known."""

    def __init__(self) -> None:
        self.frontiers: dict[str, SourceFrontier] = {}
        self._held: dict[str, dict[str, int]] = {}
        self.set_back: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.frontiers)

    def add(self, name: str, frontier: SourceFrontier, sink: str) -> None:
        """A sink holds this of a source; another one may hold more."""
        self._held.setdefault(name, {})[sink] = frontier.lsn
        had = self.frontiers.get(name, SourceFrontier({}, -1, -1))
        self.frontiers[name] = SourceFrontier(
            _furthest(had.positions, frontier.positions),
            max(had.lsn, frontier.lsn),
            max(had.commit_us, frontier.commit_us),
        )

    def are_passed(self, sources: Mapping[str, SourceFrontier], intakes: Iterable[Intake]) -> bool:
        """Whether every source stands beyond it; `sources`: where they do. Of one that has read all of it, and been given less,
        the epoch that says so is to be bound next."""
        set_back: set[str] = set()
        for intake in intakes:
            wanted = self.frontiers.get(intake.name)
            if wanted is None:
                continue
            if not reached(intake.positions(), wanted.positions):
                return False
            at = sources.get(intake.name)
            if at is None or at.lsn < wanted.lsn:
                if intake.assembler.waiting() is not None:
                    return False
                if at is not None and 0 <= intake.furthest < wanted.lsn:
                    set_back |= {sink for sink, lsn in self._held[intake.name].items() if lsn > intake.furthest}
                    continue
                if wanted.lsn < 0:
                    continue  # it has nothing of what was made anew
                if not intake.injected:
                    intake.injected.append(Transaction(ADOPTED, -1, wanted.lsn, wanted.commit_us, ()))
                return False
        self.frontiers, self.set_back = {}, frozenset(set_back)
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
