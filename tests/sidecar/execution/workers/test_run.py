"""The whole sidecar with workers: what it publishes, how it goes on from checkpoints, and how it ends.

The sources and the sink are in memory; the workers are processes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.engine.errors import HeadraceError
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.query import answer
from headrace.sidecar.control.rescale import Rescaling
from headrace.sidecar.control.staging import StagingDataflow
from headrace.sidecar.execution.workers.pool import SlotsMissing, WorkerLost
from headrace.sidecar.process.shutdown import ShutdownDeadline
from headrace.sidecar.process.status_board import status
from headrace.sidecar.state.checkpoint import read_manifest
from headrace.sidecar.state.generation import numbers, open_generation
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.control.test_apply import BIGGEST, biggest
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VIEWS, VISITS, Little, answers
from tests.sidecar.support.process import wait

BEGINNING = {CUSTOMERS: [(1, 1), (2, 2), (3, 1)], ORDERS: [(1, 1), (2, 3)], VISITS: [(1, 1), (2, 1), (1, 1)]}


class Shared(Little):
    """The little sidecar with worker processes."""

    def go_on(self, draw: random.Random, rounds: int) -> None:
        """Random transactions, each round of them one step; the sink held the truth at every frontier."""
        for _ in range(rounds):
            for _ in range(draw.randrange(1, 4)):
                self.random(draw)
            self.show_all()
            self.turn()
        self.check()

    def check(self) -> None:
        frontier = self.store.frontier
        assert frontier is not None
        assert frontier.sources["shop"].place.order == self.lsn
        for at, rows in [*self.store.history, (frontier, self.store.rows)]:
            assert at is None or rows == answers(self.states[at.sources["shop"].place.order])
        assert not self.store.errors

    def pids(self) -> list[int]:
        assert self.running is not None
        return [worker.pid for worker in self.running.runtime.parts.flow.workers()]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    made = Shared(tmp_path, monkeypatch, workers=2)
    made.snapshot(BEGINNING)
    made.show_all()
    made.start()
    made.turn()
    return made


def go_on_for_ever(shop: Shared) -> None:
    while True:
        shop.random(random.Random(1))
        shop.show_all()
        shop.turn()


def gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


def shards_of_the_manifest(shop: Shared) -> tuple[int, set[int]]:
    state = shop.folder / "state"
    manifest = read_manifest(open_generation(state, numbers(state)[-1]).manifest)
    assert manifest is not None
    return manifest.workers, {file.shard for files in manifest.arrangements.values() for file in files}


def test_what_it_publishes_and_how_it_goes_on(shop: Shared) -> None:
    draw = random.Random(1)
    shop.go_on(draw, 6)
    assert shards_of_the_manifest(shop) == (2, {0, 1})
    for workers in (2, 1, 3):
        before = shop.pids()
        shop.end(drained=draw.random() < 0.5)
        assert gone(before)
        shop.workers = workers
        shop.random(draw)
        shop.start()
        assert len(shop.pids()) == (workers if workers > 1 else 0)
        shop.go_on(draw, 4)
    shop.end()


@pytest.mark.long
def test_status_counts_all_shards(shop: Shared) -> None:
    shop.go_on(random.Random(2), 3)
    assert shop.running is not None
    told = status(shop.running)
    assert [(w["worker"], w["pid"]) for w in told["workers"]] == list(enumerate(shop.pids()))
    alone = {psutil.Process().pid: psutil.Process().memory_info().rss}
    assert told["memory"]["VmRSS"] > next(iter(alone.values())) + sum(w["memory"] for w in told["workers"]) / 2
    rows = {a["name"].split("@")[0]: a["rows"] for a in told["arrangements"] if a["name"].startswith(CUSTOMERS)}
    assert sum(rows.values()) >= sum(shop.state[CUSTOMERS].values())
    metrics = shop.running.metrics.render().decode()
    assert 'headrace_worker_resident_bytes{worker="1"}' in metrics
    assert 'headrace_worker_cpu_seconds_total{worker="0"}' in metrics
    assert shop.running.runtime.memory.measure() > 2 * psutil.Process(shop.pids()[0]).memory_info().rss / 4
    shop.end()


def open_files(shop: Shared) -> list[int]:
    """Of each worker."""
    return [psutil.Process(pid).num_fds() for pid in shop.pids()]


def test_views_change_and_are_asked_and_nothing_of_it_is_left(shop: Shared) -> None:
    assert shop.running is not None
    running, sql = shop.running, "select v, max(id) from public.orders group by v"
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + BIGGEST)
    meanwhile(shop, lambda: ViewChanger(running).apply(drop=False))
    files = open_files(shop)
    for _ in range(3):
        found = meanwhile(shop, lambda: answer(running, sql))
        assert found.rows.num_rows > 0
    assert {name: shop.rows(name) for name in answers(shop.state)} == answers(shop.state)
    assert shop.rows("biggest") == biggest(shop)
    # The first count may catch a descriptor that is open for a moment: later there may be fewer, and never more.
    wait(lambda: all(now <= then for now, then in zip(open_files(shop), files, strict=True)), "none is left open")
    shop.end(drained=True)
    shop.random(random.Random(2))
    shop.show_all()
    shop.start()
    shop.turn(2)
    assert shop.rows("biggest") == biggest(shop)
    shop.end()


@pytest.mark.long
def test_a_worker_killed_while_a_view_is_built_is_named(shop: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.running is not None
    running, pids = shop.running, shop.pids()
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + BIGGEST)
    real = StagingDataflow.hydrate

    def killed(self: StagingDataflow, *arguments: Any) -> None:
        os.kill(pids[0], signal.SIGKILL)
        real(self, *arguments)

    monkeypatch.setattr(StagingDataflow, "hydrate", killed)
    failed: list[HeadraceError] = []

    def change() -> None:
        with pytest.raises(HeadraceError) as refused:
            ViewChanger(running).apply(drop=False)
        failed.append(refused.value)

    asking = threading.Thread(target=change)
    asking.start()
    with pytest.raises(WorkerLost, match=f"a worker died .*shard=0, pid={pids[0]}, exit=SIGKILL"):
        go_on_for_ever(shop)
    running.runtime.tasks.close()
    asking.join(30)
    assert [error.code for error in failed] == ["worker"]
    shop.end()
    assert gone(pids)


@pytest.mark.long
def test_a_worker_killed_is_named_and_the_next_run_goes_on_from_the_checkpoint(shop: Shared) -> None:
    draw = random.Random(3)
    shop.go_on(draw, 3)
    pids = shop.pids()
    os.kill(pids[1], signal.SIGKILL)
    shop.random(draw)
    shop.show_all()
    with pytest.raises(WorkerLost, match=f"a worker died .*shard=1, pid={pids[1]}, exit=SIGKILL"):
        shop.turn(3)
    shop.end()
    assert gone(pids)
    shop.start()
    shop.go_on(draw, 3)
    shop.end()


@pytest.mark.long
def test_a_table_with_live_errors_is_dealt_out_anew_with_them(shop: Shared) -> None:
    """They are mended by the new workers; also between two runs."""
    shop.places |= set(shop.transact((ORDERS, "c", (7, 2))))
    shop.show_all()
    shop.turn(2)
    assert shop.in_error() == {"orders", "by_city"}
    meanwhile(shop, lambda: rescaling(shop).rescale(3), busy=False)
    shop.turn(2)
    assert shop.in_error() == {"orders", "by_city"}
    shop.end(drained=True)
    shop.workers = 1
    shop.start()
    shop.turn(2)
    assert shop.in_error() == {"orders", "by_city"}
    shop.end(drained=True)
    shop.workers = 2
    shop.places.clear()
    shop.start()
    shop.turn(2)
    assert not shop.in_error()
    assert shop.store.rows == answers(shop.state)
    shop.end()


@pytest.mark.long
def test_a_manifest_of_shards_is_written_whole_or_not_at_all(shop: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies while it writes its batches leaves the last checkpoint as it was."""
    draw = random.Random(4)
    shop.end()
    monkeypatch.setenv("HEADRACE_FAILPOINT", "batch written:1")
    shop.start()
    shop.transact(*((ORDERS, "c", (10 + k, 1)) for k in range(8)))
    shop.show_all()
    shop.turn()
    assert shop.running is not None
    with pytest.raises(WorkerLost, match=r"a worker died .*exit=SIGKILL"):
        shop.running.runtime.drain()
    shop.end()
    monkeypatch.delenv("HEADRACE_FAILPOINT")
    shop.start()
    shop.go_on(draw, 2)
    shop.end()


