"""`headrace load`: fill the tables of a source in an empty state, by a Spark job, and let `headrace run` go on from there.

Always: the state is as it was until everything is written and checked; then it holds a checkpoint of epoch 1. Rows go through no
shuffle of Spark's: tasks write sorted runs into the state's folder, which they must reach by the same path, or its store. Called
by the command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.connectors.commit_place import Lsn, Version
from headrace.connectors.sink import SourceFrontier
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.lake.empty_state import complete, taken
from headrace.sidecar.lake.inputs import (
    PostgresSnapshot,
    Share,
    delta_shares,
    delta_version,
    iceberg_shares,
    iceberg_snapshot,
    parquet_shares,
)
from headrace.sidecar.lake.runs import EPOCH, LoadError
from headrace.sidecar.lake.spark_job import LoadJob, Query, Tell, as_load_error, make_session, unheard
from headrace.sidecar.state.batch_store import WRITES, BatchFile, Files
from headrace.sidecar.state.checkpoint import Manifest, table_facts
from headrace.sidecar.transactions.pg_snapshot import LOADED, Loaded
from headrace.sidecar.wiring.factories import program
from headrace.sidecar.wiring.project import kept_tables, read_project, tables_of


@dataclass(frozen=True)
class Origin:
    """Where the rows come from: `kind` parquet, delta or iceberg with a `path` in which {table} stands for each, spark whose
    `path` is a query of its SQL, or postgres, the source's own. `at`: the version of a Delta table, or the snapshot of an
    Iceberg one; its newest unless given."""

    kind: str
    path: str = ""
    at: int | None = None

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Read `--from`. Raises LoadError."""
        kind, _, path = text.partition(":")
        if kind in ("parquet", "spark") and path:
            return cls(kind, path)
        if kind in ("delta", "iceberg") and path:
            place, _, version = path.rpartition("@")
            return cls(kind, place, int(version)) if place and version.isdecimal() else cls(kind, path)
        if text in ("postgres", "jdbc"):
            return cls("postgres")
        raise LoadError(
            "not a place to load from", value=text,
            hint="--from parquet:PATH, with {table} where there are several, delta:PATH@VERSION, iceberg:NAME@SNAPSHOT, "
            "spark:QUERY, or postgres",
        )  # fmt: skip

    def settled(self) -> tuple[Origin, int]:
        """The same, of one version for all tasks, and which version of a spark source that is. Raises LoadError, PublishError."""
        if self.kind == "delta":
            version = delta_version(self.path, self.at)
            return replace(self, at=version), version + 1
        if self.kind == "iceberg":
            snapshot, number = iceberg_snapshot(self.path, self.at)
            return replace(self, at=snapshot), number
        return self, 1


@dataclass
class Loading:
    """What a load did. `rows`: by table; `repeated`: it was done before, and the state has the same; `beside`: a running sidecar
    took the tables in."""

    source: str
    rows: dict[str, int] = field(default_factory=dict)
    shards: int = 1
    seconds: float = 0.0
    generation: int = 0
    repeated: bool = False
    beside: bool = False

    def json(self) -> Mapping[str, object]:
        """As the command prints it."""
        return {"source": self.source, "rows": dict(self.rows), "shards": self.shards,
                "seconds": round(self.seconds, 3), "generation": self.generation, "repeated": self.repeated,
                "beside": self.beside}  # fmt: skip


def load_tables(
    settings: Settings, tables: Sequence[str], origin: Origin, *, version: int | None = None, tasks: int | None = None,
    repeat: bool = False, session: Callable[[Settings], Any] | None = None, tell: Tell = unheard,
) -> Loading:  # fmt: skip
    """Fill `tables` from `origin`. Raises LoadError, and nothing of it stays. `session`: makes the Spark session; `tell`: as
    that of LoadJob.
    `version`: the version that files are, of a spark source: 1 unless given, of a lake table that by which it is followed.
    `repeat`: where the state was loaded already, see that the same input gives the same files.
    """
    started = time.monotonic()
    source, used = _chosen(settings, tables)
    check_origin(source, origin, tables, repeat=repeat)
    origin, number = origin.settled()
    with taken(settings, repeated=repeat) as (state, before):
        spark = (session or make_session)(settings)
        count = _tasks_before(before, source) or tasks or spark.sparkContext.defaultParallelism
        done = Loading(source.name, {}, settings.config.engine.workers, 0.0, state.number, before is not None)
        job = LoadJob(spark, state.place, done.shards, next(WRITES), tell)
        files: dict[str, Files] = {}
        try:
            with PostgresSnapshot.of_now(database(source)) if origin.kind == "postgres" else nullcontext() as held:
                for table in sorted(used):
                    rows = shares_of(origin, table, count, held) if table in tables else []
                    files[table], done.rows[table] = job.fill(table, used[table], rows)
            state.place.flush()
        except BaseException as error:
            raise as_load_error(error) from error
        if before is not None:
            _check_same(before, files)
            state.discard()
        else:
            loaded = None if held is None else Loaded(held.seen, held.lsn)
            complete(state, _manifest(source, used, files, done, version or number, loaded, count))
    done.seconds = time.monotonic() - started
    return done


def _chosen(settings: Settings, tables: Sequence[str]) -> tuple[SourceConfig, dict[str, Schema]]:
    """The source of the tables, and every table that a run will read. Raises LoadError."""
    source, _ = declared(settings, tables)
    project, by_source = read_project(settings), _sources(settings)
    used = {t for v in project.compile() for t in tables_of(v)} | kept_tables(settings)
    missing = sorted(t for t in used if by_source[t] is source and t not in tables)
    if missing:
        raise LoadError("tables of the source would begin empty", source=source.name, missing=", ".join(missing),
                        hint="a source goes on from one moment: name all of its tables that are read")  # fmt: skip
    idle = sorted(set(tables) - used)
    if idle:
        raise LoadError("no view reads the table", table=idle[0], hint="or let it have `keep: true`")
    return source, {t: s for t, s in project.tables.items() if t in used}


