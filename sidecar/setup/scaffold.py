"""`headrace init`: from a running Postgres to a folder that `validate` and `run` accept.

Writes headrace.yaml, views/example.yaml and connectors/<source>.json; tells what stands in the way and the SQL that
mends it. Always: no file is overwritten unless forced, and then all are checked before the first is written; no
password is written unless asked for. Changes nothing in the database but what `create_heartbeat` asks for. Called by
the command line and the demo.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc, pool

from headrace.connectors.debezium import connect
from headrace.connectors.debezium.config_rules import Finding, check
from headrace.connectors.debezium.settings import (
    HEARTBEAT_DDL,
    HEARTBEAT_TABLE,
    Connection,
    Tuning,
    connector_config,
    slot_name,
)
from headrace.sidecar.setup.connect_secret import register_by_reference
from headrace.sidecar.setup.introspection import InitError, Reflection, Table, postgres_url, reflect
from headrace.sidecar.setup.templates import example_views, headrace_yaml, qualified, quoted, unsent

PLACEHOLDER = re.compile(r"\$\{[A-Za-z0-9_]+:[^}]+\}")
PASSWORD = "${env:HEADRACE_SOURCE_PASSWORD}"  # noqa: S105 (a placeholder)


@dataclass(frozen=True)
class InitWarning:
    """An obstacle that will stop or distort the capture, and its remedy. `table`: None where it concerns the whole server."""

    what: str
    remedy: str
    table: str | None = None

    def __str__(self) -> str:
        return f"{self.table}: {self.what}; {self.remedy}" if self.table else f"{self.what}; {self.remedy}"


@dataclass(frozen=True)
class InitReport:
    """What was found and written. `sql`: for a role with the least rights. `registered`: the connector's name. `secret`: the
    file from which Connect reads the password."""

    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    warnings: tuple[InitWarning, ...]
    sql: str
    connector: Mapping[str, str]
    findings: tuple[Finding, ...]
    registered: str | None = None
    secret: Path | None = None

    def as_json(self) -> dict[str, object]:
        """As `--json` prints it; without the connector's password."""
        return {
            "tables": [{"name": t.name, "key": t.key, "columns": len(t.columns), "rows": t.rows} for t in self.tables],
            "files": [str(f) for f in self.files],
            "warnings": [{"what": w.what, "remedy": w.remedy, "table": w.table} for w in self.warnings],
            "findings": [f.__dict__ for f in self.findings],
            "sql": self.sql,
            "registered": self.registered,
            "secret": None if self.secret is None else str(self.secret),
        }


def init(
    url: str,
    *,
    source_name: str,
    topic_prefix: str,
    folder: Path,
    tables: Sequence[str] | None = None,
    connect_url: str | None = None,
    register: bool = False,
    kafka_bootstrap: str = "127.0.0.1:9092",
    force: bool = False,
    write_password: bool = False,
    create_heartbeat: bool = False,
    tuning: Tuning | None = None,
    overrides: Mapping[str, str] | None = None,
    workers: int = 1,
    allow_keyless: bool = False,
    password: str | None = None,
    show_password: bool = False,
) -> InitReport:
    """Reflect `url`, write the starting files into `folder`, and register the connector when asked.

    `tables`: shell-like patterns. `overrides`: connector settings that win, such as `database.hostname` where Connect
    sees the server under another name. `allow_keyless`: register tables whose rows the application could then not update.
    `password`: what stands for the password at Connect, such as `${file:/run/secrets/pg.properties:password}`; without it a file
    beside the connector's configuration has it, unless `show_password`. Raises InitError, ConnectError.
    """
    _check_arguments(source_name, connect_url, password, register=register)
    found = reflect(url, tables)
    if register and not allow_keyless:
        _refuse_unidentified(found.tables)
    if create_heartbeat:
        _create_heartbeat(url)
        found = reflect(url, tables)
    if not found.tables:
        raise InitError("the database has no table to capture", database=found.url.render_as_string(hide_password=True))
    via_root = bool(tuning and tuning.via_root)
    config = _connector(found, topic_prefix, tuning, overrides, password)
    shown = config if write_password else config | {"database.password": password or PASSWORD}
    files = {
        folder / "headrace.yaml": headrace_yaml(
            found.tables, source_name, topic_prefix, kafka_bootstrap, config, connect_url, workers
        ),
        folder / "views" / "example.yaml": example_views(found.tables),
        folder / "connectors" / f"{source_name}.json": json.dumps(shown, indent=2) + "\n",
    }
    _check_free(files, force)
    registered = None
    secret = folder / "connectors" / f"{source_name}.properties"
    if register and connect_url is not None:
        by_reference = password is None and not show_password
        sent = _register(connect_url, source_name, config, secret if by_reference else None)
        if sent != config:
            config = shown = sent
            files[folder / "connectors" / f"{source_name}.json"] = json.dumps(shown, indent=2) + "\n"
        registered = source_name
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    captured = {t.name: t.partitions for t in found.tables}
    return InitReport(
        found.tables, tuple(files), (*warnings(found, via_root), *_shown_password(source_name, registered, config)),
        least_privilege_sql(found, topic_prefix, via_root), shown, tuple(check(config, captured)), registered,
        secret if secret.exists() else None,
    )  # fmt: skip


