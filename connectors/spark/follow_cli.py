"""`headrace-publish follow`: what it is told, and what it prints of each version.

Always: exit codes are those of `headrace-publish`. A version's line is printed once the whole version is in Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq
import typer
import yaml

from headrace.connectors.spark import spark_feeds
from headrace.connectors.spark.cli import open_session, pairs, session_folder
from headrace.connectors.spark.common_clock import CommonClock, Instant
from headrace.connectors.spark.datasets import Named, parse
from headrace.connectors.spark.delta_feed import DeltaFeed
from headrace.connectors.spark.envelope import TableCounts
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.follow import Followed, follow
from headrace.connectors.spark.iceberg_feed import IcebergFeed
from headrace.connectors.spark.kafka_producer import KafkaWire, Wire
from headrace.connectors.spark.lake_feed import Feed, describe
from headrace.engine.errors import HeadraceError


class Reader(StrEnum):
    """What reads a lake table: its files, by libraries without a JVM, or Spark."""

    FILES = "files"
    SPARK = "spark"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    datasets: Annotated[
        list[str], typer.Argument(metavar="DATASET…", help="'schema.table(key,…)=delta:path' or '…=iceberg:name'")
    ],
    prefix: Annotated[str, typer.Option(help="topic prefix, of this table, or these, alone")] = "",
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
        list[str] | None,
        typer.Option(metavar="[TABLE=]FILE", help="Parquet of the rows as they were published last, to compare with"),
    ] = None,
    loaded: Annotated[
        list[str] | None,
        typer.Option(metavar="[TABLE=]N", help="go on after this version, or snapshot: it was loaded"),
    ] = None,
    common_clock: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="several tables are one source: commits with no longer pauses are one version",
        ),
    ] = None,
    pause: Annotated[float, typer.Option(help="seconds between two looks at the table")] = 1.0,
    as_describe: Annotated[
        bool, typer.Option("--describe", help="print the tables: entry of headrace.yaml, no more")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="a JSON object a version instead of text")] = False,
) -> None:
    """Publish each version of a Delta table with a change feed, or each snapshot of an Iceberg table: each is one version, and
    so one epoch. By a common clock what one job wrote into several tables is one."""
    try:
        named = [parse(text, "delta") for text in datasets]
        if len(named) > 1 and common_clock is None and not as_describe:
            raise PublishError("several tables need a common clock", tables=", ".join(n.table for n in named),
                               hint="--common-clock SECONDS, or a command and a prefix for each")  # fmt: skip
        connection = {"bootstrap.servers": bootstrap, **pairs(kafka, "--kafka")}
        if not as_describe and not (prefix and connection["bootstrap.servers"]):
            raise PublishError("--prefix and --bootstrap are needed to publish", hint="or --describe")
        settings = {**({"spark.master": master} if master else {}), **pairs(spark, "--spark")}
        with opened(named, through, pairs(storage, "--storage"), settings, cores, spark_log) as feeds:
            if as_describe:
                entries = {"tables": [describe(feed) for feed in feeds]}
                typer.echo(json.dumps(entries) if as_json else yaml.safe_dump(entries, sort_keys=False).rstrip())
                return
            wanted = Wanted(
                prefix=prefix, partitions=partitions, source=source, snapshot=snapshot, until_now=available_now, look=pause,
                previous={t: _rows(Path(file)) for t, file in _by_table(previous, named, "--previous").items()},
                loaded={t: _number(n) for t, n in _by_table(loaded, named, "--loaded").items()}, pause=common_clock,
            )  # fmt: skip
            for done in published(feeds, KafkaWire(connection, replication), wanted):
                _print(done, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except HeadraceError as error:
        typer.echo(json.dumps({"error": error.as_json()}) if as_json else f"error: {error}", err=not as_json)
        raise typer.Exit(1) from error


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How tables are followed: where to, from where on, until when. `pause`: of the common clock that they have, if any, in
    seconds; `look`: seconds between two looks at the tables; `loaded`: as the lake calls the versions."""

    prefix: str
    partitions: int
    source: str | None
    snapshot: bool
    previous: Mapping[str, pa.Table]
    loaded: Mapping[str, int]
    until_now: bool
    look: float
    pause: float | None


