"""Postgres's own WITH RECURSIVE: what one run of a query costs, from nothing, and the checksum of its answer.

Always: one process, without parallel workers and JIT, on rows that are indexed and analyzed; the answer is written to an
unlogged table within what is timed, as whoever keeps it has it, and is read out of it outside. Called by bench_recursion.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import psycopg

from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from tests.bench.peers.program_data import Facts
from tests.bench.peers.programs import COLUMNS, Content
from tests.oracle.test_views import connect
from tests.oracle.tpch.__main__ import SETTINGS

NAME = "Postgres 18, anew"


class Server:
    """One connection to a server of its own."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._backend = psutil.Process(connection.info.backend_pid)

    def load(self, relations: Mapping[str, Facts], columns: tuple[str, ...] = COLUMNS) -> None:
        """Tables of these rows, in the place of what had their names; each column is indexed."""
        for name, facts in relations.items():
            own = columns[: facts.shape[1]]
            self._connection.execute(f"drop table if exists {name}")
            self._connection.execute(f"create unlogged table {name} ({', '.join(f'{c} bigint' for c in own)})")
            with self._connection.cursor() as cursor, cursor.copy(f"copy {name} from stdin") as copy:
                for start in range(0, len(facts), 100_000):
                    lines = ("\t".join(map(str, row)) for row in facts[start : start + 100_000].tolist())
                    copy.write("".join(f"{line}\n" for line in lines))
            for column in own:
                self._connection.execute(f"create index on {name} ({column})")
            self._connection.execute(f"analyze {name}")

    def execute(self, sql: str) -> None:
        """One statement."""
        self._connection.execute(sql)

    def run(self, sql: str) -> float:
        """Processor seconds of a query, its answer in the table `answer`."""
        self._connection.execute("drop table if exists answer")
        before = sum(self._backend.cpu_times()[:2])
        self._connection.execute(f"create unlogged table answer as {sql}")
        return float(sum(self._backend.cpu_times()[:2]) - before)

    def checksum(self) -> str:
        """Of the last answer, as a session that held it after one epoch has it."""
        with self._connection.cursor() as cursor, cursor.copy("copy answer to stdout") as copy:
            parts = [bytes(part) for part in copy]
        lines = b"".join(parts)
        wide = lines.partition(b"\n")[0].count(b"\t") + 1
        numbers = np.array(lines.split(), "S").astype(np.int64).reshape(-1, wide)
        content = Content()
        content.add(0, list(np.ascontiguousarray(numbers.T)), np.ones(len(numbers), np.int64))
        content.close()
        return f"{content.chain:016x}"


@contextmanager
def server() -> Iterator[Server]:
    """A server in a folder that goes with it."""
    settings = SETTINGS | {"max_parallel_workers_per_gather": "0"}
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder), settings=settings) as postgres,
        connect(postgres, "bench") as connection,
    ):
        yield Server(connection)
