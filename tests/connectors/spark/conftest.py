"""One Spark session for all tests of this folder: those of the workers have another, and a process has one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from headrace.connectors.spark.session import local_session
    from headrace.sidecar.devstack.jars import jars_folder

    before = {k: os.environ.get(k) for k in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    session = local_session(
        tmp_path_factory.mktemp("spark"),
        # "local[2,3]" below: a task may fail twice before its job does. A time zone with gaps shows what depends on it.
        settings={
            "spark.master": "local[2,3]",
            "spark.sql.session.timeZone": "America/New_York",
            "spark.jars": ",".join(str(jar) for jar in jars_folder().glob("org.postgresql.postgresql-*.jar")),
        },
    )
    yield session
    session.stop()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
