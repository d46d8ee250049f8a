"""A small local Spark session, as the publisher's command line, the demo and the tests use it.

Always: UTC, no web UI, little memory, this interpreter in the workers. A job of one's own brings its own session
instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from connectors.spark.java import java_home

DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
}


def local_session(folder: Path, *, cores: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start (or get) a session on `cores` local threads; `folder` takes the launcher, warehouse and scratch files.

    Sets JAVA_HOME and PYSPARK_PYTHON of this process, which Spark reads when its JVM starts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(java_home(folder))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(f"local[{cores}]").appName("headrace-publish")
    own = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "scratch")}
    for name, value in {**DEFAULTS, **own, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
