"""Workers on Spark: executors that are killed or fall silent, slots that are missing, and who is let in."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from headrace.engine.errors import HeadraceError
from headrace.sidecar.config.config import Settings
from headrace.sidecar.execution.workers import identity
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.pool import Maker, SlotsMissing, WorkerLost
from headrace.sidecar.execution.workers.spark_pool import SparkCluster
from headrace.sidecar.execution.workers.worker import Task
from headrace.sidecar.state.batch_places import ObjectBatches
from headrace.sidecar.state.objects import S3Objects
from tests.engine.dataflow.test_determinism import as_bytes
from tests.sidecar.execution.workers.built import TABLES, VIEWS, built, customers, orders
from tests.sidecar.execution.workers.test_processes import go_on
from tests.sidecar.support.s3 import S3Server


def begun(maker: Maker, folder: Path) -> Workers:
    return Workers.start(2, Task(built, folder), TABLES, VIEWS, maker=maker)


def supervisor_of(pid: int) -> psutil.Process:
    found = psutil.Process(pid).parent()
    assert found is not None
    return found


def executor_of(pid: int) -> psutil.Process:
    return next(p for p in psutil.Process(pid).parents() if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline()))


def all_gone(pids: Sequence[int | None]) -> bool:
    """Within 15 seconds; one whose parent was killed may be left to be reaped."""
    until = time.monotonic() + 15
    left = list(pids)
    while left and time.monotonic() < until:
        left = [p for p in left if p is not None and psutil.pid_exists(p) and not is_zombie(p)]
        time.sleep(0.1)
    return not left


def is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.long
def test_a_killed_executor_is_named_and_new_workers_go_on_from_the_checkpoint(
    spark_maker: Maker, tmp_path: Path
) -> None:
    with begun(spark_maker, tmp_path) as workers:
        workers.push("customers", customers(0))
        workers.push("orders", orders(0, 0, 10_000))
        workers.step(1)
        files = workers.hold()()
        before = [as_bytes([side]) for side in workers.outputs["by_city"].snapshot(0)]
        pid = workers.pids[1]
        assert pid is not None
        one_executor = len({executor_of(p).pid for p in workers.pids if p is not None}) == 1
        executor_of(pid).kill()
        with pytest.raises(
            WorkerLost, match=r"pid=\d+, exit=its executor ended by SIGKILL, executor=\d+, host=\S+, attempt="
        ) as lost:
            go_on(workers, 1000)
        assert lost.value.where["shard"] == 1 or one_executor
    assert all_gone(workers.pids)
    with begun(spark_maker, tmp_path) as again:
        again.recover(1, files, 2)
        list(again.hydrating())
        assert [as_bytes([side]) for side in again.outputs["by_city"].snapshot(0)] == before
        again.push("orders", orders(1, 50_000, 10))
        again.step(2)
        assert [w.attempt for w in again.workers()] == [2 if isinstance(spark_maker, SparkCluster) else 1] * 2


@pytest.mark.long
def test_what_is_told_of_each_worker(spark_maker: Maker, tmp_path: Path) -> None:
    with begun(spark_maker, tmp_path) as workers:
        time.sleep(1.5)
        told = workers.workers()
        assert [w.shard for w in told] == [0, 1]
        for w in told:
            assert psutil.pid_exists(w.pid)
            assert w.memory["VmRSS"] > 50 << 20
            assert (w.cpu_seconds or 0) > 0
            assert w.executor.isdigit()
            assert w.host
            assert w.heard_seconds < 5


@pytest.mark.long
def test_a_supervisor_that_falls_silent_is_named_as_a_cut(spark_maker: Maker, tmp_path: Path) -> None:
    with begun(spark_maker, tmp_path) as workers:
        pid = workers.pids[0]
        assert pid is not None
        supervisor, begun_at = supervisor_of(pid), time.monotonic()
        for process in (supervisor, psutil.Process(pid)):
            process.suspend()  # as a machine that is cut off: no word, no end
        with pytest.raises(WorkerLost, match=rf"shard=0, pid={pid}, exit=cut off: nothing was heard for 10 s"):
            go_on(workers, 1)
        assert time.monotonic() - begun_at < 20
        supervisor.resume()
    assert all_gone([pid])


def test_missing_slots_are_named(spark_maker: Maker, tmp_path: Path) -> None:
    with pytest.raises(SlotsMissing, match=r"too few slots .*wanted=9, free=\d"):
        Workers.start(9, Task(built, tmp_path), TABLES, VIEWS, maker=spark_maker)


@pytest.mark.long
def test_slots_that_are_taken_are_missing_too(spark_maker: Maker, tmp_path: Path) -> None:
    """Spark would let the tasks wait for them without end: a rescale ends its old workers first then."""
    with (
        Workers.start(3, Task(built, tmp_path), TABLES, VIEWS, maker=spark_maker),
        pytest.raises(SlotsMissing, match=r"too few slots .*wanted=2, free=1"),
    ):
        Workers.start(2, Task(built, tmp_path), TABLES, VIEWS, maker=spark_maker)


def test_a_worker_of_another_program_is_refused_by_name(
    spark_maker: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {**identity.identity(), identity.PROGRAM: "0123456789abcdef"}
    monkeypatch.setattr(identity, "identity", lambda: ours)
    with pytest.raises(HeadraceError, match=r"program digest differs: [0-9a-f]{16} there, 0123456789abcdef here"):
        begun(spark_maker, tmp_path)


@pytest.mark.long
def test_nothing_is_left_of_a_driver_that_is_killed(spark_settings: Settings, tmp_path: Path) -> None:
    program = "from tests.sidecar.execution.workers.test_spark_pool import drive; import sys; drive(*sys.argv[1:])"
    driver = subprocess.Popen(
        [sys.executable, "-c", program, str(spark_settings.path), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    try:
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(pids) == 2
        watched = [*pids, *(supervisor_of(pid).pid for pid in pids), *(executor_of(pid).pid for pid in pids)]
    finally:
        driver.kill()
        driver.communicate()
    assert all_gone(watched)


def drive(configuration: str, folder: str) -> None:
    """A driver that tells its workers' processes and waits for its end."""
    from headrace.sidecar.config.config import load_for_replay
    from headrace.sidecar.wiring.worker_pools import make_pool

    settings = load_for_replay(Path(configuration), {**os.environ})
    settings.folder = Path(folder)
    workers = begun(make_pool(settings, 2), Path(folder) / "batches")
    sys.stdout.write(" ".join(str(pid) for pid in workers.pids) + "\n")
    sys.stdout.flush()
    time.sleep(600)


