"""A new partition of a table that is read is taken in while the sidecar runs; so are tables that `apply` adds.

Invariant: the sidecar reads the partition's topic before the connector writes it, and the table is compared with its source
after the publication has the partition, so nothing between is lost; until then the table is unproven. What was taken in is in
the command log, for later runs. Called by the catalog watch, on its thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psycopg
from psycopg import sql

from headrace.connectors.commands import Partition
from headrace.connectors.commit_place import Lsn
from headrace.connectors.debezium.connect import ConnectError, describe, register
from headrace.connectors.debezium.settings import include_list, slot_name
from headrace.connectors.formats.topic_names import table_topic
from headrace.connectors.postgres.connection import Address
from headrace.engine.errors import HeadraceError
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.runtime.loop import Runtime

_LSN = "select (pg_current_wal_insert_lsn() - '0/0')::bigint"
_INCLUDE = "table.include.list"
_PAUSE = 0.5


class Capture:
    """Has the connector of a source capture relations. `seconds`: how long it may take to run with them."""

    def __init__(self, seconds: float = 60.0, sleep: Callable[[float], None] = time.sleep) -> None:
        self._seconds, self._sleep = seconds, sleep

    def __call__(
        self, source: SourceConfig, table: str, relations: Sequence[str], begin: Callable[[int], None] = lambda _: None
    ) -> tuple[int, str]:
        """The source's LSN once all of a table's `relations` are captured, and why they are not ("" where they are). `begin` is
        called with the LSN before anything is changed. Raises HeadraceError."""
        if source.connect is None or source.database is None:
            return -1, "the source names no `connect:` or no `database:`, by which its connector could be told"
        url = source.database.get_secret_value()
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=5) as db:
                if why := next((w for r in relations if (w := _replica_identity(db, table, r))), ""):
                    return -1, why
                begin(_lsn(db))
                why = self._capture(source, relations, db)
                return _lsn(db), why
        except psycopg.Error as error:
            return -1, error.diag.message_primary or Address(url).clean(error)

    def _capture(self, source: SourceConfig, relations: Sequence[str], db: psycopg.Connection) -> str:
        """Why they are not captured; "" once they are. Raises ConnectError and psycopg.Error."""
        assert source.connect is not None, "the caller looked"
        mine = describe(source.connect, source.topic_prefix)
        if len(mine) != 1:
            return f"{len(mine)} connectors write the prefix {source.topic_prefix}"
        one, publication = mine[0], mine[0].config.get("publication.name", slot_name(source.topic_prefix))
        listed = one.config.get(_INCLUDE)
        if listed is None:
            return f"its connector has no {_INCLUDE} to add it to"
        if one.config.get("publication.autocreate.mode") != "filtered":
            for relation in (r for r in relations if not _published(db, publication, r)):
                add = sql.SQL("alter publication {} add table {}")
                db.execute(add.format(sql.Identifier(publication), sql.Identifier(*relation.split(".", 1))))
        new = [e for r in relations if (e := include_list([r])) not in listed.split(",")]
        if new:
            config = {**one.config, _INCLUDE: ",".join([listed, *new])}
            register(source.connect, one.name, config, timeout=self._seconds)
        return self._await(source, one.name, publication, relations, db)

    def _await(
        self, source: SourceConfig, name: str, publication: str, relations: Sequence[str], db: psycopg.Connection
    ) -> str:
        """Wait until the connector runs and the publication has them."""
        assert source.connect is not None, "the caller looked"
        state = "none"
        for _ in range(max(1, int(self._seconds / _PAUSE))):
            try:
                (one,) = (d for d in describe(source.connect, source.topic_prefix) if d.name == name)
                state, trace = one.tasks[0] if one.tasks else (one.state, one.trace)
                if state == "FAILED":
                    return f"connector {name} failed: {trace.splitlines()[0] if trace else 'no reason told'}"
            except (ConnectError, ValueError):
                state = "not told"
            if state == "RUNNING" and all(_published(db, publication, r) for r in relations):
                return ""
            self._sleep(_PAUSE)
        return f"connector {name} ({state}) has not put it into publication {publication} after {self._seconds:g} s"


class NewPartitions:
    """Takes partitions in."""

    def __init__(self, runtime: Runtime, capture: Capture | None = None) -> None:
        self._runtime, self._capture = runtime, capture or Capture()

    def __call__(self, source: SourceConfig, table: str, partition: str) -> str:
        """Why a partition cannot be taken in now; "" where it was, so that a resync may follow."""
        log = self._runtime.parts.commands
        if partition in log.partitions(source.name, captured=True).get(table, ()):
            return ""
        key = ""

        def begin(lsn: int) -> None:
            nonlocal key
            command = Partition(source=source.name, table=table, place=Lsn(lsn), partition=partition, captured=False)
            log.keep(command)
            key = command.key
            self._read(source, table, partition)

        try:
            lsn, why = self._capture(source, table, [partition], begin)
            if not why:
                log.keep(Partition(source=source.name, table=table, place=Lsn(lsn), partition=partition, captured=True))
            elif key:
                log.forget(key)
        except HeadraceError as error:
            if key:
                with suppress(HeadraceError):
                    log.forget(key)
            return str(error)
        return why

    def _read(self, source: SourceConfig, table: str, partition: str) -> None:
        """Have the loop read the partition's topic, once there is one."""
        topic = table_topic(source.topic_prefix, partition)
        [intake] = [i for i in self._runtime.parts.intakes if i.name == source.name]

        def take_in() -> None:
            if table not in intake.tables_at.get(topic, frozenset()):
                intake.add_partition(partition, topic, table)

        self._runtime.tasks.ask(take_in)


def _lsn(db: psycopg.Connection) -> int:
    row = db.execute(_LSN).fetchone()
    assert row is not None, "a SELECT without FROM has a row"
    return int(row[0])


def _published(db: psycopg.Connection, publication: str, partition: str) -> bool:
    schema, _, name = partition.partition(".")
    found = db.execute(
        "select 1 from pg_publication_tables where pubname = %s and schemaname = %s and tablename = %s",
        (publication, schema, name),
    ).fetchone()
    return found is not None


def _replica_identity(db: psycopg.Connection, table: str, partition: str) -> str:
    """Why the application's UPDATE would fail once the partition is published; "" where it would not."""
    row = db.execute(
        "select c.relreplident, exists (select 1 from pg_index i where i.indrelid = c.oid and i.indisprimary) "
        "from pg_class c where c.oid = to_regclass(%s)",
        (sql.Identifier(*partition.split(".", 1)).as_string(db),),
    ).fetchone()
    if row is None:
        return "it is gone again"
    if row[0] == "n" or (row[0] == "d" and not row[1]):
        return f"UPDATEs of {table} would fail: type ALTER TABLE {partition} REPLICA IDENTITY FULL"
    return ""
