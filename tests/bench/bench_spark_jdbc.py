"""Filling a table by `headrace load … --from postgres` with one, two and four tasks, beside one COPY read to its end.

The server, the tasks and the reader of the COPY share the machine's cores: by the clock a second task gains only what Postgres
and the first leave of them, so the busiest task's processor time is told, too. Beside them Spark's own JDBC reader fills the
same table, of which a query is loaded. Writes build/bench/spark-jdbc.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.engine.kernels import warm
from headrace.sidecar.devstack.jars import jars_folder
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.lake.load import Origin
from tests.bench.bench_memory import COLUMNS, GROUPS, TABLE
from tests.bench.loads import busiest, configure, loaded, session, task_seconds
from tests.bench.report import FOLDER, Row, publish, row

ROWS, ROUNDS, TASKS = 3_000_000, 3, (1, 2, 4)
LINEAR = {2: 1.8, 4: 3.2}
"""What so many tasks take in by the busiest one's processor time, as many times as one."""
COPY, ONE, READER = "one psycopg COPY", "one task", "Spark's JDBC reader"


def fill(url: str, rows: int) -> None:
    """Have Postgres hold the table, at rest."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"create table {TABLE} (" + ", ".join(f"{name} {kind}" for name, kind in COLUMNS) + ")")
        db.execute(f"insert into {TABLE} select i, i % {GROUPS}, i::bigint * 7919 % 1000003, 'a note on item ' || i "
                   f"from generate_series(0, {rows - 1}) i")  # fmt: skip
        db.execute(f"alter table {TABLE} add primary key (id)")
        db.execute(f"vacuum (freeze, analyze) {TABLE}")
        db.execute("checkpoint")


def copied(url: str, rows: int) -> float:
    """Read the table by one COPY, and do nothing with it; seconds."""
    names, found = ", ".join(name for name, _ in COLUMNS), 0
    with psycopg.connect(url) as db, db.cursor() as cursor:
        begun = time.perf_counter()
        with cursor.copy(f"copy (select {names} from {TABLE}) to stdout") as copy:
            for _ in copy:  # a row each
                found += 1
        seconds = time.perf_counter() - begun
    assert found == rows
    return seconds


def view_of(spark: Any, url: str, rows: int) -> None:
    """Have the session know the table as `items`, read by its own JDBC reader in two parts."""
    parts = urlsplit(url)
    options = {
        "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}", "user": parts.username or "",
        "password": parts.password or "", "dbtable": TABLE, "driver": "org.postgresql.Driver", "fetchsize": "10000",
        "partitionColumn": "id", "lowerBound": "0", "upperBound": str(rows), "numPartitions": "2",
    }  # fmt: skip
    spark.read.format("jdbc").options(**options).load().createOrReplaceTempView("items")


def measured(rows: int, found: dict[str, list[float]], processor: dict[int, list[float]]) -> list[Row]:
    """Rates by the clock and by the busiest task."""
    rate = {name: rows / statistics.median(some) for name, some in found.items()}
    by_task = {tasks: rows / statistics.median(some) for tasks, some in processor.items()}
    out = [
        row(f"{rows:,} rows from Postgres, 2 tasks, beside {COPY} read to its end", "rows/s", rate["2"], rate[COPY],
            peer=COPY, peer_value=rate[COPY]),
        row(f"{rows:,} rows from Postgres, 2 tasks, beside {READER} of 2 parts", "rows/s", rate["2"], peer=READER,
            peer_value=rate[READER]),
    ]  # fmt: skip
    for tasks in TASKS:
        name = f"{rows:,} rows from Postgres, {tasks} task{'s' if tasks > 1 else ''}"
        several = tasks > 1
        peer, goal = ONE if several else None, LINEAR[tasks] * by_task[1] if tasks in LINEAR else None
        out += [
            row(f"{name}, by the clock", "rows/s", rate[str(tasks)], peer=peer, peer_value=rate["1"] if several else None),
            row(f"{name}, by the busiest task's processor time", "rows/s", by_task[tasks], goal, peer=peer,
                peer_value=by_task[1] if several else None),
        ]  # fmt: skip
    return out


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    warm()
    found: dict[str, list[float]] = defaultdict(list)
    processor: dict[int, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="headrace-jdbc-") as text, ExitStack() as undo:
        folder = Path(text)
        postgres = EmbeddedPostgres(folder / "postgres", settings={"shared_buffers": "512MB"})
        undo.callback(postgres.stop)
        url = postgres.start().url()
        fill(url, chosen.rows)
        config = configure(folder / "load", {"database": url})
        by_query = configure(folder / "query", {"type": "spark"})
        jars = ",".join(str(jar) for jar in jars_folder().glob("org.postgresql.postgresql-*.jar"))
        spark = undo.enter_context(session(folder / "spark", max(TASKS), {"spark.jars": jars}))
        view_of(spark, url, chosen.rows)
        query, origin = Origin("spark", "select * from items"), Origin("postgres")
        for at, rows in ((config, origin), (by_query, query)):  # so that every process is there, and warm
            loaded(at, rows, chosen.rows, max(TASKS), spark)
        for turn in range(chosen.rounds):
            for name in sorted(("1", "2", "4", COPY, READER), reverse=bool(turn % 2)):
                if name == COPY:
                    found[name].append(copied(url, chosen.rows))
                elif name == READER:
                    found[name].append(loaded(by_query, query, chosen.rows, 2, spark))
                else:
                    before = task_seconds()
                    found[name].append(loaded(config, origin, chosen.rows, int(name), spark))
                    processor[int(name)].append(busiest(before, task_seconds()))
    given = [] if chosen.rows == ROWS else [f"--rows {chosen.rows}"]
    given += [] if chosen.rounds == ROUNDS else [f"--rounds {chosen.rounds}"]
    publish("spark-jdbc", measured(chosen.rows, found, processor), folder=FOLDER / "partial" if given else FOLDER,
            arguments=" ".join(given))  # fmt: skip


if __name__ == "__main__":
    main()
