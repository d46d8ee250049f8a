"""One process on one machine: builds the runtime, opens the HTTP door, turns the loop until a signal, drains, closes.

Always: SIGTERM and SIGINT drain and leave with 0, in the time that `shutdown` keeps.
"""

from __future__ import annotations

import gc
import resource
import signal
import sys
import threading
from contextlib import suppress

from headrace.connectors.sink import Fenced
from headrace.engine.errors import HeadraceError
from headrace.engine.kernels import warm
from headrace.sidecar import VERSION
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control import applied_views
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.change_history import ChangeHistory
from headrace.sidecar.control.data_tests import Checks
from headrace.sidecar.control.handlers import Control
from headrace.sidecar.control.jobs import BackgroundJobs
from headrace.sidecar.control.protocol import SOCKET
from headrace.sidecar.execution.malloc import share_one_heap
from headrace.sidecar.execution.workers.pool import SlotsMissing
from headrace.sidecar.intake.connector_preflight import unchecked
from headrace.sidecar.operations.doctor.examine import Examination, examine
from headrace.sidecar.process.alerts import AlertMonitor
from headrace.sidecar.process.checkups import Checkups
from headrace.sidecar.process.event_log import say
from headrace.sidecar.process.restarts import Restarts
from headrace.sidecar.process.shutdown import ShutdownDeadline
from headrace.sidecar.process.status_board import Board
from headrace.sidecar.process.waiting_doors import WaitingDoors
from headrace.sidecar.state import last_exit
from headrace.sidecar.state.generation import StateError
from headrace.sidecar.telemetry.http_server import HttpServer, Served, check_free
from headrace.sidecar.wiring.build import Running, build
from headrace.sidecar.wiring.project import read_project

SWITCH_SECONDS = 0.0005
"""How long the loop may keep the interpreter from the sinks' threads, which need it for moments only."""

GARBAGE = (50_000, 20, 50)
"""When cycles are looked for, which hardly are: a queue that is caught up with holds a hundred thousand objects for a moment."""


def serve(settings: Settings, shutdown: ShutdownDeadline, *, as_folder: bool = False) -> None:
    """Run until told to stop. Raises HeadraceError when a part fails, and notes it; exits 0 after a drain.

    `as_folder`: with the views of the folder, though the run before died with others. A run from which another has
    taken over notes nothing, as the state folder is the other's by then, and ends with Fenced, whatever it met first.
    """
    share_one_heap()
    allow_files()
    restarts, waiting = Restarts(), WaitingDoors(settings)
    try:
        while True:
            try:
                _run(settings, shutdown, restarts, waiting, as_folder=as_folder)
                return
            except HeadraceError as error:
                if isinstance(error, Fenced) or not restarts.may_follow(error):
                    raise
                shutdown.starts_anew()
                waits = isinstance(error, SlotsMissing)
                if waiting.open(error, restarts) or not waits:
                    if waits:
                        say("slots_missing", restarts=restarts.count, why=str(error))
                    else:
                        say("workers_lost", restarts=restarts.count, why=str(error))
    finally:
        waiting.close()


def _run(
    settings: Settings, shutdown: ShutdownDeadline, restarts: Restarts, waiting: WaitingDoors, *, as_folder: bool
) -> None:
    """One set of workers' life, from the last checkpoint on. Raises HeadraceError as `serve`."""
    restarts.starting()
    try:
        running = _start(settings, as_folder=as_folder, listening=waiting.are_open)
    except HeadraceError as error:
        last_exit.note(settings.state, error)
        raise
    waiting.close()
    took = restarts.running(running.runtime.parts.flow.slot_seconds, running.started_seconds)
    if took is not None:
        say("workers_restarted", seconds=round(took, 1))
    running.metrics.restarted(restarts.reasons, restarts.legs)
    try:
        _serve(running, shutdown, restarts)
    except HeadraceError as error:
        say("fenced" if isinstance(error, Fenced) else "failed", error=error.what, code=error.code)
        later = running.generation.later_number()
        if later is None:
            last_exit.note(settings.state, error)
            raise
        if isinstance(error, Fenced):
            raise
        raise Fenced("another run has taken over the state folder", generation=running.generation.number, later=later,
                     ended_by=error.what, hint="only one may run: this one has written nothing since") from error  # fmt: skip


