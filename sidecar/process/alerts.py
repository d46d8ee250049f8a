"""The alert monitor: logs detached sinks, stalled transactions and too much memory, when each begins and ends.

Invariant: it only reports, and looks between two turns of the loop; `status` and `/metrics` have the same facts. The host
calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.transactions.model import Incomplete

STALL_SECONDS = 30.0
"""A transaction that lacks the same events for longer is stalled: with Debezium they follow within seconds. One that is
old when it is read, as after a start, is not for that."""

Facts = Mapping[str, Any]


class AlertMonitor:
    """Compares what holds now with what held before. `look` gives the events to print, as facts by name."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._sinks: dict[str, str] = {}
        self._stalled: dict[str, str] = {}
        self._lacking: dict[str, tuple[Incomplete, float]] = {}
        self._over = False

    def look(self) -> list[Facts]:
        """What began or ended since the last look; sets the gauges of the same facts."""
        return [*self._of_sinks(), *self._of_sources(), *self._of_memory(), *self._of_followers()]

    def _of_sinks(self) -> Iterable[Facts]:
        metrics = self._runtime.parts.metrics
        for writer in self._runtime.parts.writers:
            detachment = writer.detachment
            metrics.sink_detached.labels(writer.name).set(detachment is not None)
            metrics.sink_backlog.labels(writer.name).set(writer.backlog_bytes)
            before = self._sinks.get(writer.name, "")
            now = "" if detachment is None else str(detachment.error)
            if now and not before:
                metrics.sink_detachments.labels(writer.name).inc()
                yield {"event": "detached", "sink": writer.name, "epoch": writer.epoch, "error": now}
            elif before and not now:
                yield {"event": "attached", "sink": writer.name, "epoch": writer.epoch}
            self._sinks[writer.name] = now

    def _of_sources(self) -> Iterable[Facts]:
        parts = self._runtime.parts
        for intake in parts.intakes:
            waiting = intake.assembler.waiting()
            seconds = 0.0 if waiting is None or waiting.since_us < 0 else parts.wall() - waiting.since_us / 1e6
            parts.metrics.waiting.labels(intake.name).set(max(0.0, seconds))
            stalled = self._stands_still(intake.name, waiting) and seconds > STALL_SECONDS
            now = waiting.name if waiting is not None and stalled else ""
            before = self._stalled.get(intake.name, "")
            if now and now != before and waiting is not None:
                yield {"event": "stalled", "source": intake.name, "waits": now, "lacks": waiting.lacks,
                       "seconds": round(seconds),
                       "hint": "its events are not in their topics: look at retention and at the connector"}  # fmt: skip
            elif before and not now:
                yield {"event": "resumed", "source": intake.name, "waited": before}
            self._stalled[intake.name] = now

    def _stands_still(self, source: str, waiting: Incomplete | None) -> bool:
        """Whether a source has lacked the same events for long."""
        if waiting is None or waiting.kind == "snapshot":
            self._lacking.pop(source, None)
            return False
        now = self._runtime.parts.wall()
        before, since = self._lacking.get(source, (None, now))
        if before != waiting:
            since = now
        self._lacking[source] = (waiting, since)
        return now - since > STALL_SECONDS

    def _of_followers(self) -> Iterable[Facts]:
        for asker in self._runtime.each.take_ended():
            yield {"event": "each_ended", "who": asker.name, "lag": asker.lag, "why": asker.ended}

    def _of_memory(self) -> Iterable[Facts]:
        memory = self._runtime.memory
        self._runtime.parts.metrics.budget.set(memory.budget or 0)
        if memory.over != self._over:
            self._over = memory.over
            yield {"event": "memory", "over": memory.over, "bytes": memory.used, "budget": memory.budget}
