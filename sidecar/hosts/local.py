"""One process on one machine: builds the runtime, opens the HTTP door, turns the loop until a signal, drains, closes.

Always: SIGTERM and SIGINT drain and leave with 0; a second signal ends at once.
"""

from __future__ import annotations

import gc
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

from engine.errors import HeadraceError
from engine.kernels import warm
from sidecar import stopped
from sidecar.config import Settings
from sidecar.emit import Group
from sidecar.health import Door
from sidecar.hosts.notices import Notices
from sidecar.metrics import memory
from sidecar.preflight import unchecked
from sidecar.runtime import Runtime
from sidecar.wiring import Running, build, understand

SWITCH_SECONDS = 0.0005
"""How long the loop may keep the interpreter from the sinks' threads, which need it for moments only."""


def serve(settings: Settings, *, as_json: bool = False) -> None:
    """Run until told to stop. Raises HeadraceError when a part fails, and notes it; exits 0 after a drain."""
    try:
        _serve(settings, as_json=as_json)
    except HeadraceError as error:
        stopped.note(settings.state, error)
        raise


def _serve(settings: Settings, *, as_json: bool) -> None:
    warm()
    for source in unchecked(settings):
        _say(as_json, event="unchecked", source=source, why="no `connect:` says where its connector can be looked at")
    running = build(understand(settings))
    stopped.forget(settings.state)
    runtime = running.runtime
    board = Board(running)
    notices = Notices(runtime)

    def watch() -> None:
        board.write()
        for fact in notices.look():
            _say(as_json, **fact)

    runtime.on_turn(watch)
    door = _open_door(settings, running, board)
    stop_on_signals(runtime)
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        _say(as_json, event="running", name=settings.config.name, http=door.address if door else None,
             epoch=runtime.epoch, generation=runtime.parts.generation)  # fmt: skip
        for group in runtime.parts.groups:
            for warning in group.sink.warnings:
                _say(as_json, event="warning", sink=group.name, why=warning)
        runtime.run()
        _say(as_json, event="stopped", epoch=runtime.epoch)
    finally:
        if door is not None:
            door.close()
        running.close()


def stop_on_signals(runtime: Runtime) -> None:
    """SIGTERM and SIGINT ask the loop to stop; a second one is taken as it is by default."""

    def stop(number: int, _frame: object) -> None:
        runtime.stopping = True
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


class Board:
    """What the loop last wrote of itself, for the threads of the HTTP door."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._facts: Mapping[str, Any] = {}
        self._ready: tuple[bool, str] = (False, "starting")
        self.write()

    def write(self) -> None:
        """Called by the loop between two turns."""
        self._facts = status(self._running)
        self._ready = self._running.runtime.ready

    def read(self) -> Mapping[str, Any]:
        """What `headrace status` shows."""
        return {**self._facts, "legs_ms": self._running.metrics.quantiles()}

    def ready(self) -> tuple[bool, str]:
        """Whether the sinks have caught up once, and if not, why."""
        return self._ready


def _open_door(settings: Settings, running: Running, board: Board) -> Door | None:
    if settings.config.http is None:
        return None
    door = Door(
        settings.config.http,
        health=lambda: (True, ""),
        ready=board.ready,
        metrics=running.metrics.render,
        status=board.read,
    )
    door.start()
    return door


def status(running: Running) -> Mapping[str, Any]:
    """What `headrace status` shows; to be called between two turns of the loop."""
    runtime, parts = running.runtime, running.runtime.parts
    views_of = {v.view.name: v for v in parts.views}
    return {
        "name": parts.name,
        "program": parts.program,
        "generation": parts.generation,
        "epoch": runtime.epoch,
        "transactions": runtime.transactions,
        "ready": runtime.ready[0],
        "uptime_seconds": round(parts.wall() - runtime.started, 1),
        "memory": {**memory(), "budget": parts.memory.budget, "over_budget": parts.memory.over},
        "sources": [_source(runtime, i) for i in range(len(parts.intakes))],
        "views": [
            {
                "name": name,
                "epoch": state.frontier,
                "sinks": list(state.sinks),
                "errors": sum(state.errors.values()),
                "error": next(iter(state.errors), None),
                "key": None if state.view.key is None else [state.view.schema.columns[k].name for k in state.view.key],
            }
            for name, state in views_of.items()
        ],
        "arrangements": [
            {
                "name": name,
                "rows": len(arranged),
                "bytes": arranged.nbytes,
                "readers": len(arranged.readers) - 1,
                "views": [s.view.name for s in parts.views if name in parts.flow.arrangements_of(s.output)],
            }
            for name, arranged in sorted(parts.flow.registry.arrangements().items())
        ],
        "sinks": [_sink(runtime, g) for g in parts.groups],
    }


def _sink(runtime: Runtime, group: Group) -> dict[str, Any]:
    trouble = group.trouble
    return {
        "name": group.name,
        "epoch": group.epoch,
        "behind": runtime.epoch - group.epoch,
        "state": "attached" if trouble is None else "detached",
        "error": None if trouble is None else str(trouble.error),
        "since": None if trouble is None else round(trouble.since, 3),
        "tries": 0 if trouble is None else trouble.tries,
        "backlog_bytes": group.backlog_bytes,
    }


def _source(runtime: Runtime, index: int) -> dict[str, Any]:
    intake = runtime.parts.intakes[index]
    frontier = runtime.sources.get(intake.name)
    waiting = intake.assembler.waiting()
    return {
        "name": intake.name,
        "type": intake.kind,
        "events": intake.counts.events,
        "decode_seconds": round(intake.counts.decode_seconds, 3),
        "lsn": None if frontier is None else frontier.lsn,
        "commit_us": None if frontier is None else frontier.commit_us,
        "positions": intake.source.positions(),
        "lag": intake.lag(),
        "unread": [{"what": one.what, "why": one.why} for one in intake.unread()],
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
        "skipped": [{"topic": t, "partition": p, "offset": o} for t, p, o in intake.skipped],
        "waiting": None if waiting is None else f"{waiting.kind} {waiting.id} lacks {dict(waiting.missing)}",
        "waiting_since_us": None if waiting is None or waiting.since_us < 0 else waiting.since_us,
    }


def _say(as_json: bool, **fact: object) -> None:
    text = json.dumps(fact) if as_json else " ".join(f"{k}={v}" for k, v in fact.items())
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
