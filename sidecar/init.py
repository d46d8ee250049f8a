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
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc, pool

from connectors.debezium import connect
from connectors.debezium.checks import Finding, check
from connectors.debezium.settings import (
    HEARTBEAT_DDL,
    HEARTBEAT_TABLE,
    Connection,
    Tuning,
    connector_config,
    slot_name,
)
from sidecar.reflection import InitError, Reflection, Table, postgres_url, reflect

PASSWORD = "${env:HEADRACE_SOURCE_PASSWORD}"  # noqa: S105 (a placeholder)


@dataclass(frozen=True)
class InitWarning:
    """Something that will stop or distort the capture, and its remedy. `table`: None for the server."""

    what: str
    remedy: str
    table: str | None = None

    def __str__(self) -> str:
        return f"{self.table}: {self.what}; {self.remedy}" if self.table else f"{self.what}; {self.remedy}"


@dataclass(frozen=True)
class InitReport:
    """What was found and written. `sql`: for a role with the least rights. `registered`: the connector's name."""

    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    warnings: tuple[InitWarning, ...]
    sql: str
    connector: Mapping[str, str]
    findings: tuple[Finding, ...]
    registered: str | None = None

    def as_json(self) -> dict[str, object]:
        """As `--json` prints it; without the connector's password."""
        return {
            "tables": [{"name": t.name, "key": t.key, "columns": len(t.columns), "rows": t.rows} for t in self.tables],
            "files": [str(f) for f in self.files],
            "warnings": [{"what": w.what, "remedy": w.remedy, "table": w.table} for w in self.warnings],
            "findings": [f.__dict__ for f in self.findings],
            "sql": self.sql,
            "registered": self.registered,
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
) -> InitReport:
    """Reflect `url`, write the starting files into `folder`, and register the connector when asked.

    `tables`: shell-like patterns. `overrides`: connector settings that win, such as `database.hostname` where Connect
    sees the server under another name. Raises InitError, ConnectError.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", source_name):
        raise InitError("not a source's name", name=source_name, hint="letters, digits, _ and -, not a digit first")
    if register and connect_url is None:
        raise InitError("registering needs the address of Kafka Connect", hint="give --connect http://host:8083")
    if create_heartbeat:
        _create_heartbeat(url)
    found = reflect(url, tables)
    if not found.tables:
        raise InitError("the database has no table to capture", database=found.url.render_as_string(hide_password=True))
    via_root = bool(tuning and tuning.via_root)
    config = _connector(found, topic_prefix, tuning, overrides, None)
    shown = config if write_password else config | {"database.password": PASSWORD}
    files = {
        folder / "headrace.yaml": headrace_yaml(
            found.tables, source_name, topic_prefix, kafka_bootstrap, config, connect_url, workers
        ),
        folder / "views" / "example.yaml": example_views(found.tables),
        folder / "connectors" / f"{source_name}.json": json.dumps(shown, indent=2) + "\n",
    }
    _check_free(files, force)
    registered = None
    if register and connect_url is not None:
        connect.register(connect_url, source_name, config)
        registered = source_name
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    captured = {t.name: t.partitions for t in found.tables}
    return InitReport(
        found.tables, tuple(files), tuple(warnings(found, via_root)),
        least_privilege_sql(found, topic_prefix, via_root), shown, tuple(check(config, captured)), registered,
    )  # fmt: skip


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
    """What stands in the way of an exact capture, the server's first."""
    s = found.server
    out = []
    if s.wal_level != "logical":
        out.append(
            InitWarning(f"wal_level is {s.wal_level}", "ALTER SYSTEM SET wal_level = 'logical', then restart Postgres")
        )
    if not (s.replication or s.superuser):
        remedy = f"ALTER ROLE {_quoted(s.user)} REPLICATION, or use the role of the SQL below"
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


