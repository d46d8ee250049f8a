"""How old each view is in each sink: now minus the commit time of what the sink holds, and what its limits say of that.

Invariant: the age grows while nothing arrives, also while the loop hangs, and whatever the source's clock says: it is at
least the time since the commit time last moved. The loop calls `look` between two turns; any thread asks `ages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.connectors.sink import SourceFrontier
from headrace.sidecar.delivery.sink_writer import SinkWriter
from headrace.sidecar.delivery.view_state import ViewState
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.operations.catalog_watch import CatalogWatch
from headrace.sidecar.operations.new_partitions import NewPartitions
from headrace.sidecar.state.command_log import Unproven, merged
from headrace.sidecar.wiring.build import Running
from headrace.sidecar.wiring.project import tables_of
from headrace.views.compile import CompiledView
from headrace.views.limits import FreshnessLimits

WITH_HEARTBEATS = FreshnessLimits(warn=10.0, error=60.0)
"""The limits of a view that declares none, where a source that it reads sends heartbeats."""
WITHOUT = FreshnessLimits()
DOWN_SECONDS = 10.0
"""Seconds without a heartbeat, or without an answer of Kafka, after which a source counts as down."""
SKEW_SECONDS = 1.0
SKEW_WINDOW = 60.0

FRESH, LATE, STALE, UNKNOWN, DOWN, STARTING = "fresh", "late", "stale", "unknown", "in error", "starting"
UNPROVEN = "unproven"


@dataclass(frozen=True)
class Age:
    """How old a view is in a sink. `seconds`: None before the sink holds anything of it. `state`: fresh, late or stale by
    its limits, late too while a recursion of it is evaluated between steps; unknown where it has none and no source tells; in
    error; unproven where the catalog has a table otherwise than it is read; starting."""

    view: str
    sink: str
    seconds: float | None
    state: str
    limits: FreshnessLimits
    why: str = ""

    def json(self) -> dict[str, Any]:
        """As `status` gives it."""
        seconds = None if self.seconds is None else round(self.seconds, 3)
        return {"sink": self.sink, "staleness_seconds": seconds, "state": self.state}


@dataclass(frozen=True)
class _Held:
    """How fresh a view is in a sink. `commit`: the commit time that it reflects; `moved`: since when it reflects that; both in
    wall seconds.
    """

    commit: float | None
    moved: float
    limits: FreshnessLimits
    error: str
    unproven: str
    late: str


class Freshness:
    """The ages of a running sidecar's views. `look` is the loop's; `ages` may be asked by any thread."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._wall: Callable[[], float] = running.runtime.parts.wall
        self._views: Sequence[CompiledView] = ()
        self._sources: Mapping[str, frozenset[str]] = {}
        self._limits: Mapping[str, FreshnessLimits | None] = {}
        self._held: Mapping[tuple[str, str], _Held] = {}
        self._tables: Mapping[str, frozenset[str]] = {}
        log, take_in = running.runtime.parts.commands, NewPartitions(running.runtime)
        now = lambda: running.settings  # noqa: E731
        self.watch = CatalogWatch(running.settings, log=log, take_in=take_in, settings_now=now)

    def look(self) -> None:
        """Take down what the sinks hold now."""
        parts, now = self._running.runtime.parts, self._wall()
        self._understand()
        beating = {i.name for i in parts.intakes if i.kind == "debezium" and i.beats.last}
        writers = {g.name: g for g in parts.writers}
        held = {}
        for state in parts.views:
            for sink in state.sinks:
                before = self._held.get((state.view.name, sink))
                held[state.view.name, sink] = self._one(state, writers.get(sink), before, beating, now)
        self._held = held

    def _understand(self) -> None:
        """Which sources each view reads, through whatever views."""
        if self._views is self._running.views:
            return
        self._views = self._running.views
        source_of = {table: i.name for i in self._running.runtime.parts.intakes for table in i.subscribed}
        found: dict[str, frozenset[str]] = {}
        for view in self._views:  # each after those that it reads
            found[view.name] = frozenset(tables_of(view)).union(*(found.get(name, frozenset()) for name in view.reads))
        self._tables = found
        self._sources = {n: frozenset(source_of[t] for t in of if t in source_of) for n, of in found.items()}
        self._limits = {v.name: v.spec.freshness for v in self._views}

    def _one(
        self, state: ViewState, writer: SinkWriter | None, before: _Held | None, beating: set[str], now: float
    ) -> _Held:
        name = state.view.name
        sources = self._sources.get(name, frozenset())
        limits = self._limits.get(name) or (WITH_HEARTBEATS if sources & beating else WITHOUT)
        commit = None if before is None else before.commit
        lacking = writer is None or name in self._running.runtime.whole.get(writer.name, ())
        if writer is not None and writer.frontier is not None and not state.stands and not lacking:
            commit = _oldest(writer.frontier.sources, sources)
        moved = now if before is None or commit != before.commit else before.moved
        return _Held(commit, moved, limits, state.broken, self.unproven(name), state.error if state.late else "")

    @property
    def unproven_tables(self) -> Mapping[str, Unproven]:
        """Tables whose rows may not be their source's: by the command log, else by the catalog."""
        return merged(self._running.runtime.parts.commands.open, self.watch.found)

    def unproven(self, view: str) -> str:
        """Why a view may not hold what its source has; "" where nothing says so."""
        known = self.unproven_tables
        found = [known[t] for t in sorted(self._tables.get(view, ())) if t in known]
        return f"table {found[0].table}: {found[0].why}; {found[0].hint}" if found else ""

    def ages(self, most: float | None = None) -> list[Age]:
        """Every view in every sink, as of now; `most`: the limit of all, in place of their own."""
        now = self._wall()
        return [_age(view, sink, held, now, most) for (view, sink), held in self._held.items()]


