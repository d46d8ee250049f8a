"""One process on one machine: builds the runtime, opens the HTTP door, turns the loop until a signal, drains, closes.

Always: SIGTERM and SIGINT drain and leave with 0, in the time that `leaving` keeps.
"""

from __future__ import annotations

import gc
import resource
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from connectors.sink import Fenced
from engine.errors import HeadraceError
from engine.kernels import warm
from sidecar import stopped
from sidecar.allocators import share_one_heap
from sidecar.config import Settings
from sidecar.emit import Group
from sidecar.generation import StateError, numbers
from sidecar.health import Door, Served
from sidecar.hosts.errands import Errands
from sidecar.hosts.leaving import Leaving
from sidecar.hosts.notices import Notices
from sidecar.hosts.say import say
from sidecar.live import force
from sidecar.live.changing import Changing
from sidecar.live.checks import Checks
from sidecar.live.control import Control
from sidecar.live.door import SOCKET
from sidecar.live.history import History
from sidecar.metrics import memory, memory_of
from sidecar.preflight import unchecked
from sidecar.runtime import Runtime
from sidecar.wiring import Running, build, understand

SWITCH_SECONDS = 0.0005
"""How long the loop may keep the interpreter from the sinks' threads, which need it for moments only."""


def serve(settings: Settings, leaving: Leaving, *, as_folder: bool = False, as_json: bool = False) -> None:
    """Run until told to stop. Raises HeadraceError when a part fails, and notes it; exits 0 after a drain.

    `as_folder`: with the views of the folder, though the run before died with others. A run from which another has
    taken over notes nothing, as the state folder is the other's by then, and ends with Fenced, whatever it met first.
    """
    share_one_heap()
    allow_files()
    try:
        running = _start(settings, as_folder=as_folder, as_json=as_json)
    except HeadraceError as error:
        stopped.note(settings.state, error)
        raise
    try:
        _serve(running, leaving, as_json=as_json)
    except HeadraceError as error:
        later = numbers(settings.state)[-1:]
        if later <= [running.generation.number]:
            stopped.note(settings.state, error)
            raise
        if isinstance(error, Fenced):
            raise
        raise Fenced("another run has taken over the state folder", generation=running.generation.number, later=later[0],
                     ended_by=error.what, hint="only one may run: this one has written nothing since") from error  # fmt: skip