def allow_files() -> None:
    """As many open files as the system lets this process and its workers have: each mapped batch is one.

    A shell's soft limit, mostly 1,024, is there for programs that call select(2).
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _start(settings: Settings, *, as_folder: bool, listening: bool) -> Running:
    if settings.config.http is not None and not listening:
        check_free(settings.config.http)
    warm()
    for source in unchecked(settings):
        say("unchecked", source=source, why="no `connect:` says where its connector can be looked at")
    project, kept = read_project(settings), False
    if not as_folder:
        project, kept = applied_views.resumed(project)
    if kept:
        say("views_kept", why="the run before died: its views stay in force; `headrace plan` shows what the "
             "folder would change, `headrace apply` does it")  # fmt: skip
    running = build(project)
    last_exit.forget(settings.state)
    try:
        applied_views.note(running.generation, project.specs)
    except BaseException:
        running.close()
        raise
    return running


def _serve(running: Running, shutdown: ShutdownDeadline, restarts: Restarts) -> None:
    runtime, settings = running.runtime, running.settings
    history = ChangeHistory(runtime, settings.config.tail.history_mib << 20)
    checks = Checks(running)

    def swapped() -> None:
        history.renew()
        checks.renew()

    changing = ViewChanger(running, swapped)
    checkups = Checkups(lambda: examine(running.settings, Examination(views=running.views)), running.metrics.registry)
    board = Board(running, changing, checks, checkups)
    notices, jobs = AlertMonitor(runtime), BackgroundJobs(runtime, settings, now=lambda: running.settings)
    running.metrics.on_render = board.changes.gauge
    running.metrics.build.labels(VERSION).set(1)

    def watch() -> None:
        board.write()
        legs = restarts.caught_up() if runtime.ready[0] else None
        if legs is not None:
            running.metrics.restarted({}, legs)
        for fact in (*jobs.look(), *notices.look(), *board.changes.look()):
            say(**fact)

    runtime.on_turn(watch)
    ended = False
    doors: list[HttpServer] = []
    try:
        board.freshness.watch.start()
        doors = _open_doors(settings, running, board, Control(running, changing, history, jobs))
        shutdown.serve(runtime.stop, settings.config.shutdown.seconds)
        signal.signal(signal.SIGHUP, lambda *_: _reload(changing))
        checkups.start()
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        sys.setswitchinterval(SWITCH_SECONDS)
        say("running", name=settings.config.name, epoch=runtime.epoch,
             http=doors[-1].address if settings.config.http else None, generation=runtime.parts.generation)  # fmt: skip
        for writer in runtime.parts.writers:
            for warning in writer.sink.warnings:
                say("sink_warning", sink=writer.name, why=warning)
        left = runtime.run()
        ended = True
        later = {"left_for_the_next_start": ",".join(left)} if left else {}
        say("stopped", epoch=runtime.epoch, **later)
    except HeadraceError:
        ended = True
        raise
    finally:
        board.freshness.watch.close()
        checkups.close()
        runtime.tasks.close()
        jobs.close()
        history.close()
        for door in doors:
            door.close()
        if ended:
            with suppress(StateError):
                changing.end()
        running.close()


def _reload(changing: ViewChanger) -> None:
    """SIGHUP: what `headrace apply` does, and its end on standard error. Nothing is dropped: no word was given."""

    def run() -> None:
        try:
            done = changing.apply(drop=False)
            fates = {f["view"]: f["action"] for f in done["views"] if f["action"] != "unchanged"}
            say("applied", epoch=done["epoch"], views=fates)
        except HeadraceError as error:
            say("not_applied", error=str(error))

    threading.Thread(target=run, name="reload", daemon=True).start()


def _open_doors(settings: Settings, running: Running, board: Board, control: Control) -> list[HttpServer]:
    """The socket in the state folder, and the HTTP door if there is to be one, last."""
    served = Served(board.ready, running.metrics.render, board.read, control.ask, board.started)
    doors = []
    try:
        doors.append(HttpServer(settings.state / SOCKET, served))
        if settings.config.http is not None:
            doors.append(HttpServer(settings.config.http, served))
    except BaseException:
        for door in doors:
            door.close()
        raise
    for door in doors:
        door.start()
    return doors
