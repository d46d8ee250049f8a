"""Workers as threads of the test: the same loop, sockets and driver as in processes, without their start."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from headrace.sidecar.execution.workers.channel import Channel
from headrace.sidecar.execution.workers.local_pool import DescriptorDoor, LocalPool
from headrace.sidecar.execution.workers.pool import Work, WorkerLost
from headrace.sidecar.execution.workers.worker import Ends, serve


class Threads(LocalPool):
    """`count` workers in threads. None dies or stands still unseen: a failure is its answer, or that of the test."""

    def __init__(self, count: int, task: Any, work: Work = serve) -> None:
        self.processes = []
        pairs = {(i, k): socket.socketpair() for i in range(count) for k in range(i + 1, count)}
        drivers, asides, doors = ([socket.socketpair() for _ in range(count)] for _ in range(3))
        self.channels = [Channel(here, i) for i, (here, _) in enumerate(drivers)]
        self.asides = [Channel(here, i) for i, (here, _) in enumerate(asides)]
        self.doors = [here for here, _ in doors]
        self._raised: list[BaseException] = []
        self._threads = []
        for i in range(count):
            others = {k: Channel(pairs[min(i, k), max(i, k)][int(i > k)], k) for k in range(count) if k != i}
            ends = Ends(Channel(drivers[i][1], -1), others, Channel(asides[i][1], -1), DescriptorDoor(doors[i][1]))
            self._threads.append(threading.Thread(target=self._run, args=(work, ends, i, task), daemon=True))
            self._threads[-1].start()

    def _run(self, work: Work, ends: Ends, index: int, task: Any) -> None:
        try:
            work(ends, index, task)
        except BaseException as error:
            self._raised.append(error)

    def lost(self, shard: int, what: str, *, seconds: float | None = None, by: str | None = None) -> WorkerLost:
        return WorkerLost(what, shard=shard, seconds=seconds, by=by)

    def cpu_seconds(self, shard: int) -> float | None:
        return time.process_time()

    def is_kept_waiting(self, shard: int) -> bool:
        return False

    def codes(self) -> list[int | None]:
        return [None if thread.is_alive() else 0 for thread in self._threads]

    def await_end(self, codes: Sequence[int | None], seconds: float) -> None:
        running = [thread for thread in self._threads if thread.is_alive()]
        for thread in running[:1]:
            thread.join(min(seconds, 0.1))

    def close(self) -> None:
        for channel in (*self.channels, *self.asides, *self.doors):
            channel.close()
        for thread in self._threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in self._threads), "a worker does not end"

    def kill(self) -> None:
        self.close()
        if self._raised:
            raise self._raised[0]
