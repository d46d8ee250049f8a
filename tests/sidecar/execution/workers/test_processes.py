"""Workers in processes: they publish what one dataflow does, and none that is lost goes unnamed or leaves others behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.dataflow import Dataflow
from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.pool import Maker, WorkerLost
from headrace.sidecar.execution.workers.worker import Task
from tests.engine.dataflow.test_determinism import as_bytes
from tests.sidecar.execution.workers.built import TABLES, VIEWS, built, customers, fails, orders, stands_still

NOTICED_SECONDS = 30.0
"""A worker that dies is to be named within this, on a busy machine too."""


@pytest.fixture
def workers(tmp_path: Path, maker: Maker) -> Iterator[Workers]:
    with Workers.start(2, Task(built, tmp_path), TABLES, VIEWS, maker=maker) as made:
        yield made
    assert not alive(made)


def alive(workers: Workers) -> list[int]:
    return [pid for pid in workers.pids if pid is not None and is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def go_on(workers: Workers, changes: int) -> None:
    for epoch in range(workers.frontier, workers.frontier + 1000):
        workers.push("orders", orders(epoch, 0, changes))
        workers.step(epoch + 1)


def test_two_processes_publish_what_one_dataflow_does(workers: Workers) -> None:
    flow = Dataflow()
    outputs = {name: collection.output(name) for name, collection in built(flow).items()}
    flow.push("customers", customers(0))
    workers.push("customers", customers(0))
    for epoch in range(6):
        # The last but one is larger than a socket holds, from both sides at once.
        change = orders(epoch, epoch * 400_000, 300_000 if epoch == 4 else 300)
        flow.push("orders", change)
        workers.push("orders", change)
        flow.step(epoch + 1)
        workers.step(epoch + 1)
        for name, output in outputs.items():
            mine = workers.outputs[name].take()
            assert [as_bytes([side]) for side in output.take()] == [as_bytes([side]) for side in mine], name
    whole, shared = outputs["by_city"].snapshot(5), workers.outputs["by_city"].snapshot(5)
    assert [as_bytes([side]) for side in whole] == [as_bytes([side]) for side in shared]
    assert all(seconds > 0 for seconds in workers.cpu_seconds)


@pytest.mark.parametrize("shard", [0, 1])
def test_a_killed_worker_is_named_and_the_other_stopped(workers: Workers, shard: int) -> None:
    workers.push("orders", orders(0, 0, 1000))
    workers.step(1)
    pid = workers.pids[shard]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(WorkerLost, match=f"a worker died .*shard={shard}, pid={pid}, exit=SIGKILL"):
        go_on(workers, 1000)
    assert time.monotonic() - begun < NOTICED_SECONDS
    assert not alive(workers)
    with pytest.raises(WorkerLost):
        workers.step(1000)


def test_a_worker_killed_in_a_step_is_named(tmp_path: Path, maker: Maker) -> None:
    with Workers.start(3, Task(built, tmp_path), TABLES, VIEWS, maker=maker) as workers:
        pid = workers.pids[2]
        assert pid is not None
        killer = subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {pid}"])
        with pytest.raises(WorkerLost, match=f"shard=2, pid={pid}, exit=SIGKILL"):
            go_on(workers, 1_000_000)
        killer.wait()
    assert not alive(workers)


def test_a_worker_that_stands_still_is_named(tmp_path: Path, maker: Maker) -> None:
    with Workers.start(2, Task(built, tmp_path), TABLES, VIEWS, still_seconds=3, maker=maker) as workers:
        workers.push("orders", orders(0, 0, 1000))
        workers.step(1)
        pid = workers.pids[1]
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        workers.push("orders", orders(1, 0, 1000))
        with pytest.raises(WorkerLost, match=f"a worker hangs .*shard=1, pid={pid}"):
            workers.step(2)
    assert not alive(workers)


def test_a_worker_that_never_begins_is_named(tmp_path: Path, maker: Maker) -> None:
    with pytest.raises(WorkerLost, match=r"a worker hangs .*shard=1"):
        Workers.start(2, Task(stands_still, tmp_path), TABLES, VIEWS, still_seconds=3, maker=maker)


def test_a_build_that_fails_is_told(tmp_path: Path, maker: Maker) -> None:
    with pytest.raises(HeadraceError, match=r"no plan \(worker=[01]\)"):
        Workers.start(2, Task(fails, tmp_path), TABLES, VIEWS, maker=maker)


def test_workers_end_with_their_driver(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.sidecar.execution.workers.built", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    driver.kill()
    driver.communicate()
    until = time.monotonic() + 60
    while any(map(is_alive, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))
