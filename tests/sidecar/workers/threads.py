"""Workers as threads of the test: the same loop, sockets and driver as in processes, without their start."""

from __future__ import annotations

import socket
import threading
import time

from sidecar.workers.channel import Channel
from sidecar.workers.crew import Crew, WorkerLost
from sidecar.workers.serving import Build, serve


class Threads(Crew):
    """`count` workers in threads. None dies or stands still unseen: a failure is its answer, or that of the test."""

    def __init__(self, count: int, build: Build) -> None:
        self.processes = []
        pairs = {(i, k): socket.socketpair() for i in range(count) for k in range(i + 1, count)}
        drivers = [socket.socketpair() for _ in range(count)]
        self.channels = [Channel(here, i) for i, (here, _) in enumerate(drivers)]
        self._raised: list[BaseException] = []
        self._threads = []
        for i in range(count):
            ends = {k: Channel(pairs[min(i, k), max(i, k)][int(i > k)], k) for k in range(count) if k != i}
            there = Channel(drivers[i][1], -1)
            self._threads.append(threading.Thread(target=self._run, args=(there, ends, i, build), daemon=True))
            self._threads[-1].start()

    def _run(self, driver: Channel, ends: dict[int, Channel], index: int, build: Build) -> None:
        try:
            serve(driver, ends, index, build)
        except BaseException as error:
            self._raised.append(error)

    def lost(self, shard: int, what: str, *, seconds: float | None = None) -> WorkerLost:
        return WorkerLost(what, shard=shard, seconds=seconds)

    def cpu_seconds(self, shard: int) -> float | None:
        return time.process_time()

    def died_first(self, seconds: float) -> int | None:
        for thread in self._threads:
            thread.join(seconds)
        return None

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
        for thread in self._threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in self._threads), "a worker does not end"

    def kill(self) -> None:
        self.close()
        if self._raised:
            raise self._raised[0]
