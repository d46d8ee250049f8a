"""`headrace-publish`, within this process and on the run's one Spark session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import yaml
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from headrace.connectors.spark import cli, datasets
from headrace.sidecar.config.sources import SourceConfig


@pytest.fixture
def runner(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setattr(cli, "open_session", lambda *_: spark)
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
        (["public.p(id)", "--describe"], "without a path"),
        (["public.p(id)=x", "--previous", "public.q=y"], "not published"),
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


def test_each_dataset_may_have_its_own_format(runner: CliRunner, parquet: Path, tmp_path: Path) -> None:
    csv = tmp_path / "codes.csv"
    csv.write_text("code,name\n1,one\n")
    done = runner.invoke(
        cli.app,
        [f"public.prices(id)={parquet}", f"public.codes(code)=csv:{csv}", "--option", "header=true", "--describe"],
    )
    assert done.exit_code == 0, done.output
    tables = yaml.safe_load(done.output)["tables"]
    assert [c["name"] for c in tables[1]["columns"]] == ["code", "name"]


def test_a_file_of_another_format_is_named_in_a_few_lines(runner: CliRunner, tmp_path: Path) -> None:
    wrong = tmp_path / "rows.csv"
    wrong.write_text("id,name\n1,one\n")
    done = runner.invoke(cli.app, [f"public.p(id)={wrong}", "--describe"])
    assert done.exit_code == 1
    assert "cannot be read" in done.output
    assert "rows.csv" in done.output
    assert "Traceback" not in done.output
    assert len(done.output.splitlines()) < 20


def test_what_spark_meets_while_it_reads_is_one_error(
    runner: CliRunner, kafka: str, unique: str, tmp_path: Path
) -> None:
    wrong = tmp_path / "rows.csv"
    wrong.write_text("id,name\nx,one\n")
    words = [
        f"public.p(id)=csv:{wrong}", "--option", "header=true", "--option", "schema=id int", "--option",
        "mode=FAILFAST", "--option", "inferSchema=true", "--prefix", unique, "--bootstrap", kafka,
    ]  # fmt: skip
    wrong.write_text("id,name\n1,one\n2,two,too many\n")
    done = runner.invoke(cli.app, words)
    assert done.exit_code == 1
    assert "error:" in done.output
    assert len(done.output.splitlines()) < 20


def test_jdbc_tables_of_one_postgres_are_read_in_one_snapshot(
    runner: CliRunner, spark: SparkSession, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that moves a row from one table to the other, between the two reads, is in neither of them."""
    at = psycopg.conninfo.conninfo_to_dict(database)
    with psycopg.connect(database, autocommit=True) as writer:
        writer.execute("create table a (id int primary key, v text); create table b (id int primary key, v text)")
        writer.execute("insert into a values (1, 'x')")
        options = {"url": f"jdbc:postgresql://{at['host']}:{at['port']}/{at['dbname']}", "user": str(at["user"])}
        if at.get("password"):
            options["password"] = str(at["password"])
        named = [datasets.parse(f"public.{t}(id)", "jdbc") for t in "ab"]
        with datasets.one_snapshot(named, options) as reading:
            a, b = (datasets.read(spark, n, reading) for n in named)
            before = a.count()
            writer.execute("begin; delete from a; insert into b values (1, 'x'); commit")
            assert (before, b.count(), a.count()) == (1, 0, 1)
        assert datasets.read(spark, named[1], options).count() == 1


@pytest.mark.long
def test_nothing_of_spark_s_start_reaches_the_terminal(parquet: Path, tmp_path: Path) -> None:
    words = [f"public.prices(id)={parquet}", "--describe", "--state", str(tmp_path), "--master", "local[1]"]
    code = "from headrace.connectors.spark.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout)["tables"][0]["name"] == "public.prices"
    assert (tmp_path / "spark" / "spark.log").stat().st_size > 0
