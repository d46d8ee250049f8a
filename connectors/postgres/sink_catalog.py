"""The sink catalog: which run may write a schema, up to which frontier it is written, and which tables are ours.

Invariant: the frontier row stays locked from the first statement of `claim` or `advance` to the end of its transaction, so
that one generation writes at a time and an older one finds out. The sink calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import orjson
import psycopg
from psycopg import sql

from headrace.connectors.commit_place import place_of
from headrace.connectors.postgres import ddl, indexes_and_grants
from headrace.connectors.postgres.connection import Connection
from headrace.connectors.postgres.ddl import Names, Table
from headrace.connectors.postgres.pipeline import Step
from headrace.connectors.sink import Fenced, Frontier, SinkError, SinkView, SourceFrontier
from headrace.engine.schema import Kind

NULLS_EQUAL = 150000
"""The first version whose unique indexes may treat nulls as equal."""


class Mine(NamedTuple):
    """Where a run of a sidecar left a sink's frontier row: after so many writes, by the claim `run` of a generation.

    A generation tells who is later, and may be taken twice where the database goes back to a backup; a `run` never is,
    so that it is what fences.
    """

    sink: str
    generation: int
    run: str
    writes: int


@dataclass(frozen=True)
class Claim:
    """What `claim` found: where we stand, the frontier, views to be filled, tables to be remade."""

    mine: Mine
    frontier: Frontier | None
    tables: Mapping[str, Table]
    missing: frozenset[str]
    remake: frozenset[str]
    errors: Mapping[str, str]


def claim(
    connection: Connection, sink: str, names: Names, views: Sequence[SinkView], program: str, run: str,
    held: int | None = None, ours: Set[str] = frozenset(),
) -> Claim:  # fmt: skip
    """Make what is missing, take the next generation as `run`, and say where the sink stands, in the caller's transaction.

    `held`: see `Sink.open`. `ours`: the runs by which we claimed the sink before: the last that was answered, and those since
    of which nobody knows whether they took effect.
    """
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"headrace {names.schema}",))
    _make_schema(connection, names)
    connection.execute(names.fill("INSERT INTO {frontier} (sink) VALUES (%s) ON CONFLICT DO NOTHING"), (sink,))
    before = connection.execute(
        names.fill("SELECT generation, run::text FROM {frontier} WHERE sink = %s FOR UPDATE"), (sink,)
    ).fetchone()
    if held is not None and before is not None and before[0] >= held and before[1] not in ours:
        raise Fenced("another generation writes to this sink", sink=sink, generation=held, now=before[0])
    row = connection.execute(
        names.fill(
            "UPDATE {frontier} SET generation = greatest(generation, %s) + 1, run = %s, program = %s "
            "WHERE sink = %s RETURNING generation, writes, epoch, sources, incarnation"
        ),
        (held or 0, run, program, sink),
    ).fetchone()
    if row is None:
        raise SinkError("the frontier row was taken away", hint="restart", sink=sink)
    generation, writes, epoch, sources, incarnation = row
    frontier = None if epoch is None else Frontier(epoch, _sources(sources), incarnation)
    tables = {view.name: _table(connection, view) for view in views}
    missing, remake = _settle_tables(connection, sink, names, tables)
    for name in tables.keys() - remake:
        indexes_and_grants.settle(connection, names, tables[name])
    marked = connection.execute(
        names.fill("SELECT name, error FROM {view} WHERE sink = %s AND error IS NOT NULL"), (sink,)
    ).fetchall()
    mine = Mine(sink, generation, run, writes)
    return Claim(mine, frontier, tables, frozenset(missing), frozenset(remake), dict(marked))


def _make_schema(connection: Connection, names: Names) -> None:
    """The schema and our own tables. A role without CREATE on the database may use a schema made for it."""
    there = connection.execute("SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL", (names.schema,)).fetchone()
    if there is not None and not there[0]:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(names.schema)))
    ours = connection.execute(
        "SELECT to_regprocedure(%s) IS NOT NULL AND EXISTS "
        "(SELECT FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'grants') AND EXISTS "
        "(SELECT FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'first_epoch')",
        (_wait_signature(connection, names), *(names.of(n).as_string(connection) for n in ("view", "frontier"))),
    ).fetchone()
    if ours is None or not ours[0]:
        connection.execute(names.fill(ddl.TABLES))
        connection.execute(names.fill(ddl.WAIT_FOR))


def _wait_signature(connection: Connection, names: Names) -> str:
    return names.of("wait_for").as_string(connection) + "(text, pg_lsn, interval)"


def _table(connection: Connection, view: SinkView) -> Table:
    """The view's table with the types this database knows: an enum or extension type it lacks is text here, and a view whose
    key may be null is kept without one where nulls cannot be equal in an index.
    """
    types = []
    for column in view.schema.columns:
        spelled = column.type.sql()
        if column.type.kind is Kind.OTHER:
            known = connection.execute("SELECT to_regtype(%s) IS NOT NULL", (spelled,)).fetchone()
            spelled = spelled if known is not None and known[0] else "text"
        types.append(spelled)
    table = Table(view, tuple(types))
    return table.without_key if table.nullable_key and connection.info.server_version < NULLS_EQUAL else table


def _settle_tables(
    connection: Connection, sink: str, names: Names, tables: Mapping[str, Table]
) -> tuple[set[str], set[str]]:
    """Drop our tables of views that are gone, make those that are new; say which must be filled, and which remade."""
    rows = connection.execute(names.fill("SELECT name, sink, fingerprint, shape FROM {view}")).fetchall()
    registered = {name: (owner, fingerprint, shape) for name, owner, fingerprint, shape in rows}
    for name, (owner, _, _) in registered.items():
        if owner == sink and name not in tables:
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(names.of(name)))
            connection.execute(names.fill("DELETE FROM {view} WHERE name = %s"), (name,))
    missing, remake = set(), set()
    for name, table in tables.items():
        owner, fingerprint, shape = registered.get(name, (sink, None, None))
        if owner != sink:
            raise SinkError(
                f"the sink {owner} writes a view of this name to this schema", hint="give each sink its own schema",
                sink=sink, view=name, schema=names.schema,
            )  # fmt: skip
        exists = _exists(connection, names, name)
        if shape is None and exists:
            raise SinkError(
                "a table of this name is there and was not made by this sink",
                hint="rename the view, or move or drop the table", sink=sink, view=name, schema=names.schema,
            )  # fmt: skip
        if not exists:
            make(connection, sink, names, table)
            missing.add(name)
        elif fingerprint != table.view.fingerprint or shape != table.shape:
            missing.add(name)
            if shape != table.shape:
                remake.add(name)
        elif _altered(connection, names, table):
            missing.add(name)
            remake.add(name)
    return missing, remake


def _exists(connection: Connection, names: Names, name: str) -> bool:
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_class WHERE relname = %s AND relnamespace = to_regnamespace(quote_ident(%s)))",
        (name, names.schema),
    ).fetchone()
    return row is not None and bool(row[0])


def altered(connection: Connection, names: Names, view: SinkView) -> bool:
    """Whether somebody else took columns or the key of a view's table away, or changed a type; False where it is not there."""
    return _exists(connection, names, view.name) and _altered(connection, names, _table(connection, view))


