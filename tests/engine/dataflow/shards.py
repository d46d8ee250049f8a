"""A dataflow's shards in threads, which meet through queues. Called by the tests here."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from headrace.engine.batch.exchange_codec import Message
from headrace.engine.dataflow.shard import Shard

SECONDS = 120.0
"""Longer than any round takes: after it shards wait for what never comes."""


class QueuePort:
    """Messages as they would come out of a socket: copied."""

    def __init__(self, index: int, queues: dict[tuple[int, int], queue.Queue[list[bytes]]]) -> None:
        self._index = index
        self._queues = queues

    def exchange(self, out: Sequence[Message]) -> Sequence[Message]:
        for k, message in enumerate(out):
            if k != self._index:
                self._queues[self._index, k].put([bytes(memoryview(part).cast("B")) for part in message])
        return [() if k == self._index else self._queues[k, self._index].get(timeout=SECONDS) for k in range(len(out))]


def in_shards(count: int, script: Callable[[Shard], Any]) -> list[Any]:
    """What `script` returns, or raises, in each shard; fails if one does not end."""
    queues: dict[tuple[int, int], queue.Queue[list[bytes]]] = {
        (i, k): queue.Queue() for i in range(count) for k in range(count)
    }
    found: list[Any] = [None] * count

    def run(index: int) -> None:
        try:
            found[index] = script(Shard(index, count, QueuePort(index, queues) if count > 1 else None))
        except BaseException as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 10)
    assert not any(thread.is_alive() for thread in threads), "a shard waits for ever"
    assert not any(not q.empty() for q in queues.values()), "a message was left over"
    return found
