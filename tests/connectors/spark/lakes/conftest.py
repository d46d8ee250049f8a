"""One session of Spark 4.1 with Delta and Iceberg for this folder, on the environment that `make lakes` makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connectors.spark.lakes.environment import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the session's Iceberg catalog `lake`: each table is a folder that pyiceberg reads as well."""
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def settings(warehouse: Path) -> dict[str, str]:
    """What a session of these tests is told, as a user tells it by --spark."""
    return {
        "spark.jars": jars(),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
    }


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]) -> Iterator[SparkSession]:
    import pyspark

    from headrace.connectors.spark import spark_feeds
    from headrace.connectors.spark.datasets import Named
    from headrace.connectors.spark.session import local_session

    assert pyspark.__version__.startswith("4.1."), "these tests have an environment of their own: make lakes"
    both = [Named("a.b", ("id",), "delta", "/d"), Named("a.c", ("id",), "iceberg", "lake.a.c")]
    # a time zone with gaps shows what depends on it
    given = {**settings, "spark.sql.session.timeZone": "America/New_York"}
    session = local_session(tmp_path_factory.mktemp("spark"), settings=spark_feeds.session_settings(both, given))
    yield session
    session.stop()
