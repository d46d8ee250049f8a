"""One connection to the target database: where it goes, and how its session is set.

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
    "target_session_attrs": "read-write",  # of several hosts the primary, also after a failover
}

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

    def clean(self, error: psycopg.Error) -> str:
        """The error's text on one line, without the password."""
        text = " ".join(str(error).split())
        secret = self._params.get("password")
        return text.replace(str(secret), "***") if secret else text