def _altered(connection: Connection, names: Names, table: Table) -> bool:
    """Whether somebody else took columns or the key away, or changed a type. Columns and indexes added are theirs."""
    target = names.of(table.view.name).as_string(connection)
    columns = connection.execute(
        "SELECT attname::text, atttypid = to_regtype(w.type), attnotnull FROM pg_attribute "
        "JOIN unnest(%s::text[], %s::text[]) AS w(name, type) ON w.name = attname "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        ([c.name for c in table.columns], list(table.types), target),
    ).fetchall()
    keyed = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = %s::regclass AND indisunique AND indisvalid)", (target,)
    ).fetchone()
    kept = len(columns) == len(table.columns) and all(same is not False for _, same, _ in columns)
    return not kept or keyed is None or not keyed[0]


def make(connection: Connection, sink: str, names: Names, table: Table) -> None:
    """Make the view's table, empty, and register it as not filled."""
    create(connection, names, table)
    register(connection, sink, names, table)


def create(connection: Connection, names: Names, table: Table) -> None:
    """Make a table for a view, empty."""
    for statement in ddl.create(names, table):
        connection.execute(statement)


def register(connection: Connection, sink: str, names: Names, table: Table) -> None:
    """Register the view's table as new and not filled."""
    key = list(table.key) if table.view.key is not None else None
    connection.execute(
        names.fill(
            "INSERT INTO {view} (name, sink, fingerprint, shape, key, description) VALUES (%s, %s, NULL, %s, %s, %s) "
            "ON CONFLICT (name) DO UPDATE SET fingerprint = NULL, shape = excluded.shape, key = excluded.key, "
            "description = excluded.description, grants = '{{}}'"
        ),
        (table.view.name, sink, table.shape, key, table.view.description),
    )


