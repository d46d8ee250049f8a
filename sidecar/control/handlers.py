"""The handlers of the control channel, one for each question: plan, apply, query, tail, resync and the others.

Invariant: an error is one object `{"error": {"code", "what", "where", "hint"}}`, and the last line of a stream that fails.
Every change of views goes through `ViewChanger`. The host makes them; the channel's threads call them.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from headrace.connectors.commit_place import KINDS
from headrace.connectors.dead_letters import DeadLetter
from headrace.engine.errors import HeadraceError
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.change_history import ChangeHistory
from headrace.sidecar.control.jobs import Answer as JobAnswer
from headrace.sidecar.control.jobs import BackgroundJobs, Tell
from headrace.sidecar.control.protocol import ControlError
from headrace.sidecar.control.query import answer, answer_question, explain_row
from headrace.sidecar.control.rescale import Rescaling
from headrace.sidecar.control.rewind import changed_since, registered
from headrace.sidecar.control.tail import LAG_SECONDS, Tail
from headrace.sidecar.operations.table_fill import loaded_rows
from headrace.sidecar.runtime.loop_tasks import LoopClosed, LoopTaskQueue
from headrace.sidecar.state.batch_store import BatchFile
from headrace.sidecar.telemetry.http_server import Answer, Request
from headrace.sidecar.wiring.build import Running
from headrace.sidecar.wiring.run_states import load_place

WAITING_SECONDS = 5.0
"""How often a client hears that a job is still under way."""


class Control:
    """Answers what is asked of one running sidecar. Called by any thread."""

    def __init__(self, running: Running, changing: ViewChanger, history: ChangeHistory, jobs: BackgroundJobs) -> None:
        self._running = running
        self._jobs = jobs
        self._history = history
        self._changing = changing
        self._rescaling = Rescaling(running, changing)
        self._routes: dict[tuple[str, str], Callable[[Request], Answer]] = {
            ("POST", "/plan"): self._plan,
            ("POST", "/apply"): self._apply,
            ("POST", "/cancel"): self._cancel,
            ("POST", "/rescale"): self._rescale,
            ("POST", "/query"): self._query,
            ("POST", "/row"): self._row,
            ("GET", "/tail"): self._tail,
            ("GET", "/each"): self._each,
            ("POST", "/since"): self._since,
            ("POST", "/resync"): self._resync,
            ("POST", "/replay"): self._replay,
            ("POST", "/fill"): self._fill,
            ("POST", "/filled"): self._filled,
        }

    def ask(self, request: Request) -> Answer | None:
        """The answer; None where there is no such address."""
        route = self._routes.get((request.method, request.path))
        if route is None:
            return None
        try:
            return route(request)
        except HeadraceError as error:
            return Answer(409, failed(error))

    def _plan(self, request: Request) -> Answer:
        filled = _filled(request)
        plan = self._changing.plan(drop=flag(request, "drop")).json()
        if filled:
            plan |= {"versions": self._changing.versions(filled), "unfilled": self._changing.unfilled(filled)}
        return Answer(200, plan)

    def _apply(self, request: Request) -> Answer:
        drop, filled = flag(request, "drop"), {t: v for t, v in _filled(request).items() if v is not None}
        return Answer(200, told(lambda tell: self._changing.apply(drop=drop, tell=tell, filled=filled)))

    def _cancel(self, _: Request) -> Answer:
        return Answer(200, {"cancelled": self._changing.cancel()})

    def _rescale(self, request: Request) -> Answer:
        workers = request.body.get("workers")
        if not isinstance(workers, int) or isinstance(workers, bool):
            raise ControlError("a number is needed", field="workers", value=workers)
        return Answer(200, told(lambda _: self._rescaling.rescale(workers)))

    def _query(self, request: Request) -> Answer:
        if "question" in request.body:
            found = answer_question(self._running, text(request, "question"), values(request))
        else:
            found = answer(self._running, text(request, "sql"))
        return Answer(200, found.lines(as_json=flag(request, "json")))

    def _row(self, request: Request) -> Answer:
        key = request.body.get("key", [])
        if not isinstance(key, list) or not all(isinstance(v, str) for v in key):
            raise ControlError("a list of texts is needed", field="key", value=key)
        return Answer(200, explain_row(self._running, text(request, "view"), key))

    def _tail(self, request: Request) -> Answer:
        start = request.query.get("from")
        if start is not None and not start.isdigit():
            raise ControlError("an epoch is needed", field="from", value=start, hint="the number of a `resume` line")
        asked = {name: request.query.get(name) == "true" for name in ("json", "each")}
        tail = Tail(
            self._running, self._history, text(request, "view"), as_json=asked["json"], each=asked["each"],
            lag=_seconds(request, "lag", LAG_SECONDS),
        )  # fmt: skip
        return Answer(200, guarded(tail.lines(None if start is None else int(start))))

    def _each(self, request: Request) -> Answer:
        return Answer(200, guarded(registered(self._running, text(request, "who"))))

    def _since(self, request: Request) -> Answer:
        lsn, epoch, names = (request.body.get(name) for name in ("lsn", "epoch", "views"))
        if not isinstance(lsn, int) or not isinstance(epoch, int) or not isinstance(names, list):
            raise ControlError("numbers and a list are needed", fields="lsn, epoch, views")
        source = text(request, "source")
        return Answer(200, guarded(changed_since(self._running, self._history, source, lsn, epoch, names)))

    def _resync(self, request: Request) -> Answer:
        table, url = text(request, "table"), request.body.get("from")
        if url is not None and not isinstance(url, str):
            raise ControlError("a text is needed", field="from")
        return self._begun(lambda tell: self._jobs.resync(table, url, tell))

    def _fill(self, request: Request) -> Answer:
        table, tasks = text(request, "table"), self._running.runtime.tasks
        ends: queue.SimpleQueue[JobAnswer] = queue.SimpleQueue()
        fill = tasks.ask(lambda: self._jobs.fill(table, ends.put))

        def lines() -> Iterator[Mapping[str, Any]]:
            try:
                yield WAITING
                yield from ended(ends, tasks)
            finally:
                fill.leave()

        return Answer(200, lines())

    def _filled(self, request: Request) -> Answer:
        table, files = text(request, "table"), request.body.get("files")
        try:
            found = [BatchFile(str(name), int(size)) for name, size in files or ()]
        except (TypeError, ValueError):
            raise ControlError("names and sizes of batches are needed", field="files") from None
        kind = next((k for k in ("lsn", "version") if k in request.body), "lsn")
        at = request.body.get(kind)
        if not isinstance(at, int):
            raise ControlError("a number is needed", field=kind, value=at)
        place = KINDS[kind](at)
        rows = partial(loaded_rows, load_place(self._running.settings), table, found)
        self._running.runtime.tasks.ask(lambda: self._jobs.filled(table, place, rows))
        return Answer(200, {"table": table})

    def _replay(self, request: Request) -> Answer:
        try:
            letters = [DeadLetter.parse(body) for body in request.body["letters"]]
        except (KeyError, TypeError, ValueError):
            raise ControlError("dead letters are needed", field="letters") from None
        return self._begun(lambda tell: self._jobs.replay(letters, tell))

    def _begun(self, begin: Callable[[Tell], None]) -> Answer:
        """A job that the loop begins, and its end. Raises what `begin` raises."""
        ends: queue.SimpleQueue[JobAnswer] = queue.SimpleQueue()
        tasks = self._running.runtime.tasks
        tasks.ask(lambda: begin(ends.put))
        return Answer(200, ended(ends, tasks))


def guarded(lines: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The lines; an error is the last."""
    try:
        yield from lines
    except HeadraceError as error:
        yield failed(error)