def _check_arguments(source_name: str, connect_url: str | None, password: str | None, *, register: bool) -> None:
    """Raise InitError for arguments that cannot be, before anything is asked."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", source_name):
        raise InitError("not a source's name", name=source_name, hint="letters, digits, _ and -, not a digit first")
    if register and connect_url is None:
        raise InitError("registering needs the address of Kafka Connect", hint="give --connect http://host:8083")
    if password is not None and not PLACEHOLDER.fullmatch(password):
        raise InitError("not a reference to one of Connect's config providers",
                        hint="write '${file:/run/secrets/pg.properties:password}' or '${env:NAME}'")  # fmt: skip


def _register(connect_url: str, name: str, config: dict[str, str], secret: Path | None) -> dict[str, str]:
    """Register the connector; its configuration as Connect has it. `secret`: the file that has the password then, if one does."""
    held = config.get("database.password", "")
    if secret is None or not held:
        connect.register(connect_url, name, config)
        return config
    register = partial(connect.register, connect_url, name)
    return dict(register_by_reference(connect_url, config, secret, held, register))


def _refuse_unidentified(tables: Sequence[Table]) -> None:
    """Postgres refuses an UPDATE or DELETE of a published table without a replica identity: the application's writes fail."""
    found = {t.name: remedy for t in tables if (remedy := identity_remedy(t)) is not None}
    if found:
        raise InitError(
            "nothing is registered: the application could no longer update or delete rows of tables without a replica identity",
            tables=", ".join(found), hint=f"{'; '.join(found.values())}; or leave them out by --table; --allow-keyless registers "
            "them all the same",
        )  # fmt: skip


def _shown_password(name: str, registered: str | None, config: Mapping[str, str]) -> tuple[InitWarning, ...]:
    if registered is None or PLACEHOLDER.fullmatch(config.get("database.password", "") or "${none}"):
        return ()
    remedy = (
        "set config.providers=file and config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider "
        "in the workers of Connect, write the password into a file there, and init again with --force "
        "--connector-password '${file:/run/secrets/pg.properties:password}'"
    )
    what = f"the password of connector {name} stands in Connect's REST answer, for whoever may ask it"
    return (InitWarning(what, remedy),)


def _create_heartbeat(url: str) -> None:
    made = postgres_url(url)
    engine = sa.create_engine(made, poolclass=pool.NullPool)
    try:
        with engine.begin() as connection:
            for statement in HEARTBEAT_DDL:
                connection.execute(sa.text(statement))
    except exc.SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise InitError(
            f"the heartbeat table cannot be made: {reason}", database=made.render_as_string(hide_password=True)
        ) from error
    finally:
        engine.dispose()


def _check_free(files: Mapping[Path, str], force: bool) -> None:
    there = [path for path in files if path.exists()]
    if there and not force:
        raise InitError(
            "files are already there", files=", ".join(str(p) for p in there), hint="add --force to write them anew"
        )


def _connector(
    found: Reflection,
    topic_prefix: str,
    tuning: Tuning | None,
    overrides: Mapping[str, str] | None,
    password: str | None,
) -> dict[str, str]:
    t = tuning or Tuning(heartbeat=found.server.heartbeat)
    captured = [
        name for table in found.tables
        for name in (table.partitions if table.partitions and not t.via_root else (table.name,))
    ]  # fmt: skip
    made = found.url
    connection = Connection(
        made.host or "127.0.0.1", made.port or 5432, made.username or found.server.user, made.database or "postgres",
        password if password is not None else (made.password or ""), str(made.query.get("sslmode") or "") or None,
    )  # fmt: skip
    owner = found.server.superuser or all(table.owned for table in found.tables)
    # Debezium alters an existing publication in "filtered" mode, which only the tables' owner may do.
    own = {} if owner else {"publication.autocreate.mode": "disabled"}
    return connector_config(topic_prefix, connection, captured, tuning=t, overrides={**own, **(overrides or {})})


