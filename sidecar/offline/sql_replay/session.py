"""The script's one session with its Postgres: a statement in, its rows as text out, errors as values.

Always: every value is the text that the type's output function gives under the session's fixed settings (UTC, ISO
dates), read at libpq's own door so that nothing converts it. Called by the capture and the script's run.
"""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import pq

Row = tuple[str | None, ...]
SECONDS = 20
"""How long one statement may take."""

FIXED = {
    "timezone": "UTC",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "statement_timeout": f"{SECONDS}s",
}
"""Settings under which a view prints its values; a script's SET of one of them is not executed."""

HELD = {*FIXED, "time", "role", "authorization", "client_encoding"} - {"statement_timeout"}
"""The words after SET that would change what values look like, or who reads them."""


@dataclass(frozen=True)
class Failure:
    """The error by which Postgres refused a statement. `lost`: it ended the session."""

    sqlstate: str
    message: str
    lost: bool = False

    @property
    def is_data(self) -> bool:
        """Whether it depends on the rows (a division by zero, two rows of a scalar subquery), not on the statement."""
        # Some that depend on them share their code with what a statement may have wrong.
        shared = self.message.startswith(
            ("could not find jsonpath variable", "invalid Unicode", "invalid range bound flags")
        )
        return shared or self.sqlstate[:2] in ("21", "22", "23")


@dataclass(frozen=True)
class Result:
    """What a statement gave: `columns` name and type OID each, or none where it returns no rows."""

    columns: tuple[tuple[str, int], ...] = ()
    rows: tuple[Row, ...] = ()
    is_query: bool = False


class Session:
    """One connection. Single writer: the script's run."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open()

    def _open(self) -> None:
        options = " ".join(f"-c {k}={v.replace(' ', chr(92) + ' ')}" for k, v in FIXED.items())
        self._connection = psycopg.connect(self._url, autocommit=True, options=options, client_encoding="utf8")

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    @property
    def idle(self) -> bool:
        """Whether no transaction is open."""
        return self._connection.pgconn.transaction_status == pq.TransactionStatus.IDLE

    @property
    def failed(self) -> bool:
        """Whether the open transaction only waits for its ROLLBACK."""
        return self._connection.pgconn.transaction_status == pq.TransactionStatus.INERROR

    def run(self, sql: str, data: str | None = None) -> Result | Failure:
        """Execute one statement; `data` is what a COPY FROM stdin reads. A lost session is opened anew."""
        raw = sql.encode("utf-8", "replace")
        if b"\0" in raw:
            return Failure("22021", "invalid byte sequence for encoding: 0x00")
        pgconn = self._connection.pgconn
        try:
            result = pgconn.exec_(raw)
            if result.status == pq.ExecStatus.COPY_IN:
                result = self._copy_in(data or "")
            elif result.status == pq.ExecStatus.COPY_OUT:
                while pgconn.get_copy_data(0)[0] > 0:
                    continue
                return Result()
            found = _read(result)
            while (more := pgconn.get_result()) is not None:
                found = _read(more)
        except psycopg.Error as error:
            self._open()
            return Failure("08006", str(error).strip() or "the session was lost", lost=True)
        if pgconn.status != pq.ConnStatus.OK:
            self._open()
            return Failure("08006", found.message if isinstance(found, Failure) else "the session was lost", lost=True)
        return found

    def ask(self, sql: str) -> Result:
        """A question of our own. Raises SourceError where Postgres refuses it."""
        found = self.run(sql)
        if isinstance(found, Failure):
            raise SourceError(found)
        return found

    def _copy_in(self, data: str) -> pq.abc.PGresult:
        pgconn = self._connection.pgconn
        pgconn.put_copy_data(data.encode("utf-8", "replace"))
        pgconn.put_copy_end()
        result = pgconn.get_result()
        assert result is not None, "a COPY ends with a result"
        return result


class SourceError(Exception):
    """Postgres refused a question of ours: what it said."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _read(result: pq.abc.PGresult) -> Result | Failure:
    status = pq.ExecStatus
    if result.status == status.TUPLES_OK:
        columns = tuple((_text(result.fname(i)) or "", result.ftype(i)) for i in range(result.nfields))
        width = range(result.nfields)
        rows = tuple(tuple(_text(result.get_value(i, j)) for j in width) for i in range(result.ntuples))
        return Result(columns, rows, is_query=True)
    if result.status in (status.COMMAND_OK, status.EMPTY_QUERY):
        return Result()
    state = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    return Failure(_text(state) or "08006", _text(message) or _text(result.error_message) or "unknown")


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")
