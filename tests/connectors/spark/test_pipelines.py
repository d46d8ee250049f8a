"""A declarative pipeline of Spark writes a table by `create_sink`, run by Spark's own command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from headrace.connectors.spark.java_home import java_home
from tests.connectors.spark.test_publish import expect, split, state_of
from tests.connectors.spark.test_writers import TABLE, Topics

SPECIFICATION = """\
name: prices
storage: {storage}
libraries:
  - glob: {{include: transformations/**}}
"""
DEFINITIONS = """\
from pyspark import pipelines
from pyspark.sql import SparkSession

from headrace.spark import register

spark = SparkSession.active()
register(spark)
pipelines.create_sink("prices", "headrace", {options!r})


@pipelines.append_flow(target="prices")
def rows():
    return spark.readStream.schema("id int, price string").json({folder!r})
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_pipeline_writes_a_table(tmp_path: Path, kafka: str, unique: str) -> None:
    arriving = tmp_path / "arriving"
    (tmp_path / "transformations").mkdir()
    arriving.mkdir()
    options = {"table": TABLE, "key": "id", "prefix": unique, "bootstrap": kafka, "mode": "upsert", "partitions": "1"}
    specification = SPECIFICATION.format(storage=(tmp_path / "storage").as_uri())
    (tmp_path / "spark-pipeline.yml").write_text(specification)
    definitions = DEFINITIONS.format(options=options, folder=str(arriving))
    (tmp_path / "transformations" / "prices.py").write_text(definitions)

    def run(name: str, *rows: tuple[int, str]) -> None:
        (arriving / name).write_text("".join(json.dumps({"id": i, "price": p}) + "\n" for i, p in rows))
        done = subprocess.run(
            [Path(sys.executable).parent / "spark-pipelines", "run"], cwd=tmp_path, capture_output=True, text=True,
            timeout=120, check=False,
            env={**os.environ, "JAVA_HOME": str(java_home(tmp_path / "java")), "PYSPARK_PYTHON": sys.executable,
                 "PYSPARK_DRIVER_PYTHON": sys.executable},
        )  # fmt: skip
        told = done.stdout + done.stderr
        assert "Run is COMPLETED" in told, told
        # pyspark 4.3.0 ends with it after every run in which a Python worker took part
        assert done.returncode == 0 or "UNKNOWN_RESPONSE" in told, told

    run("first.json", (1, "a"), (2, "b"))
    run("second.json", (2, "B"), (3, "c"))
    topics, topic = Topics(kafka), f"{unique}.{TABLE}"
    assert state_of(topics, topic) == expect({1: "a", 2: "B", 3: "c"})
    _, ends = split(topics, topic)
    assert sorted({e["value"]["version"] for e in ends}) == [1, 2]
