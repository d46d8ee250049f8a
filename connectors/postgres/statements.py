"""The statements that put rows into a view's table and take them out, from arrays or from the staging table.

Invariant: every identifier is quoted and every value is a parameter. A statement is made once for each table and way of
writing. `by_row` calls it with arrays as parameters `$1` … (`stage` None), `bulk_copy` with the name of a staging table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from psycopg import sql

from headrace.connectors.postgres.ddl import COPY_NUMBER, ROW, Names, Table

_PLACE = "\0"
"""Stands for a parameter while a statement is put together: no name can hold it."""


def _ready(statement: sql.Composed, stage: str | None) -> bytes:
    """The statement as it is sent: of one with parameters (no `stage`), the places are numbered."""
    text = statement.as_bytes(None)
    if stage is not None:
        return text
    head, *parts = text.split(_PLACE.encode())
    return head + b"".join(b"$%d%b" % (n, part) for n, part in enumerate(parts, 1))


def _base(type_: str) -> str:
    """The type without its modifiers: an explicit cast to varchar(2) would cut in silence, an assignment refuses."""
    head, _, rest = type_.partition("(")
    return "bpchar" if head == "character" else head + rest.partition(")")[2] if rest else type_


def _relation(table: Table, columns: Sequence[int], tail: Sequence[tuple[str, str]]) -> sql.Composed:
    """`unnest` of one array a column as relation d; types the engine does not know come as text, cast when read."""
    casts, names = [], []
    for i in columns:
        base = "text" if table.by_text(i) else _base(table.types[i])
        casts.append(sql.SQL(_PLACE + "::" + base + "[]"))
        names.append(sql.Identifier(table.columns[i].name))
    for name, type_ in tail:
        casts.append(sql.SQL(_PLACE + "::" + type_ + "[]"))
        names.append(sql.Identifier(name))
    return sql.SQL("unnest({}) AS d({})").format(sql.SQL(", ").join(casts), sql.SQL(", ").join(names))


def _value(table: Table, i: int, staged: bool) -> sql.Composed:
    read = sql.SQL("d.{}").format(sql.Identifier(table.columns[i].name))
    if staged or not table.by_text(i):
        return sql.SQL("{}").format(read)
    return sql.SQL("{}::{}").format(read, sql.SQL(table.types[i]))


def _source(table: Table, stage: str | None, columns: Sequence[int], tail: Sequence[tuple[str, str]]) -> sql.Composed:
    if stage is not None:
        return sql.SQL("{} AS d").format(sql.Identifier(stage))
    return _relation(table, columns, tail)


@cache
def take_keys(names: Names, table: Table, nulls: tuple[bool, ...], stage: str | None) -> bytes:
    """Delete the rows of keys whose columns are null as `nulls` says."""
    key = table.view.key or ()
    conditions = [sql.SQL("d.headrace_diff < 0")] if stage is not None else []
    found: list[sql.Composable] = list(conditions)
    for i, null in zip(key, nulls, strict=True):
        column = sql.Identifier(table.columns[i].name)
        if null:
            found.append(sql.SQL("t.{} IS NULL").format(column))
            if stage is not None:
                found.append(sql.SQL("d.{} IS NULL").format(column))
        else:
            found.append(sql.SQL("t.{} = {}").format(column, _value(table, i, stage is not None)))
    live = [i for i, null in zip(key, nulls, strict=True) if not null]
    target = names.of(table.view.name)
    if stage is None and not live:  # the one row of an empty key, or the one whose key is all nulls
        where = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(found)) if found else sql.SQL("")
        return _ready(sql.SQL("DELETE FROM {} AS t{}").format(target, where), stage)
    taken = sql.SQL("DELETE FROM {} AS t USING {} WHERE {}").format(
        target, _source(table, stage, live, ()), sql.SQL(" AND ").join(found)
    )
    return _ready(taken, stage)


@cache
def put_rows(names: Names, table: Table, stage: str | None, only_changed: bool = False) -> bytes:
    """Insert rows, or replace those of the same keys."""
    every = range(len(table.columns))
    columns = [sql.Identifier(c.name) for c in table.columns]
    conflict = sql.SQL(", ").join(map(sql.Identifier, table.key)) if table.key else sql.SQL("(true)")
    changed = table.replaced
    if changed:
        action: sql.Composable = sql.SQL("UPDATE SET {}").format(
            sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in changed)
        )
        if only_changed:
            old, new = (
                sql.SQL(", ").join(sql.SQL("{}.{}").format(sql.SQL(side), sql.Identifier(name)) for name in changed)
                for side in ("t", "excluded")
            )
            action = sql.SQL("{} WHERE record_image_ne(ROW({}), ROW({}))").format(action, old, new)
    else:
        action = sql.SQL("NOTHING")
    where = sql.SQL(" WHERE d.headrace_diff > 0") if stage is not None else sql.SQL("")
    put = sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM {}{} ON CONFLICT ({}) DO {}").format(
        names.of(table.view.name),
        sql.SQL(", ").join(columns),
        sql.SQL(", ").join(_value(table, i, stage is not None) for i in every),
        _source(table, stage, every, ()),
        where,
        conflict,
        action,
    )
    return _ready(put, stage)


_HIGHEST = "(SELECT coalesce(max(x.headrace_copy), 0) FROM {} AS x WHERE x.headrace_row = d.headrace_row)"
_TAIL = ((ROW, "uuid"), ("headrace_diff", "bigint"))


@cache
def take_copies(names: Names, table: Table, stage: str | None) -> bytes:
    """Delete the highest-numbered copies of rows of a keyless view."""
    target = names.of(table.view.name)
    highest = sql.SQL(_HIGHEST).format(target)
    where = sql.SQL(" AND d.headrace_diff < 0") if stage is not None else sql.SQL("")
    put = sql.SQL(
        "DELETE FROM {} AS t USING {} WHERE t.headrace_row = d.headrace_row "
        "AND t.headrace_copy > {} - abs(d.headrace_diff){}"
    ).format(target, _source(table, stage, (), _TAIL), highest, where)
    return _ready(put, stage)


@cache
def put_copies(names: Names, table: Table, stage: str | None) -> bytes:
    """Add copies of rows to a keyless view."""
    every = range(len(table.columns))
    target = names.of(table.view.name)
    columns = [sql.Identifier(c.name) for c in table.columns] + [sql.Identifier(ROW), sql.Identifier(COPY_NUMBER)]
    values = [_value(table, i, stage is not None) for i in every]
    put = sql.SQL(
        "INSERT INTO {} ({}) SELECT {}, d.headrace_row, h.highest + g.n FROM {} "
        "CROSS JOIN LATERAL {} AS h(highest) CROSS JOIN LATERAL generate_series(1, d.headrace_diff) AS g(n)"
    ).format(
        target,
        sql.SQL(", ").join(columns),
        sql.SQL(", ").join(values),
        _source(table, stage, every, _TAIL),
        sql.SQL(_HIGHEST).format(target),
    )
    return _ready(put, stage)
