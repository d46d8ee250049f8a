"""Another count of workers while the sidecar runs: the new ones begin with what the old ones wrote and follow them, until one
short pause in which they take their place.

Always: session, sinks, positions and epochs stay; the new workers stand at the very epoch of the old before these end, and
where they cannot, the old go on; where a cluster has no room for both, the old end first, and as many begin anew if the
new cannot. Workers that read hand over what they keep of transactions that are not whole yet, under the references that the
driver has. While a recursion is late the change waits until that is back. The control door asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from headrace.engine.errors import HeadraceError
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.cutover import check_steady
from headrace.sidecar.control.following import Following
from headrace.sidecar.control.protocol import ControlError
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.pool import SlotsMissing
from headrace.sidecar.intake.shard_source import ShardSource
from headrace.sidecar.runtime.loop import Runtime
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


class Successor(Following):
    """Workers that follow the running ones to take their place. No recursion of theirs leaves a step meanwhile."""

    def __init__(self, flow: Flow) -> None:
        super().__init__(0)
        self._flow = flow
        self._lent: tuple[Future[Files], int] | None = None
        flow.limit_steps(0)

    @property
    def flow(self) -> Flow:
        """See `Following.flow`."""
        return self._flow

    def begin(self, runtime: Runtime) -> bool:
        """On the loop: begin at the runtime's epoch, and be fed from then on; not while a checkpoint is being written, of which
        none is begun until the end."""
        if runtime.epoch:
            lent = runtime.checkpoints.lend()
            if lent is None:
                return False
            self.epoch, self._lent = runtime.epoch, (lent, runtime.parts.flow.count)
        runtime.feeds.append(self.feed)
        return True

    def hydrate(self) -> None:
        """Take the tables from what the old workers write, and compute the views. Raises CheckpointError, WorkerLost."""
        if self._lent is None:
            return
        files, count = self._lent
        self._flow.recover(self.epoch + 1, files.result(), count)
        for _ in self._flow.hydrating():
            self.check()

    def stepped(self) -> None:
        """See `Following.stepped`: the old workers' outputs have told of it."""
        for output in self._flow.outputs.values():
            output.take()

    def end(self, runtime: Runtime) -> None:
        """Be fed no more, and have checkpoints written again."""
        if self.feed in runtime.feeds:
            runtime.feeds.remove(self.feed)
        runtime.checkpoints.resume()


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
            try:
                successor = Successor(self._begun(workers))
            except SlotsMissing:
                paused = runtime.tasks.ask(lambda: self._replaced(workers), PATIENCE)
            else:
                paused = self._followed(workers, successor)
            old.close()  # while the loop goes on: sources that they read are closed, too
            return {"workers": workers, "before": before, "pause_seconds": round(paused, 3), "epoch": runtime.epoch}

    def _begun(self, workers: int) -> Flow:
        """So many workers with the plans in force, which hold nothing yet."""
        running = self._running
        plans = Plans.of(running.views, dict(running.runtime.parts.tables))
        settings = running.settings.with_workers(workers)
        return make_flow(settings, plans, running.generation, running.reached, running.maker)

    def _followed(self, workers: int, successor: Successor) -> float:
        """Have the new workers come to where the old ones are, while these go on, and then take their place; the seconds of the
        pause."""
        runtime = self._running.runtime
        try:
            while not runtime.tasks.ask(lambda: self._begin(workers, successor)):
                if (writing := runtime.checkpoints.writing) is not None:
                    wait([writing])
            successor.hydrate()
            successor.catch_up()
            return runtime.tasks.ask(lambda: self._switch(workers, successor), PATIENCE)
        except BaseException:
            if runtime.parts.flow is not successor.flow:
                successor.flow.close()
            raise
        finally:
            successor.end(runtime)

    def _begin(self, workers: int, successor: Successor) -> bool:
        """On the loop: see `Successor.begin`."""
        runtime = self._running.runtime
        check_steady(runtime)
        _check_current(runtime.parts.flow, workers)
        return successor.begin(runtime)

    def _switch(self, workers: int, successor: Successor) -> float:
        """On the loop: from the old workers to the new, which follow them; the seconds that it took."""
        runtime = self._running.runtime
        started, old = runtime.parts.clock(), runtime.parts.flow
        check_steady(runtime)
        _check_current(old, workers)
        successor.finish()
        fresh = successor.flow
        self._install(fresh, self._taken_over(fresh, old.hand_over(self._running.generation.folder)))
        return runtime.parts.clock() - started

    def _replaced(self, workers: int) -> float:
        """On the loop: the old workers end first, since there is no room for both; the seconds that it took."""
        runtime = self._running.runtime
        started, old = runtime.parts.clock(), runtime.parts.flow
        check_steady(runtime)
        _check_current(old, workers)
        runtime.checkpoints.clear()
        files = old.hold()() if runtime.epoch else {}
        left = _Left(files, old.hand_over(self._running.generation.folder), old.count)
        old.close()
        self._instead(workers, left)
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
        runtime = self._running.runtime
        try:
            if runtime.epoch:
                fresh.recover(runtime.epoch + 1, left.files, left.count)
            return fresh, self._taken_over(fresh, left.kept)
        except HeadraceError:
            fresh.close()
            raise

    def _taken_over(self, fresh: Flow, kept: HandedRuns) -> GoOn:
        """Workers have what the old ones kept, and those that read are about to; what has the sources go on with them."""
        fresh.take_over(kept)
        sources = [i.source for i in self._running.runtime.parts.intakes if isinstance(i.source, ShardSource)]
        if not sources:
            return []
        assert isinstance(fresh, Workers), "one process is refused where workers read"
        return [source.move_to(fresh) for source in sources]

    def _install(self, fresh: Flow, go_on: GoOn) -> None:
        """Everything that asked the old dataflow asks this one."""
        running, workers = self._running, fresh.count
        parts = running.runtime.parts
        fresh.limit_steps(running.settings.config.engine.step_work)
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
