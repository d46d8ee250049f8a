"""Prepared statements of one session, sent together and answered together: one wait for any number of them.

Always: what `run` returned was executed in the order it was sent; after an error nothing of the rest was, and the first
error is raised once every answer is in. The driver's own pipeline waits at each statement, so libpq's calls are used
here. Called by the sink, which owns the connection and ends the transaction.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import pq

from headrace.connectors.postgres.connection import Connection
from headrace.connectors.sink import SinkError


@dataclass(frozen=True)
class Step:
    """A statement with `$1` … for its parameters, which are sent as text. `rows`: how many rows of `view` it must touch;
    `comes`: by putting them in."""

    statement: bytes
    params: Sequence[bytes | None] = ()
    rows: int | None = None
    view: str = ""
    comes: bool = False

    def check(self, sink: str, touched: int) -> None:
        """Raises SinkError when the statement touched another number of rows than it must."""
        if self.rows is not None and touched != self.rows:
            raise (kept_out if self.comes else changed_by_another)(sink, self.view, touched, self.rows)


def changed_by_another(sink: str, view: str, touched: int, rows: int) -> SinkError:
    """The table of a view does not hold what was written to it."""
    return SinkError(
        f"the table holds {touched} of {rows} rows that must go: somebody else changed it",
        hint="the view is compared and mended by itself; let nobody but the sink write to its tables",
        sink=sink,
        view=view,
    )


def kept_out(sink: str, view: str, touched: int, rows: int) -> SinkError:
    """The table of a view did not take what was written to it."""
    return SinkError(
        f"the table took {touched} of {rows} rows: a trigger or a rule on it drops the others",
        hint="the table is the sink's: take the trigger or the rule away",
        sink=sink,
        view=view,
    )


BEGIN = Step(b"BEGIN")
_DONE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)


class Pipeline:
    """The statements that one session has prepared so far. Single user: the sink, between the driver's own calls."""

    def __init__(self, connection: Connection) -> None:
        self._session = connection.pgconn
        self._prepared: dict[bytes, bytes] = {}
        self._named = 0

    def run(self, steps: Sequence[Step]) -> list[int]:
        """How many rows each step touched. Raises psycopg.Error; a lost session is left as it is, to be closed."""
        session = self._session
        session.enter_pipeline_mode()
        fresh: dict[int, bytes] = {}
        count = 0
        for step in steps:
            name = self._prepared.get(step.statement)
            if name is None:
                self._named += 1
                name = b"headrace_%d" % self._named
                session.send_prepare(name, step.statement)
                self._prepared[step.statement] = name
                fresh[count] = step.statement
                count += 1
            session.send_query_prepared(name, step.params)
            count += 1
        session.pipeline_sync()
        self._flush()
        results = [self._result() for _ in range(count)]
        while (end := self._next()) is None or end.status != pq.ExecStatus.PIPELINE_SYNC:
            self._check_alive()
        session.exit_pipeline_mode()
        for at, statement in fresh.items():
            if results[at].status not in _DONE:
                del self._prepared[statement]
        for result in results:
            if result.status not in _DONE:
                raise psycopg.errors.error_from_result(result)
        return [r.command_tuples or 0 for at, r in enumerate(results) if at not in fresh]

    def _flush(self) -> None:
        while self._session.flush():
            self._wait(select.POLLIN | select.POLLOUT)

    def _wait(self, events: int) -> None:
        """Until the socket is ready, without holding other threads up; then take in what came."""
        poll = select.poll()
        poll.register(self._session.socket, events)
        for _, ready in poll.poll():
            if ready != select.POLLOUT:
                self._session.consume_input()

    def _next(self) -> pq.abc.PGresult | None:
        while self._session.is_busy():
            self._wait(select.POLLIN)
        return self._session.get_result()

    def _result(self) -> pq.abc.PGresult:
        """The next command's result, and the end that follows it."""
        result = self._next()
        self._check_alive()
        if result is None or self._next() is not None:
            raise psycopg.InterfaceError("the server's answers are out of step")
        return result

    def _check_alive(self) -> None:
        if self._session.status == pq.ConnStatus.BAD:
            raise psycopg.OperationalError(self._session.get_error_message())