@pytest.mark.long
def test_workers_write_to_a_store_and_another_count_takes_over_while_they_run(
    spark_maker: Maker, tmp_path: Path
) -> None:
    """As `headrace rescale` does it: what executors put into S3 is fetched by the next ones; the end of the old job leaves
    the new one as it is."""
    pytest.importorskip("moto")
    with S3Server() as server:
        place = ObjectBatches(S3Objects(server.access("spark")), 1, tmp_path / "fetched")
        old = Workers.start(1, Task(built, place), TABLES, VIEWS, maker=spark_maker)
        with old:
            old.push("customers", customers(1))
            old.push("orders", orders(1, 0, 500))
            old.step(2)
            files = old.hold()()
            assert old.store().written_bytes > 0
            names = {f.name for some in files.values() for f in some}
            assert {f"batches/{name}" for name in names} == set(place.objects.names("batches/"))
            new = Workers.start(2, Task(built, place), TABLES, VIEWS, maker=spark_maker)
            with new:
                new.recover(2, files, 1)
                before = {n: as_bytes([o.snapshot(1)[0]]) for n, o in old.outputs.items()}
                assert {n: as_bytes([o.snapshot(1)[0]]) for n, o in new.outputs.items()} == before
                assert all(member.attempt > old.workers()[0].attempt for member in new.workers())
                old.close()
                new.push("orders", orders(2, 500, 500))
                new.step(3)
                assert all_gone([w.pid for w in old.workers()])
                assert [w.pid for w in new.workers() if w.pid is not None and psutil.pid_exists(w.pid)] == new.pids
