"""The processes of the workers: started, watched, and ended together.

Always: processes are spawned, never forked; each has a socket to each other and one to the driver; a worker ends by
itself when the driver's process is gone; after `close` none is left. Called by the driver.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from engine.errors import HeadraceError
from engine.kernels import warm
from sidecar.workers.channel import Channel
from sidecar.workers.serving import Build, serve

ENDING_SECONDS = 5.0
"""How long a worker that was told to end may take before it is killed."""

Work = Callable[[Channel, Mapping[int, Channel], int, Any], None]
"""What a worker does: see `serving.serve`."""

_HZ = os.sysconf("SC_CLK_TCK")


class WorkerLost(HeadraceError):
    """A worker died or stands still, so that the whole dataflow is to be built anew."""

    code = "worker"


class Crew:
    """`count` workers, each of which does `work`; `channels`: the driver's ends, by shard."""

    def __init__(self, count: int, build: Build, work: Work = serve) -> None:
        context = multiprocessing.get_context("spawn")
        pairs = {(i, k): context.Pipe() for i in range(count) for k in range(i + 1, count)}
        drivers = [context.Pipe() for _ in range(count)]
        self.processes: list[BaseProcess] = []
        self.channels: list[Channel] = []
        try:
            for i in range(count):
                ends = {k: pairs[min(i, k), max(i, k)][int(i > k)] for k in range(count) if k != i}
                arguments = (i, drivers[i][1], ends, build, work)
                process = context.Process(target=_main, args=arguments, name=f"headrace-worker-{i}", daemon=True)
                process.start()
                self.processes.append(process)
            self.channels = [Channel(_socket(here), i) for i, (here, _) in enumerate(drivers)]
        finally:
            for one, other in (*pairs.values(), *drivers):
                one.close()
                other.close()
            if len(self.channels) < count:
                self.close()

    def lost(self, shard: int, what: str, *, seconds: float | None = None) -> WorkerLost:
        """The error that names a worker."""
        process = self.processes[shard]
        code = process.exitcode
        how = signal.Signals(-code).name if code is not None and code < 0 else code
        hint = "all workers were stopped; start anew from the last checkpoint"
        return WorkerLost(what, shard=shard, pid=process.pid, exit=how, seconds=seconds, hint=hint)

    def cpu_seconds(self, shard: int) -> float | None:
        """Processor time that a worker has used; None where the system does not tell, or it is stopped."""
        try:
            fields = Path(f"/proc/{self.processes[shard].pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "TtZX" else (int(fields[11]) + int(fields[12])) / _HZ

    def died_first(self, seconds: float) -> int | None:
        """The shard whose process ended otherwise than by itself, for which it waits so long; None for none."""
        until = time.monotonic() + seconds
        running = list(range(len(self.processes)))
        while running:
            wait([self.processes[k].sentinel for k in running], max(until - time.monotonic(), 0))
            for k in running:
                if self.processes[k].exitcode:
                    return k
            running = [k for k in running if self.processes[k].exitcode is None]
            if time.monotonic() >= until:
                break
        return None

    def close(self) -> None:
        """End all: those that do not by themselves, now that their channels are closed, are killed."""
        for channel in self.channels:
            channel.close()
        for process in self.processes:
            process.join(ENDING_SECONDS)
            if process.exitcode is None:
                process.kill()
                process.join()

    def kill(self) -> None:
        """End all at once."""
        for process in self.processes:
            process.kill()
        self.close()


def _socket(end: Connection) -> socket.socket:
    """The same end, as a socket."""
    return socket.socket(fileno=os.dup(end.fileno()))


def _main(index: int, driver: Connection, ends: dict[int, Connection], build: Build, work: Work) -> None:
    """A worker's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal; the driver says when it is over
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warm()
    channels = {k: Channel(_socket(end), k) for k, end in ends.items()}
    here = Channel(_socket(driver), -1)
    for end in (driver, *ends.values()):
        end.close()
    work(here, channels, index, build)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
