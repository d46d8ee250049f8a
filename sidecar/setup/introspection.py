"""What a Postgres holds that can be captured: tables, types as it spells them, keys, leaves, and its readiness.

Always: read-only, over SQLAlchemy; system schemas and our own are passed over; a leaf of a partitioned table stands
with its root only. Called by `scaffold`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import sqlalchemy as sa
from sqlalchemy import exc, pool
from sqlalchemy.engine import URL, Connection, Engine, make_url

from headrace.engine.errors import HeadraceError

OWN_SCHEMA = "headrace"


class InitError(HeadraceError):
    """A database that cannot be reflected, or files that would be overwritten."""

    code: ClassVar[str] = "init"


@dataclass(frozen=True)
class Column:
    """A column; `data_type` as format_type() prints it, a domain's base. `generated`: computed by Postgres from others.

    `composite`: of a row type. `dimensions`: of an array, as it was declared. `labels`: of an enum, in its order.
    """

    name: str
    data_type: str
    nullable: bool
    generated: bool = False
    comment: str | None = None
    composite: bool = False
    dimensions: int = 0
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class ForeignKey:
    """`columns` of a table refer to `target_columns` of `target` ("schema.table")."""

    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table or the root of a partitioned one. `key`: its primary key, else its replica identity's index, else None.

    `identity`: replica identity as pg_class has it (d, f, n, i); of a partitioned table, of every leaf: the letters
    differ where the leaves differ. `rows`: the planner's estimate, -1 where it has none. `owned`: by a role that the
    user has.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] | None
    identity: str
    partitions: tuple[str, ...] = ()
    rows: int = -1
    logged: bool = True
    owned: bool = True
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str | None = None


@dataclass(frozen=True)
class Server:
    """The settings on which reading changes depends. `heartbeat`: our heartbeat table exists and the user may write to it."""

    version: int
    wal_level: str
    user: str
    superuser: bool
    replication: bool
    free_slots: int
    slot_wal_limit: str
    encoding: str
    heartbeat: bool


@dataclass(frozen=True)
class Reflection:
    """The server and its tables, by name. `url`: without its password when shown."""

    url: URL
    server: Server
    tables: tuple[Table, ...] = field(default_factory=tuple)


_TABLES = sa.text("""
SELECT c.oid, n.nspname, c.relname, c.relkind, c.relreplident, c.reltuples::bigint AS rows, c.relispartition,
       c.relpersistence = 'p' AS logged, pg_has_role(c.relowner, 'USAGE') AS owned,
       obj_description(c.oid, 'pg_class') AS comment
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', :own) AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY n.nspname, c.relname""")

_COLUMNS = sa.text("""
WITH RECURSIVE based(attrelid, attnum, type, modifier) AS (
  SELECT attrelid, attnum, atttypid, atttypmod FROM pg_attribute
  WHERE attrelid = ANY(:oids) AND attnum > 0 AND NOT attisdropped
  UNION ALL
  SELECT b.attrelid, b.attnum, t.typbasetype, t.typtypmod FROM based b JOIN pg_type t ON t.oid = b.type
  WHERE t.typtype = 'd')
SELECT a.attrelid AS oid, a.attname, format_type(b.type, b.modifier) AS data_type, NOT a.attnotnull AS nullable,
       a.attgenerated <> '' AS generated, col_description(a.attrelid, a.attnum) AS comment,
       t.typtype = 'c' AS composite, a.attndims AS dimensions,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder) AS labels
FROM pg_attribute a JOIN based b USING (attrelid, attnum) JOIN pg_type t ON t.oid = b.type
WHERE t.typtype <> 'd' ORDER BY a.attrelid, a.attnum""")

_LEAVES = sa.text("""
SELECT root.oid AS root, n.nspname, c.relname, c.relreplident, c.reltuples::bigint AS rows
FROM unnest(CAST(:oids AS oid[])) AS root(oid), pg_partition_tree(root.oid) t
JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.isleaf AND c.oid <> root.oid ORDER BY root.oid, n.nspname, c.relname""")

_IDENTITY_KEYS = sa.text("""
SELECT i.indrelid AS oid, array_agg(a.attname::text ORDER BY k.at) AS columns
FROM pg_index i, unnest(i.indkey::smallint[]) WITH ORDINALITY k(attnum, at), pg_attribute a
WHERE i.indrelid = ANY(:oids) AND i.indisreplident AND k.at <= i.indnkeyatts AND a.attrelid = i.indrelid
  AND a.attnum = k.attnum GROUP BY i.indrelid, i.indexrelid""")

_SERVER = sa.text("""
SELECT current_setting('server_version_num')::int AS version, current_setting('wal_level') AS wal_level,
       current_user AS user, r.rolsuper AS superuser,
       r.rolreplication OR EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'rds_replication'
                                   AND pg_has_role(current_user, g.oid, 'MEMBER')) AS replication,
       current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots) AS free_slots,
       current_setting('max_slot_wal_keep_size', true) AS slot_wal_limit,
       current_setting('server_encoding') AS encoding,
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'headrace' AND c.relname = 'heartbeat' AND has_schema_privilege(n.oid, 'USAGE')
                 AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE')) AS heartbeat
FROM pg_roles r WHERE r.rolname = current_user""")


