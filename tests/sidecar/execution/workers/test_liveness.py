"""Who waits for whom tells a cut network from a worker that is slow, without a word from the system."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence

import pytest

from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.workers import liveness
from headrace.sidecar.execution.workers.channel import ChannelClosed, moved
from headrace.sidecar.execution.workers.failure import cause
from headrace.sidecar.execution.workers.liveness import Watch
from headrace.sidecar.execution.workers.pool import CUT_OFF, WorkerLost
from headrace.sidecar.execution.workers.protocol import message
from tests.sidecar.execution.workers.test_failure import Staged


class Waiting(Staged):
    """Workers that neither end nor work, and say whom they wait for, once a second as real ones."""

    def __init__(self, waits: Mapping[int, Sequence[int]]) -> None:
        super().__init__(len(waits), random.Random(0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._say, args=(waits,))
        self._thread.start()

    def _say(self, waits: Mapping[int, Sequence[int]]) -> None:
        while not self._over.wait(0.3):
            for shard, on in waits.items():
                if on:
                    self.theirs[shard].put(message({"waits": list(on)}))
                    moved([self.theirs[shard]], lambda: False, lambda: None)

    def codes(self) -> Sequence[int | None]:
        return [None] * len(self.channels)

    def cpu_seconds(self, shard: int) -> float | None:
        return None

    def is_kept_waiting(self, shard: int) -> bool:
        return False

    def lost(self, shard: int, what: str, *, seconds: float | None = None, by: str | None = None) -> WorkerLost:
        return WorkerLost(what, shard=shard, seconds=seconds, by=by)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        super().close()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "CUT_SECONDS", 2.0)


def test_two_that_wait_for_each_other_are_cut_off_and_who_waits_for_both_is_not() -> None:
    pool = Waiting({0: [2], 1: [0, 2], 2: [0]})
    begun = time.monotonic()
    with pytest.raises(WorkerLost) as lost:
        Watch(pool, 60).answers_of_all()
    pool.close()
    assert (lost.value.what, lost.value.where["shard"], lost.value.where["by"]) == (CUT_OFF, 2, "shard 0")
    assert 2 <= time.monotonic() - begun < 6


def test_who_waits_for_one_that_works_is_not_cut_off() -> None:
    pool = Waiting({0: [1, 2], 1: [2], 2: []})
    with pytest.raises(WorkerLost, match=r"a worker hangs .*shard=2"):
        Watch(pool, 5).answers_of_all()
    pool.close()


@pytest.mark.parametrize("who", ["driver", "worker"])
def test_what_the_system_calls_unreachable_is_a_cut_though_no_process_ends(who: str) -> None:
    pool = Waiting({0: [], 1: []})
    why = ChannelClosed("a worker's channel is closed", shard=1, cut=True if who == "driver" else None)
    if who == "worker":
        pool.says(0, ChannelClosed("a worker's channel is closed", shard=1, cut=True))
    found = cause(pool, pool.channels, why, 20)
    pool.close()
    assert isinstance(found, WorkerLost)
    assert (found.reason, found.where["shard"]) == ("cut", 1)
    assert found.where["by"] == ("the driver" if who == "driver" else "shard 0")


def test_a_connection_that_ends_though_no_process_does_is_a_cut() -> None:
    pool = Waiting({0: [], 1: []})
    pool.says(0, ChannelClosed("a worker's channel is closed", shard=1))
    found: HeadraceError = cause(pool, pool.channels, ChannelClosed("a worker's channel is closed", shard=0), 1)
    pool.close()
    assert isinstance(found, WorkerLost)
    assert found.reason == "cut"
