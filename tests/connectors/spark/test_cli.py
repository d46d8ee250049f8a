"""`headrace-publish`, within this process and on the run's one Spark session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from connectors.spark import cli
from sidecar.config import SourceConfig


@pytest.fixture
def runner(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setattr(cli, "_session", lambda *_: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)
    return CliRunner()


@pytest.fixture(scope="module")
def parquet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prices"
    spark.sql(
        "select 1 id, 'x' s, cast(1.5 as decimal(10,2)) p, timestamp_ntz'2024-01-01 00:00:00' n, current_timestamp() t"
    ).write.parquet(str(path))
    return path


def test_describe_prints_what_headrace_yaml_takes(runner: CliRunner, parquet: Path) -> None:
    done = runner.invoke(cli.app, [f"public.prices(id,s)={parquet}", "--describe"])
    assert done.exit_code == 0, done.output
    entry = yaml.safe_load(done.output)
    source = SourceConfig.model_validate({"name": "s", "type": "spark", "topic_prefix": "s", **entry})
    assert source.tables is not None
    assert source.tables[0].key == ["id", "s"]
    assert [c.data_type for c in source.tables[0].columns or ()] == [
        "integer", "text", "numeric(10,2)", "timestamp without time zone", "timestamp with time zone",
    ]  # fmt: skip


def test_publish_and_publish_again(runner: CliRunner, parquet: Path, kafka: str, unique: str, tmp_path: Path) -> None:
    words = [
        f"public.prices(id)={parquet}", "--prefix", unique, "--bootstrap", kafka, "--state", str(tmp_path),
        "--version", "1", "--json",
    ]  # fmt: skip
    first, again = (runner.invoke(cli.app, words) for _ in range(2))
    assert first.exit_code == again.exit_code == 0, first.output + again.output
    assert json.loads(first.output)["tables"]["public.prices"]["creates"] == 1
    assert json.loads(again.output)["repeated"] is True


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["prices=x"], "not a dataset"),
        (["public.p(id)=/nowhere/at/all", "--describe"], "cannot be read"),
        (["public.p(id)=x", "--option", "nothing"], "not KEY=VALUE"),
        (["public.p(id)=x", "--option", "a=${env:HEADRACE_NOT_SET}"], "is not set"),
    ],
)
def test_refusals(runner: CliRunner, words: list[str], what: str) -> None:
    done = runner.invoke(cli.app, [*words, "--json"])
    assert done.exit_code == 1
    assert what in json.loads(done.output)["error"]["what"]


def test_no_target(runner: CliRunner, parquet: Path) -> None:
    done = runner.invoke(cli.app, [f"public.prices(id)={parquet}"])
    assert done.exit_code == 1
    assert "--prefix and --bootstrap" in done.output
