"""Who asks for each transaction by itself, and what that costs: one of them makes the steps of all finer.

Invariant: while anybody asks, every epoch is a range of its own. A sink's wish is a contract and slows the intake; a
follower has a `lag`: it is ended by name where the intake, or its own reader, stays behind for longer than that. Followers
ask on their threads, the loop looks after them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.connectors.commit_place import CommitPlace
from headrace.connectors.sink import EpochStamp
from headrace.engine.errors import HeadraceError

INTAKE = "the intake has not come to the end of its topics for longer than this follower's lag"
READER = "its reader takes longer for the changes than its lag"


class EachEnded(HeadraceError):
    """A follower of each transaction was ended, because it would have held the intake up."""

    code = "tail"


@dataclass(eq=False)
class Asker:
    """One follower. `name`: as `status` tells it; `lag`: seconds, or None of one that is never ended.

    `at`: the epoch up to which its reader has everything, None before it has anything: written by its own thread. `ended`:
    why it is over, or "": written by the loop. `noting`: the LSNs of epochs are kept for it. The loop's own: by when which epoch
    is to be reached.
    """

    name: str
    lag: float | None
    since: float
    at: int | None = None
    ended: str = ""
    noting: bool = False
    _goal: int = -1
    _goal_since: float = field(default=0.0)

    def check(self) -> None:
        """Raises EachEnded where it is over."""
        if self.ended:
            raise EachEnded(
                f"each transaction is not told any more: {self.ended}", who=self.name, lag=self.lag,
                hint="follow it without --each, or with a greater --lag",
            )  # fmt: skip

    def look(self, now: float, epoch: int, behind_since: float | None) -> None:
        """End it where it is late; the intake is behind since then, or is not. Called by the loop."""
        if self.lag is None:
            return
        if behind_since is not None and now - max(behind_since, self.since) > self.lag:
            self.ended = INTAKE
        if self.at is None:
            return
        if self.at >= self._goal:
            self._goal, self._goal_since = epoch, now
        elif now - self._goal_since > self.lag:
            self.ended = READER


@dataclass
class Cost:
    """What finer steps made: `ranges` where `otherwise` would have done, in steps that took the engine so many seconds."""

    ranges: int = 0
    otherwise: int = 0
    seconds: float = 0.0


class EachTransaction:
    """The askers. `sinks`: the names of those whose contract it is; `clock`: seconds, as the loop has them."""

    def __init__(self, sinks: Callable[[], Sequence[str]] = tuple, clock: Callable[[], float] = time.monotonic) -> None:
        self._sinks, self._clock = sinks, clock
        self._lock = threading.Lock()
        self._askers: list[Asker] = []
        self._behind_since: float | None = None
        self._ended: list[Asker] = []
        self._notes: list[tuple[int, str, CommitPlace]] = []
        self.cost = Cost()

    def ask(self, name: str, lag: float | None, *, noting: bool = False) -> Asker:
        """Make every epoch a range of its own from the next cut on, until `release`. Any thread calls it."""
        asker = Asker(name, lag, self._clock(), noting=noting)
        with self._lock:
            self._askers.append(asker)
        return asker

    def release(self, asker: Asker) -> None:
        """It asks no more. Called by any thread; idempotent."""
        with self._lock:
            if asker in self._askers:
                self._askers.remove(asker)
            if not any(a.noting for a in self._askers):
                self._notes = []

    def note(self, stamps: Mapping[int, EpochStamp]) -> None:
        """These epochs are in. Called by the loop."""
        with self._lock:
            if any(a.noting for a in self._askers):
                self._notes += [(epoch, stamp.source, stamp.place) for epoch, stamp in stamps.items()]

    def noted(self) -> list[tuple[int, str, CommitPlace]]:
        """Epoch, source and place of what came in since the first that is noting has asked. Called by any thread."""
        with self._lock:
            return list(self._notes)

    def status(self) -> dict[str, Any]:
        """What `headrace status` tells of it."""
        now, cost = self._clock(), self.cost
        sinks = [{"who": f"sink {name}", "lag_seconds": None, "since_seconds": None} for name in self._sinks()]
        followers = [
            {"who": a.name, "lag_seconds": a.lag, "since_seconds": round(now - a.since, 1)} for a in self.askers
        ]
        return {
            "asked_by": [*sinks, *followers], "ranges": cost.ranges, "otherwise": cost.otherwise,
            "engine_seconds": round(cost.seconds, 3),
        }  # fmt: skip

    @property
    def askers(self) -> list[Asker]:
        """The followers that ask now."""
        with self._lock:
            return list(self._askers)

    def names(self) -> list[str]:
        """Everybody who asks now: sinks first."""
        return [*(f"sink {name}" for name in self._sinks()), *(a.name for a in self.askers)]

    def look(self, epoch: int, at_end: Callable[[], bool]) -> None:
        """End followers that are late. `at_end`: whether nothing waits to be read. Called by the loop."""
        askers = self.askers
        if not askers:
            self._behind_since = None
            return
        now = self._clock()
        if at_end():
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        for asker in askers:
            asker.look(now, epoch, self._behind_since)
        ended = [a for a in askers if a.ended]
        for asker in ended:
            self.release(asker)
        self._ended += ended

    def take_ended(self) -> list[Asker]:
        """The followers that were ended since the last call. The loop calls it."""
        ended, self._ended = self._ended, []
        return ended
