"""The two makers of workers: processes of this machine, and tasks on a standalone Spark of two workers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from headrace.sidecar.config.config import Settings, load_for_replay
from headrace.sidecar.devstack.ports import pick
from headrace.sidecar.devstack.spark import EmbeddedSpark
from headrace.sidecar.execution.workers.local_pool import LocalPool
from headrace.sidecar.execution.workers.pool import Maker
from headrace.sidecar.wiring.worker_pools import make_pool

CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.driver.memory": "512m",
    "spark.cores.max": "4",
}


def end_session() -> None:
    """End the Spark session of this process, if there is one: the next that is asked for is another."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.fixture(scope="package")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSpark]:
    """A master and two workers, started once, with slots for two sessions of four."""
    pytest.importorskip("pyspark")
    cluster = EmbeddedSpark(tmp_path_factory.mktemp("cluster"), pick(1)[0], cores=4)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP"):  # the session sets them for this process
            patch.setenv(name, os.environ.get(name, ""))
            patch.delenv(name)
        try:
            yield cluster.start()
        finally:
            end_session()
            cluster.stop()


@pytest.fixture(scope="package")
def spark_settings(spark_cluster: EmbeddedSpark, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """What a user writes to have workers there."""
    path = tmp_path_factory.mktemp("configured") / "headrace.yaml"
    lines = [
        "version: 1", "name: tests", "kafka: {bootstrap.servers: localhost}",
        "sources: [{name: s, type: debezium, topic_prefix: s}]", "engine:", "  host: spark", "  workers: 2",
        f"  spark: {{master: '{spark_cluster.master}', conf: {{{', '.join(f'{k}: {v!r}' for k, v in CONF.items())}}}}}",
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    return load_for_replay(path, {})


@pytest.fixture
def spark_maker(spark_settings: Settings) -> Maker:
    """What wiring makes of it."""
    return make_pool(spark_settings, 1)


@pytest.fixture(params=["local", "spark"])
def maker(request: pytest.FixtureRequest) -> Maker:
    """Each of the two."""
    if request.param == "local":
        return LocalPool
    found: Maker = request.getfixturevalue("spark_maker")
    return found
