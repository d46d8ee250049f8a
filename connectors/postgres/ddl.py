"""The DDL of a sink's schema: its own tables, the wait function, and a table for each view.

Invariant: the driver quotes every identifier. Nothing is dropped or changed that the catalog table `view` does not call ours.
The sink calls it inside the transaction of `open` or of a write.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

from psycopg import sql

from headrace.connectors.sink import SinkError, SinkView
from headrace.engine.schema import Column, Kind

ROW, COPY_NUMBER, DIFF = "headrace_row", "headrace_copy", "headrace_diff"
"""The first two end the table of a view without key: the row's fingerprint, and which of its copies this is. The last
ends staging tables."""

RESERVED = frozenset({"frontier", "view", "freshness"})
_MULTI_IMAGE = {Kind.NUMERIC, Kind.REAL, Kind.DOUBLE, Kind.BPCHAR, Kind.OTHER}
_NAME_BYTES = 63

TABLES = """
CREATE TABLE IF NOT EXISTS {frontier} (
    sink text PRIMARY KEY,
    epoch bigint,
    sources jsonb NOT NULL DEFAULT '{{}}',
    generation bigint NOT NULL DEFAULT 0,
    writes bigint NOT NULL DEFAULT 0,
    program text NOT NULL DEFAULT '',
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    incarnation bigint NOT NULL DEFAULT 1,
    run uuid,
    first_epoch bigint
) WITH (fillfactor = 50);
ALTER TABLE {frontier} ADD COLUMN IF NOT EXISTS incarnation bigint NOT NULL DEFAULT 1,
    ADD COLUMN IF NOT EXISTS run uuid, ADD COLUMN IF NOT EXISTS first_epoch bigint;
CREATE TABLE IF NOT EXISTS {view} (
    name text PRIMARY KEY,
    sink text NOT NULL,
    fingerprint text,
    shape text NOT NULL,
    key text[],
    filled_at bigint,
    description text NOT NULL DEFAULT '',
    error text,
    error_epoch bigint
);
ALTER TABLE {view} ADD COLUMN IF NOT EXISTS error text, ADD COLUMN IF NOT EXISTS error_epoch bigint,
    ADD COLUMN IF NOT EXISTS grants text[] NOT NULL DEFAULT '{{}}';
CREATE OR REPLACE VIEW {freshness} AS
    SELECT v.name AS view, f.sink, s.source,
           CASE WHEN v.fingerprint IS NULL THEN NULL WHEN v.error IS NULL THEN f.epoch ELSE v.error_epoch END AS epoch,
           CASE WHEN v.fingerprint IS NOT NULL AND v.error IS NULL THEN (s.at ->> 'lsn')::pg_lsn END AS lsn,
           CASE WHEN v.fingerprint IS NOT NULL AND v.error IS NULL THEN (s.at ->> 'commit_time')::timestamptz END
               AS commit_time,
           CASE WHEN v.fingerprint IS NOT NULL AND v.error IS NULL THEN s.at -> 'positions' END AS positions,
           f.updated_at, v.error,
           CASE WHEN v.fingerprint IS NOT NULL AND v.error IS NULL THEN (s.at ->> 'version')::bigint END AS version
    FROM {view} v JOIN {frontier} f ON f.sink = v.sink
    LEFT JOIN LATERAL jsonb_each(f.sources) AS s(source, at) ON true;
COMMENT ON TABLE {frontier} IS
    'What each group of views reflects: every epoch up to this one, and so these positions of its sources';
