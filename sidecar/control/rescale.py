"""Another count of workers while the sidecar runs: one pause, in which the new ones take over what the old ones wrote.

Always: session, sinks, positions and epochs stay; the new workers stand at the very epoch of the old before these end, and
where they cannot, the old go on; where a cluster has no room for both, the old end first, and as many begin anew if the
new cannot. Workers that read hand over what they keep of transactions that are not whole yet, under the references that the
driver has. While a recursion is late the change waits until that is back. The control door asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.engine.errors import HeadraceError
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.cutover import check_steady
from headrace.sidecar.control.protocol import ControlError
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.pool import SlotsMissing
from headrace.sidecar.intake.shard_source import ShardSource
from headrace.sidecar.state.batch_store import Files
from headrace.sidecar.transactions.references import HandedRuns
from headrace.sidecar.wiring.build import Running, make_flow
from headrace.sidecar.wiring.factories import make_memory

MOST = 64
PATIENCE = 600.0
"""Seconds for which whoever asks waits for the loop, and for recursions that are late."""

_LOOK_AGAIN = 0.05
"""Seconds between two looks at whether one still is."""


class RecursionLate(ControlError):
    """Other workers would make a recursion anew that is late, and its views would stay marked: nothing was changed."""


GoOn = Sequence[Callable[[], None]]
"""Has each source that workers read go on with those that take over."""


@dataclass(frozen=True)
class _Left:
    """What the old workers, `count` of them, have written and handed over."""

    files: Files
    kept: HandedRuns
    count: int


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
        engine = self._running.settings.config.engine
        if workers == 1 and engine.intake == "shards" and engine.host == "local":
            raise ControlError(
                "one worker on this machine is the sidecar itself, and `engine.intake` has workers read", workers=workers,
                hint="ask for 2 or more, or set `intake: driver` and start again",
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
            runtime = self._running.runtime
            old = runtime.parts.flow
            before = old.count
            if workers == before:
                return {"workers": workers, "before": before, "pause_seconds": 0.0, "epoch": runtime.epoch}
            _check_current(old, workers)
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
            old.close()  # while the loop goes on: sources that they read are closed, too
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
        left = _Left(files, old.hand_over(self._running.generation.folder), old.count)
        if fresh is None:
            old.close()
            self._instead(workers, left)
        else:
            self._install(fresh, self._taken_over(fresh, left))
        return runtime.parts.clock() - started

    def _instead(self, workers: int, left: _Left) -> None:
        """Go on with the new workers, where the old had to end first. Raises what the new failed with, once as many as before
        run."""
        try:
            fresh, go_on = self._begun_from(workers, left)
        except HeadraceError:
            self._install(*self._begun_from(left.count, left))
            raise
        self._install(fresh, go_on)

    def _begun_from(self, workers: int, left: _Left) -> tuple[Flow, GoOn]:
        fresh = self._begun(workers)
        try:
            return fresh, self._taken_over(fresh, left)
        except HeadraceError:
            fresh.close()
            raise

    def _taken_over(self, fresh: Flow, left: _Left) -> GoOn:
        """Workers stand where the old ones stood, and those that read are about to; what has the sources go on with them."""
        runtime = self._running.runtime
        if runtime.epoch:
            fresh.recover(runtime.epoch + 1, left.files, left.count)
        fresh.take_over(left.kept)
        sources = [i.source for i in runtime.parts.intakes if isinstance(i.source, ShardSource)]
        if not sources:
            return []
        assert isinstance(fresh, Workers), "one process is refused where workers read"
        return [source.move_to(fresh) for source in sources]

    def _install(self, fresh: Flow, go_on: GoOn) -> None:
        """Everything that asked the old dataflow asks this one."""
        running, workers = self._running, fresh.count
        parts = running.runtime.parts
        for take_place in go_on:
            take_place()
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
