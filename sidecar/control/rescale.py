"""Another count of workers while the sidecar runs: one pause, in which the new ones take over what the old ones wrote.

Always: session, sinks, positions and epochs stay; the new workers stand at the very epoch of the old before these end, and
where they cannot, the old go on. Where a cluster has no room for both, the old end first, and as many begin anew if the
new cannot. While a recursion is late the change waits until that is back. The control door asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from headrace.engine.errors import HeadraceError
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.cutover import check_steady
from headrace.sidecar.control.protocol import ControlError
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.execution.workers.pool import SlotsMissing
from headrace.sidecar.state.batch_store import Files
from headrace.sidecar.wiring.build import Running, make_flow
from headrace.sidecar.wiring.factories import make_memory

MOST = 64
PATIENCE = 600.0
"""Seconds for which whoever asks waits for the loop, and for recursions that are late."""

_LOOK_AGAIN = 0.05
"""Seconds between two looks at whether one still is."""


class RecursionLate(ControlError):
    """Other workers would make a recursion anew that is late, and its views would stay marked: nothing was changed."""


class Rescaling:
    """Changes the count of workers of a running sidecar. Called by any thread, while no views are changed."""

    def __init__(self, running: Running, changing: ViewChanger) -> None:
        self._running, self._changing = running, changing

    def rescale(self, workers: int) -> Mapping[str, Any]:
        """Go on with so many workers; what was done, as `--json` prints it.

        Waits while a recursion is late; meanwhile views may be changed. Raises ControlError, ApplyError while views are
        changed, CheckpointError where the old workers' state cannot be taken over, WorkerLost and SlotsMissing. The old workers
        then go on.
        """
        if not 1 <= workers <= MOST:
            raise ControlError("there is no such count of workers", workers=workers, hint=f"ask for 1 to {MOST}")
        if self._running.settings.config.engine.intake == "shards":
            raise ControlError(
                "workers that read the sources are not changed while they run", workers=workers,
                hint="set engine.workers and start again: the next run goes on from the checkpoint",
            )  # fmt: skip
        runtime, until = self._running.runtime, time.monotonic() + PATIENCE
        while True:
            try:
                return self._rescaled(workers)
            except RecursionLate:
                if time.monotonic() > until:
                    raise
            while runtime.parts.flow.is_late and time.monotonic() <= until:
                runtime.tasks.check()
                time.sleep(_LOOK_AGAIN)

    def _rescaled(self, workers: int) -> Mapping[str, Any]:
        """As `rescale`. Raises RecursionLate."""
        with self._changing.alone():
            runtime, before = self._running.runtime, self._running.runtime.parts.flow.count
            if workers == before:
                return {"workers": workers, "before": before, "pause_seconds": 0.0, "epoch": runtime.epoch}
            _check_current(runtime.parts.flow, workers)
            fresh: Flow | None
            try:
                fresh = self._begun(workers)
            except SlotsMissing:
                fresh = None
            try:
                paused = runtime.tasks.ask(lambda: self._switch(workers, fresh), PATIENCE)
            except BaseException:
                if fresh is not None and runtime.parts.flow is not fresh:
                    fresh.close()
                raise
            return {"workers": workers, "before": before, "pause_seconds": round(paused, 3), "epoch": runtime.epoch}

    def _begun(self, workers: int) -> Flow:
        """So many workers with the plans in force, which hold nothing yet."""
        running = self._running
        plans = Plans.of(running.views, dict(running.runtime.parts.tables))
        settings = running.settings.with_workers(workers)
        return make_flow(settings, plans, running.generation, running.reached, running.maker)

    def _switch(self, workers: int, fresh: Flow | None) -> float:
        """On the loop: from the old workers to the new; the seconds that it took."""
        runtime = self._running.runtime
        started, old = runtime.parts.clock(), runtime.parts.flow
        check_steady(runtime)
        _check_current(old, workers)
        runtime.checkpoints.clear()
        files = old.hold()() if runtime.epoch else {}
        if fresh is None:
            old.close()
            fresh = self._instead(workers, old.count, files)
        else:
            self._recover(fresh, files, old.count)
        self._install(fresh, workers)
        old.close()
        return runtime.parts.clock() - started

    def _instead(self, workers: int, before: int, files: Files) -> Flow:
        """The new workers, where the old had to end first. Raises what the new failed with, once as many as before run."""
        try:
            return self._recovered(lambda: self._begun(workers), files, before)
        except HeadraceError:
            self._install(self._recovered(lambda: self._begun(before), files, before), before)
            raise

    def _recovered(self, begun: Callable[[], Flow], files: Files, count: int) -> Flow:
        fresh = begun()
        try:
            self._recover(fresh, files, count)
        except HeadraceError:
            fresh.close()
            raise
        return fresh

    def _recover(self, fresh: Flow, files: Files, count: int) -> None:
        epoch = self._running.runtime.epoch
        if epoch:
            fresh.recover(epoch + 1, files, count)

    def _install(self, fresh: Flow, workers: int) -> None:
        """Everything that asked the old dataflow asks this one."""
        running = self._running
        parts = running.runtime.parts
        running.closers.callback(fresh.close)
        parts.flow = fresh
        for state in parts.views:
            state.output = fresh.outputs[state.view.name]
        parts.memory = make_memory(running.settings, fresh)
        running.metrics.workers, running.metrics.exchanges = fresh.workers, fresh.exchanges
        running.settings.config = running.settings.with_workers(workers).config  # for workers that are lost later


def _check_current(flow: Flow, workers: int) -> None:
    """Raise RecursionLate while a recursion is."""
    if flow.is_late:
        raise RecursionLate("a recursion is late: it is evaluated between steps", workers=workers, seconds=PATIENCE,
                            hint="nothing was changed; ask again once `headrace status` shows it no more, or drop its "
                                 "views")  # fmt: skip