COMMENT ON TABLE {view} IS 'The views written here, by which sink, and the error for which a view is suspended';
COMMENT ON VIEW {freshness} IS 'What each view reflects of each source: LSN or version, commit time, next offsets'
"""

WAIT_FOR = """
CREATE OR REPLACE FUNCTION {wait_for}(source text, lsn pg_lsn, timeout interval DEFAULT interval '5 seconds')
RETURNS boolean LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE AS $function$
DECLARE
    deadline timestamptz := clock_timestamp() + $3;
    pause double precision := 0.001;
    groups bigint;
    behind bigint;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'wait_for cannot see new commits inside a % transaction',
            current_setting('transaction_isolation')
            USING ERRCODE = 'active_sql_transaction', HINT = 'Call it before BEGIN, or use READ COMMITTED.';
    END IF;
    LOOP
        SELECT count(*), count(*) FILTER (WHERE ((f.sources -> $1 ->> 'lsn')::pg_lsn >= $2) IS NOT TRUE)
            INTO groups, behind FROM {frontier} f WHERE f.sources ? $1;
        IF groups > 0 AND behind = 0 THEN
            RETURN true;
        END IF;
        IF clock_timestamp() >= deadline THEN
            RETURN false;
        END IF;
        PERFORM pg_sleep(LEAST(pause, GREATEST(extract(epoch FROM deadline - clock_timestamp()), 0)));
        pause := LEAST(pause * 1.5, 0.02);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION {wait_for}(text, pg_lsn, interval) IS
    'Waits until every group of views here that reads this source reflects the LSN; false when the time is over'
"""


@dataclass(frozen=True)
class Names:
    """The quoted names of a sink's own objects in its schema."""

    schema: str

    def of(self, name: str) -> sql.Identifier:
        """A name in the schema, quoted."""
        return sql.Identifier(self.schema, name)

    def fill(self, statement: str, **more: sql.Composable) -> sql.Composed:
        """`statement` with the schema's names in its braces."""
        ours = {name: self.of(name) for name in ("frontier", "view", "freshness", "wait_for")}
        return sql.SQL(statement).format(**ours, **more)


@dataclass(frozen=True, eq=False)
class Table:
    """How a view stands in the database. `types`: each column's SQL type there, `text` for one the target lacks."""

    view: SinkView
    types: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The view's columns."""
        return self.view.schema.columns

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key's columns; of a keyless view, none."""
        return tuple(self.columns[i].name for i in self.view.key or ())

    @property
    def nullable_key(self) -> bool:
        """Whether a column of the key may be null, as a grouping column may."""
        return any(self.columns[i].nullable for i in self.view.key or ())

    @property
    def without_key(self) -> Table:
        """The view kept as one without key, as of a database that has no index in which nulls are equal."""
        return replace(self, view=replace(self.view, key=None))

    @property
    def several_images(self) -> tuple[str, ...]:
        """Names of the key's columns whose equal values may look different (1.0 and 1.00)."""
        return tuple(self.columns[i].name for i in self.view.key or () if self.columns[i].type.kind in _MULTI_IMAGE)

    @cached_property
    def replaced(self) -> tuple[str, ...]:
        """Names of the columns that a row of a key that is there already gets anew; none: such a row is left alone."""
        return tuple(c.name for c in self.columns if c.name not in self.key or c.name in self.several_images)

    @property
    def replaces(self) -> bool:
        """Whether each row put touches one row of the table."""
        return bool(self.replaced)

    def by_text(self, i: int) -> bool:
        """Whether column `i` is sent as text and cast: arrays of arrays do not unnest, nor bit(3) without its 3."""
        return self.columns[i].type.kind is Kind.OTHER and self.types[i] != "text"

    @cached_property
    def shape(self) -> str:
        """What would need another table if it changed: columns, types, nullability, key."""
        columns = [[c.name, t, c.nullable] for c, t in zip(self.columns, self.types, strict=True)]
        key = list(self.key) if self.view.key is not None else None
        return hashlib.sha256(json.dumps([1, self.view.name, columns, key]).encode()).hexdigest()

    @cached_property
    def successor(self) -> Table:
        """The same under the name that it has until it takes the place of a table of another shape."""
        return Table(replace(self.view, name=f"headrace_next_{self.shape[:24]}"), self.types)

    @property
    def stage(self) -> str:
        """The session's own staging table for large changes."""
        return f"headrace_stage_{self.shape[:24]}"


