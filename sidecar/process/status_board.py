"""What a running sidecar says of itself: the facts of `/status`, and what the probes answer.

Invariant: the loop writes between two turns, the threads of the HTTP door read; ages are told as of the moment of asking.
Made by the host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.data_tests import Checks
from headrace.sidecar.delivery.sink_writer import SinkWriter
from headrace.sidecar.process.checkups import Checkups
from headrace.sidecar.process.freshness import DOWN, FRESH, LATE, STALE, STARTING, UNKNOWN, UNPROVEN, Age, Freshness
from headrace.sidecar.process.late_views import late_views
from headrace.sidecar.process.state_changes import StateChanges
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.telemetry.http_server import Probe
from headrace.sidecar.telemetry.metrics import memory
from headrace.sidecar.wiring.build import Running

_WORST = (DOWN, UNPROVEN, STALE, STARTING, LATE, UNKNOWN, FRESH)
"""States of a view, the worst first."""


class Board:
    """What the loop last wrote of itself, for the threads of the HTTP door."""

    def __init__(self, running: Running, changing: ViewChanger, checks: Checks, checkups: Checkups) -> None:
        self._running = running
        self._changing = changing
        self._checks = checks
        self._checkups = checkups
        self.freshness = Freshness(running)
        self.changes = StateChanges(running, self.freshness)
        self._facts: Mapping[str, Any] = {}
        self._started: tuple[bool, str] = (False, "starting")
        self.write()

    def write(self) -> None:
        """Called by the loop between two turns."""
        self.freshness.look()
        self._facts = {**status(self._running), "data_tests": self._checks.status()}
        self._running.metrics.checkpoint_age.set(self._facts["checkpoint"]["age_seconds"])
        self._started = self._running.runtime.ready

    def read(self) -> Mapping[str, Any]:
        """What `headrace status` shows."""
        change = {"now": self._changing.state, "last": self._changing.last}
        ages: dict[str, list[Age]] = {}
        for age in self.freshness.ages():
            ages.setdefault(age.view, []).append(age)
        views = [{**v, **_freshness(ages.get(v["name"], []))} for v in self._facts["views"]]
        sources = [{**s, **self._delivers(s["name"])} for s in self._facts["sources"]]
        ready = self.ready({}).code == 200
        return {**self._facts, "ready": ready, "sources": sources, "views": views, "change": change,
                "doctor": self._checkups.status(), "stages_ms": self._running.metrics.quantiles()}  # fmt: skip

    def _delivers(self, source: str) -> dict[str, Any]:
        why, ahead = self.changes.down.get(source, ""), self.changes.ahead.get(source, 0.0)
        return {"up": not why, "down_because": why or None, "clock_ahead_seconds": round(ahead, 3),
                "catalog_unread": self.freshness.watch.failed.get(source)}  # fmt: skip

    def started(self) -> Probe:
        """Whether the sinks have caught up once, and if not, why."""
        good, why = self._started
        return Probe.of(good, why, why=why)

    def ready(self, query: Mapping[str, str]) -> Probe:
        """Whether what readers see is as new as it must be: `view`, all views unless given, within `max_staleness` seconds,
        or its own limit. A view in error makes only the answer about itself 503."""
        view, asked = query.get("view"), query.get("max_staleness")
        try:
            most = None if asked is None else float(asked)
        except ValueError:
            most = math.nan
        if most is not None and not most > 0:
            return Probe(
                400, f"max_staleness is no number of seconds: {asked}", {"ok": False, "error": "max_staleness"}
            )
        ages = [a for a in self.freshness.ages(most) if view in (None, a.view)]
        if view is not None and not ages:
            return Probe(404, f"no view with a sink is named {view}", {"ok": False, "error": "view", "view": view})
        good, told = self._started
        against = {STALE, STARTING, DOWN, UNPROVEN} if view is not None else {STALE}
        wrong = [_told(a) for a in ages if a.state in against]
        late = [f"\n{_told(a)}" for a in ages if a.state in (LATE, UNPROVEN)]
        text = told + "".join(late) if good and not wrong else "; ".join(filter(None, ["" if good else told, *wrong]))
        views = [{"view": a.view, **a.json(), "limits": a.limits.model_dump()} for a in ages]
        return Probe.of(good and not wrong, text, why=text.strip() or None, started=good, views=views)


def _told(age: Age) -> str:
    if age.state == DOWN:
        return f"view {age.view} is in error: {age.why}"
    if age.state == UNPROVEN:
        return f"unproven: view {age.view}: {age.why}"
    if age.state == LATE and age.why:
        return f"view {age.view} is {age.why}"
    if age.seconds is None:
        return f"view {age.view} has never been written to {age.sink}"
    limit = age.limits.error if age.state == STALE else age.limits.warn
    return f"{age.state}: view {age.view} in {age.sink} is {age.seconds:.1f} s old, its limit is {limit:g} s"


def _freshness(ages: list[Age]) -> dict[str, Any]:
    """Of a view in all its sinks: the worst state, the greatest age, and each sink's."""
    seconds = [a.seconds for a in ages if a.seconds is not None]
    return {
        "state": min((a.state for a in ages), key=_WORST.index, default=STARTING),
        "staleness_seconds": round(max(seconds), 3) if seconds else None,
        "why": next((a.why for a in ages if a.state == UNPROVEN), None),
        "freshness": [a.json() for a in ages],
        "limits": ages[0].limits.model_dump() if ages else None,
    }


