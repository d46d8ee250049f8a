"""Every change of state of views, tables, columns and sources, as an event once when it begins and once when it ends.

Invariant: the gauges of the same facts are set at the same moment, so that log, metrics and status agree. It only tells,
and looks between two turns of the loop. `alerts.AlertMonitor` does the same for sinks, stalled transactions and memory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.process.freshness import FRESH, LATE, SKEW_SECONDS, STALE, Age, Freshness, Sources
from headrace.sidecar.process.late_views import late_views
from headrace.sidecar.wiring.build import Running

Facts = Mapping[str, Any]
SNAPSHOT_SECONDS = 10.0
"""How often the progress of a snapshot is told."""
_AGES = {FRESH: "view_fresh", LATE: "view_late", STALE: "view_stale"}


class StateChanges:
    """Compares the states of views, tables and sinks with those at the last look. Single user: the loop."""

    def __init__(self, running: Running, freshness: Freshness) -> None:
        self._running, self._freshness = running, freshness
        self.sources = Sources(running)
        self.down: dict[str, str] = {}
        self.ahead: dict[str, float] = {}
        self._errors: dict[str, str] = {}
        self._ages: dict[tuple[str, str], str] = {}
        self._suspended: dict[tuple[str, str], str] = {}
        self._columns: dict[tuple[str, str, str], str] = {}
        self._letters: dict[str, int] = {}
        self._snapshots: dict[str, float] = {}
        self._skewed: set[str] = set()
        self._unproven: set[str] = set()
        self._gauging, self._gauged = threading.Lock(), set[tuple[str, str]]()
        self._checkpointed = running.runtime.checkpoints.epoch

    def look(self) -> list[Facts]:
        """What began or ended since the last look."""
        of = (self._of_sources, self._of_snapshots, self._of_tables, self._of_catalog, self._of_columns, self._of_views,
              self._of_ages, self._of_checkpoints)  # fmt: skip
        return [fact for look in of for fact in look()]

    def _of_sources(self) -> Iterable[Facts]:
        metrics = self._running.metrics
        for intake in self._running.runtime.parts.intakes:
            before, now = self.down.get(intake.name, ""), self.sources.down(intake)
            metrics.source_up.labels(intake.name).set(not now)
            self.down[intake.name] = now
            if now and not before:
                yield {"event": "source_down", "source": intake.name, "why": now}
            elif before and not now:
                yield {"event": "source_up", "source": intake.name}
            ahead = self.ahead[intake.name] = self.sources.ahead(intake)
            metrics.clock_ahead.labels(intake.name).set(ahead)
            skewed = ahead > SKEW_SECONDS
            if skewed and intake.name not in self._skewed:
                yield {"event": "clock_skew", "source": intake.name, "seconds": round(ahead, 3),
                       "hint": "set both clocks by NTP: ages of views are told too small by that"}  # fmt: skip
            (self._skewed.add if skewed else self._skewed.discard)(intake.name)
            yield from self._of_letters(intake)

    def _of_letters(self, intake: Intake) -> Iterable[Facts]:
        put, before = sum(intake.put.values()), self._letters.get(intake.name, 0)
        self._running.metrics.dead_letters.labels(intake.name).inc(put - before)
        self._letters[intake.name] = put
        if put > before:
            yield {"event": "dead_letters", "source": intake.name, "count": put - before,
                   "hint": "`headrace deadletters list` shows them"}  # fmt: skip

    def _of_snapshots(self) -> Iterable[Facts]:
        now = self._running.runtime.parts.clock()
        for intake in self._running.runtime.parts.intakes:
            waiting, told = intake.assembler.waiting(), self._snapshots.get(intake.name)
            reading = waiting is not None and waiting.kind == "snapshot"
            missing = sum(waiting.missing.values()) if waiting is not None and reading else 0
            self._running.metrics.snapshot_rows.labels(intake.name).set(missing)
            if reading and (told is None or now - told >= SNAPSHOT_SECONDS):
                self._snapshots[intake.name] = now
                yield {"event": "snapshot", "source": intake.name, "done": False, "events": intake.counts.events,
                       "missing_rows": missing}  # fmt: skip
            elif told is not None and not reading:
                del self._snapshots[intake.name]
                yield {"event": "snapshot", "source": intake.name, "done": True, "events": intake.counts.events}

    def _of_tables(self) -> Iterable[Facts]:
        now, gauge = {}, self._running.metrics.table_suspended
        for intake in self._running.runtime.parts.intakes:
            for stop in intake.assembler.stops:
                now[intake.name, stop.table] = stop.text
            for table in intake.subscribed:
                gauge.labels(table).set((intake.name, table) in now)
        for (source, table), text in now.items():
            if (source, table) not in self._suspended:
                yield {"event": "table_suspended", "source": source, "table": table, "error": text}
        for source, table in self._suspended.keys() - now.keys():
            yield {"event": "table_resumed", "source": source, "table": table}
        self._suspended = now

    def _of_catalog(self) -> Iterable[Facts]:
        found, gauge = self._freshness.unproven_tables, self._running.metrics.table_unproven
        for intake in self._running.runtime.parts.intakes:
            for table in intake.subscribed:
                gauge.labels(table).set(table in found)
        for table in sorted(found.keys() - self._unproven):
            yield {"event": "table_unproven", "table": table, "why": found[table].why, "hint": found[table].hint}
        for table in sorted(self._unproven - found.keys()):
            yield {"event": "table_proven", "table": table}
        self._unproven = set(found)

    def _of_columns(self) -> Iterable[Facts]:
        intakes = self._running.runtime.parts.intakes
        now = {(i.name, t, c): lost.reason for i in intakes for (t, c), lost in i.lost.columns.items()}
        for (source, table, column), why in now.items():
            if (source, table, column) not in self._columns:
                yield {"event": "column_missing", "source": source, "table": table, "column": column, "why": why}
        for source, table, column in self._columns.keys() - now.keys():
            yield {"event": "column_back", "source": source, "table": table, "column": column}
        self._columns = now

    def _of_views(self) -> Iterable[Facts]:
        metrics, now, late = self._running.metrics, {}, late_views(self._running)
        for state in self._running.runtime.parts.views:
            if not state.sinks:
                continue
            name = state.view.name
            metrics.view_up.labels(name).set((not state.stands or state.late) and not self._freshness.unproven(name))
            if state.rows is not None:
                metrics.view_rows.labels(name).set(state.rows)
            metrics.view_late.labels(name).set(state.late)
            metrics.view_late_round.labels(name).set(late.get(name, {}).get("round", 0))
            metrics.view_late_rows.labels(name).set(late.get(name, {}).get("rows", 0))
            before, error = self._errors.get(name, ""), "" if state.late else state.error
            if error:
                now[name] = error
            if error and not before:
                yield {"event": "view_error", "view": name, "epoch": state.frontier, "error": error}
            elif before and not error and not state.late:
                yield {"event": "view_restored", "view": name, "epoch": state.frontier}
            elif before and state.late:
                now[name] = before  # it is told once it is back
        self._errors = now

    def _of_ages(self) -> Iterable[Facts]:
        now = {}
        for age in self._freshness.ages():
            place = (age.view, age.sink)
            now[place] = age.state if age.state in _AGES else self._ages.get(place, FRESH)
            if now[place] != self._ages.get(place, FRESH):
                why = {"why": age.why} if age.why else {}
                yield {"event": _AGES[now[place]], "view": age.view, "sink": age.sink,
                       "seconds": round(age.seconds or 0.0, 3), "limit": _limit(age), **why}  # fmt: skip
        self._ages = now

    def _of_checkpoints(self) -> Iterable[Facts]:
        now = self._running.runtime.checkpoints.epoch
        if now != self._checkpointed:
            self._checkpointed = now
            yield {"event": "checkpoint", "epoch": now}

    def gauge(self) -> None:
        """Set the gauge of ages. Any thread calls it that is about to show metrics."""
        gauge = self._running.metrics.view_staleness
        with self._gauging:
            known = {(a.view, a.sink): a.seconds for a in self._freshness.ages() if a.seconds is not None}
            for place in self._gauged - known.keys():
                with suppress(KeyError):  # the view was dropped, and its metrics with it
                    gauge.remove(*place)
            for place, seconds in known.items():
                gauge.labels(*place).set(seconds)
            self._gauged = set(known)


def _limit(age: Age) -> float | None:
    return age.limits.error if age.state == STALE else age.limits.warn