def _table_warnings(t: Table, via_root: bool) -> list[InitWarning]:
    out = []
    every = [_table(n) for n in (t.partitions or (t.name,))]
    if t.key is None and t.identity != "f":
        remedy = "; ".join(f"ALTER TABLE {n} REPLICA IDENTITY FULL" for n in every)
        out.append(InitWarning("it has no key, and its old rows are not in the WAL", remedy, t.name))
    elif t.key is not None and "n" in t.identity:
        remedy = "; ".join(f"ALTER TABLE {n} REPLICA IDENTITY DEFAULT" for n in every)
        out.append(InitWarning("replica identity is NOTHING: updates and deletes do not come", remedy, t.name))
    if not t.logged:
        out.append(
            InitWarning(
                "it is unlogged: its changes never reach the WAL", f"ALTER TABLE {_table(t.name)} SET LOGGED", t.name
            )
        )
    for c in t.columns:
        if c.generated:
            what = f"the generated column {c.name} is in the snapshot but not among changes"
            out.append(InitWarning(what, "leave it out of headrace.yaml and compute it in the view", t.name))
    if t.partitions and via_root:
        what = "a TRUNCATE of one partition is not published under the root's name"
        out.append(InitWarning(what, "delete its rows instead, or capture the partitions", t.name))
    return out


def least_privilege_sql(found: Reflection, topic_prefix: str, via_root: bool = False) -> str:
    """SQL for a superuser: a role that may replicate and read these tables alone, publication, heartbeat table."""
    role = _quoted("headrace")
    schemas = sorted({t.name.partition(".")[0] for t in found.tables})
    roots = ", ".join(_table(t.name) for t in found.tables)
    listed = ", ".join(
        _table(n) for t in found.tables for n in (t.partitions if t.partitions and not via_root else (t.name,))
    )
    through = " WITH (publish_via_partition_root = true)" if via_root else ""
    publication = _quoted(slot_name(topic_prefix))
    database = _quoted(found.url.database or "postgres")
    lines = [
        "-- As a superuser, in the source database; choose a password.",
        f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD '…';",
        f"GRANT CONNECT ON DATABASE {database} TO {role};",
        *[f"GRANT USAGE ON SCHEMA {_quoted(s)} TO {role};" for s in schemas],
        f"GRANT SELECT ON {listed if listed == roots else f'{roots}, {listed}'} TO {role};",
        *[f"{statement};" for statement in HEARTBEAT_DDL],
        f"GRANT USAGE ON SCHEMA headrace TO {role};",
        f"GRANT SELECT, INSERT, UPDATE ON {HEARTBEAT_TABLE} TO {role};",
        f"CREATE PUBLICATION {publication} FOR TABLE {listed}, {HEARTBEAT_TABLE}{through};",
        "-- The connector then needs publication.autocreate.mode=disabled.",
    ]
    return "\n".join(lines) + "\n"


def headrace_yaml(
    tables: Sequence[Table],
    source_name: str,
    topic_prefix: str,
    bootstrap: str,
    connector: Mapping[str, str],
    connect_url: str | None = None,
    workers: int = 1,
) -> str:
    """A starting headrace.yaml that decodes as `connector` encodes; without generated columns, which no change has."""
    modes = [
        f"    {mode.replace('.', '_')}: {_scalar(connector[mode])}"
        for mode in ("time.precision.mode", "decimal.handling.mode", "interval.handling.mode")
    ]
    lines = [
        "version: 1",
        f"name: {_scalar(source_name)}",
        "state: ./state                       # folder of checkpoints and reclock log",
        f"kafka: {{bootstrap.servers: {json.dumps(bootstrap)}}}   # any librdkafka key passes through untouched",
        "sources:",
        f"  - name: {_scalar(source_name)}",
        "    type: debezium",
        f"    topic_prefix: {_scalar(topic_prefix)}",
        *([f"    connect: {json.dumps(connect.shown_url(connect_url))}"] if connect_url else []),
        *modes,
        "    tables:",
    ]
    for t in tables:
        lines.append(f"      - name: {_scalar(t.name)}{_comment(t.comment)}")
        key = "null   # no primary key: kept as a multiset" if t.key is None else _list(t.key)
        lines.append(f"        key: {key}")
        if t.partitions:
            lines.append(f"        partitions: {_list(t.partitions)}")
        lines.append("        columns:")
        for c in (c for c in t.columns if not c.generated):
            nullable = str(c.nullable).lower()
            entry = f"{{name: {_scalar(c.name)}, data_type: {_scalar(c.data_type)}, nullable: {nullable}}}"
            lines.append(f"          - {entry}{_comment(c.comment)}")
    lines += [
        "sinks:                               # a view goes to those that its `sinks:` names",
        '  - {name: warehouse, type: postgres, url: "${env:WAREHOUSE_URL}", schema: headrace}',
        "  # views as compacted topics of the cluster above, one each: choose a prefix that is yours to write to",
        "  - {name: bus, type: kafka, topic_prefix: views., format: json}",
        "views: ./views",
        "http: 127.0.0.1:8088",
        f"engine: {{workers: {workers}}}                 # processes that share the work",
    ]
    return "\n".join(lines) + "\n"


