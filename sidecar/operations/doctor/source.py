"""The source's database: whether its changes can be read whole, and whether it is what headrace.yaml says it is.

Always: read-only, in one session that is closed again; it asks the catalog and reads no row of a table but the heartbeat's.
`connector` is the connector's configuration where Connect could be asked, else nothing. Called by `examine`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import conninfo
from psycopg.rows import dict_row

from headrace.connectors.debezium.settings import HEARTBEAT_DDL, HEARTBEAT_TABLE, slot_name
from headrace.connectors.postgres.connection import Address
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.operations.doctor import source_catalog as catalog
from headrace.sidecar.operations.doctor.findings import Finding, Subject, advice, identifier, psql, refused, table
from headrace.sidecar.operations.doctor.source_tables import check_tables

S = Subject.SOURCE


@dataclass(frozen=True)
class Limits:
    """From where on something is told."""

    slot_lag: int = 1 << 30
    transaction_seconds: float = 600.0
    heartbeat_seconds: float = 60.0
    skew_seconds: float = 1.0


LIMITS = Limits()


@dataclass(frozen=True)
class Asked:
    """One source and the session in which it is asked. `connector`: its configuration, or nothing where unknown."""

    source: SourceConfig
    connector: Mapping[str, str]
    db: psycopg.Connection[dict[str, Any]]
    place: str
    limits: Limits

    @property
    def slot(self) -> str:
        """The replication slot's name."""
        return self.connector.get("slot.name", slot_name(self.source.topic_prefix))

    @property
    def publication(self) -> str:
        """The publication's name."""
        return self.connector.get("publication.name", slot_name(self.source.topic_prefix))

    @property
    def role(self) -> str | None:
        """The role by which the connector reads."""
        return self.connector.get("database.user")

    def rows(self, query: str, **values: Any) -> list[dict[str, Any]]:
        """The answer to one question."""
        return self.db.execute(query, values).fetchall()

    def one(self, query: str, **values: Any) -> dict[str, Any]:
        """The only row of an answer."""
        return self.rows(query, **values)[0]


def check_source(
    source: SourceConfig, url: str | None, connector: Mapping[str, str] | None, limits: Limits = LIMITS
) -> list[Finding]:
    """What is wrong with a source's database. `url`: its libpq URL, None where the configuration names none."""
    if source.type != "debezium":
        return []
    if url is None:
        return [
            advice(
                S,
                "database",
                f"headrace.yaml, source {source.name}",
                "no `database:` is named",
                "the source's database cannot be looked at, nor can `audit` and `resync` ask it",
                'headrace doctor --source --from "$SOURCE_URL"',
            )
        ]
    place = source.name
    try:
        address = Address(url)
        place = address.place
        params = {"connect_timeout": 5, "application_name": "headrace doctor", **address.params}
        with psycopg.connect(conninfo.make_conninfo("", **params), autocommit=True, row_factory=dict_row) as db:
            db.execute("SET default_transaction_read_only = on; SET statement_timeout = '20s'; SET lock_timeout = '2s'")
            asked = Asked(source, connector or {}, db, place, limits)
            return [f for check in _CHECKS for f in check(asked)]
    except ValueError as error:
        return [refused(S, "reachable", f"source {source.name}", str(error), "the source cannot be looked at")]
    except psycopg.Error as error:
        return [
            refused(
                S,
                "reachable",
                place,
                f"the database does not answer: {address.clean(error)}",
                "nothing can be read from it",
                'psql "$SOURCE_URL" -c "SELECT 1"',
            )
        ]


def _server(asked: Asked) -> Iterator[Finding]:
    facts = asked.one(catalog.SERVER)
    if facts["wal_level"] != "logical":
        yield refused(
            S,
            "wal_level",
            asked.place,
            f"wal_level is {facts['wal_level']}",
            "no change of a row can be read; Postgres must be restarted after the command",
            psql("SOURCE_URL", "ALTER SYSTEM SET wal_level = 'logical'"),
        )
    if facts["slot_wal_limit"] in (None, "-1"):
        yield advice(
            S,
            "slot_wal_limit",
            asked.place,
            "max_slot_wal_keep_size is unlimited",
            "WAL fills the disk while the connector is down; choose what the disk can spare",
            psql("SOURCE_URL", "ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'", "SELECT pg_reload_conf()"),
        )
    if facts["encoding"] != "UTF8":
        yield advice(
            S, "encoding", asked.place, f"the database's encoding is {facts['encoding']}", "text is compared as UTF-8"
        )


