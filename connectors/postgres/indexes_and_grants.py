"""Indexes and grants that are declared with a view, for its table.

Invariant: afterwards the table has the declared indexes and no others of ours, and of the roles that we granted it to the
declared ones alone. What somebody else added stays. Whoever makes or opens a view's table calls it, in its transaction.
"""

from __future__ import annotations

import hashlib

from psycopg import sql

from headrace.connectors.postgres.connection import Connection
from headrace.connectors.postgres.ddl import Names, Table

PREFIX = "headrace_ix_"


def settle(connection: Connection, names: Names, table: Table) -> None:
    """Bring a table that is registered to what is declared. Raises psycopg's errors for a role that is not there."""
    index(connection, names, table)
    grant(connection, names, table)


def index(connection: Connection, names: Names, table: Table) -> None:
    """The indexes declared, and no other of ours."""
    target = names.of(table.view.name)
    rows = connection.execute(
        "SELECT c.oid::bigint, i.indexrelid::regclass::text, x.relname FROM pg_class c "
        "LEFT JOIN pg_index i ON i.indrelid = c.oid LEFT JOIN pg_class x ON x.oid = i.indexrelid WHERE c.oid = %s::regclass",
        (target.as_string(connection),),
    ).fetchall()
    stand = {name: spelled for _, spelled, name in rows if name is not None and name.startswith(PREFIX)}
    wanted = {_name(rows[0][0], columns): columns for columns in table.view.indexes}
    for name in stand.keys() - wanted.keys():
        connection.execute(sql.SQL("DROP INDEX {}").format(names.of(name)))
    for name in sorted(wanted.keys() - stand.keys()):
        columns = sql.SQL(", ").join(sql.Identifier(c) for c in wanted[name])
        connection.execute(sql.SQL("CREATE INDEX {} ON {} ({})").format(sql.Identifier(name), target, columns))


def _name(oid: int, columns: tuple[str, ...]) -> str:
    """Of one table and these columns: while a table takes another's place both have theirs."""
    return f"{PREFIX}{oid}_{hashlib.sha256(repr(columns).encode()).hexdigest()[:16]}"


def grant(connection: Connection, names: Names, table: Table) -> None:
    """The roles declared may read the table, and those that were declared before may not any more."""
    name, wanted = table.view.name, set(table.view.grants)
    row = connection.execute(names.fill("SELECT grants FROM {view} WHERE name = %s"), (name,)).fetchone()
    before = set(row[0]) if row is not None else set()
    if before == wanted:
        return
    target = names.of(name)
    for role in sorted(before - wanted):
        known = connection.execute("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", (role,)).fetchone()
        if known is not None and known[0]:
            connection.execute(sql.SQL("REVOKE SELECT ON {} FROM {}").format(target, sql.Identifier(role)))
    for role in sorted(wanted - before):
        schema, to = sql.Identifier(names.schema), sql.Identifier(role)
        connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, to))
        connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(target, to))
    connection.execute(names.fill("UPDATE {view} SET grants = %s WHERE name = %s"), (sorted(wanted), name))
