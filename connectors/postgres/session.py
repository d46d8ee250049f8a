"""One connection to the target database, and what its failures mean: lost, to be repeated, or refused.

Always: no message carries the URL's secrets, and a connection is found dead within half a minute. Called by the sink.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import conninfo

from connectors.sink import SinkError

Connection = psycopg.Connection[tuple[Any, ...]]

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}

REPEATABLE = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
)
"""Postgres rolled the transaction back and asks for it to be tried again."""

_SESSION = (
    "SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres'; SET timezone = 'UTC'; "
    "SET client_min_messages = warning; SET client_encoding = 'UTF8'; "
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
"""Texts mean the same whatever the database's defaults, and a COMMIT that returned is on disk."""


class Target:
    """Where a sink writes. `place` names it without secrets."""

    def __init__(self, sink: str, url: str) -> None:
        self.sink = sink
        try:
            self._params = conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # the driver's message would show the URL, and with it the password
            raise SinkError(
                "the url is not a Postgres connection string",
                hint="write it as postgresql://user:password@host:port/database",
                sink=sink,
            ) from None
        for setting, value in _DEFAULTS.items():
            self._params.setdefault(setting, value)
        self._params["application_name"] = self.application = f"headrace {sink}"[:63]

    @property
    def place(self) -> str:
        """host:port/database."""
        host = self._params.get("host") or self._params.get("hostaddr") or "localhost"
        return f"{host}:{self._params.get('port', 5432)}/{self._params.get('dbname', '')}"

    def connect(self) -> Connection:
        """A new session. Raises psycopg.OperationalError."""
        conninfo_text = conninfo.make_conninfo("", **self._params)
        connection: Connection = psycopg.connect(conninfo_text, autocommit=True, prepare_threshold=1 << 30)
        connection.execute(_SESSION)
        connection.autocommit = False
        return connection

    def unreachable(self, error: psycopg.Error) -> SinkError:
        """The database does not answer, or is not the one that the url's TLS settings ask for."""
        text = self._clean(error)
        hint = "start it, or correct the sink's url; nothing is lost meanwhile"
        if "certificate" in text:
            hint = "give the root that signed the server's certificate as sslrootcert, and the host by the certificate's name"
        return SinkError(
            f"the database cannot be reached: {text}",
            hint=hint,
            sink=self.sink,
            database=self.place,
        )

    def refused(self, error: psycopg.Error, **where: object) -> SinkError:
        """The database said no; row values, which stand in the message's detail, are left out."""
        primary = error.diag.message_primary or self._clean(error)
        hint = error.diag.message_hint or ""
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            hint = "grant the sink's role what docs/sinks.md lists"
        return SinkError(
            f"the database refused: {primary}", hint=hint, sink=self.sink, database=self.place,
            sqlstate=error.sqlstate, **where,
        )  # fmt: skip

    def _clean(self, error: psycopg.Error) -> str:
        text = " ".join(str(error).split())
        secret = self._params.get("password")
        return text.replace(str(secret), "***") if secret else text


def lost(error: psycopg.Error, connection: Connection | None) -> bool:
    """Whether the session is gone, so that what it was doing may or may not be done."""
    if connection is None or connection.closed or connection.broken:
        return True
    return isinstance(
        error, (psycopg.errors.AdminShutdown, psycopg.errors.CrashShutdown, psycopg.errors.CannotConnectNow)
    )