def warnings(found: Reflection, via_root: bool = False) -> list[InitWarning]:
    """The obstacles to an exact capture, those of the server first."""
    s = found.server
    out = []
    if s.wal_level != "logical":
        out.append(
            InitWarning(f"wal_level is {s.wal_level}", "ALTER SYSTEM SET wal_level = 'logical', then restart Postgres")
        )
    if not (s.replication or s.superuser):
        remedy = f"ALTER ROLE {quoted(s.user)} REPLICATION, or use the role of the SQL below"
        out.append(InitWarning(f"the role {s.user} may not replicate", remedy))
    if s.free_slots < 1:
        out.append(InitWarning("no replication slot is free", "raise max_replication_slots, or drop a slot"))
    if s.slot_wal_limit in ("-1", None):
        what = "max_slot_wal_keep_size is unlimited: WAL fills the disk while the connector is down"
        out.append(InitWarning(what, "set it to what the disk can spare"))
    if s.encoding != "UTF8":
        out.append(InitWarning(f"the database's encoding is {s.encoding}", "text is compared as UTF-8"))
    if not s.heartbeat:
        what = f"{HEARTBEAT_TABLE} is not there: a quiet database holds back its frontier and its slot"
        out.append(InitWarning(what, "run the SQL below, then init again with --force"))
    for t in found.tables:
        out += _table_warnings(t, via_root)
    return out


def identity_remedy(t: Table) -> str | None:
    """The SQL that gives a table, and each of its partitions, a replica identity; None where it has one."""
    if t.key is None and t.identity != "f":
        wanted = "FULL"
    elif t.key is not None and "n" in t.identity:
        wanted = "DEFAULT"
    else:
        return None
    return "; ".join(f"ALTER TABLE {qualified(n)} REPLICA IDENTITY {wanted}" for n in t.partitions or (t.name,))


def _table_warnings(t: Table, via_root: bool) -> list[InitWarning]:
    out = []
    remedy = identity_remedy(t)
    if remedy is not None and t.key is None:
        out.append(InitWarning("it has no key, and its old rows are not in the WAL", remedy, t.name))
    elif remedy is not None:
        out.append(InitWarning("replica identity is NOTHING: updates and deletes do not come", remedy, t.name))
    if not t.logged:
        out.append(
            InitWarning(
                "it is unlogged: its changes never reach the WAL", f"ALTER TABLE {qualified(t.name)} SET LOGGED", t.name
            )
        )
    for c in t.columns:
        why = unsent(c)
        if why is not None:
            what = f"the column {c.name} is left out of headrace.yaml: {why.reason}"
            out.append(InitWarning(what, why.hint, t.name))
        elif c.dimensions > 1:
            what = f"the arrays of {c.name} come without their values where they have more than one dimension"
            out.append(InitWarning(what, "leave the column out, or keep its values in a column of text", t.name))
    if t.partitions and via_root:
        what = "a TRUNCATE of one partition is not published under the root's name"
        out.append(InitWarning(what, "delete its rows instead, or capture the partitions", t.name))
    return out


def least_privilege_sql(found: Reflection, topic_prefix: str, via_root: bool = False) -> str:
    """SQL for a superuser: a role that may replicate and read these tables alone, publication, heartbeat table."""
    role = quoted("headrace")
    schemas = sorted({t.name.partition(".")[0] for t in found.tables})
    captured = [n for t in found.tables for n in (t.partitions if t.partitions and not via_root else (t.name,))]
    listed = ", ".join(map(qualified, captured))
    read = ", ".join(map(qualified, dict.fromkeys([*(t.name for t in found.tables), *captured])))
    through = " WITH (publish_via_partition_root = true)" if via_root else ""
    publication = quoted(slot_name(topic_prefix))
    database = quoted(found.url.database or "postgres")
    lines = [
        "-- As a superuser, in the source database; choose a password.",
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '…';",
        f"GRANT CONNECT ON DATABASE {database} TO {role};",
        *[f"GRANT USAGE ON SCHEMA {quoted(s)} TO {role};" for s in schemas],
        f"GRANT SELECT ON {read} TO {role};",
        *[f"{statement};" for statement in HEARTBEAT_DDL],
        f"GRANT USAGE ON SCHEMA headrace TO {role};",
        f"GRANT SELECT, INSERT, UPDATE ON {HEARTBEAT_TABLE} TO {role};",
        f"CREATE PUBLICATION {publication} FOR TABLE {listed}, {HEARTBEAT_TABLE}{through};",
        "-- The connector then needs publication.autocreate.mode=disabled.",
    ]
    return "\n".join(lines) + "\n"
