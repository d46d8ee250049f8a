"""The workers' processes on this machine: started, watched, and ended together.

Always: processes are spawned, never forked; each has a socket to each other and three to the driver; signals that end the
driver do not end them, as it drains first; a worker ends by itself when the driver's process is gone; after `close` none
is left. What is served beside has sockets of its own, and goes with them. Called by the driver.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import platform
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from headrace.engine.kernels import warm
from headrace.sidecar.execution.dataflow_host import WorkerFacts
from headrace.sidecar.execution.malloc import share_one_heap
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed
from headrace.sidecar.execution.workers.pool import ENDING_SECONDS, Guests, Work, WorkerLost, WorkerPool
from headrace.sidecar.execution.workers.process_facts import cpu_of, is_runnable, memory_of, named_exit, stat_of
from headrace.sidecar.execution.workers.worker import Ends, serve

HOST = platform.node()


class LocalPool:
    """`count` workers, each of which does `work` with a `task`, which is pickled.

    `channels`: the driver's ends, by shard; `asides`: of the channels to the threads that write; `doors`: through which
    each is given the ends of further channels.
    """

    slot_seconds = 0.0

    def __init__(self, count: int, task: object, work: Work = serve) -> None:
        context = multiprocessing.get_context("spawn")
        pairs = {(i, k): context.Pipe() for i in range(count) for k in range(i + 1, count)}
        drivers, asides, doors = ([context.Pipe() for _ in range(count)] for _ in range(3))
        self.processes: list[BaseProcess] = []
        self.channels: list[Channel] = []
        self.asides: list[Channel] = []
        self.doors: list[socket.socket] = []
        atexit.register(self.kill)  # before multiprocessing waits for them
        try:
            for i in range(count):
                ends = {k: pairs[min(i, k), max(i, k)][int(i > k)] for k in range(count) if k != i}
                arguments = (i, drivers[i][1], ends, asides[i][1], doors[i][1], task, work)
                process = context.Process(target=_main, args=arguments, name=f"headrace-worker-{i}", daemon=True)
                process.start()
                self.processes.append(process)
            self.doors = [_socket(here) for here, _ in doors]
            self.asides = [Channel(_socket(here), i) for i, (here, _) in enumerate(asides)]
            self.channels = [Channel(_socket(here), i) for i, (here, _) in enumerate(drivers)]
        finally:
            for one, other in (*pairs.values(), *drivers, *asides, *doors):
                one.close()
                other.close()
            if len(self.channels) < count:
                self.close()

    def beside(self, name: str) -> Callable[[], WorkerPool]:  # noqa: ARG002
        """As `WorkerPool.beside`: each worker is given its ends at once."""
        count = len(self.doors)
        pairs = {(i, k): socket.socketpair() for i in range(count) for k in range(i + 1, count)}
        drivers = [socket.socketpair() for _ in range(count)]
        try:
            for i, door in enumerate(self.doors):
                ends = [pairs[min(i, k), max(i, k)][int(i > k)] for k in range(count) if k != i]
                socket.send_fds(door, [b"."], [end.fileno() for end in (drivers[i][1], *ends)])
        except OSError as error:
            raise ChannelClosed("a worker's door is closed", error=error) from error
        finally:
            for end in (*(e for pair in pairs.values() for e in pair), *(there for _, there in drivers)):
                end.close()
        return partial(Guests, self, [Channel(here, i) for i, (here, _) in enumerate(drivers)])

    def members(self) -> Sequence[WorkerFacts]:
        """As `WorkerPool.members`."""
        return [
            WorkerFacts(k, p.pid, self.cpu_seconds(k), memory_of(p.pid), HOST)
            for k, p in enumerate(self.processes)
            if p.pid is not None
        ]

    def lost(self, shard: int, what: str, *, seconds: float | None = None, by: str | None = None) -> WorkerLost:
        """The error that names a worker."""
        process = self.processes[shard]
        hint = "all workers were stopped; start anew from the last checkpoint"
        return WorkerLost(
            what, shard=shard, pid=process.pid, exit=named_exit(process.exitcode), seconds=seconds, by=by, hint=hint
        )

    def cpu_seconds(self, shard: int) -> float | None:
        """As `WorkerPool.cpu_seconds`."""
        return cpu_of(stat_of(self.processes[shard].pid))

    def is_kept_waiting(self, shard: int) -> bool:
        """As `WorkerPool.is_kept_waiting`."""
        return is_runnable(stat_of(self.processes[shard].pid))

    def codes(self) -> Sequence[int | None]:
        """Exit codes by shard, those of signals negative; None of a worker that runs."""
        return [process.exitcode for process in self.processes]

    def await_end(self, codes: Sequence[int | None], seconds: float) -> None:
        """Wait until one more has ended than when `codes` were these, or so long."""
        wait([self.processes[k].sentinel for k, code in enumerate(codes) if code is None], max(seconds, 0))

    def close(self) -> None:
        """End all: those that do not by themselves, now that their channels are closed, are killed."""
        self._end()
        for aside in self.asides:
            aside.close()
        atexit.unregister(self.kill)

    def kill(self) -> None:
        """End all at once. The channels aside stay: a thread that waits there sees that nothing comes any more."""
        for process in self.processes:
            process.kill()
        self._end()

    def _end(self) -> None:
        for channel in self.channels:
            channel.close()
        for door in self.doors:
            door.close()
        for process in self.processes:
            process.join(ENDING_SECONDS)
            if process.exitcode is None:
                process.kill()
                process.join()


class DescriptorDoor:
    """A worker's door on the driver's machine: the driver passes the ends themselves."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def take(self, name: str, others: Sequence[int]) -> tuple[Channel, dict[int, Channel]]:  # noqa: ARG002
        """As `Door.take`."""
        _, found, _, _ = socket.recv_fds(self._end, 1, len(others) + 1)
        driver, *rest = (socket.socket(fileno=end) for end in found)
        return Channel(driver, -1), {k: Channel(end, k) for k, end in zip(others, rest, strict=True)}

    def close(self) -> None:
        """Take no more."""
        self._end.close()


def _socket(end: Connection) -> socket.socket:
    """The same end, as a socket."""
    return socket.socket(fileno=os.dup(end.fileno()))


def _main(
    index: int, driver: Connection, others: dict[int, Connection], aside: Connection, door: Connection, task: object,
    work: Work,
) -> None:  # fmt: skip
    """A worker's process."""
    share_one_heap()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # of the terminal or a service's manager; the driver says when it is over
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warm()
    channels = {k: Channel(_socket(end), k) for k, end in others.items()}
    ends = Ends(Channel(_socket(driver), -1), channels, Channel(_socket(aside), -1), DescriptorDoor(_socket(door)))
    for end in (driver, *others.values(), aside, door):
        end.close()
    work(ends, index, task)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
