"""The connection to a target database: its address, and its session's settings.

Invariant: no message shows the URL's secrets, and a dead connection is noticed within half a minute. The sink calls it.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import conninfo

from headrace.connectors.sink import SinkError

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


class Address:
    """A Postgres by its connection string. `place` names it without secrets. Raises ValueError for what is none."""

    def __init__(self, url: str) -> None:
        try:
            self.params = conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # the driver's message would show the URL, and with it the password
            raise ValueError("not a Postgres connection string") from None
        behind = "@" in url.partition("://")[2] and "user" not in self.params
        if behind or "@" in str(self.params.get("host", "")):
            # part of a password with an @ or / in it would pass for the host, port or database, which are shown
            raise ValueError("not a Postgres connection string: write @ as %40, / as %2F in user and password")

    @property
    def place(self) -> str:
        """host:port/database."""
        host = self.params.get("host") or self.params.get("hostaddr") or "localhost"
        return f"{host}:{self.params.get('port', 5432)}/{self.params.get('dbname', '')}"

    def clean(self, error: psycopg.Error) -> str:
        """The error's text on one line, without the password."""
        text = " ".join(str(error).split())
        secret = self.params.get("password")
        return text.replace(str(secret), "***") if secret else text


class Target(Address):
    """Where a sink writes."""

    def __init__(self, sink: str, url: str) -> None:
        self.sink = sink
        try:
            super().__init__(url)
        except ValueError as error:
            raise SinkError(
                f"the url is {error}", hint="write it as postgresql://user:password@host:port/database", sink=sink
            ) from None
        for setting, value in _DEFAULTS.items():
            self.params.setdefault(setting, value)
        self.params["application_name"] = self.application = f"headrace {sink}"[:63]

    def connect(self) -> Connection:
        """A new session. Raises psycopg.OperationalError."""
        conninfo_text = conninfo.make_conninfo("", **self.params)
        connection: Connection = psycopg.connect(conninfo_text, autocommit=True, prepare_threshold=1 << 30)
        connection.execute(_SESSION)
        connection.autocommit = False
        return connection
