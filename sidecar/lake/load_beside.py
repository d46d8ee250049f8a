"""`headrace load` against a running sidecar: tables that it does not read so far are filled by a Spark job, beside all else.

Always: a table of a database is taken in before its rows are read, so that no change between is missed; if the load ends early
the sidecar reads it itself. A publisher's table is taken in once its files are written, as of one version of its source; if the
load ends early it is unproven until another load. Called by the command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from headrace.connectors.commit_place import CommitPlace, Lsn, Version
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.control.client import Client
from headrace.sidecar.lake.empty_state import alone
from headrace.sidecar.lake.inputs import PostgresSnapshot
from headrace.sidecar.lake.load import Loading, Origin, check_origin, database, declared, shares_of
from headrace.sidecar.lake.runs import LoadError
from headrace.sidecar.lake.spark_job import LoadJob, Tell, as_load_error, make_session, unheard
from headrace.sidecar.state.batch_store import WRITES, BatchFile
from headrace.sidecar.wiring.run_states import clear_load_place, load_place

Answer = Generator[dict[str, Any]]


@dataclass(frozen=True)
class _Beside:
    """One load. `held`: what ends with it."""

    settings: Settings
    client: Client
    source: SourceConfig
    schemas: Mapping[str, Schema]
    held: ExitStack
    done: Loading

    def job(self, spark: Any, tell: Tell) -> LoadJob:
        """Spark's tasks, which write where the sidecar reads; what is there goes with the load."""
        clear_load_place(self.settings)
        self.held.callback(clear_load_place, self.settings)
        return LoadJob(spark, load_place(self.settings), 1, next(WRITES), tell)

    def waiting(self) -> list[Answer]:
        """The sidecar waits for the rows of each table for as long as its answer is held open, and then says what came of it."""
        answers = []
        for table in self.schemas:
            answer = self.held.enter_context(closing(self.client.stream("POST", "/fill", {"table": table})))
            next(answer)
            answers.append(answer)
        return answers

    def give(self, table: str, place: CommitPlace, files: Sequence[BatchFile]) -> None:
        """The files of a table, as of a place of its source, are there."""
        told = [(f.name, f.bytes) for f in files]
        self.client.ask("/filled", {"table": table, place.kind: place.order, "files": told})


def load_beside(
    settings: Settings, tables: Sequence[str], origin: Origin, *, version: int | None = None, tasks: int | None = None,
    session: Callable[[Settings], Any] | None = None, tell: Tell = unheard,
) -> Loading:  # fmt: skip
    """Have the running sidecar take `tables` in, with the views of the folder, and give it their rows, each table's as one epoch.
    `version`: the version that files are, of a spark source: that at which it stands unless given, of a lake table that by which
    it is followed.

    Raises LoadError and what the sidecar raises.
    """
    started, client = time.monotonic(), Client(settings)
    source, schemas = declared(settings, tables)
    check_origin(source, origin, tables)
    with alone(settings), ExitStack() as held:
        done = Loading(source.name, shards=1, beside=True)
        load = _Beside(settings, client, source, {t: schemas[t] for t in sorted(tables)}, held, done)
        if source.type == "spark":
            _from_files(load, origin, version, tasks, session or make_session, tell)
        else:
            _from_database(load, tasks, session or make_session, tell)
    done.seconds = time.monotonic() - started
    return done


def _from_database(load: _Beside, tasks: int | None, session: Callable[[Settings], Any], tell: Tell) -> None:
    """Have the tables captured, then read them in one moment, and give the sidecar the files of each once they are written."""
    url = database(load.source)
    added = load.client.ask("/plan", {"drop": False})["tables_added"]
    _refuse_read(sorted(load.schemas.keys() - set(added)), "`headrace resync` compares it with its source")
    spark = session(load.settings)
    waiting = load.waiting()
    _take_in(load.client, load.schemas.keys())
    job, count = load.job(spark, tell), tasks or spark.sparkContext.defaultParallelism
    _give(load, url, job, count)
    _hear(waiting)


def _give(load: _Beside, url: str, job: LoadJob, tasks: int) -> None:
    try:
        with PostgresSnapshot.at_lsn(url) as moment:
            for table, schema in load.schemas.items():
                files, load.done.rows[table] = job.read(table, schema, moment.shares(table, tasks))
                job.place.flush()
                load.give(table, Lsn(moment.lsn), files)
    except BaseException as error:
        raise as_load_error(error) from error


def _from_files(
    load: _Beside, origin: Origin, version: int | None, tasks: int | None, session: Callable[[Settings], Any], tell: Tell
) -> None:  # fmt: skip
    """Write the files of all tables, then have the sidecar take the tables in as of their version, and give it the files."""
    origin, of_lake = origin.settled()
    asked = of_lake if version is None and origin.kind in ("delta", "iceberg") else version
    plan = load.client.ask("/plan", {"drop": False, "filled": dict.fromkeys(load.schemas, asked)})
    unread = load.schemas.keys() - set(plan["tables_added"]) - set(plan["unfilled"])
    _refuse_read(sorted(unread), "let a view read it, or let it have `keep: true`")
    versions: Mapping[str, int] = plan["versions"]
    spark = session(load.settings)
    job, count = load.job(spark, tell), tasks or spark.sparkContext.defaultParallelism
    files: dict[str, list[BatchFile]] = {}
    try:
        for table, schema in load.schemas.items():
            files[table], load.done.rows[table] = job.read(table, schema, shares_of(origin, table, count))
        job.place.flush()
    except BaseException as error:
        raise as_load_error(error) from error
    waiting = load.waiting()
    load.client.ask("/apply", {"drop": False, "filled": versions})
    for table, some in files.items():
        load.give(table, Version(versions[table]), some)
    _hear(waiting)


def _refuse_read(tables: Sequence[str], hint: str) -> None:
    if tables:
        raise LoadError("the sidecar reads the table already, or no view does", table=tables[0], hint=hint)


def _take_in(client: Client, tables: Collection[str]) -> None:
    """Have the folder put in force, and the tables captured. Raises LoadError for one that is not."""
    for told in client.ask("/apply", {"drop": False}).get("tables", ()):
        if told["table"] in tables and told["why"]:
            raise LoadError(f"the table is not captured: {told['why']}", table=told["table"], source=told["source"],
                            hint="mend that; then `headrace resync` has the sidecar read it")  # fmt: skip


def _hear(waiting: Sequence[Answer]) -> None:
    """Until the sidecar has taken in all that it was given. Raises what it raised."""
    for answer in waiting:
        for _ in answer:
            pass