def example_views(tables: Sequence[Table]) -> str:
    """Two views to begin with: the count of the largest table, and sums along a foreign key where there is one."""
    largest = max(tables, key=lambda t: t.rows)
    name = _plain(largest.name.partition(".")[2])
    count = f"SELECT count(*) AS row_count FROM {_table(largest.name)}"  # noqa: S608 (text for a file; quoted)
    lines = [
        "version: 1",
        "views:",
        f"  - name: {name}_count",
        f"    description: How many rows {largest.name} has",
        f"    sql: {json.dumps(count)}",
        "    sinks: [warehouse]",
    ]
    by_name = {t.name: t for t in tables}
    pairs = [(c, k) for c in tables for k in c.foreign_keys if k.target in by_name and k.target != c.name]
    if pairs:
        # The pair with the largest child says most; the order of `pairs` settles a tie.
        child, key = max(pairs, key=lambda pair: pair[0].rows)
        lines += _join_view(child, by_name[key.target], key.columns, key.target_columns)
    return "\n".join(lines) + "\n"


def _join_view(child: Table, parent: Table, columns: Sequence[str], targets: Sequence[str]) -> list[str]:
    kind = {c.name: c.data_type for c in parent.columns}
    taken = set(columns) | set(child.key or ())
    label = next((c for c, k in kind.items() if c not in targets and re.match(r"text|character varying", k)), None)
    number = next(
        (
            c.name
            for c in child.columns
            if c.name not in taken and re.match(r"numeric|integer|bigint|smallint", c.data_type)
        ),
        None,
    )
    grouped = [f"p.{_quoted(c)}" for c in (*targets, *([label] if label else []))]
    short = _plain(child.name.partition(".")[2])
    chosen = [*grouped, f"count(*) AS {short}_count"]
    if number:
        chosen.append(f"sum(c.{_quoted(number)}) AS {_plain(number)}_sum")
    on = " AND ".join(f"c.{_quoted(a)} = p.{_quoted(b)}" for a, b in zip(columns, targets, strict=True))
    return [
        f"  - name: {short}_by_{_plain(parent.name.partition('.')[2])}",
        f"    description: What {child.name} holds for each row of {parent.name}",
        f"    key: {_list(targets)}",
        "    sql: |",
        f"      SELECT {', '.join(chosen)}",
        f"      FROM {_table(child.name)} AS c",
        f"      JOIN {_table(parent.name)} AS p ON {on}",
        f"      GROUP BY {', '.join(grouped)}",
        "    sinks: [warehouse]",
    ]


_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_WORDS = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n", "none"})
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset(
    """
    all and any array as asc both case cast check collate column constraint create cross current_date desc
    distinct do else end except false fetch for foreign from full grant group having in initially inner
    intersect into is join lateral leading left like limit natural not null offset on only or order outer
    placing primary references returning right select some table then to trailing true union unique user using
    variadic when where window with
    """.split()  # noqa: SIM905 (a list of ninety quoted words would be harder to read)
)


def _scalar(text: str) -> str:
    """A YAML scalar that reads back as exactly this text."""
    return text if _BARE.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text, ensure_ascii=False)


def _list(items: Sequence[str]) -> str:
    return "[" + ", ".join(_scalar(i) for i in items) + "]"


def _comment(text: str | None) -> str:
    return f"   # {' '.join(text.split())}" if text and text.strip() else ""


def _quoted(identifier: str) -> str:
    """An identifier as SQL needs it."""
    if _IDENTIFIER.fullmatch(identifier) and identifier not in _RESERVED:
        return identifier
    return '"' + identifier.replace('"', '""') + '"'


def _table(name: str) -> str:
    schema, _, table = name.partition(".")
    return f"{_quoted(schema)}.{_quoted(table)}"


def _plain(name: str) -> str:
    """A name for a view or an output column, made of what needs no quoting."""
    made = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "table"
    return made if _IDENTIFIER.fullmatch(made) else f"t_{made}"
