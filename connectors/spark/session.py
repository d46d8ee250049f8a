"""A small Spark session, as the publisher's command line, the demo and the tests use it.

Always: UTC, no web UI, little memory, this interpreter in the workers. A job of one's own brings its own session
instead.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.connectors.spark.errors import PublishError, cause
from headrace.connectors.spark.java_home import java_home

DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "1g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
}
_HERE: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Of a session whose tasks run in this process."""


def local_session(
    folder: Path, *, cores: int = 2, settings: Mapping[str, str] | None = None, log: Path | None = None
) -> SparkSession:
    """Start (or get) a session on `cores` local threads, or on the `spark.master` that `settings` name.

    `folder` takes the launcher, warehouse and scratch files; `log` takes all that Spark's JVM says, which otherwise goes to
    this process's stderr. Sets JAVA_HOME and PYSPARK_PYTHON of this process, which Spark reads when its JVM starts. Raises
    PublishError where it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["JAVA_HOME"] = str(java_home(folder))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("headrace-publish")
    own = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "scratch")}
    given = {"spark.master": f"local[{cores}]", **(settings or {})}
    here = _HERE if given["spark.master"].startswith("local") else {}
    for name, value in {**DEFAULTS, **here, **own, **given}.items():
        builder = builder.config(name, value)
    with _stderr_to(log):
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise PublishError(
                f"Spark does not start: {cause(str(error))}", master=given["spark.master"], log=log,
                hint="the log tells more" if log else "",
            ) from error  # fmt: skip
        session.sparkContext.setLogLevel("ERROR")
    # it writes each of Spark's exceptions to the terminal, with all of the JVM's stack: ours name the cause
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return session


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """What this process starts inside has `log` as its stderr, for as long as it lives."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
