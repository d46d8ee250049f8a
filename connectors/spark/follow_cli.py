"""`headrace-publish follow`: what it is told, and what it prints of each version.

Always: exit codes are those of `headrace-publish`. A version's line is printed once the whole version is in Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer
import yaml

from headrace.connectors.spark import spark_feeds
from headrace.connectors.spark.cli import open_session, pairs, session_folder
from headrace.connectors.spark.datasets import Named, parse
from headrace.connectors.spark.delta_feed import DeltaFeed
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.follow import Followed, follow
from headrace.connectors.spark.iceberg_feed import IcebergFeed
from headrace.connectors.spark.kafka_producer import KafkaWire
from headrace.connectors.spark.lake_feed import Feed, describe
from headrace.engine.errors import HeadraceError


class Reader(StrEnum):
    """What reads a lake table: its files, by libraries without a JVM, or Spark."""

    FILES = "files"
    SPARK = "spark"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    dataset: Annotated[str, typer.Argument(help="'schema.table(key,…)=delta:path' or '…=iceberg:name'")],
    prefix: Annotated[str, typer.Option(help="topic prefix, of this table alone")] = "",
    bootstrap: Annotated[str, typer.Option(help="Kafka's bootstrap servers")] = "",
    kafka: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="any librdkafka setting")] = None,
    source: Annotated[str | None, typer.Option(help="source name in the envelope (default: the prefix)")] = None,
    partitions: Annotated[int, typer.Option(help="partitions of a topic that is created")] = 4,
    replication: Annotated[int, typer.Option(help="replicas of a topic that is created")] = 1,
    storage: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="options of deltalake's or pyiceberg's store")
    ] = None,
    through: Annotated[
        Reader,
        typer.Option(help="what reads the table: files (deltalake, pyiceberg; no JVM), or spark's own change feeds"),
    ] = Reader.FILES,
    spark: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="a setting of the Spark session")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master (default: local threads)")] = None,
    cores: Annotated[int, typer.Option(help="Spark's local threads")] = 2,
    spark_log: Annotated[Path | None, typer.Option(help="file of Spark's own output")] = None,
    available_now: Annotated[bool, typer.Option("--available-now", help="end at the newest version")] = False,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="compare the whole table first")] = False,
    previous: Annotated[
        Path | None, typer.Option(help="a Parquet file of the rows as they were published last, to compare with")
    ] = None,
    loaded: Annotated[int | None, typer.Option(help="go on after this version, or snapshot: it was loaded")] = None,
    pause: Annotated[float, typer.Option(help="seconds between two looks at the table")] = 1.0,
    as_describe: Annotated[
        bool, typer.Option("--describe", help="print the tables: entry of headrace.yaml, no more")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="a JSON object a version instead of text")] = False,
) -> None:
    """Publish each version of a Delta table with a change feed, or each snapshot of an Iceberg table: each is one version, and
    so one epoch."""
    try:
        named = parse(dataset, "delta")
        connection = {"bootstrap.servers": bootstrap, **pairs(kafka, "--kafka")}
        if not as_describe and not (prefix and connection["bootstrap.servers"]):
            raise PublishError("--prefix and --bootstrap are needed to publish", hint="or --describe")
        settings = {**({"spark.master": master} if master else {}), **pairs(spark, "--spark")}
        with opened(named, through, pairs(storage, "--storage"), settings, cores, spark_log) as feed:
            if as_describe:
                entries = {"tables": [describe(feed)]}
                typer.echo(json.dumps(entries) if as_json else yaml.safe_dump(entries, sort_keys=False).rstrip())
                return
            wire = KafkaWire(connection, replication)
            before = None if previous is None else _rows(previous)
            there = None if loaded is None else feed.named(loaded).version
            for done in follow(feed, prefix, wire, partitions=partitions, source=source, snapshot=snapshot, previous=before,
                               loaded=there, until_now=available_now, pause=pause):  # fmt: skip
                _print(done, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except HeadraceError as error:
        typer.echo(json.dumps({"error": error.as_json()}) if as_json else f"error: {error}", err=not as_json)
        raise typer.Exit(1) from error


@contextmanager
def opened(
    named: Named, through: Reader, storage: Mapping[str, str], settings: Mapping[str, str], cores: int, log: Path | None
) -> Iterator[Feed]:
    """What a dataset names, read as `through` says; a Spark session lives as long as that. Raises PublishError."""
    if through is Reader.FILES:
        if settings:
            raise PublishError("--spark and --master go with --through spark", given=", ".join(settings))
        yield feed_of(named, storage)
        return
    if storage:
        raise PublishError("--storage goes with deltalake and pyiceberg", hint="give Spark's own settings by --spark")
    spark_feeds.check_installed()
    log = log or session_folder(None) / "spark.log"
    session = open_session(cores, None, spark_feeds.session_settings([named], settings), log)
    try:
        yield spark_feeds.feed(session, named)
    finally:
        session.stop()


def feed_of(named: Named, storage: Mapping[str, str]) -> Feed:
    """What a dataset names, read without a JVM. Raises PublishError for what has no changes of its own."""
    if named.format == "delta" and named.path is not None:
        return DeltaFeed(named.path, named.table, named.key, storage)
    if named.format == "iceberg" and named.path is not None:
        return IcebergFeed(named.path, named.table, named.key, storage)
    raise spark_feeds.not_followed(named)


def _rows(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise PublishError(f"the rows cannot be read: {str(error).splitlines()[0]}", path=path) from error


def _print(done: Followed, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    n, what = done.counts, "whole table" if done.snapshot else "changes"
    typer.echo(
        f"version {done.version}, attempt {done.attempt}: {what} of the table's {done.of}: "
        f"{n.creates} created, {n.updates} updated, {n.deletes} deleted"
    )