@pytest.mark.long
def test_a_signal_to_all_processes_drains(tmp_path: Path) -> None:
    """A service's manager, or a terminal, signals every process: the workers stay until the sidecar has drained."""
    run = subprocess.Popen(
        [sys.executable, "-m", "tests.sidecar.execution.workers.test_run", str(tmp_path)],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert run.stdout is not None
    pids = json.loads(run.stdout.readline())
    os.killpg(run.pid, signal.SIGTERM)
    assert json.loads(run.stdout.readline()) == {"checkpoint": 2, "sink": 2}
    assert run.wait(60) == 0
    run.stdout.close()
    psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], 20)
    assert gone(pids)


def main(folder: Path) -> None:
    """The sidecar until a signal comes; then, drained, the epochs that the checkpoint and the sink hold."""
    with pytest.MonkeyPatch.context() as patch:
        shop = Shared(folder, patch, every_turn=False, workers=2)
        shop.snapshot(BEGINNING)
        shop.transact((VISITS, "c", (3, 3)))
        shop.show_all()
        shop.start()
        assert shop.running is not None
        runtime = shop.running.runtime
        shutdown = ShutdownDeadline()
        shutdown.listen()
        shutdown.serve(runtime.stop, 30)
        told: list[None] = []

        def tell() -> bool:
            """Once it has read all, who works for it; then on until the signal."""
            if runtime.epoch == 2 and not told:
                told.append(print(json.dumps(shop.pids()), flush=True))
            return False

        runtime.run(tell)
        state = folder / "state"
        manifest = read_manifest(open_generation(state, numbers(state)[-1]).manifest)
        shop.end()
        frontier = shop.store.frontier
        assert manifest is not None
        assert frontier is not None
        print(json.dumps({"checkpoint": manifest.epoch, "sink": frontier.epoch}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))


