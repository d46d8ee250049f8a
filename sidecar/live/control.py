"""What the control door answers: plan, apply, cancel, query and tail, as JSON.

Always: an error is one object `{"error": {"code", "what", "where", "hint"}}`, the last line of a stream that fails; what
changes views goes through `Changing`, whatever asked for it. The host makes it; the doors' threads call it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.errors import HeadraceError
from sidecar.health import Answer, Request
from sidecar.live.changing import Changing
from sidecar.live.door import ControlError
from sidecar.live.history import History
from sidecar.live.query import answer
from sidecar.live.tail import Tail
from sidecar.wiring import Running


class Control:
    """Answers what is asked of one running sidecar. Called by any thread."""

    def __init__(self, running: Running, changing: Changing, history: History) -> None:
        self._running = running
        self._history = history
        self._changing = changing
        self._routes: dict[tuple[str, str], Callable[[Request], Answer]] = {
            ("POST", "/plan"): self._plan,
            ("POST", "/apply"): self._apply,
            ("POST", "/cancel"): self._cancel,
            ("POST", "/query"): self._query,
            ("GET", "/tail"): self._tail,
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
        return Answer(200, self._changing.plan(drop=flag(request, "drop")).json())

    def _apply(self, request: Request) -> Answer:
        drop = flag(request, "drop")
        return Answer(200, told(lambda tell: self._changing.apply(drop=drop, tell=tell)))

    def _cancel(self, _: Request) -> Answer:
        return Answer(200, {"cancelled": self._changing.cancel()})

    def _query(self, request: Request) -> Answer:
        found = answer(self._running, text(request, "sql"))
        return Answer(200, found.lines(as_json=flag(request, "json")))

    def _tail(self, request: Request) -> Answer:
        start = request.query.get("from")
        if start is not None and not start.isdigit():
            raise ControlError("an epoch is needed", field="from", value=start, hint="the number of a `resume` line")
        as_json = request.query.get("json") == "true"
        tail = Tail(self._running, self._history, text(request, "view"), as_json=as_json)
        return Answer(200, guarded(tail.lines(None if start is None else int(start))))


def guarded(lines: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The lines; an error is the last."""
    try:
        yield from lines
    except HeadraceError as error:
        yield failed(error)


def failed(error: HeadraceError) -> dict[str, Any]:
    """An error as a body."""
    return {"error": error.as_json()}


def flag(request: Request, name: str) -> bool:
    """A field that is true or false. Raises ControlError."""
    value = request.body.get(name, False)
    if not isinstance(value, bool):
        raise ControlError("true or false is needed", field=name, value=value)
    return value


def text(request: Request, name: str) -> str:
    """A field that is a text. Raises ControlError."""
    value = request.body.get(name, request.query.get(name))
    if not isinstance(value, str) or not value.strip():
        raise ControlError("a text is needed", field=name, value=value)
    return value


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