def allow_files() -> None:
    """As many open files as the system lets this process and its workers have: each mapped batch is one.

    A shell's soft limit, mostly 1,024, is there for programs that call select(2).
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _start(settings: Settings, *, as_folder: bool, as_json: bool) -> Running:
    warm()
    for source in unchecked(settings):
        say(as_json, event="unchecked", source=source, why="no `connect:` says where its connector can be looked at")
    understood, kept = understand(settings), False
    if not as_folder:
        understood, kept = force.resumed(understood)
    if kept:
        say(as_json, event="views", why="the run before died: its views stay in force; `headrace plan` shows what the "
             "folder would change, `headrace apply` does it")  # fmt: skip
    running = build(understood)
    stopped.forget(settings.state)
    try:
        force.note(running.generation, understood.specs)
    except BaseException:
        running.close()
        raise
    return running


def _serve(running: Running, leaving: Leaving, *, as_json: bool) -> None:
    runtime, settings = running.runtime, running.settings
    history = History(runtime, settings.config.tail.history_mib << 20)
    checks = Checks(running)

    def swapped() -> None:
        history.renew()
        checks.renew()

    changing = Changing(running, swapped)
    board = Board(running, changing, checks)
    notices, errands = Notices(runtime), Errands(runtime, settings)

    def watch() -> None:
        board.write()
        errands.look()
        for fact in notices.look():
            say(as_json, **fact)

    runtime.on_turn(watch)
    ended = False
    doors: list[Door] = []
    try:
        doors = _open_doors(settings, running, board, Control(running, changing, history))
        leaving.serve(runtime.stop, settings.config.shutdown.seconds)
        signal.signal(signal.SIGHUP, lambda *_: _reload(changing, as_json=as_json))
        gc.freeze()
        sys.setswitchinterval(SWITCH_SECONDS)
        say(as_json, event="running", name=settings.config.name, epoch=runtime.epoch,
             http=doors[-1].address if settings.config.http else None, generation=runtime.parts.generation)  # fmt: skip
        for group in runtime.parts.groups:
            for warning in group.sink.warnings:
                say(as_json, event="warning", sink=group.name, why=warning)
        left = runtime.run()
        ended = True
        later = {"left_for_the_next_start": ", ".join(left)} if left else {}
        say(as_json, event="stopped", epoch=runtime.epoch, **later)
    except HeadraceError:
        ended = True
        raise
    finally:
        errands.close()
        history.close()
        for door in doors:
            door.close()
        if ended:
            with suppress(StateError):
                changing.end()
        running.close()


def _reload(changing: Changing, *, as_json: bool) -> None:
    """SIGHUP: what `headrace apply` does, and its end on standard error. Nothing is dropped: no word was given."""

    def run() -> None:
        try:
            done = changing.apply(drop=False)
            fates = {f["view"]: f["action"] for f in done["views"] if f["action"] != "unchanged"}
            say(as_json, event="applied", epoch=done["epoch"], views=fates)
        except HeadraceError as error:
            say(as_json, event="not applied", error=str(error))

    threading.Thread(target=run, name="reload", daemon=True).start()


class Board:
    """What the loop last wrote of itself, for the threads of the HTTP door."""

    def __init__(self, running: Running, changing: Changing, checks: Checks) -> None:
        self._running = running
        self._changing = changing
        self._checks = checks
        self._facts: Mapping[str, Any] = {}
        self._ready: tuple[bool, str] = (False, "starting")
        self.write()

    def write(self) -> None:
        """Called by the loop between two turns."""
        self._facts = {**status(self._running), "data_tests": self._checks.status()}
        self._ready = self._running.runtime.ready

    def read(self) -> Mapping[str, Any]:
        """What `headrace status` shows."""
        change = {"now": self._changing.state, "last": self._changing.last}
        return {**self._facts, "change": change, "legs_ms": self._running.metrics.quantiles()}

    def ready(self) -> tuple[bool, str]:
        """Whether the sinks have caught up once, and if not, why."""
        return self._ready


def _open_doors(settings: Settings, running: Running, board: Board, control: Control) -> list[Door]:
    """The socket in the state folder, and the HTTP door if there is to be one, last."""
    served = Served(lambda: (True, ""), board.ready, running.metrics.render, board.read, control.ask)
    doors = []
    try:
        doors.append(Door(settings.state / SOCKET, served))
        if settings.config.http is not None:
            doors.append(Door(settings.config.http, served))
    except BaseException:
        for door in doors:
            door.close()
        raise
    for door in doors:
        door.start()
    return doors


def status(running: Running) -> Mapping[str, Any]:
    """What `headrace status` shows; to be called between two turns of the loop."""
    runtime, parts = running.runtime, running.runtime.parts
    views_of = {v.view.name: v for v in parts.views}
    workers = parts.flow.workers()
    return {
        "name": parts.name,
        "program": parts.program,
        "generation": parts.generation,
        "epoch": runtime.epoch,
        "transactions": runtime.transactions,
        "ready": runtime.ready[0],
        "uptime_seconds": round(parts.wall() - runtime.started, 1),
        "memory": {**memory(w.pid for w in workers), "budget": parts.memory.budget, "over_budget": parts.memory.over},
        "sources": [_source(runtime, i) for i in range(len(parts.intakes))],
        "views": [
            {
                "name": name,
                "epoch": state.frontier,
                "sinks": list(state.sinks),
                "errors": sum(state.errors.values()) + len(state.lost),
                "error": state.error or None,
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
                "memory": memory_of(w.pid).get("VmRSS", 0),
            }
            for w in workers
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
        "skipped": [{"topic": t, "partition": p, "offset": o} for t, p, o in intake.skipped],
        "waiting": None if waiting is None else str(waiting),
        "waiting_since_us": None if waiting is None or waiting.since_us < 0 else waiting.since_us,
    }
