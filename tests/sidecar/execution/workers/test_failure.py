"""Whatever the others say, and in whatever order it comes to light, the worker that ended them is named."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from headrace.engine.dataflow.shard import ShardFailed
from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed, moved
from headrace.sidecar.execution.workers.failure import cause
from headrace.sidecar.execution.workers.local_pool import LocalPool
from headrace.sidecar.execution.workers.pool import WorkerLost
from headrace.sidecar.execution.workers.protocol import message

KILLED, FAILED, SILENT = "killed", "failed", "silent"
Event = Callable[[], None]


class Staged(LocalPool):
    """Workers whose ends are acted out: one event at each wait, and now and then one between two looks at a code."""

    def __init__(self, count: int, draws: random.Random) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        self.processes = []
        self.channels = [Channel(here, k) for k, (here, _) in enumerate(pairs)]
        self.theirs = [Channel(there, -1) for _, there in pairs]
        self.ended: list[int | None] = [None] * count
        self.events: list[Event] = []
        self._draws = draws

    def _happen(self) -> None:
        if self.events:
            self.events.pop(0)()

    def codes(self) -> Sequence[int | None]:
        codes = list(self.ended)
        if self._draws.random() < 0.5:
            self._happen()
        return codes

    def await_end(self, codes: Sequence[int | None], seconds: float) -> None:
        self._happen()

    def lost(self, shard: int, what: str, *, seconds: float | None = None, by: str | None = None) -> WorkerLost:
        return WorkerLost(what, shard=shard, exit=self.ended[shard])

    def close(self) -> None:
        for channel in (*self.channels, *self.theirs):
            channel.close()

    def says(self, shard: int, error: HeadraceError) -> None:
        self.theirs[shard].put(message({"error": error.as_json()}))
        moved([self.theirs[shard]], lambda: False, lambda: None)

    def ends(self, shard: int, code: int) -> None:
        self.theirs[shard].close()
        self.ended[shard] = code


@pytest.mark.parametrize("seed", range(60))
def test_the_worker_that_ended_the_others_is_named(seed: int) -> None:
    draws = random.Random(seed)
    count = draws.randint(2, 4)
    crew = Staged(count, draws)
    culprit, how = draws.randrange(count), draws.choice([KILLED, FAILED, SILENT])
    code = -signal.SIGKILL if how == KILLED else 1
    crew.theirs[culprit].put(message({"an answer": "before"}))
    moved([crew.theirs[culprit]], lambda: False, lambda: None)
    acts = [[partial(crew.ends, culprit, code)]]
    if how == FAILED:
        acts[0].insert(0, partial(crew.says, culprit, HeadraceError("no room", table="t")))
    for k in draws.sample([k for k in range(count) if k != culprit], draws.randint(1, count - 1)):
        fails = draws.random() < 0.5
        told = ShardFailed("another shard failed", shard=culprit) if fails else ChannelClosed("it is closed")
        acts.append([partial(crew.says, k, told), partial(crew.ends, k, int(fails))])
    while any(acts):
        crew.events.append(draws.choice([act for act in acts if act]).pop(0))
    found = cause(crew, crew.channels, ChannelClosed("a worker's channel is closed"), 60)
    crew.close()
    if how == FAILED:
        assert (found.what, found.where["worker"], found.where["table"]) == ("no room", culprit, "t")
    else:
        assert isinstance(found, WorkerLost)
        assert (found.where["shard"], found.where["exit"]) == (culprit, code)


def test_what_is_no_consequence_stands_as_it_is() -> None:
    crew = Staged(2, random.Random(0))
    crew.ends(0, -signal.SIGKILL)
    why = HeadraceError("no room")
    assert cause(crew, crew.channels, why, 60) is why
    crew.close()