def _slot(asked: Asked) -> Iterator[Finding]:
    found = asked.rows(catalog.SLOT, name=asked.slot)
    where = f"{asked.place}, slot {asked.slot}"
    if not found:
        if asked.one(catalog.FREE_SLOTS)["free"] < 1:
            yield refused(
                S,
                "free_slots",
                asked.place,
                "no replication slot is free",
                "the connector cannot make its own: drop one that nobody reads, or raise max_replication_slots",
                psql(
                    "SOURCE_URL",
                    "SELECT pg_drop_replication_slot((SELECT slot_name FROM pg_replication_slots "
                    "WHERE NOT active ORDER BY restart_lsn LIMIT 1))",
                ),
            )
        if asked.connector:
            yield refused(
                S,
                "slot",
                where,
                "the connector's replication slot is not there",
                "what is committed meanwhile is not kept for the connector",
                _restart(asked),
            )
        return
    slot = found[0]
    if slot["wal_status"] == "lost":
        yield refused(
            S,
            "slot_lost",
            where,
            "the slot has lost WAL that the connector needs",
            "what was committed meanwhile will never come: the connector must make a new snapshot",
            psql("SOURCE_URL", f"SELECT pg_drop_replication_slot('{asked.slot}')"),
        )
        return
    if not slot["active"]:
        yield refused(
            S,
            "slot_active",
            where,
            "nobody reads the slot",
            "views do not get fresher, and WAL is kept",
            _restart(asked),
        )
    if slot["lag"] > asked.limits.slot_lag or slot["wal_status"] == "unreserved":
        yield advice(
            S,
            "slot_lag",
            where,
            f"the connector has {slot['lag']:,} bytes of WAL still to confirm",
            "the disk fills, and the slot is lost where max_slot_wal_keep_size is reached",
            _restart(asked),
        )


def _restart(asked: Asked) -> str:
    if asked.source.connect is None or "name" not in asked.connector:
        return ""
    at = f"{asked.source.connect.rstrip('/')}/connectors/{asked.connector['name']}"
    return f"curl -fsS -X PUT {at}/resume && curl -fsS -X POST '{at}/restart?includeTasks=true'"


def _publication(asked: Asked) -> Iterator[Finding]:
    where = f"{asked.place}, publication {asked.publication}"
    found = asked.rows(catalog.PUBLICATION, name=asked.publication)
    wanted = captured(asked)
    mine = asked.connector.get("publication.autocreate.mode", "filtered") == "disabled"
    if not found:
        if mine or asked.rows(catalog.SLOT, name=asked.slot):
            listed = ", ".join(map(table, wanted))
            yield refused(
                S,
                "publication",
                where,
                "the publication is not there",
                "no change is sent",
                psql("SOURCE_URL", f"CREATE PUBLICATION {identifier(asked.publication)} FOR TABLE {listed}"),
            )
        return
    missing = [kind for kind in ("insert", "update", "delete", "truncate") if not found[0][f"pub{kind}"]]
    if missing:
        yield refused(
            S,
            "publication_kinds",
            where,
            f"it does not publish {', '.join(missing)}",
            "views keep rows that are gone, or never see new ones",
            psql(
                "SOURCE_URL",
                f"ALTER PUBLICATION {identifier(asked.publication)} SET (publish = 'insert, update, delete, truncate')",
            ),
        )
    there = {row["name"] for row in asked.rows(catalog.PUBLISHED, name=asked.publication)}
    exists = {row["name"] for row in asked.rows(catalog.TABLES, names=wanted)}
    for name in wanted:
        if name not in there and name in exists:
            yield refused(
                S,
                "published",
                f"{asked.place}, {name}",
                f"it is not in the publication {asked.publication}",
                "its changes are not sent, and nothing says so",
                psql("SOURCE_URL", f"ALTER PUBLICATION {identifier(asked.publication)} ADD TABLE {table(name)}"),
            )


def captured(asked: Asked) -> list[str]:
    """The tables that must be published: the leaves of partitioned ones, unless they come under their root's name."""
    via_root = asked.connector.get("publish.via.partition.root", "false") == "true"
    return [
        n for t in asked.source.tables or () for n in (t.partitions if t.partitions and not via_root else (t.name,))
    ]


def _tables(asked: Asked) -> Iterator[Finding]:
    names = [n for t in asked.source.tables or () for n in (t.name, *t.partitions)]
    facts = {row["name"]: row for row in asked.rows(catalog.TABLES, names=names)}
    columns: dict[str, list[dict[str, Any]]] = {}
    for row in asked.rows(catalog.COLUMNS, names=names):
        columns.setdefault(row["table"], []).append(row)
    leaves = {row["root"]: row["leaves"] for row in asked.rows(catalog.LEAVES, names=names)}
    via_root = asked.connector.get("publish.via.partition.root", "false") == "true"
    yield from check_tables(asked.source, asked.place, facts, columns, {} if via_root else leaves)


