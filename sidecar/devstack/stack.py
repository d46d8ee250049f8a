"""The whole embedded stack in one folder: Postgres, Kafka, Connect with Debezium, and Spark where it is wanted, on loopback
ports that stay.

It always holds that one process at a time owns a folder, that nothing outlives that process however it ends, and that
`stack.json` beside the logs says what runs while it runs. Called by the demo, the benchmarks, the tests' fixtures and
`headrace dev`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import psycopg

from headrace.sidecar.devstack import ports, stale_processes
from headrace.sidecar.devstack.connect import EmbeddedConnect
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.jvm import Toolbox
from headrace.sidecar.devstack.kafka import EmbeddedKafka
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.devstack.spark import EmbeddedSpark

STATE_FILE = "stack.json"
LOCK_FILE = "lock"
_PORTS = ("postgres", "kafka", "controller", "connect")
_ARCHIVE_SECONDS = 180.0
_STOP_SECONDS = 15.0


def read_state(folder: Path) -> dict[str, Any] | None:
    """What runs in `folder` as its owner wrote it: pid, ready, started, timings, parts; None where nothing does."""
    try:
        state: dict[str, Any] = json.loads((folder / STATE_FILE).read_text())
    except FileNotFoundError:
        return None
    return state


def owner_pid(folder: Path) -> int | None:
    """The process that holds `folder` now, by the kernel's word (a pid in a file may be another program's by now)."""
    try:
        with (folder / LOCK_FILE).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read())
    except (FileNotFoundError, ValueError):
        pass
    return None


class Stack:
    """Servers with one life: `start` (or `with`) from the main thread, `stop` by the same owner.

    `postgres`, `kafka` and `connect` can also be stopped, killed and started one by one, for tests of crashes.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        toolbox: Toolbox | None = None,
        postgres: Mapping[str, str] | None = None,
        kafka: Mapping[str, str] | None = None,
        connect: Mapping[str, str] | None = None,
        spark: bool = False,
    ) -> None:
        """Settings given for a part go over its own; `toolbox` None: the machine's, with jars fetched if need be.

        `spark`: a standalone master with two workers too.
        """
        self.folder = Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.timings: dict[str, float] = {}
        self._toolbox = Toolbox.find() if toolbox is None else toolbox
        self._ready = False
        self._started = time.time()
        self._lock: TextIO | None = None
        self._take()
        try:
            numbers = ports.kept(self.folder / "ports.json", (*_PORTS, *(("spark",) if spark else ())))
        except DevstackError:
            self._release()
            raise
        self.postgres = EmbeddedPostgres(
            self.folder, port=numbers["postgres"], settings=postgres, launched=self._write_state
        )
        self.kafka = EmbeddedKafka(
            self.folder, self._toolbox, numbers["kafka"], numbers["controller"], kafka, self._write_state
        )
        self.connect = EmbeddedConnect(
            self.folder,
            self._toolbox,
            numbers["connect"],
            self.kafka.bootstrap,
            slot_active=self.slot_active,
            settings=connect,
            launched=self._write_state,
        )

        self.spark = EmbeddedSpark(self.folder, numbers["spark"], launched=self._write_state) if spark else None

    @property
    def _parts(self) -> dict[str, EmbeddedPostgres | EmbeddedKafka | EmbeddedConnect | EmbeddedSpark]:
        """By their names, in the order in which they are waited for."""
        found: dict[str, EmbeddedPostgres | EmbeddedKafka | EmbeddedConnect | EmbeddedSpark]
        found = {"postgres": self.postgres, "kafka": self.kafka, "connect": self.connect}
        return found if self.spark is None else {**found, "spark": self.spark}

    @property
    def postgres_address(self) -> tuple[str, int]:
        """Host and port under which Connect reaches Postgres: what a connector's configuration must say."""
        return ports.HOST, self.postgres.port

    def start(self) -> Stack:
        """Start what does not run yet; all at once, as each waits for the machine more than for the others.

        `timings` then holds the seconds from the call after which each part was ready. On an error everything is
        stopped again.
        """
        begin = time.monotonic()
        self._started = time.time()
        self._take()
        try:
            self.kafka.launch()
            self.connect.launch()
            self.postgres.launch()
            if self.spark is not None:
                self.spark.launch()
            for name, part in self._parts.items():
                part.wait()
                self.timings[name] = round(time.monotonic() - begin, 3)
        except BaseException:
            self.stop()
            raise
        self._ready = True
        self._write_state()
        return self

    def stop(self) -> None:
        """End all, each by its own clean way: Connect while the broker is still there. Idempotent."""
        begin = time.monotonic()
        self._ready = False
        patience = _ARCHIVE_SECONDS if self._toolbox.training else _STOP_SECONDS
        if self.spark is not None:
            self.spark.stop(patience)
        broker_ready = self.kafka.child is not None and ports.is_open(self.kafka.port)
        if self.connect.child is not None and not broker_ready:
            self.connect.child.kill()  # it would wait for the broker that is not there
        self.connect.stop(patience)
        for part in (self.kafka, self.postgres):
            if part.child is not None:
                part.child.farewell()
        self.kafka.stop(patience)
        self.postgres.stop(patience)
        for server in ("kafka", "connect"):
            self._toolbox.keep_archive(server)
        self._release()
        self.timings["stop"] = round(time.monotonic() - begin, 3)

    def check_alive(self) -> None:
        """Raise DevstackError, with its log's tail, for the first part that has ended by itself."""
        for part in self._parts.values():
            if part.child is not None:
                part.child.check_alive()
        for worker in self.spark.workers if self.spark is not None else ():
            worker.check_alive()

    def slot_active(self, slot: str) -> bool:
        """Whether a client streams from replication slot `slot` of this Postgres."""
        with psycopg.connect(self.postgres.url(), autocommit=True, connect_timeout=5) as client:
            found = client.execute("select active from pg_replication_slots where slot_name = %s", (slot,)).fetchone()
        return found is not None and bool(found[0])

    def __enter__(self) -> Stack:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _take(self) -> None:
        """Hold the folder for this process, and wait for what a killed owner left; the kernel frees it when we end."""
        if self._lock is not None:
            return
        file = (self.folder / LOCK_FILE).open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip()
            file.close()
            raise DevstackError(
                "another process runs a stack in this folder",
                folder=self.folder,
                pid=holder or None,
                hint="`headrace dev down` ends it; or choose another folder",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._lock = file
        stale_processes.wait_for_end(self.folder, read_state(self.folder))

    def _release(self) -> None:
        if self._lock is not None:
            (self.folder / STATE_FILE).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def _write_state(self) -> None:
        """What `headrace dev status` reads, and the next owner after a kill: no password is in it."""
        parts: dict[str, dict[str, object]] = {}
        for name, part in self._parts.items():
            parts[name] = {"pid": part.child.pid if part.child else None, "port": part.port, "log": str(part.log)}
        for k, worker in enumerate(self.spark.workers if self.spark is not None else ()):
            parts[f"spark worker {k}"] = {"pid": worker.pid, "port": None, "log": str(worker.log)}
        state: dict[str, object] = {"pid": os.getpid(), "ready": self._ready, "started": self._started}
        state |= {"timings": self.timings, "parts": parts}
        arriving = self.folder / f"{STATE_FILE}.arriving"
        arriving.write_text(json.dumps(state, indent=1) + "\n")
        arriving.rename(self.folder / STATE_FILE)