def _oldest(frontiers: Mapping[str, SourceFrontier], sources: frozenset[str]) -> float | None:
    """The commit time of the source that is furthest behind; None where one has none yet."""
    found = [frontiers[s].commit_us if s in frontiers else -1 for s in sources]
    return min(found) / 1e6 if found and min(found) > 0 else None


def _age(view: str, sink: str, held: _Held, now: float, most: float | None) -> Age:
    seconds = None if held.commit is None else max(now - held.commit, now - held.moved)
    limits = held.limits if most is None else FreshnessLimits(error=most)
    if held.error:
        return Age(view, sink, seconds, DOWN, limits, held.error)
    if held.unproven:
        return Age(view, sink, seconds, UNPROVEN, limits, held.unproven)
    if seconds is None:
        return Age(view, sink, None, LATE if held.late else STARTING, limits, held.late)
    if limits.error is not None and seconds > limits.error:
        return Age(view, sink, seconds, STALE, limits, held.late)
    if held.late:
        return Age(view, sink, seconds, LATE, limits, held.late)
    if limits.warn is not None and seconds > limits.warn:
        return Age(view, sink, seconds, LATE, limits)
    return Age(view, sink, seconds, UNKNOWN if limits == WITHOUT else FRESH, limits)


class Sources:
    """Whether each source delivers, and how far its clock is from ours. Single user: the loop."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._beats: dict[str, tuple[object, float]] = {}
        self._least: dict[str, list[tuple[float, float]]] = {}
        self._last: dict[str, int] = {}

    def down(self, intake: Intake) -> str:
        """Why a source does not deliver; "" where it does, or where nothing tells."""
        now, silent = self._running.runtime.parts.wall(), intake.source.silent_for()
        if silent > DOWN_SECONDS:
            return f"Kafka has not answered for {silent:.0f} s"
        if intake.kind != "debezium" or not intake.beats.last:
            return ""
        beats = dict(intake.beats.last)
        known, since = self._beats.get(intake.name, (None, now))
        waiting = intake.assembler.waiting()
        if beats != known or (waiting is not None and waiting.kind == "snapshot"):
            since = now
        self._beats[intake.name] = (beats, since)
        if now - since > DOWN_SECONDS and intake.lag() == 0:
            return f"no heartbeat has arrived for {now - since:.0f} s: its connector or database is away"
        return ""

    def ahead(self, intake: Intake) -> float:
        """By how many seconds, at least, the source's clock is ahead of ours: the earliest that a commit came before its own
        time, within the last minute. 0 where none did: then it is right, or behind, which one-way times cannot tell."""
        now = self._running.runtime.parts.wall()
        frontier = self._running.runtime.sources.get(intake.name)
        seen = [one for one in self._least.get(intake.name, []) if one[0] > now - SKEW_WINDOW]
        if frontier is not None and frontier.commit_us > 0 and frontier.commit_us != self._last.get(intake.name):
            self._last[intake.name] = frontier.commit_us
            seen.append((now, frontier.commit_us / 1e6 - now))
        self._least[intake.name] = seen
        return max([0.0, *(by for _, by in seen)])