def _rights(asked: Asked) -> Iterator[Finding]:
    if asked.role is None:
        return
    found = asked.rows(catalog.ROLE, role=asked.role)
    where, role = f"{asked.place}, role {asked.role}", identifier(asked.role)
    if not found:
        yield refused(
            S,
            "role",
            where,
            "the connector's role is not there",
            "the connector cannot log in",
            psql("SOURCE_URL", f"CREATE ROLE {role} LOGIN REPLICATION"),
        )
        return
    if not found[0]["replication"]:
        yield refused(
            S,
            "replication",
            where,
            "it may not replicate",
            "the connector cannot open its slot",
            psql("SOURCE_URL", f"ALTER ROLE {role} REPLICATION"),
        )
    names = [n for t in asked.source.tables or () for n in (t.name, *t.partitions)]
    for row in asked.rows(catalog.RIGHTS, role=asked.role, names=names):
        schema = identifier(row["name"].partition(".")[0])
        grants = [
            *([] if row["usage"] else [f"GRANT USAGE ON SCHEMA {schema} TO {role}"]),
            *([] if row["read"] else [f"GRANT SELECT ON {table(row['name'])} TO {role}"]),
        ]
        if grants:
            yield refused(
                S,
                "rights",
                f"{where}, {row['name']}",
                "it may not read the table",
                "its snapshot fails",
                psql("SOURCE_URL", *grants),
            )


def _heartbeat(asked: Asked) -> Iterator[Finding]:
    where = f"{asked.place}, {HEARTBEAT_TABLE}"
    found = asked.one(catalog.HEARTBEAT, role=asked.role or asked.one("SELECT current_user AS name")["name"])
    if not found["there"]:
        yield advice(
            S,
            "heartbeat",
            where,
            "the heartbeat table is not there",
            "a quiet database holds back its frontier and its slot",
            psql("SOURCE_URL", *HEARTBEAT_DDL),
        )
        return
    if found["may"] is False and asked.role is not None:
        yield advice(
            S,
            "heartbeat_rights",
            where,
            f"the role {asked.role} may not write it",
            "no heartbeat comes",
            psql(
                "SOURCE_URL",
                f"GRANT USAGE ON SCHEMA headrace TO {identifier(asked.role)}",
                f"GRANT SELECT, INSERT, UPDATE ON {HEARTBEAT_TABLE} TO {identifier(asked.role)}",
            ),
        )
    there = {row["name"] for row in asked.rows(catalog.PUBLISHED, name=asked.publication)}
    if there and HEARTBEAT_TABLE not in there:
        yield advice(
            S,
            "heartbeat_published",
            where,
            f"it is not in the publication {asked.publication}",
            "a quiet database holds back its frontier and its slot",
            psql("SOURCE_URL", f"ALTER PUBLICATION {identifier(asked.publication)} ADD TABLE {HEARTBEAT_TABLE}"),
        )


def _transactions(asked: Asked) -> Iterator[Finding]:
    for row in asked.rows(catalog.LONG, seconds=asked.limits.transaction_seconds):
        gid = row["gid"]
        end = f"ROLLBACK PREPARED '{gid}'" if gid else f"SELECT pg_terminate_backend({row['pid']})"
        who = f"prepared transaction {gid}" if gid else f"process {row['pid']} of {row['who']}"
        yield advice(
            S,
            "long_transaction",
            f"{asked.place}, {who}",
            f"a transaction has been open for {row['seconds']:.0f} s",
            "WAL is kept for it, and a new slot or snapshot waits for its end",
            psql("SOURCE_URL", end),
        )


def _clock(asked: Asked, wall: Callable[[], float] = time.time) -> Iterator[Finding]:
    before = wall()
    theirs = float(asked.one("SELECT extract(epoch FROM clock_timestamp())::float8 AS now")["now"])
    skew = theirs - (before + wall()) / 2
    if abs(skew) > asked.limits.skew_seconds:
        yield advice(
            S,
            "clock",
            asked.place,
            f"its clock is {skew:+.1f} s from this machine's",
            "freshness is measured from its commits' times, and is wrong by as much",
            "chronyc makestep",
        )


_CHECKS: Sequence[Callable[[Asked], Iterator[Finding]]] = (
    _server,
    _slot,
    _publication,
    _tables,
    _rights,
    _heartbeat,
    _transactions,
    _clock,
)
