"""Cuts of the network, where packets are dropped and no connection is reset: found by what is not heard, and named as cuts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.sidecar.config.config import load_for_replay
from headrace.sidecar.devstack.ports import pick
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.pool import Maker, SlotsMissing, WorkerLost
from headrace.sidecar.wiring.worker_pools import make_pool, own_path
from tests.engine.dataflow.test_determinism import as_bytes
from tests.sidecar.execution.workers.built import customers, orders
from tests.sidecar.execution.workers.conftest import end_session
from tests.sidecar.execution.workers.machines import Machines, MachineSpark
from tests.sidecar.execution.workers.test_processes import go_on
from tests.sidecar.execution.workers.test_spark_pool import begun

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(300)]
FOUND_SECONDS = 15.0
BACK_SECONDS = 90.0


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines(2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def distant(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    """Workers on two machines that are not this one."""
    pytest.importorskip("pyspark")
    cluster = MachineSpark(tmp_path_factory.mktemp("distant"), pick(1)[0], machines)
    path = tmp_path_factory.mktemp("configured") / "headrace.yaml"
    # What the first session of this process was begun with stands in its JVM's properties: all of it is said anew.
    conf = {
        "spark.executor.cores": "1", "spark.cores.max": "2", "spark.executor.memory": "512m", "spark.driver.memory": "512m",
        "spark.driver.host": machines.here, "spark.driver.bindAddress": machines.here,
        "spark.executorEnv.PYTHONPATH": own_path(),
    }  # fmt: skip
    path.write_text(
        "version: 1\nname: tests\nkafka: {bootstrap.servers: localhost}\n"
        "sources: [{name: s, type: debezium, topic_prefix: s}]\n"
        f"engine: {{host: spark, workers: 2, spark: {{master: '{cluster.master}', python: {sys.executable}, conf: "
        f"{{{', '.join(f'{k}: {v!r}' for k, v in conf.items())}}}}}}}\n"
    )
    end_session()
    try:
        cluster.start()
        yield make_pool(load_for_replay(path, {}), 1)
    finally:
        machines.mend()
        end_session()
        cluster.stop()


@pytest.fixture(autouse=True)
def mended(machines: Machines) -> Iterator[None]:
    yield
    machines.mend()


def two(maker: Maker, folder: Path) -> Workers:
    """Workers on both machines; tried again while the cluster still gets over what was before."""
    until = time.monotonic() + BACK_SECONDS
    while True:
        try:
            return begun(maker, folder)
        except (SlotsMissing, WorkerLost):
            assert time.monotonic() < until, "no new workers"


def test_a_machine_that_is_cut_off_is_named_as_a_cut_and_work_goes_on_when_it_is_back(
    distant: Maker, machines: Machines, tmp_path: Path
) -> None:
    with two(distant, tmp_path) as workers:
        workers.push("customers", customers(0))
        workers.push("orders", orders(0, 0, 10_000))
        workers.step(1)
        files = workers.hold()()
        before = [as_bytes([side]) for side in workers.outputs["by_city"].snapshot(0)]
        machines.cut(1)
        begun_at = time.monotonic()
        with pytest.raises(WorkerLost, match="network to a worker was cut") as lost:
            go_on(workers, 10)
        assert time.monotonic() - begun_at < FOUND_SECONDS
        assert lost.value.reason == "cut"
        assert "SIG" not in str(lost.value)
    machines.mend()
    with two(distant, tmp_path) as again:
        again.recover(1, files, 2)
        list(again.hydrating())
        assert [as_bytes([side]) for side in again.outputs["by_city"].snapshot(0)] == before


@pytest.mark.parametrize("idle", [0.0, 16.0], ids=["while they meet", "while they rest"])
def test_two_machines_that_are_cut_off_from_each_other_are_named_both(
    distant: Maker, machines: Machines, tmp_path: Path, idle: float
) -> None:
    """The driver hears both of them all the while."""
    with two(distant, tmp_path) as workers:
        workers.push("orders", orders(0, 0, 1000))
        workers.step(1)
        machines.cut_between(0, 1)
        time.sleep(idle)
        begun_at = time.monotonic()
        with pytest.raises(WorkerLost, match=r"network to a worker was cut.*by=shard [01]") as lost:
            go_on(workers, 10)
        assert time.monotonic() - begun_at < FOUND_SECONDS
        assert lost.value.reason == "cut"
        assert str(lost.value.where["shard"]) not in str(lost.value.where["by"]), "one cannot be cut off from itself"
    machines.mend()
    with two(distant, tmp_path) as again:
        go_on(again, 10)
