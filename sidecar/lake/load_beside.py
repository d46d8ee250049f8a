"""`headrace load` against a running sidecar: tables that it does not read so far are filled by a Spark job, beside all else.

Always: the sidecar takes the tables in before their rows are read, so that no change between is missed; if the load ends early,
it reads them itself. Called by the command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control.client import Client
from headrace.sidecar.lake.empty_state import alone
from headrace.sidecar.lake.inputs import PostgresSnapshot
from headrace.sidecar.lake.load import Loading, Origin, database, declared
from headrace.sidecar.lake.runs import LoadError
from headrace.sidecar.lake.spark_job import LoadJob, Tell, as_load_error, make_session, unheard
from headrace.sidecar.state.batch_store import WRITES
from headrace.sidecar.wiring.run_states import clear_load_place, load_place

Answer = Generator[dict[str, Any]]


def load_beside(
    settings: Settings, tables: Sequence[str], origin: Origin, *, tasks: int | None = None,
    session: Callable[[Settings], Any] | None = None, tell: Tell = unheard,
) -> Loading:  # fmt: skip
    """Have the running sidecar take `tables` in, with the views of the folder, and give it their rows, each table's as one epoch.

    Raises LoadError and what the sidecar raises; the sidecar then reads by itself what it has taken in.
    """
    started, client = time.monotonic(), Client(settings)
    source, schemas = declared(settings, tables)
    if source.type != "debezium" or origin.kind != "postgres":
        raise LoadError("a sidecar that runs takes tables of a Postgres alone", source=source.name,
                        hint="--from postgres; stop it, and load others into an empty state")  # fmt: skip
    with alone(settings), ExitStack() as held:
        url = database(source)
        added = client.ask("/plan", {"drop": False})["tables_added"]
        read = sorted(set(tables) - set(added))
        if read:
            raise LoadError("the sidecar reads the table already, or no view does", table=read[0],
                            hint="`headrace resync` compares it with its source")  # fmt: skip
        spark = (session or make_session)(settings)
        waiting = {table: held.enter_context(closing(_wait(client, table))) for table in tables}
        _take_in(client, tables)
        clear_load_place(settings)
        held.callback(clear_load_place, settings)
        done = Loading(source.name, shards=1, beside=True)
        count = tasks or spark.sparkContext.defaultParallelism
        job = LoadJob(spark, load_place(settings), 1, next(WRITES), tell)
        _give(client, {t: schemas[t] for t in tables}, url, job, count, done)
        for answer in waiting.values():
            for _ in answer:
                pass
    done.seconds = time.monotonic() - started
    return done


def _wait(client: Client, table: str) -> Answer:
    """The sidecar waits for the rows of a table for as long as this answer is held open, and then says what came of it."""
    answer = client.stream("POST", "/fill", {"table": table})
    next(answer)
    return answer


def _take_in(client: Client, tables: Sequence[str]) -> None:
    """Have the folder put in force, and the tables captured. Raises LoadError for one that is not."""
    for told in client.ask("/apply", {"drop": False}).get("tables", ()):
        if told["table"] in tables and told["why"]:
            raise LoadError(f"the table is not captured: {told['why']}", table=told["table"], source=told["source"],
                            hint="mend that; then `headrace resync` has the sidecar read it")  # fmt: skip


def _give(client: Client, schemas: Mapping[str, Schema], url: str, job: LoadJob, tasks: int, done: Loading) -> None:
    """Read the tables in one moment, and give the sidecar the files of each as soon as they are written."""
    try:
        with PostgresSnapshot.at_lsn(url) as moment:
            for table, schema in sorted(schemas.items()):
                files, done.rows[table] = job.read(table, schema, moment.shares(table, tasks))
                job.place.flush()
                told = [(f.name, f.bytes) for f in files]
                client.ask("/filled", {"table": table, "lsn": moment.lsn, "files": told})
    except BaseException as error:
        raise as_load_error(error) from error
