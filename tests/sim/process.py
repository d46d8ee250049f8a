"""One run of the sidecar in the simulator: its own code between doors of ours. Each door may let others run, fail, lose an
answer, or be the last one.

Always: a dead process reaches nothing any more, whatever its handlers try; what a thread would do is done by `work`, one thing
at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from headrace.connectors.sink import Sink
from headrace.sidecar.delivery.sink_writer import SinkWriter
from headrace.sidecar.wiring.build import Machine, Running, build
from tests.sim.disk import View

if TYPE_CHECKING:
    from tests.sim.strands import Strand
    from tests.sim.world import World


class Killed(BaseException):
    """The process is dead: nothing it does from here on has any effect."""


class _Later(Future[Any]):
    """What an executor was given; done when the scheduler comes to it, or at last when somebody needs it."""

    def __init__(self, executor: _Executor, work: Callable[[], Any]) -> None:
        super().__init__()
        self._executor, self._work = executor, work

    def run(self) -> None:
        try:
            self.set_result(self._work())
        except Killed:
            raise
        except BaseException as failure:
            self.set_exception(failure)

    def result(self, timeout: float | None = None) -> Any:
        self._executor.run_until(self)
        return super().result(0)


class _Executor(Executor):
    """Does one thing after the other."""

    def __init__(self, process: Process) -> None:
        self._process, self._waiting = process, deque[_Later]()
        self._busy = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        made = _Later(self, lambda: fn(*args, **kwargs))
        self._waiting.append(made)
        return made

    @property
    def idle(self) -> bool:
        return self._busy or not self._waiting

    def run(self) -> None:
        self._busy = True
        try:
            self._waiting.popleft().run()
        finally:
            self._busy = False

    def run_until(self, wanted: _Later) -> None:
        while not wanted.done():
            assert not self._busy, "nothing waits for what it is itself the end of"
            self.run()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        while self._waiting and not self._process.dead:
            self.run()


class _Turnstile:
    """Stands for a group's condition: who waits lets others run, and time pass."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return

    def notify_all(self) -> None:
        return

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until = self._process.world.clock + (timeout or 0.0)
        while not predicate():
            if self._process.world.clock >= until:
                return False
            self._process.sleep(0.5)
            self._process.work()
        return True


class ScheduledGroup(SinkWriter):
    """A sink's group whose thread is the scheduler: what it would do next is done by `work`."""

    def __init__(self, process: Process, sink: Sink, **more: Any) -> None:
        now = lambda: process.world.clock  # noqa: E731
        super().__init__(sink, threaded=False, **more, clock=now, wall=now)
        self.process = process
        self._changed = _Turnstile(process)  # type: ignore[assignment]

    def _write_once(self) -> None:
        """What is offered waits for the scheduler."""

    @property
    def idle(self) -> bool:
        return (
            self._writing or self.detachment is not None or self._backlog.frontier is None or self._failure is not None
        )

    def work(self) -> None:
        super()._write_once()


class Process:
    """A run. `number`: in the order of starts. `excuses`: kinds of errors that it may end with, for what was done to it."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number, self.draw, self.broker = world, number, world.draw, world.broker
        self.dead = False
        self.building = True
        self.turning = self.told_to_stop = False
        self.excuses: set[str] = set()
        self.running: Running | None = None
        self.executors: list[_Executor] = []
        self.writers: list[ScheduledGroup] = []
        self.strands: list[Strand] = []
        self.doubts: dict[str, bool] = {}

    # doors (see clients.Line and database.Session)

    def door(self, name: str) -> None:
        """Something is about to happen to the outside. Raises Killed."""
        if name == "range stepped":
            return  # nothing of it is outside: who dies here dies at the next door
        if self.dead:
            raise Killed
        self.world.at_door(self, name)
        if self.dead:
            raise Killed

    def lost(self, name: str) -> str:
        return self.world.lost(self, name)

    def chance(self, rate: float) -> bool:
        return self.draw.random() < rate

    def later(self, what: Callable[[], None]) -> None:
        self.world.flying.append(what)

    def told(self, positions: Mapping[str, Mapping[int, int]]) -> None:
        """These positions are called safe."""
        self.world.committed(self, positions)

    def now(self) -> float:
        return self.world.clock

    def sleep(self, seconds: float) -> None:
        self.door("sleep")
        self.world.pass_time(seconds)

    # its life

    def start(self) -> None:
        """Build the sidecar. Raises Killed, and what building raises."""
        machine = Machine(
            View(self.world.disk, self.door, self.draw), self.now, self.now, self._executor, self._group
        )  # fmt: skip
        host = self.world.host
        project = self.world.project if host is None else host.resumed(machine.disk)
        self.running = build(project, machine)
        if host is not None:
            host.begun(self, project)
        self.building = False
        self.world.started(self)

    def _executor(self, name: str) -> Executor:
        self.executors.append(_Executor(self))
        return self.executors[-1]

    def _group(self, sink: Sink, **more: Any) -> SinkWriter:
        self.writers.append(ScheduledGroup(self, sink, **more))
        return self.writers[-1]

    def turn(self) -> None:
        """One turn of the loop."""
        assert self.running is not None, "only what was built turns"
        self.turning = True
        try:
            self.running.runtime.turn(0.0)
        finally:
            self.turning = False
        if self.told_to_stop:
            self.stop()

    def work(self) -> bool:
        """One thing that a thread would do now; whether there was one."""
        due = [w for w in (*self.executors, *self.writers, *self.strands) if not w.idle]
        if not due:
            return False
        one = due[self.draw.randrange(len(due))]
        if isinstance(one, ScheduledGroup):
            one.work()
        else:
            one.run()
        return True

    def terminate(self) -> None:
        """SIGTERM, wherever it stands: the loop ends with this turn, the sinks leave at once."""
        assert self.running is not None, "what starts has nothing to drain"
        self.told_to_stop = True
        self.running.runtime.stop(self.draw.choice([30.0, 2.0, 0.0]))

    def stop(self) -> None:
        """Drain and close, as the loop does when it ends."""
        assert self.running is not None, "only what was built is stopped"
        self.running.runtime.drain()
        if self.world.host is not None:
            self.world.host.ended(self)
        self.running.close()
        self.dead = True