def postgres_url(url: str) -> URL:
    """A Postgres URL (postgres://, postgresql://) for SQLAlchemy over psycopg. Raises InitError."""
    try:
        made = make_url(url)
    except exc.ArgumentError:
        raise InitError("not a Postgres URL", hint="write postgresql://user:password@host:5432/database") from None
    if made.drivername.partition("+")[0] not in ("postgres", "postgresql"):
        raise InitError("not a Postgres URL", scheme=made.drivername, hint="write postgresql://user@host/database")
    return made.set(drivername="postgresql+psycopg")


def reflect(url: str, patterns: Sequence[str] | None = None) -> Reflection:
    """The tables whose name matches one of `patterns` (shell-like, on "schema.table", or on the table where a pattern
    has no dot); all of them without patterns. Raises InitError: unreachable, or a pattern that matches nothing.
    """
    made = postgres_url(url)
    engine = sa.create_engine(made, connect_args={"connect_timeout": 10}, poolclass=pool.NullPool)
    try:
        with engine.connect() as connection:
            server = Server(**connection.execute(_SERVER).mappings().one())
            return Reflection(made, server, _tables(engine, connection, patterns))
    except exc.SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise InitError(
            f"the database cannot be read: {reason}", database=made.render_as_string(hide_password=True),
            hint="are address, database, user and password right?",
        ) from error  # fmt: skip
    finally:
        engine.dispose()


def _tables(engine: Engine, connection: Connection, patterns: Sequence[str] | None) -> tuple[Table, ...]:
    every = [r for r in connection.execute(_TABLES, {"own": OWN_SCHEMA}).mappings().all() if not r["relispartition"]]
    chosen = [r for r in every if patterns is None or any(_fits(r, p) for p in patterns)]
    for pattern in patterns or ():
        if not any(_fits(r, pattern) for r in every):
            named = ", ".join(f"{r['nspname']}.{r['relname']}" for r in every[:20])
            raise InitError("no table has such a name", pattern=pattern, tables=named or "none")
    oids = {"oids": [r["oid"] for r in chosen]}
    columns = _by_oid(connection.execute(_COLUMNS, oids).mappings().all())
    roots = {"oids": [r["oid"] for r in chosen if r["relkind"] == "p"]}
    leaves = _by_oid(connection.execute(_LEAVES, roots).mappings().all(), "root")
    identities = {r["oid"]: tuple(r["columns"]) for r in connection.execute(_IDENTITY_KEYS, oids).mappings().all()}
    inspector = sa.inspect(engine)
    schemas = sorted({r["nspname"] for r in chosen})
    keys = _keys(inspector, schemas)
    foreign = _foreign_keys(inspector, schemas)
    tables = []
    for r in chosen:
        at = (r["nspname"], r["relname"])
        parts = leaves.get(r["oid"], [])
        identity = "".join(sorted({p["relreplident"] for p in parts})) or r["relreplident"]
        tables.append(
            Table(
                name=".".join(at),
                columns=tuple(
                    Column(
                        c["attname"],
                        c["data_type"],
                        c["nullable"],
                        c["generated"],
                        c["comment"],
                        c["composite"],
                        c["dimensions"],
                        tuple(c["labels"]),
                    )
                    for c in columns.get(r["oid"], [])
                ),
                key=keys.get(at) or identities.get(r["oid"]),
                identity=identity,
                partitions=tuple(f"{p['nspname']}.{p['relname']}" for p in parts),
                rows=sum(max(p["rows"], 0) for p in parts) if parts else r["rows"],
                logged=r["logged"],
                owned=r["owned"],
                foreign_keys=tuple(foreign.get(at, ())),
                comment=r["comment"],
            )
        )
    return tuple(tables)


def _keys(inspector: sa.Inspector, schemas: Iterable[str]) -> dict[tuple[str, str], tuple[str, ...]]:
    found = {}
    for schema in schemas:
        for (_, table), key in inspector.get_multi_pk_constraint(schema).items():
            if key["constrained_columns"]:
                found[(schema, table)] = tuple(key["constrained_columns"])
    return found


def _foreign_keys(inspector: sa.Inspector, schemas: Iterable[str]) -> dict[tuple[str, str], list[ForeignKey]]:
    found: dict[tuple[str, str], list[ForeignKey]] = {}
    for schema in schemas:
        for (_, table), keys in inspector.get_multi_foreign_keys(schema).items():
            for k in keys:
                target = f"{k['referred_schema'] or schema}.{k['referred_table']}"
                made = ForeignKey(tuple(k["constrained_columns"]), target, tuple(k["referred_columns"]))
                found.setdefault((schema, table), []).append(made)
    return found


def _by_oid(rows: Iterable[sa.RowMapping], name: str = "oid") -> dict[int, list[sa.RowMapping]]:
    grouped: dict[int, list[sa.RowMapping]] = {}
    for row in rows:
        grouped.setdefault(row[name], []).append(row)
    return grouped


def _fits(row: sa.RowMapping, pattern: str) -> bool:
    name = f"{row['nspname']}.{row['relname']}" if "." in pattern else row["relname"]
    return fnmatch.fnmatchcase(name, pattern)
