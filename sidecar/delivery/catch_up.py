"""The catch-up gate: after a lost state folder nothing is written until each source has passed what sinks hold (decision 16).

Invariant: what is read counts as passed once the source waits for nothing, whatever it gives; a snapshot that is not whole says
nothing, since retention may have left a part of it. Where the last snapshot found no row, so that no record has its LSN, an
epoch without rows says that the source stands where the sinks have it, and no frontier goes back. Where all that was read is
less than a sink has, and some of it was given, the topics are of another history, and the sink begins a new incarnation.
Filled at a start, owned by the runtime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.connectors.commit_place import CommitPlace
from headrace.connectors.sink import SourceFrontier
from headrace.connectors.source import Positions
from headrace.sidecar.epochs.epoch_binding import OF_NO_TRANSACTION, BoundTransaction
from headrace.sidecar.epochs.reorder_buffer import reached
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.transactions.model import EpochKind, Marker

WITHOUT_LSN = OF_NO_TRANSACTION | {EpochKind.LATER_SNAPSHOT}
"""Kinds of epochs that may say an LSN of what came before them."""


class CatchUpGate:
    """For each source the furthest frontier that a sink holds; empty once every source has passed it. `set_back`: the sinks
    that hold more of a source than its topics do, once that is known."""

    def __init__(self) -> None:
        self.frontiers: dict[str, SourceFrontier] = {}
        self._held: dict[str, dict[str, CommitPlace]] = {}
        self.set_back: frozenset[str] = frozenset()
        self._awaited: dict[str, CommitPlace] = {}

    def __bool__(self) -> bool:
        return bool(self.frontiers or self._awaited)

    def await_place(self, name: str, place: CommitPlace) -> None:
        """Wait until the source has passed this place: the snapshot that filled its tables is consistent only from there on."""
        self._awaited[name] = place

    def add(self, name: str, frontier: SourceFrontier, sink: str) -> None:
        """A sink holds this of a source; another one may hold more."""
        self._held.setdefault(name, {})[sink] = frontier.place
        had = self.frontiers.get(name, frontier)
        self.frontiers[name] = SourceFrontier(
            _furthest(had.positions, frontier.positions),
            max(had.place, frontier.place),
            max(had.commit_us, frontier.commit_us),
        )

    def are_passed(self, sources: Mapping[str, SourceFrontier], intakes: Iterable[Intake]) -> bool:
        """Whether every source stands beyond it; `sources`: where they do. Of one that has read all of it, and been given less,
        the epoch that says so is to be bound next."""
        for name, place in self._awaited.items():
            told = sources.get(name)
            if told is None or told.place < place:
                return False
        set_back: set[str] = set()
        for intake in intakes:
            wanted = self.frontiers.get(intake.name)
            if wanted is None:
                continue
            if not reached(intake.positions(), wanted.positions):
                return False
            at = sources.get(intake.name)
            if at is None or at.place < wanted.place:
                if intake.assembler.waiting() is not None:
                    return False
                if at is not None and 0 <= intake.furthest < wanted.place.order:
                    set_back |= {s for s, place in self._held[intake.name].items() if place.order > intake.furthest}
                    continue
                if wanted.place.order < 0:
                    continue  # it has nothing of what was made anew
                if not intake.injected:
                    intake.injected.append(Marker(wanted.place, wanted.commit_us))
                return False
        self.frontiers, self._awaited, self.set_back = {}, {}, frozenset(set_back)
        return True


def stands_at(stamp: BoundTransaction, positions: Positions, before: SourceFrontier | None) -> SourceFrontier:
    """Where a source is once an epoch is in; what has no LSN of its own moves none back."""
    if before is None or stamp.kind not in WITHOUT_LSN:
        return SourceFrontier(positions, stamp.place, stamp.commit_us)
    return SourceFrontier(positions, max(stamp.place, before.place), max(stamp.commit_us, before.commit_us))


def _furthest(one: Positions, other: Positions) -> Positions:
    """Beyond both."""
    out = {topic: dict(partitions) for topic, partitions in one.items()}
    for topic, partitions in other.items():
        found = out.setdefault(topic, {})
        found |= {p: max(offset, found.get(p, 0)) for p, offset in partitions.items()}
    return out