def filled(connection: Connection, names: Names, table: Table, epoch: int) -> None:
    """Register that the view's table now holds the whole view."""
    connection.execute(
        names.fill("UPDATE {view} SET fingerprint = %s, filled_at = %s WHERE name = %s"),
        (table.view.fingerprint, epoch, table.view.name),
    )


def advance(names: Names, mine: Mine, frontier: Frontier) -> Step:
    """The update that moves the frontier and holds its row: the fence is its condition, so it must touch one row."""
    at = (b"%d" % frontier.epoch, _encode(frontier), mine.sink.encode(), mine.run.encode(), b"%d" % mine.writes)
    return Step(_advance(names), (*at, b"%d" % frontier.incarnation))


@cache
def _advance(names: Names) -> bytes:
    return names.fill(
        "UPDATE {frontier} SET first_epoch = least(coalesce(epoch, 0) + 1, $1), epoch = $1, sources = $2::jsonb, "
        "writes = writes + 1, incarnation = $6, "
        "updated_at = clock_timestamp() "
        "WHERE sink = $3 AND run = $4 AND writes = $5"
    ).as_bytes(None)


def mark(names: Names, view: str, error: str, last: int | None, before: int | None) -> Step:
    """The update that marks a view in `error`, or mended (""). `last`: the last epoch of its rows in this write, if it
    has any; `before`: the sink's epoch so far, where its rows stand if it has none and was in no error.
    """
    last_text, before_text = (None if epoch is None else b"%d" % epoch for epoch in (last, before))
    return Step(_mark(names), (error.replace("\0", "").encode(), last_text, before_text, view.encode()))


@cache
def _mark(names: Names) -> bytes:
    return names.fill(
        "UPDATE {view} SET error = nullif($1, ''), "
        "error_epoch = CASE WHEN $1 <> '' THEN coalesce($2::bigint, error_epoch, $3::bigint) END WHERE name = $4"
    ).as_bytes(None)


def written(connection: Connection, names: Names, mine: Mine) -> bool:
    """Whether the write after `mine` went through, read under the row's lock.

    A COMMIT that is still under way holds that lock, so the answer is final. Raises Fenced, or SinkError where the row
    is at neither place.
    """
    sink, generation, run, writes = mine
    try:
        row = connection.execute(
            names.fill("SELECT generation, writes, run::text FROM {frontier} WHERE sink = %s FOR UPDATE"), (sink,)
        ).fetchone()
    finally:
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.UNKNOWN:
            connection.rollback()
    if row is not None and row[0] >= generation and row[2] != run:
        raise Fenced("another generation writes to this sink", sink=sink, generation=generation, now=row[0])
    if row is None or row[2] != run or row[1] not in (writes, writes + 1):
        raise SinkError(
            "the frontier row was changed by something else than this sink: it went back, or is gone",
            hint="was the database restored? the views are compared and mended by themselves", sink=sink,
        )  # fmt: skip
    return bool(row[1] == writes + 1)


def _encode(frontier: Frontier) -> bytes:
    sources = {
        name: {
            **source.place.json(),
            "commit_us": source.commit_us,
            "commit_time": _moment(source.commit_us),
            "positions": {t: {str(p): o for p, o in sorted(ps.items())} for t, ps in sorted(source.positions.items())},
        }
        for name, source in frontier.sources.items()
    }
    return orjson.dumps(sources)


def _sources(stored: Mapping[str, Any]) -> dict[str, SourceFrontier]:
    return {
        name: SourceFrontier(
            {topic: {int(p): o for p, o in ps.items()} for topic, ps in at["positions"].items()},
            place_of(at),
            at["commit_us"],
        )
        for name, at in stored.items()
    }


def _moment(micros: int) -> str | None:
    """µs since 1970 as a timestamptz; None where the time is unknown (not positive)."""
    if micros <= 0:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()
