"""What the source's catalog says of the tables that are read: dropped, renamed, made anew, or with partitions nobody reads.

Invariant: it only reads the catalog, on a thread of its own, and a database that does not answer changes no finding. What it
found is in the command log until the table is read anew. Without `database:` of a source nothing is watched. Started by the
host; status, probes, metrics and log show what it finds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

from headrace.connectors.commands import CommandsError, Doubted, Identity, Partition
from headrace.connectors.commit_place import Lsn
from headrace.connectors.debezium.settings import slot_name
from headrace.connectors.postgres.connection import Address
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.state.command_log import CommandLog, Unproven
from headrace.sidecar.wiring.factories import with_partitions

EVERY_SECONDS = 15.0
_CAPTURE = "let the connector capture it (table.include.list and publication), name it under `partitions:`, restart, and resync"
_ANEW = "it was dropped and made anew under the same name"

TakeIn = Callable[[SourceConfig, str, str], str]
"""(source, table, partition) → why the partition cannot be taken in now; "" once it is in."""


@dataclass(frozen=True)
class Look:
    """What a catalog shows. `lsn`: as of when; `oids`: of each table that is there, and of its partitions; `new`: partitions
    that nobody reads, by table."""

    lsn: int
    found: Mapping[str, Unproven]
    oids: Mapping[str, Mapping[str, int]]
    new: Mapping[str, Sequence[str]] = field(default_factory=dict)


_LSN = "select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_insert_lsn() end - '0/0')::bigint"


def look(url: str, tables: Mapping[str, Sequence[str]], publication: str) -> Look:
    """What is wrong with tables, each given with its partitions that are read. Raises psycopg.Error and ValueError."""
    Address(url)
    found, oids, new = dict[str, Unproven](), dict[str, Mapping[str, int]](), dict[str, Sequence[str]]()
    with psycopg.connect(url, autocommit=True, connect_timeout=5, application_name="headrace catalog watch") as db:
        there = db.execute("select 1 from pg_publication where pubname = %s", (publication,)).fetchone() is not None
        listed = db.execute(
            "select schemaname || '.' || tablename from pg_publication_tables where pubname = %s", (publication,)
        ).fetchall()
        published = {name for (name,) in listed} if there else None
        for table, partitions in tables.items():
            of = _oids(db, table)
            if of is not None:
                read = {table, *partitions}
                oids[table] = {name: oid for name, oid in of.items() if name in read}
                new[table] = sorted(of.keys() - read) if partitions else []
            why = _wrong(table, partitions, of, published)
            if why is not None:
                found[table] = Unproven(table, *why)
        row = db.execute(_LSN).fetchone()  # the last: whatever was seen was so before it
        assert row is not None, "a SELECT without FROM has a row"
    return Look(row[0], found, oids, new)


def unproven(url: str, tables: Mapping[str, Sequence[str]], publication: str) -> list[Unproven]:
    """What is wrong with tables, as `look` finds it."""
    return list(look(url, tables, publication).found.values())


def _oids(db: psycopg.Connection, table: str) -> Mapping[str, int] | None:
    """The oids of a table and of its leaf partitions, by name; None where there is no such table."""
    schema, _, name = table.partition(".")
    row = db.execute(
        "select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s",
        (schema, name),
    ).fetchone()
    if row is None:
        return None
    leaves = db.execute(
        "select n.nspname || '.' || c.relname, c.oid from pg_partition_tree(%s) t join pg_class c on c.oid = t.relid "
        "join pg_namespace n on n.oid = c.relnamespace where t.isleaf and t.level > 0",
        (row[0],),
    ).fetchall()
    return {table: row[0], **dict(leaves)}


def _wrong(
    table: str, partitions: Sequence[str], oids: Mapping[str, int] | None, published: set[str] | None
) -> tuple[str, str] | None:
    if oids is None:
        return (
            "the source has no such table: it was dropped or renamed",
            "drop the views that read it, or give it back and resync",
        )
    leaves = oids.keys() - {table}
    if partitions and (new := sorted(leaves - set(partitions))):
        return f"nobody reads its new partition {', '.join(new)}", f"{_CAPTURE} {table}"
    if gone := sorted(set(partitions) - leaves):
        return (
            f"its partition {', '.join(gone)} was detached or dropped",
            f"take it out of `partitions:`, then resync {table}",
        )
    captured = {table, *partitions}
    if published is not None and not captured & published:
        return "it is not in the connector's publication", f"alter publication … add table {table}, and resync it"
    return None


class CatalogWatch(threading.Thread):
    """Looks every EVERY_SECONDS. `found`: table → what is wrong with it now; replaced as a whole, so that any thread may read
    it. `failed`: source → why its catalog, or the log of commands, could not be read or written when last asked."""

    def __init__(
        self, settings: Settings, every: float = EVERY_SECONDS, log: CommandLog | None = None,
        take_in: TakeIn | None = None, settings_now: Callable[[], Settings] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name="catalog watch", daemon=True)
        self._settings = settings_now or (lambda: settings)
        self._every, self._take_in = every, take_in
        self._log = CommandLog() if log is None else log
        self._over = threading.Event()
        self._of: dict[str, Mapping[str, Unproven]] = {}
        self.found: Mapping[str, Unproven] = {}
        self.failed: Mapping[str, str] = {}

    @property
    def _sources(self) -> list[SourceConfig]:
        sources = self._settings().config.sources
        return [s for s in sources if s.type == "debezium" and s.database is not None and s.tables]

    def run(self) -> None:
        """Look until told to end."""
        while self._sources and not self._over.is_set():
            self.look()
            self._over.wait(self._every)

    def look(self) -> None:
        """Look once."""
        failed = {}
        for source in self._sources:
            if (why := self._look(source)) is not None:
                failed[source.name] = why
        self.found = {table: one for of in self._of.values() for table, one in of.items()}
        self.failed = failed

    def _look(self, configured: SourceConfig) -> str | None:
        assert configured.database is not None, "only sources that name it are watched"
        source = with_partitions(configured, self._log, captured=True)
        tables = {t.name: t.partitions for t in source.tables or ()}
        url = configured.database.get_secret_value()
        try:
            seen = look(url, tables, slot_name(source.topic_prefix))
            found = dict(seen.found)
            for table in [t for t, partitions in seen.new.items() if partitions]:
                why = self._grown(source, table, seen.new[table])
                one = found.pop(table)
                if why is not None:
                    found[table] = Unproven(table, f"{one.why}{why}", one.hint)
            self._keep(source.name, seen, found)
            self._of[source.name] = found
        except ValueError as error:
            return f"`database:` is {error}"
        except CommandsError as error:
            return str(error)
        except psycopg.Error as error:
            return error.diag.message_primary or Address(url).clean(error)
        return None

    def _grown(self, source: SourceConfig, table: str, partitions: Sequence[str]) -> str | None:
        """Have new partitions taken in; None once all are, else what is to be said of them."""
        if self._take_in is None:
            return ""
        whys = [self._take_in(source, table, partition) for partition in partitions]
        why = next((w for w in whys if w), "")
        return f"; it cannot be taken in: {why}" if why else None

    def _keep(self, source: str, seen: Look, found: Mapping[str, Unproven]) -> None:
        """Let the command log know what is wrong, what is so no more, and which relations the tables are."""
        doubts = {c.table: c for c in self._log.of(Doubted) if c.source == source}
        known = {c.table: c.oids for c in self._log.of(Identity) if c.source == source}
        commands: list[Doubted | Identity] = []
        for table, one in found.items():
            before = doubts.get(table)
            if before is None or before.over or (before.why, before.hint) != (one.why, one.hint):
                commands.append(
                    Doubted(source=source, table=table, place=Lsn(seen.lsn), why=one.why, hint=one.hint, over=False)
                )
        for table, before in doubts.items():
            if table not in found and table in seen.oids and not before.over:
                hint = f"headrace resync {table}"
                commands.append(
                    Doubted(
                        source=source, table=table, place=Lsn(seen.lsn), why=_since(before.why), hint=hint, over=True
                    )
                )
        for table, oids in seen.oids.items():
            before_oids = known.get(table, {})
            changed = [name for name, oid in oids.items() if before_oids.get(name, oid) != oid]
            if changed:
                why, hint = f"{_ANEW}: {', '.join(sorted(changed))}", f"headrace resync {table}"
                commands = [c for c in commands if not isinstance(c, Doubted) or c.table != table]
                commands.append(
                    Doubted(
                        source=source, table=table, place=Lsn(seen.lsn), why=why, hint=hint, over=table not in found
                    )
                )
            if {**before_oids, **oids} != before_oids:
                commands.append(Identity(source=source, table=table, oids={**before_oids, **oids}))
        gone = [
            c for c in self._log.of(Partition)
            if c.source == source and c.table in seen.oids
            and c.partition not in seen.oids[c.table] and c.partition not in seen.new.get(c.table, ())
        ]  # fmt: skip
        self._log.keep(*commands)
        self._log.forget(*(c.key for c in gone))

    def close(self) -> None:
        """End; a look under way is not waited for."""
        self._over.set()


def _since(why: str) -> str:
    """A reason that is over, as long as the table was not read anew."""
    return why if why.startswith(_WAS) else f"{_WAS}{why}, and it was not read anew since"


_WAS = "for a while "
