"""The Postgres of a trial: one connection with the shop's tables, changes and queries prepared once and sent in pipelines.

Always: a transaction and the queries that are asked after it are one round trip, and each query stands alone: its error
ends no other. Values come as Postgres's own text images; a query's columns (name, type) as Postgres describes them.
The tables are the session's own, so that a trial leaves nothing behind. Called by the oracle's trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from psycopg import pq

from tests.oracle.test_views import Change
from tests.views.shop import TABLES, ddl

Columns = tuple[tuple[str, str], ...]
"""(name, type without modifiers) of each column of an answer."""
SESSION = """
set timezone = 'UTC'; set jit = off; set max_parallel_workers_per_gather = 0; set client_min_messages = error;
"""


@dataclass(frozen=True)
class Table:
    """What a query gives at one time, each cell as text: as many columns as `width`, row after row in `cells`."""

    width: int
    cells: tuple[str | None, ...]


Answer = Table | str
"""Rows, or the message of an error."""


class Server:
    """One session, of one trial after the other. A context manager; its single owner is the run or the test."""

    def __init__(self, url: str) -> None:
        self._connection = pq.PGconn.connect(url.encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise ConnectionError(self._connection.get_error_message())
        self._ask(SESSION + "".join(f"{ddl(t).replace('create table', 'create temp table')};" for t in TABLES))
        self._types = dict(_rows(self._ask("select oid::text, format_type(oid, null) from pg_type")))

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.finish()

    def begin(self, queries: Sequence[str]) -> list[Columns | str]:
        """Empty tables and these queries prepared, named by their place: what each is refused with, or its columns."""
        if self._connection.pipeline_status != pq.PipelineStatus.OFF:
            self._connection.exit_pipeline_mode()
        self._ask(f"deallocate all; truncate {', '.join(TABLES)}")
        self._connection.enter_pipeline_mode()
        for table in TABLES:
            for name, statement in _changes_of(table).items():
                self._connection.send_prepare(name, statement)
        self._connection.pipeline_sync()
        for k, sql in enumerate(queries):
            self._connection.send_prepare(_name(k), sql.encode())
            self._connection.send_describe_prepared(_name(k))
            self._connection.pipeline_sync()
        _, failed = self._segment()
        assert not failed, failed
        found: list[Columns | str] = []
        for _ in queries:
            results, failed = self._segment()
            found.append(failed or self._columns(results[-1]))
        return found

    def transaction(self, changes: Iterable[Change], asked: Iterable[int]) -> Mapping[int, Answer]:
        """These changes committed, and then the answers of the queries that are `asked`."""
        rows = 0
        for change in changes:
            rows += self._change(change)
        self._connection.pipeline_sync()
        wanted = list(asked)
        for k in wanted:
            self._connection.send_query_prepared(_name(k), [])
            self._connection.pipeline_sync()
        results, failed = self._segment()
        assert not failed, failed
        assert sum(r.command_tuples or 0 for r in results) == rows, "a change met no row"
        return {k: self._answer(*self._segment()) for k in wanted}

    def _change(self, change: Change) -> int:
        columns, key = TABLES[change.table]
        rows = 0
        if change.old is not None:
            named = [v for c, v in zip(columns, change.old, strict=True) if key is None or c in key]
            self._connection.send_query_prepared(f"delete_{change.table}".encode(), list(map(_spelled, named)))
            rows += 1
        if change.new is not None:
            self._connection.send_query_prepared(f"insert_{change.table}".encode(), list(map(_spelled, change.new)))
            rows += 1
        return rows

    def _answer(self, results: Sequence[pq.abc.PGresult], failed: str) -> Answer:
        if failed:
            return failed
        [result] = results
        height, width = result.ntuples, result.nfields
        cells = [result.get_value(i, j) for i in range(height) for j in range(width)]
        if not width:
            return Table(1, (None,) * height)
        return Table(width, tuple(None if c is None else c.decode() for c in cells))

    def _columns(self, result: pq.abc.PGresult) -> Columns:
        return tuple(
            ((result.fname(i) or b"").decode(), str(self._types[str(result.ftype(i))])) for i in range(result.nfields)
        )

    def _segment(self) -> tuple[list[pq.abc.PGresult], str]:
        """What the server says up to the next sync, and the message of the error if there was one."""
        found: list[pq.abc.PGresult] = []
        failed, silent = "", False
        while True:
            result = self._connection.get_result()
            if result is None:
                # the end of one command's answer; after two of them there is nothing under way
                if silent:
                    raise ConnectionError(self._connection.get_error_message())
                silent = True
                continue
            silent = False
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return found, failed
            if result.status == pq.ExecStatus.FATAL_ERROR:
                failed = _message(result)
            found.append(result)

    def _ask(self, sql: str) -> pq.abc.PGresult:
        result = self._connection.exec_(sql.encode())
        assert result.status in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK), _message(result)
        return result


def _name(query: int) -> bytes:
    return b"q%d" % query


def _changes_of(table: str) -> dict[bytes, bytes]:
    """The statements that put a row in and take one out, by name; a keyless table may hold the row several times."""
    columns, key = TABLES[table]
    named = [c for c in columns if key is None or c in key]
    same = " and ".join(f"{c}::text is not distinct from ${k}" for k, c in enumerate(named, 1))
    holes = ", ".join(f"${k}" for k in range(1, len(columns) + 1))
    return {
        f"insert_{table}".encode(): f"insert into {table} values ({holes})".encode(),
        f"delete_{table}".encode():
            f"delete from {table} where ctid = (select ctid from {table} where {same} limit 1)".encode(),
    }  # fmt: skip


def _spelled(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _rows(result: pq.abc.PGresult) -> list[tuple[str, str]]:
    return [((result.get_value(i, 0) or b"").decode(), (result.get_value(i, 1) or b"").decode())
            for i in range(result.ntuples)]  # fmt: skip


def _message(result: pq.abc.PGresult) -> str:
    said = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    return said.decode() if said else result.get_error_message()
