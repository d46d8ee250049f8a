"""A standalone Spark of two executors on this machine, for benchmarks that compare it with something else in one run.

Always: its ports are free loopback ports, and all of it has ended when the context is left. Called by the benchmarks of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.sidecar.config.config import Settings, load_for_replay
from headrace.sidecar.devstack.ports import pick
from headrace.sidecar.devstack.spark import EmbeddedSpark

EXECUTORS = 2
_BESIDE_HEAP_MB = 100


@contextmanager
def standalone(folder: Path, slots: int, memory_mb: int = 512) -> Iterator[str]:
    """Its master's address. `slots`: of both executors together; `memory_mb`: the heap of each."""
    cluster = EmbeddedSpark(
        folder, pick(1)[0], workers=EXECUTORS, cores=slots // EXECUTORS, memory_mb=memory_mb + _BESIDE_HEAP_MB
    )
    try:
        yield cluster.start().master
    finally:
        cluster.stop()


def engine_on(master: str, workers: int, slots: int, memory_mb: int = 512, **conf: str) -> dict[str, Any]:
    """What a user writes under `engine` to have so many workers there. `conf`: more of Spark's settings, `__` for a dot."""
    given = {
        "spark.executor.memory": f"{memory_mb}m", "spark.executor.cores": str(slots // EXECUTORS),
        "spark.driver.memory": f"{memory_mb}m", "spark.cores.max": str(slots),
    }  # fmt: skip
    more = {name.replace("__", "."): value for name, value in conf.items()}
    return {"host": "spark", "workers": workers, "spark": {"master": master, "conf": {**given, **more}}}


def settings_with(engine: Mapping[str, Any], folder: Path) -> Settings:
    """The settings of a configuration that says this of its engine, and nothing else that matters."""
    path = folder / "headrace.yaml"
    source = {"name": "s", "type": "debezium", "topic_prefix": "s"}
    body = {"version": 1, "name": "bench", "kafka": {"bootstrap.servers": "localhost"}, "sources": [source]}
    path.write_text(json.dumps({**body, "engine": engine}))
    return load_for_replay(path, {})


def end_session() -> None:
    """End the Spark session of this process, if there is one."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