def check_name(sink: str, view: SinkView) -> None:
    """Raises SinkError for a view or column whose name cannot stand as it is."""
    if view.name in RESERVED:
        raise SinkError("this name is used by the sink itself", hint="rename the view", sink=sink, view=view.name)
    names = [c.name for c in view.schema.columns]
    for name in (view.name, *names):
        if not name or "\0" in name or len(name.encode()) > _NAME_BYTES:
            raise SinkError(
                f"Postgres keeps {_NAME_BYTES} bytes of a name", hint="shorten it", sink=sink, view=view.name, name=name
            )
    if {ROW, COPY_NUMBER, DIFF} & set(names):
        raise SinkError("a column has a name of the sink's own", hint="rename it", sink=sink, view=view.name)
    if len(set(names)) < len(names):
        raise SinkError("two columns have one name", hint="name them with AS", sink=sink, view=view.name)


def create(names: Names, table: Table) -> list[sql.Composed]:
    """The statements that make the table of a view, empty."""
    target = names.of(table.view.name)
    parts = [
        sql.SQL("{} {}{}").format(sql.Identifier(c.name), sql.SQL(t), sql.SQL("" if c.nullable else " NOT NULL"))
        for c, t in zip(table.columns, table.types, strict=True)
    ]
    after: list[sql.Composed] = []
    if table.view.key is None:
        parts += [sql.SQL(f"{ROW} uuid NOT NULL"), sql.SQL(f"{COPY_NUMBER} bigint NOT NULL")]  # type: ignore[list-item]
        parts.append(sql.SQL(f"PRIMARY KEY ({ROW}, {COPY_NUMBER})"))  # type: ignore[arg-type]
    elif not table.key:
        after.append(sql.SQL("CREATE UNIQUE INDEX ON {} ((true))").format(target))
    elif table.nullable_key:
        after.append(sql.SQL("CREATE UNIQUE INDEX ON {} ({}) NULLS NOT DISTINCT").format(target, _list(table.key)))
    else:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(_list(table.key)))
    made = sql.SQL("CREATE TABLE {} ({})").format(target, sql.SQL(", ").join(parts))
    return [made, *after, *_comments(target, table.view)]


def _comments(target: sql.Identifier, view: SinkView) -> list[sql.Composed]:
    found = []
    if view.description:
        found.append(sql.SQL("COMMENT ON TABLE {} IS {}").format(target, sql.Literal(view.description)))
    for column, text in view.columns.items():
        if text and column in view.schema.names:
            place = sql.SQL(".").join([target, sql.Identifier(column)])
            found.append(sql.SQL("COMMENT ON COLUMN {} IS {}").format(place, sql.Literal(text)))
    return found


def rename(names: Names, was: Table, table: Table, is_free: Callable[[sql.Identifier], bool]) -> list[sql.Composed]:
    """The statements that give a table, and the constraint of its primary key, the names of another; its key's as Postgres
    would, the first that `is_free`: names are cut, and a view may have the name of another one's key."""
    target, name = names.of(table.view.name), table.view.name
    made = [sql.SQL("ALTER TABLE {} RENAME TO {}").format(names.of(was.view.name), sql.Identifier(name))]
    if table.view.key is None or (table.key and not table.nullable_key):
        endings = (f"_pkey{n or ''}" for n in count())
        key = next(k for e in endings if is_free(names.of(k := _cut(name, len(e)) + e)))
        keys = sql.Identifier(f"{was.view.name}_pkey"), sql.Identifier(key)
        made.append(sql.SQL("ALTER TABLE {} RENAME CONSTRAINT {} TO {}").format(target, *keys))
    return made


def _cut(name: str, room: int) -> str:
    """A name short enough for so many bytes after it.

    >>> _cut("é" * 40, 5)
    'ééééééééééééééééééééééééééééé'
    """
    return name.encode()[: _NAME_BYTES - room].decode(errors="ignore")


def stage(names: Names, table: Table) -> sql.Composed:
    """The statement that makes the session's staging table: the view's columns and the net count of each row."""
    columns = tuple(c.name for c in table.columns) + ((ROW,) if table.view.key is None else ())
    return sql.SQL(
        "CREATE TEMP TABLE IF NOT EXISTS {} ON COMMIT DELETE ROWS AS SELECT {}, 0::bigint AS headrace_diff FROM {} "
        "WITH NO DATA"
    ).format(sql.Identifier(table.stage), _list(columns), names.of(table.view.name))


def _list(columns: tuple[str, ...]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(c) for c in columns)