def rescaling(shop: Shared) -> Rescaling:
    assert shop.running is not None
    return Rescaling(shop.running, ViewChanger(shop.running))


@pytest.mark.parametrize("counts", [(3, 1, 2)])
def test_another_count_of_workers_while_it_runs(shop: Shared, counts: tuple[int, ...]) -> None:
    """Views go on where they were; the checkpoint after it is of the new count, and a start goes on from that."""
    draw = random.Random(5)
    shop.go_on(draw, 3)
    assert shop.running is not None
    for count in counts:
        before = shop.pids()
        done = meanwhile(shop, lambda: rescaling(shop).rescale(count))  # noqa: B023 (done before the next)
        assert done["workers"] == count
        assert gone(before), "the old workers have ended"
        assert len(shop.pids()) == (0 if count == 1 else count)
        shop.go_on(draw, 3)
        assert shop.running.settings.config.engine.workers == count
    shop.end(drained=True)
    assert shards_of_the_manifest(shop) == (2, {0, 1})
    shop.start()
    shop.go_on(draw, 2)
    shop.close()


@pytest.mark.long
def test_where_new_workers_cannot_take_over_the_old_go_on(shop: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(6)
    shop.go_on(draw, 2)
    assert shop.running is not None
    before = shop.pids()

    def refused(*_: object) -> None:
        raise HeadraceError("a table with live errors cannot be dealt out")

    with monkeypatch.context() as patch:
        patch.setattr(Rescaling, "_taken_over", refused)
        with pytest.raises(HeadraceError, match="live errors"):
            meanwhile(shop, lambda: rescaling(shop).rescale(3), busy=False)
    assert shop.pids() == before
    shop.go_on(draw, 2)
    shop.close()


@pytest.mark.long
def test_where_there_is_no_room_for_both_the_old_end_first(shop: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """And as many begin anew where the new ones cannot begin even then."""
    draw = random.Random(7)
    shop.go_on(draw, 2)
    assert shop.running is not None
    old, real = shop.pids(), shop.running.maker

    def cramped(count: int, task: object) -> Any:
        if count == 64 or not gone(old):
            raise SlotsMissing("too few slots", wanted=count, free=0)
        return real(count, task)

    shop.running.maker = cramped
    with pytest.raises(SlotsMissing):
        meanwhile(shop, lambda: rescaling(shop).rescale(64), busy=False)
    again = shop.pids()
    assert gone(old)
    assert len(again) == 2
    shop.go_on(draw, 2)
    old = again
    assert meanwhile(shop, lambda: rescaling(shop).rescale(3), busy=False)["workers"] == 3
    shop.go_on(draw, 2)
    shop.close()
