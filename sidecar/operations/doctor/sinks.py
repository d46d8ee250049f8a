"""The Postgres sinks: that they answer, that their role may write, that nobody else does, and that tables are as they were made.

Always: read-only; each sink is asked in a session of its own. Kafka sinks are looked at with the topics. Called by `examine`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg

from headrace.connectors.postgres import sink_catalog
from headrace.connectors.postgres.connection import Connection, Target
from headrace.connectors.postgres.ddl import Names
from headrace.connectors.sink import SinkError, SinkView
from headrace.sidecar.config.config import PostgresSinkConfig
from headrace.sidecar.operations.doctor.findings import Finding, Subject, advice, identifier, psql, refused

S = Subject.SINK
SKEW_SECONDS = 1.0

_SCHEMA = """
SELECT current_user, to_regnamespace(quote_ident(%(schema)s)) IS NOT NULL AS there,
       has_database_privilege(current_database(), 'CREATE') AS create_schema,
       coalesce(has_schema_privilege(to_regnamespace(quote_ident(%(schema)s))::oid, 'CREATE, USAGE'), false) AS create_table,
       extract(epoch FROM clock_timestamp())::float8"""
_WRITERS = """
SELECT c.relname, a.grantee::regrole::text, string_agg(a.privilege_type, ', ' ORDER BY a.privilege_type)
FROM pg_class c, aclexplode(c.relacl) a
WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND c.relkind = 'r' AND a.grantee <> c.relowner
  AND a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE') AND c.relname = ANY(%(names)s) GROUP BY 1, 2 ORDER BY 1, 2"""
_TRIGGERS = """
SELECT c.relname, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND NOT t.tgisinternal AND t.tgenabled <> 'D'
  AND c.relname = ANY(%(names)s) ORDER BY 1, 2"""
_OWNERS = """
SELECT c.relname, c.relowner::regrole::text FROM pg_class c
WHERE c.relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND c.relkind = 'r' AND c.relname = ANY(%(names)s)
  AND NOT pg_has_role(c.relowner, 'USAGE') ORDER BY 1"""


def check_sink(
    sink: PostgresSinkConfig, views: Sequence[SinkView], wall: Callable[[], float] = time.time
) -> list[Finding]:
    """What is wrong with a sink. `views`: those that are written there."""
    where = f"sink {sink.name}"
    try:
        target = Target(sink.name, sink.url.get_secret_value())
    except SinkError as error:
        return [refused(S, "sink_url", where, error.what, "nothing can be written", "")]
    where = f"{where}, {target.place}"
    target.params |= {"application_name": "headrace doctor"}
    try:
        with target.connect() as db:
            db.execute("SET TRANSACTION READ ONLY")
            return [*_rights(db, sink.schema_, where, wall), *_tables(db, sink, views, where)]
    except psycopg.Error as error:
        return [
            refused(
                S,
                "sink_reachable",
                where,
                f"the database does not answer: {target.clean(error)}",
                "nothing can be written",
                'psql "$SINK_URL" -c "SELECT 1"',
            )
        ]


def _rows(db: Connection, query: str, sink: PostgresSinkConfig, views: Sequence[SinkView]) -> list[tuple[Any, ...]]:
    return db.execute(query, {"schema": sink.schema_, "names": [v.name for v in views]}).fetchall()


def _rights(db: Connection, schema: str, where: str, wall: Callable[[], float]) -> Iterator[Finding]:
    before = wall()
    user, there, create_schema, create_table, now = db.execute(_SCHEMA, {"schema": schema}).fetchall()[0]
    skew = now - (before + wall()) / 2
    role, quoted = identifier(user), identifier(schema)
    if not there and not create_schema:
        yield refused(
            S,
            "sink_schema",
            where,
            f"the role {user} may not make the schema {schema}",
            "no table can be made",
            psql("SINK_URL", f"CREATE SCHEMA {quoted} AUTHORIZATION {role}"),
        )
    elif there and not create_table:
        yield refused(
            S,
            "sink_rights",
            where,
            f"the role {user} may not make tables in the schema {schema}",
            "no view can be added",
            psql("SINK_URL", f"GRANT USAGE, CREATE ON SCHEMA {quoted} TO {role}"),
        )
    if abs(skew) > SKEW_SECONDS:
        yield advice(
            S,
            "sink_clock",
            where,
            f"its clock is {skew:+.1f} s from this machine's",
            "`updated_at` and freshness are told by different clocks",
            "chronyc makestep",
        )


def _tables(db: Connection, sink: PostgresSinkConfig, views: Sequence[SinkView], where: str) -> Iterator[Finding]:
    names, quoted = Names(sink.schema_), identifier(sink.schema_)
    for name, owner in _rows(db, _OWNERS, sink, views):
        yield refused(
            S,
            "sink_owner",
            f"{where}, {name}",
            f"the table is of the role {owner}",
            "the sink can neither write nor remake it",
            psql("SINK_URL", f"ALTER TABLE {quoted}.{identifier(name)} OWNER TO {identifier(db.info.user)}"),
        )
    for name, role, kinds in _rows(db, _WRITERS, sink, views):
        grantee = "PUBLIC" if role == "-" else role
        yield advice(
            S,
            "sink_writers",
            f"{where}, {name}",
            f"{grantee} may {kinds} too",
            "rows that others write are neither kept nor noticed until `headrace audit`",
            psql("SINK_URL", f"REVOKE {kinds} ON {quoted}.{identifier(name)} FROM {grantee}"),
        )
    for name, trigger in _rows(db, _TRIGGERS, sink, views):
        yield advice(
            S,
            "sink_trigger",
            f"{where}, {name}",
            f"the trigger {trigger} runs with each write",
            "it may change what is written, and slows the sink",
            psql("SINK_URL", f"ALTER TABLE {quoted}.{identifier(name)} DISABLE TRIGGER {identifier(trigger)}"),
        )
    for view in views:
        if sink_catalog.altered(db, names, view):
            yield refused(
                S,
                "sink_altered",
                f"{where}, {view.name}",
                "somebody has taken columns or the key of its table away, or changed a type",
                "writes fail or change meaning: dropped, the next start makes and fills it anew",
                psql("SINK_URL", f"DROP TABLE {quoted}.{identifier(view.name)}"),
            )
