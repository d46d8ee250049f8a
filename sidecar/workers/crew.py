"""The processes of the workers: started, watched, and ended together.

Always: processes are spawned, never forked; each has a socket to each other and three to the driver; signals that end the
driver do not end them, as it drains first; a worker ends by itself when the driver's process is gone; after `close` none
is left. What is served beside has sockets of its own, and goes with them. Called by the driver.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from engine.errors import HeadraceError
from engine.kernels import warm
from sidecar.allocators import share_one_heap
from sidecar.workers.channel import Channel, ChannelClosed
from sidecar.workers.serving import Ends, serve

ENDING_SECONDS = 5.0
"""How long a worker that was told to end may take before it is killed."""

Work = Callable[[Ends, int, Any], None]
"""What a worker does: see `serving.serve`."""

_HZ = os.sysconf("SC_CLK_TCK")


class WorkerLost(HeadraceError):
    """A worker died or stands still, so that the whole dataflow is to be built anew."""

    code = "worker"


class Crew:
    """`count` workers, each of which does `work` with a `task`, which is pickled.

    `channels`: the driver's ends, by shard; `asides`: of the channels to the threads that write; `doors`: through which
    each is given the ends of further channels.
    """

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

    def beside(self) -> Guests:
        """Channels to threads that are to serve beside, of which each worker is given its ends: it must be told so next."""
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
        return Guests(self, [Channel(here, i) for i, (here, _) in enumerate(drivers)])

    def lost(self, shard: int, what: str, *, seconds: float | None = None) -> WorkerLost:
        """The error that names a worker."""
        process = self.processes[shard]
        code = process.exitcode
        how = signal.Signals(-code).name if code is not None and code < 0 else code
        hint = "all workers were stopped; start anew from the last checkpoint"
        return WorkerLost(what, shard=shard, pid=process.pid, exit=how, seconds=seconds, hint=hint)

    def cpu_seconds(self, shard: int) -> float | None:
        """Processor time that a worker has used; None where the system does not tell, or it is stopped."""
        fields = self._stat(shard)
        return None if not fields or fields[0] in "TtZX" else (int(fields[11]) + int(fields[12])) / _HZ

    def is_kept_waiting(self, shard: int) -> bool:
        """True while a worker would go on at once if the machine let it: it has no processor, or waits for a disk."""
        return self._stat(shard)[:1] in (["R"], ["D"])

    def _stat(self, shard: int) -> list[str]:
        """What the system tells of a worker's process, from its state on; nothing where it does not."""
        try:
            return Path(f"/proc/{self.processes[shard].pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return []

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


class Guests:
    """Threads beside the dataflow of a crew, one in each worker, with channels of their own: to end them leaves the crew as
    it is."""

    def __init__(self, crew: Crew, channels: list[Channel]) -> None:
        self.processes = crew.processes
        self.channels = channels
        self.asides: list[Channel] = []
        self.lost, self.cpu_seconds, self.is_kept_waiting = crew.lost, crew.cpu_seconds, crew.is_kept_waiting
        self.codes, self.await_end = crew.codes, crew.await_end

    def close(self) -> None:
        """Let them end."""
        for channel in self.channels:
            channel.close()

    kill = close


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
    ends = Ends(Channel(_socket(driver), -1), channels, Channel(_socket(aside), -1), _socket(door))
    for end in (driver, *others.values(), aside, door):
        end.close()
    work(ends, index, task)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