def failed(error: HeadraceError) -> dict[str, Any]:
    """An error as a body."""
    others = [other.as_json() for other in error.others]
    return {"error": error.as_json(), **({"others": others} if others else {})}


def flag(request: Request, name: str) -> bool:
    """A field that is true or false. Raises ControlError."""
    value = request.body.get(name, False)
    if not isinstance(value, bool):
        raise ControlError("true or false is needed", field=name, value=value)
    return value


def _filled(request: Request) -> dict[str, int | None]:
    """The tables that a load fills, each with the version of its files where it is told. Raises ControlError."""
    found = request.body.get("filled", {})
    told = found.values() if isinstance(found, dict) else (True,)
    if any(v is not None and (not isinstance(v, int) or isinstance(v, bool)) for v in told):
        raise ControlError("versions by table are needed", field="filled", value=found)
    return dict(found)


def _seconds(request: Request, name: str, otherwise: float) -> float:
    """A field that is a positive number of seconds. Raises ControlError."""
    value = request.query.get(name)
    try:
        seconds = otherwise if value is None else float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise ControlError("a positive number of seconds is needed", field=name, value=value)
    return seconds


def text(request: Request, name: str) -> str:
    """A field that is a text. Raises ControlError."""
    value = request.body.get(name, request.query.get(name))
    if not isinstance(value, str) or not value.strip():
        raise ControlError("a text is needed", field=name, value=value)
    return value


def values(request: Request) -> dict[str, str]:
    """The values that a question gives, by column. Raises ControlError."""
    found = request.body.get("values", {})
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise ControlError("texts by column are needed", field="values", value=found)
    return found


WAITING: Mapping[str, Any] = {"event": "waiting"}
"""A line of an answer, not of the log."""


def ended(ends: queue.SimpleQueue[JobAnswer], tasks: LoopTaskQueue) -> Iterator[Mapping[str, Any]]:
    """The end of a job once it is there, or of the run that does it; until then a line now and again, by which the client knows
    that it is waited for."""
    while True:
        try:
            end = ends.get(timeout=WAITING_SECONDS)
        except queue.Empty:
            try:
                tasks.check()
            except LoopClosed as over:
                yield failed(over)
                return
            yield WAITING
            continue
        yield failed(end) if isinstance(end, HeadraceError) else end
        return


def told(work: Callable[[Callable[[Mapping[str, Any]], None]], Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """What `work`, on a thread of its own, tells, then its result or its error; it goes on though nobody reads."""
    lines: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            lines.put(work(lines.put))
        except HeadraceError as error:
            lines.put(failed(error))
        finally:
            lines.put(None)

    threading.Thread(target=run, name="control", daemon=True).start()
    return iter(lines.get, None)
