"""`apply`: from a changed folder of views to views in force, while everything else goes on.

Always: one change at a time; the folder is understood and everything new computed on the asker's own thread, beside the
running dataflow; the views in force are durable before they take force; a change that is cancelled or fails before that
has changed nothing. Once the run has ended in order, a change that was under way notes nothing more. The control door and
SIGHUP ask.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from engine.errors import HeadraceError
from sidecar.live import force
from sidecar.live.beside import Beside
from sidecar.live.plans import ApplyError, Held, ViewsPlan, plan_views
from sidecar.live.swap import Opened, check_steady, open_new, swap
from sidecar.plans import Plans
from sidecar.wiring import Running, kept_tables
from views import spec

TELL_SECONDS = 0.5
"""How often whoever waits is told how far it is."""

Tell = Callable[[Mapping[str, Any]], None]


class Changing:
    """Changes the views of a running sidecar. Called by any thread. `swapped` is told, on the loop, that others are in force;
    `noting` is held by whoever notes them.
    """

    def __init__(
        self,
        running: Running,
        swapped: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        noting: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._running = running
        self._swapped = swapped
        self._clock = clock
        self._one = threading.Lock()
        self._noting = threading.Lock() if noting is None else noting
        self._ended = False
        self._beside: Beside | None = None
        self._last: Mapping[str, Any] | None = None

    @property
    def state(self) -> Mapping[str, Any] | None:
        """How far the change that is under way is; None while there is none."""
        return None if self._beside is None else _progress(self._beside)

    @property
    def last(self) -> Mapping[str, Any] | None:
        """How the last change ended."""
        return self._last

    def plan(self, *, drop: bool) -> ViewsPlan:
        """What the folder, as it is now, would do. Raises ConfigError, ViewError and ApplyError."""
        running = self._running
        folder = spec.load(running.settings.views)
        _check_sinks(running, folder)
        held = running.runtime.desk.ask(self._held)
        tables = dict(running.runtime.parts.tables)
        return plan_views(running.views, folder, running.schemas, tables, frozenset(kept_tables(running.settings)), held,
                          drop=drop, workers=running.settings.config.engine.workers)  # fmt: skip

    def _held(self) -> dict[str, Held]:
        live = self._running.runtime.parts.flow.facts()
        return {n: Held(facts.rows, facts.bytes) for n, facts in live.items()}

    def apply(self, *, drop: bool, tell: Tell = lambda _: None) -> Mapping[str, Any]:
        """Put the folder in force; `tell` is given the plan, then how far it is. What was done, as `--json` prints it.

        Raises as `plan` does, and Cancelled; nothing is changed then.
        """
        if not self._one.acquire(blocking=False):
            raise ApplyError(
                "another change is under way", hint="wait for it, or end it with `headrace apply --cancel`"
            )
        try:
            plan = self.plan(drop=drop)
            tell({"event": "plan", **plan.json()})
            done = self._apply(plan, tell) if plan.changes else {"event": "applied", "seconds": {}}
            self._last = {**done, "epoch": self._running.runtime.epoch}
            return {**self._last, **plan.json()}
        except HeadraceError as error:
            self._last = {"event": "failed", "error": error.as_json()}
            raise
        finally:
            self._one.release()

    def cancel(self) -> bool:
        """End the change that is under way, if it has not taken force yet; whether there was one."""
        beside = self._beside
        if beside is not None:
            beside.cancel()
        return beside is not None

    def end(self) -> None:
        """The run ends in order: note that, with the views in force. Raises StateError."""
        with self._noting:
            self._ended = True
            force.note(self._running.generation, [v.spec for v in self._running.views], ended=True)

    def _note(self, specs: Sequence[spec.ViewSpec]) -> None:
        with self._noting:
            if not self._ended:
                force.note(self._running.generation, specs)

    def _apply(self, plan: ViewsPlan, tell: Tell) -> dict[str, Any]:
        running, runtime = self._running, self._running.runtime
        started = self._clock()
        opened = open_new(running, plan)
        beside: Beside | None = None
        try:
            beside = self._beside = runtime.desk.ask(self._begin)
            if beside is not None:
                self._build(plan, beside, tell)
            self._note(plan.specs)
            built = self._clock()
            seconds = runtime.desk.ask(lambda: self._swap(plan, beside, opened))
        except BaseException:
            opened.close()
            self._note([v.spec for v in running.views])
            raise
        finally:
            self._beside = None
            if beside is not None:
                runtime.feeds.remove(beside.feed)
                beside.close()
        total = self._clock() - started
        return {"event": "applied", "seconds": {"build": built - started, **seconds, "total": total}}

    def _swap(self, plan: ViewsPlan, beside: Beside | None, opened: Opened) -> dict[str, float]:
        seconds = swap(self._running, plan, beside, opened)
        self._swapped()
        return seconds

    def _begin(self) -> Beside | None:
        check_steady(self._running.runtime)
        return Beside.begin(self._running.runtime) if self._running.runtime.epoch else None

    def _build(self, plan: ViewsPlan, beside: Beside, tell: Tell) -> None:
        """Compute what is new, and tell how far it is meanwhile."""
        before = {s.view.name: s.view.fingerprint for s in self._running.runtime.parts.views}
        plans = Plans.of(plan.views, {})
        beside.build(plans.only({v.name for v in plans.put_out if before.get(v.name) != v.fingerprint}))
        ended = threading.Event()
        teller = threading.Thread(target=_tell_until, args=(ended, beside, tell), name="apply-progress", daemon=True)
        teller.start()
        try:
            beside.hydrate(self._clock)
            beside.catch_up()
        finally:
            ended.set()
            teller.join()
        tell(_progress(beside))


def _tell_until(ended: threading.Event, beside: Beside, tell: Tell) -> None:
    while not ended.wait(TELL_SECONDS):
        tell(_progress(beside))


def _progress(beside: Beside) -> dict[str, Any]:
    at = beside.progress
    return {"event": "progress", "stage": at.stage, "rows": at.rows, "of": at.of, "seconds": round(at.seconds, 3),
            "seconds_left": None if at.left is None else round(at.left, 1)}  # fmt: skip


def _check_sinks(running: Running, folder: tuple[spec.ViewSpec, ...]) -> None:
    known = {s.name for s in running.settings.config.sinks}
    for view in folder:
        for name in view.sinks:
            if name not in known:
                raise ApplyError(
                    "a view names a sink that this sidecar does not have", view=view.name, file=view.file, line=view.line,
                    sink=name, hint=f"there are: {', '.join(sorted(known))}; a new one needs a start",
                )  # fmt: skip