def published(feeds: Sequence[Feed], wire: Wire, wanted: Wanted) -> Iterator[Followed | Instant]:
    """Publish what the topics lack, and give each version. Raises PublishError."""
    there = {f.table: f.named(wanted.loaded[f.table]).version for f in feeds if f.table in wanted.loaded}
    if wanted.pause is not None:
        clock = CommonClock(feeds, wanted.prefix, wire, pause=wanted.pause, partitions=wanted.partitions,
                            source=wanted.source, loaded=there)  # fmt: skip
        yield from clock.follow(snapshot=wanted.snapshot, previous=wanted.previous, until_now=wanted.until_now,
                                look=wanted.look)  # fmt: skip
        return
    [feed] = feeds
    yield from follow(feed, wanted.prefix, wire, partitions=wanted.partitions, source=wanted.source, snapshot=wanted.snapshot,
                      previous=wanted.previous.get(feed.table), loaded=there.get(feed.table), until_now=wanted.until_now,
                      pause=wanted.look)  # fmt: skip


@contextmanager
def opened(
    named: Sequence[Named], through: Reader, storage: Mapping[str, str], settings: Mapping[str, str], cores: int,
    log: Path | None,
) -> Iterator[list[Feed]]:  # fmt: skip
    """What the datasets name, read as `through` says; a Spark session lives as long as that. Raises PublishError."""
    if through is Reader.FILES:
        if settings:
            raise PublishError("--spark and --master go with --through spark", given=", ".join(settings))
        yield [feed_of(dataset, storage) for dataset in named]
        return
    if storage:
        raise PublishError("--storage goes with deltalake and pyiceberg", hint="give Spark's own settings by --spark")
    spark_feeds.check_installed()
    log = log or session_folder(None) / "spark.log"
    session = open_session(cores, None, spark_feeds.session_settings(named, settings), log)
    try:
        yield [spark_feeds.feed(session, dataset) for dataset in named]
    finally:
        session.stop()


def feed_of(named: Named, storage: Mapping[str, str]) -> Feed:
    """What a dataset names, read without a JVM. Raises PublishError for what has no changes of its own."""
    if named.format == "delta" and named.path is not None:
        return DeltaFeed(named.path, named.table, named.key, storage)
    if named.format == "iceberg" and named.path is not None:
        return IcebergFeed(named.path, named.table, named.key, storage)
    raise spark_feeds.not_followed(named)


def _by_table(texts: Sequence[str] | None, named: Sequence[Named], option: str) -> dict[str, str]:
    """TABLE=VALUE options, by table; of one table its name may be left out. Raises PublishError."""
    tables = [n.table for n in named]
    found = {}
    for text in texts or ():
        table, equals, value = text.partition("=")
        if len(tables) == 1 and table not in tables:
            table, equals, value = tables[0], "=", text
        if not equals or table not in tables:
            raise PublishError(f"{option} names a table that is not followed", value=text, tables=", ".join(tables),
                               hint=f"{option} TABLE=…")  # fmt: skip
        found[table] = value
    return found


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise PublishError("--loaded needs the number of a version, or of a snapshot", value=text) from error


def _rows(path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise PublishError(f"the rows cannot be read: {str(error).splitlines()[0]}", path=path) from error


def _print(done: Followed | Instant, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    head = f"version {done.version}, attempt {done.attempt}:"
    if isinstance(done, Followed):
        what = "whole table" if done.snapshot else "changes"
        typer.echo(f"{head} {what} of the table's {done.of}: {_counted(done.counts)}")
        return
    typer.echo(f"{head} {'whole tables' if done.snapshot else 'changes'}")
    for table, counts in done.tables.items():
        typer.echo(f"  {table} at its {done.of[table]}: {_counted(counts)}")
    if done.late:
        typer.echo(f"  late: {', '.join(done.late)}")


def _counted(n: TableCounts) -> str:
    return f"{n.creates} created, {n.updates} updated, {n.deletes} deleted"
