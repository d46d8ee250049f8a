"""`headrace-publish`: publish datasets as one version from the command line, or describe them for headrace.yaml.

Always: exit code 0 when the version is whole in Kafka (or already was), 1 when it was refused or failed, 2 for wrong
usage. Secrets come by `${env:NAME}` in any option value and are not shown.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from headrace.connectors.spark.datasets import Named, one_snapshot, parse, read, with_path
from headrace.connectors.spark.errors import PublishError, named_errors
from headrace.engine.errors import HeadraceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def publish(
    datasets: Annotated[
        list[str],
        typer.Argument(
            metavar="DATASET…", help="'schema.table(key,…)=[FORMAT:]path', or without '=…' for a JDBC table"
        ),
    ],
    prefix: Annotated[str, typer.Option(help="topic prefix: topics are <prefix>.<schema>.<table>")] = "",
    bootstrap: Annotated[str, typer.Option(help="Kafka's bootstrap servers")] = "",
    kafka: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="any librdkafka setting")] = None,
    state: Annotated[Path | None, typer.Option(help="folder of the last completed snapshots")] = None,
    version: Annotated[int | None, typer.Option(help="version number (default: the next one)")] = None,
    previous: Annotated[list[str] | None, typer.Option(metavar="TABLE=PATH", help="compare with these rows")] = None,
    since: Annotated[
        str | None, typer.Option(help="rows are only added, each with a greater value of this column")
    ] = None,
    source: Annotated[str | None, typer.Option(help="source name in the envelope (default: the prefix)")] = None,
    partitions: Annotated[int, typer.Option(help="partitions of topics that are created")] = 4,
    replication: Annotated[int, typer.Option(help="replicas of topics that are created")] = 1,
    format: Annotated[
        str, typer.Option(help="parquet, csv, json, orc, jdbc …, of datasets that name none")
    ] = "parquet",
    option: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="an option of Spark's reader")] = None,
    spark: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="a setting of the Spark session")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master (default: local threads)")] = None,
    cores: Annotated[int, typer.Option(help="local threads")] = 2,
    spark_log: Annotated[Path | None, typer.Option(help="file of Spark's own output (default: in the state)")] = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="print the tables: entry of headrace.yaml, no more")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of text")] = False,
) -> None:
    """Publish DATASETs as one version: what changed since the last completed one, in Debezium's envelope.

    `headrace-publish follow --help` tells how a lake table's own changes are published, version by version.
    """
    try:
        named = [parse(text, format) for text in datasets]
        options = pairs(option, "--option")
        before = _previous(named, previous)
        settings = {**({"spark.master": master} if master else {}), **pairs(spark, "--spark")}
        log = spark_log or session_folder(state) / "spark.log"
        session = open_session(cores, state, settings, log)
        try:
            with named_errors(log), one_snapshot(named, options) as reading:
                rows = {n.table: read(session, n, reading) for n in named}
                if describe:
                    _print_description(named, rows, as_json)
                    return
                old = {n.table: read(session, n, options) for n in before}
                connection = {"bootstrap.servers": bootstrap, **pairs(kafka, "--kafka")}
                done = _publish(session, named, rows, old, prefix, connection, source, partitions, replication, version,
                                state, since)  # fmt: skip
            _print_published(done, as_json)
        finally:
            session.stop()
    except HeadraceError as error:
        typer.echo(json.dumps({"error": error.as_json()}) if as_json else f"error: {error}", err=not as_json)
        raise typer.Exit(1) from error


def _previous(named: Sequence[Named], texts: list[str] | None) -> list[Named]:
    """What `--previous` names, each a dataset of the same table."""
    by_table = {n.table: n for n in named}
    found = []
    for table, path in pairs(texts, "--previous").items():
        if table not in by_table:
            raise PublishError("--previous names a table that is not published", table=table)
        found.append(with_path(by_table[table], path))
    return found


def _publish(
    session: SparkSession,
    named: Sequence[Named],
    rows: Mapping[str, DataFrame],
    before: Mapping[str, DataFrame],
    prefix: str,
    kafka: dict[str, str],
    source: str | None,
    partitions: int,
    replication: int,
    version: int | None,
    state: Path | None,
    since: str | None,
) -> dict[str, Any]:
    from headrace.connectors.spark.publish import Dataset, Target, publish_version

    if not prefix or not kafka["bootstrap.servers"]:
        raise PublishError("--prefix and --bootstrap are needed to publish", hint="or --describe")
    parts = [Dataset(n.table, rows[n.table], n.key, before.get(n.table), since) for n in named]
    target = Target(prefix, kafka, source, partitions, replication)
    return asdict(publish_version(session, parts, target, version=version, state=state))


def open_session(cores: int, state: Path | None, settings: dict[str, str], log: Path) -> SparkSession:
    """The session of a command, its files below the state folder. Raises PublishError where Spark does not start."""
    try:
        from headrace.connectors.spark.session import local_session
    except ImportError as error:
        raise PublishError(f"Spark is not installed: {error}", hint="pip install 'headrace[spark,embedded]'") from error
    return local_session(session_folder(state), cores=cores, settings=settings, log=log)


def session_folder(state: Path | None) -> Path:
    """Where the session has its files."""
    return (state or Path(".headrace")) / "spark"


def pairs(texts: list[str] | None, where: str) -> dict[str, str]:
    """KEY=VALUE options, with `${env:NAME}` put in. Raises PublishError."""
    found = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise PublishError("not KEY=VALUE", option=where, value=name)
        found[name.strip()] = re.sub(r"\$\{env:(\w+)\}", lambda m: _environment(m[1]), value)
    return found


def _environment(name: str) -> str:
    if name not in os.environ:
        raise PublishError("an environment variable is not set", name=name)
    return os.environ[name]


def _print_description(named: Sequence[Named], rows: Mapping[str, DataFrame], as_json: bool) -> None:
    from headrace.connectors.spark.types import describe

    entries = {"tables": [describe(rows[n.table].schema, n.table, n.key) for n in named]}
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
    if sys.argv[1:2] == ["follow"]:
        from headrace.connectors.spark.follow_cli import app as follow_app

        follow_app(sys.argv[2:], prog_name="headrace-publish follow")
    app()