def _sources(settings: Settings) -> dict[str, SourceConfig]:
    return {t.name: s for s in settings.config.sources for t in s.tables or ()}


def declared(settings: Settings, tables: Sequence[str]) -> tuple[SourceConfig, Mapping[str, Schema]]:
    """The one source of the tables, and all tables that are declared. Raises LoadError."""
    project = read_project(settings)
    if project.unknown:
        raise LoadError("the columns of a table are told by messages alone", tables=", ".join(project.unknown),
                        hint="declare them: `headrace init` writes them")  # fmt: skip
    by_source = _sources(settings)
    for table in tables:
        if table not in by_source:
            raise LoadError("there is no such table", table=table, tables=", ".join(sorted(by_source)))
    sources = {by_source[t].name: by_source[t] for t in tables}
    if len(sources) != 1:
        raise LoadError("the tables of one source are loaded", sources=", ".join(sorted(sources)) or "none")
    return next(iter(sources.values())), project.tables


def check_origin(source: SourceConfig, origin: Origin, tables: Sequence[str], *, repeat: bool = False) -> None:
    """Raise LoadError where the tables of a source cannot be had from there."""
    if origin.kind == "spark" and repeat:
        raise LoadError("a query need not give its rows to the same tasks again",
                        hint="--repeat goes with files and lake tables")  # fmt: skip
    if origin.kind in ("delta", "iceberg") and len(tables) > 1:
        raise LoadError("versions of several lake tables are of no common clock", tables=", ".join(tables),
                        hint="one source a table")  # fmt: skip
    if source.type == "spark" and origin.kind == "postgres":
        raise LoadError("a spark source has no database", source=source.name, hint="--from parquet:PATH")
    if source.type != "spark" and origin.kind != "postgres":
        raise LoadError(
            "files do not say which transactions of the source they hold", source=source.name,
            hint="--from postgres reads one moment of it; --from parquet goes with sources of type spark",
        )  # fmt: skip


def database(source: SourceConfig) -> str:
    """The address of the database of a source. Raises LoadError."""
    if source.database is None:
        raise LoadError("the source's database is not known", source=source.name,
                        hint="give its address as `database:` of the source in headrace.yaml")  # fmt: skip
    return source.database.get_secret_value()


def _tasks_before(before: Manifest | None, source: SourceConfig) -> int | None:
    """Of how many tasks the load was that is repeated. Raises LoadError where the state is no load any more."""
    if before is None:
        return None
    noted = before.remembered.get(source.name, {}).get(LOADED, {})
    if before.epoch != EPOCH or "tasks" not in noted:
        raise LoadError("the state has gone on since it was loaded", epoch=before.epoch,
                        hint="there is nothing to repeat: `headrace run` has taken it over")  # fmt: skip
    return int(noted["tasks"])


def _check_same(before: Manifest, files: Mapping[str, Files]) -> None:
    """Raise LoadError for the tables whose files are others than those of the load before."""

    def digests(some: Sequence[BatchFile]) -> list[tuple[int, str]]:
        return sorted((f.shard, f.name.partition(".")[0]) for f in some)

    was = before.arrangements
    changed = [t for t, of in files.items() if any(digests(was.get(n, ())) != digests(some) for n, some in of.items())]
    if changed or len(was) != sum(map(len, files.values())):
        raise LoadError("the input is not what was loaded", changed=", ".join(changed) or "the tables",
                        hint="the state stays as it was loaded; load what there is now into an empty one")  # fmt: skip


def shares_of(
    origin: Origin, table: str, tasks: int, held: PostgresSnapshot | None = None
) -> Sequence[Share] | Query:  # fmt: skip
    """A table's rows, in as many shares as there are tasks at most. Raises LoadError, PublishError."""
    if held is not None:
        return held.shares(table, tasks)
    path = origin.path.replace("{table}", table)
    if origin.kind == "spark":
        return Query(path)
    if origin.kind == "delta" and origin.at is not None:
        return delta_shares(path, origin.at, table, tasks)
    if origin.kind == "iceberg" and origin.at is not None:
        return iceberg_shares(path, origin.at, tasks)
    return parquet_shares(path, table, tasks)


def _manifest(
    source: SourceConfig, used: Mapping[str, Schema], files: Mapping[str, Files], done: Loading, version: int,
    loaded: Loaded | None, tasks: int,
) -> Manifest:  # fmt: skip
    """Of the loaded tables at epoch 1. What was loaded is remembered of the source, as no log of epochs tells it."""
    how, commands = {"tasks": tasks, "rows": done.rows}, dict[str, object]()
    if loaded is None:
        frontier = SourceFrontier({}, Version(version), time.time_ns() // 1000)
        known = {"version": version, LOADED: how}
        commands = {"resynced": dict.fromkeys(used, version)}  # whatever a load beside an earlier run had noted of them
    else:
        frontier = SourceFrontier({}, Lsn(0), 0)
        known = {LOADED: {**loaded.json(), **how}}
    arrangements = {name: some for of in files.values() for name, some in of.items()}
    return Manifest(
        epoch=EPOCH, sources={source.name: frontier}, arrangements=arrangements, tables=table_facts(used), program=program(),
        workers=done.shards, remembered={source.name: known}, commands=commands,
    )  # fmt: skip
