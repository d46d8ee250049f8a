"""`headrace-publish`: publish datasets as one version from the command line, or describe them for headrace.yaml.

Always: exit code 0 when the version is whole in Kafka (or already was), 1 when it was refused or failed, 2 for wrong
usage. Secrets come by `${env:NAME}` in any option value and are not shown.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from connectors.spark.errors import PublishError
from engine.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_DATASET = re.compile(r"^(?P<table>[^.(=]+\.[^.(=]+)\((?P<key>[^)]+)\)(?:=(?P<path>.+))?$")


@app.command()
def publish(
    datasets: Annotated[
        list[str],
        typer.Argument(metavar="DATASET…", help="'schema.table(key,…)=path', or without '=path' for a JDBC table"),
    ],
    prefix: Annotated[str, typer.Option(help="topic prefix: topics are <prefix>.<schema>.<table>")] = "",
    bootstrap: Annotated[str, typer.Option(help="Kafka's bootstrap servers")] = "",
    kafka: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="any librdkafka setting")] = None,
    state: Annotated[Path | None, typer.Option(help="folder of the last completed snapshots")] = None,
    version: Annotated[int | None, typer.Option(help="version number (default: the next one)")] = None,
    previous: Annotated[list[str] | None, typer.Option(metavar="TABLE=PATH", help="compare with these rows")] = None,
    source: Annotated[str | None, typer.Option(help="source name in the envelope (default: the prefix)")] = None,
    partitions: Annotated[int, typer.Option(help="partitions of topics that are created")] = 4,
    replication: Annotated[int, typer.Option(help="replicas of topics that are created")] = 1,
    format: Annotated[str, typer.Option(help="parquet, csv, json, orc, jdbc …")] = "parquet",
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="an option of Spark's reader")] = None,
    spark: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="a setting of the Spark session")] = None,
    cores: Annotated[int, typer.Option(help="local threads")] = 2,
    describe: Annotated[
        bool, typer.Option("--describe", help="print the tables: entry of headrace.yaml, no more")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of text")] = False,
) -> None:
    """Publish DATASETs as one version: what changed since the last completed one, in Debezium's envelope."""
    try:
        named = [_dataset(text) for text in datasets]
        options = _pairs(option, "--option")
        session = _session(cores, state, _pairs(spark, "--spark"))
        try:
            read = {table: _read(session, format, options, table, path) for table, _, path in named}
            if describe:
                _print_description(named, read, as_json)
            else:
                connection = {"bootstrap.servers": bootstrap, **_pairs(kafka, "--kafka")}
                before = {t: _read(session, format, options, t, p) for t, p in _pairs(previous, "--previous").items()}
                done = _publish(
                    session, named, read, before, prefix, connection, source, partitions, replication, version, state
                )
                _print_published(done, as_json)
        finally:
            session.stop()
    except HeadraceError as error:
        typer.echo(json.dumps({"error": error.as_json()}) if as_json else f"error: {error}", err=not as_json)
        raise typer.Exit(1) from error


def _publish(
    session: SparkSession,
    named: list[tuple[str, list[str], str | None]],
    read: dict[str, DataFrame],
    before: dict[str, DataFrame],
    prefix: str,
    kafka: dict[str, str],
    source: str | None,
    partitions: int,
    replication: int,
    version: int | None,
    state: Path | None,
) -> dict[str, Any]:
    from connectors.spark.publish import Dataset, Target, publish_version

    if not prefix or not kafka["bootstrap.servers"]:
        raise PublishError("--prefix and --bootstrap are needed to publish", hint="or --describe")
    unknown = before.keys() - read.keys()
    if unknown:
        raise PublishError("--previous names a table that is not published", table=sorted(unknown)[0])
    parts = [Dataset(table, read[table], key, before.get(table)) for table, key, _ in named]
    target = Target(prefix, kafka, source, partitions, replication)
    return asdict(publish_version(session, parts, target, version=version, state=state))


def _session(cores: int, state: Path | None, settings: dict[str, str]) -> SparkSession:
    try:
        from connectors.spark.session import local_session
    except ImportError as error:
        raise PublishError(f"Spark is not installed: {error}", hint="pip install 'headrace[spark,embedded]'") from error
    return local_session((state or Path(".headrace")) / "spark", cores=cores, settings=settings)


def _dataset(text: str) -> tuple[str, list[str], str | None]:
    match = _DATASET.match(text)
    if not match:
        raise PublishError("not a dataset", value=text, hint="write 'schema.table(key,…)=path'")
    return match["table"], [k.strip() for k in match["key"].split(",")], match["path"]


def _pairs(texts: list[str] | None, where: str) -> dict[str, str]:
    pairs = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise PublishError("not KEY=VALUE", option=where, value=name)
        pairs[name.strip()] = re.sub(r"\$\{env:(\w+)\}", lambda m: _environment(m[1]), value)
    return pairs


def _environment(name: str) -> str:
    if name not in os.environ:
        raise PublishError("an environment variable is not set", name=name)
    return os.environ[name]


def _read(session: SparkSession, format: str, options: dict[str, str], table: str, path: str | None) -> DataFrame:
    from pyspark.errors import PySparkException

    reader = session.read.format(format).options(**options)
    try:
        if path is not None:
            return reader.load(path)
        return (reader if "query" in options else reader.option("dbtable", options.get("dbtable", table))).load()
    except PySparkException as error:
        raise PublishError(
            f"the dataset cannot be read: {str(error).splitlines()[0]}", table=table, path=path
        ) from error


def _print_description(
    named: list[tuple[str, list[str], str | None]], read: dict[str, DataFrame], as_json: bool
) -> None:
    from connectors.spark.columns import describe

    entries = {"tables": [describe(read[table].schema, table, key) for table, key, _ in named]}
    typer.echo(json.dumps(entries) if as_json else yaml.safe_dump(entries, sort_keys=False).rstrip())


def _print_published(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(done))
        return
    if done["repeated"]:
        typer.echo(f"version {done['version']} is already whole: nothing written")
        return
    typer.echo(f"version {done['version']}, attempt {done['attempt']}")
    for table, n in done["tables"].items():
        typer.echo(f"  {table}: {n['creates']} created, {n['updates']} updated, {n['deletes']} deleted")


def main() -> None:
    """The console script `headrace-publish`."""
    app()