def status(running: Running) -> Mapping[str, Any]:
    """What `headrace status` shows; to be called between two turns of the loop."""
    runtime, parts = running.runtime, running.runtime.parts
    views_of = {v.view.name: v for v in parts.views}
    workers = parts.flow.workers()
    late = late_views(running)
    return {
        "name": parts.name,
        "program": parts.program,
        "generation": parts.generation,
        "epoch": runtime.epoch,
        "transactions": runtime.transactions,
        "ready": runtime.ready[0],
        "uptime_seconds": round(parts.wall() - runtime.started, 1),
        "memory": {
            **memory(w.memory for w in workers),
            "budget": parts.memory.budget,
            "over_budget": parts.memory.over,
        },
        "checkpoint": _checkpoint(running),
        "sources": [_source(runtime, i) for i in range(len(parts.intakes))],
        "views": [
            {
                "name": name,
                "epoch": state.frontier,
                "sinks": list(state.sinks),
                "errors": state.failing,
                "error": None if state.late else state.error or None,
                "late": late.get(name),
                "rows": state.rows,
                "key": None if state.view.key is None else [state.view.schema.columns[k].name for k in state.view.key],
            }
            for name, state in views_of.items()
            if state.sinks
        ],
        "arrangements": [
            {
                "name": name,
                "rows": facts.rows,
                "bytes": facts.bytes,
                "readers": facts.readers,
                "views": [s.view.name for s in parts.views if s.view.name in facts.views],
            }
            for name, facts in sorted(parts.flow.facts().items())
        ],
        "workers": [
            {
                "worker": w.shard,
                "pid": w.pid,
                "cpu_seconds": w.cpu_seconds,
                "memory": w.memory.get("VmRSS", 0),
                "host": w.host,
                "executor": w.executor,
                "attempt": w.attempt,
                "heard_seconds": round(w.heard_seconds, 1),
            }
            for w in workers
        ],
        "sinks": [_sink(runtime, g) for g in parts.writers],
        "each_transaction": runtime.each.status(),
    }


def _checkpoint(running: Running) -> dict[str, Any]:
    runtime, checkpoints = running.runtime, running.runtime.checkpoints
    away = checkpoints.store_away
    old = runtime.epoch > checkpoints.epoch  # while nothing comes, the last one holds all there is
    return {
        "epoch": checkpoints.epoch,
        "age_seconds": round(max(0.0, runtime.parts.wall() - checkpoints.wall), 1) if old else 0.0,
        "where": running.generation.where,
        "error": None if away is None else str(away[0]),
        "since": None if away is None else round(away[1], 3),
    }


def _sink(runtime: Runtime, writer: SinkWriter) -> dict[str, Any]:
    detachment = writer.detachment
    return {
        "name": writer.name,
        "epoch": writer.epoch,
        "behind": runtime.epoch - writer.epoch,
        "state": "attached" if detachment is None else "detached",
        "error": None if detachment is None else str(detachment.error),
        "since": None if detachment is None else round(detachment.since, 3),
        "tries": 0 if detachment is None else detachment.tries,
        "backlog_bytes": writer.backlog_bytes,
    }


def _source(runtime: Runtime, index: int) -> dict[str, Any]:
    intake = runtime.parts.intakes[index]
    frontier = runtime.sources.get(intake.name)
    waiting = intake.assembler.waiting()
    return {
        "name": intake.name,
        "type": intake.kind,
        "heartbeats": bool(intake.beats.last),
        "events": intake.counts.events,
        "decode_seconds": round(intake.counts.decode_seconds, 3),
        **({} if frontier is None else frontier.place.json()),
        "commit_us": None if frontier is None else frontier.commit_us,
        "positions": intake.source.positions(),
        "lag": intake.lag(),
        "unread": [{"what": one.what, "why": one.why} for one in intake.unread(intake)],
        "stopped": [
            {
                "table": s.table,
                "topic": s.record.topic,
                "partition": s.record.partition,
                "offset": s.record.offset,
                "error": s.text,
                "reading": s.backlog is not None,
                "missing": s.missing,
                "held": {t: {p: o for (u, p), o in sorted(s.holds.items()) if u == t} for t in {t for t, _ in s.holds}},
            }
            for s in intake.assembler.stops
        ],
        "dead_letters": dict(intake.put),
        "spilled_bytes": 0 if intake.spill is None else intake.spill.spilled,
        "lost": [
            {
                "table": c.table,
                "column": c.column,
                "topic": c.topic,
                "partition": c.partition,
                "offset": c.offset,
                "why": c.reason,
                "pauses": place in intake.lost.pauses(),
            }
            for place, c in intake.lost.columns.items()
        ],
        "skipped": [{"topic": t, "partition": p, "offset": o} for t, p, o in intake.over.skipped],
        "waiting": None if waiting is None else str(waiting),
        "waiting_since_us": None if waiting is None or waiting.since_us < 0 else waiting.since_us,
    }
