"""The statements that carry a view's net changes into its table: arrays for few rows, COPY and a stage for many.

Always: takes go before puts, so that a key whose image changed (1.0 to 1.00) is free again; how many rows a take must
find is known, and a table that somebody else changed is found out. Called by the sink inside its transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from connectors import image
from connectors.postgres import ddl
from connectors.postgres.ddl import COPY_NUMBER, ROW, Names, Table
from connectors.postgres.net import Net
from connectors.postgres.session import Connection
from connectors.sink import SinkError
from engine.batch.updates import Int64s

FEW = 512
"""Net changes of a view up to which arrays are sent instead of COPY: a choice, not yet tuned by measurement."""


@dataclass(frozen=True)
class Expected:
    """A statement under way that must touch exactly `rows` rows of `view`."""

    cursor: psycopg.Cursor[tuple[Any, ...]]
    rows: int
    view: str

    def check(self, sink: str) -> None:
        """Raises SinkError when the statement touched another number of rows."""
        if self.cursor.rowcount != self.rows:
            raise SinkError(
                f"the table holds {self.cursor.rowcount} of {self.rows} rows that must go: somebody else changed it",
                hint="delete the view's row from the sink's table `view` and restart: the view is then filled anew",
                sink=sink,
                view=self.view,
            )


def apply_few(connection: Connection, names: Names, net: Net) -> Iterator[Expected]:
    """Send the statements of a small net change; meant for pipeline mode, so nothing is read back here."""
    table = net.table
    if table.view.key is None:
        if len(net.takes):
            copies = (_array(net.fingerprints(net.takes)), _array(net.take_counts.tolist()))
            cursor = connection.execute(_take_copies(names, table, None), copies, prepare=True)
            yield Expected(cursor, int(net.take_counts.sum()), table.view.name)
        if len(net.puts):
            tail = (_array(net.fingerprints(net.puts)), _array(net.put_counts.tolist()))
            connection.execute(_put_copies(names, table, None), (*_arrays(net, net.puts), *tail), prepare=True)
        return
    for nulls, positions in net.null_patterns:
        columns = [i for i, null in zip(table.view.key, nulls, strict=True) if not null]
        params = tuple(_arrays(net, positions, columns))
        cursor = connection.execute(_take_keys(names, table, nulls, None), params, prepare=True)
        yield Expected(cursor, len(positions), table.view.name)
    if len(net.puts):
        connection.execute(_put_rows(names, table, None), tuple(_arrays(net, net.puts)), prepare=True)


def apply_many(connection: Connection, names: Names, net: Net) -> Iterator[Expected]:
    """Copy a large net change into the staging table, then apply it from there."""
    table = net.table
    connection.execute(ddl.stage(names, table))
    for positions, counts in ((net.takes, -net.take_counts), (net.puts, net.put_counts)):
        _copy(connection, _stage_columns(table), sql.Identifier(table.stage), net, positions, counts)
    connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table.stage)))
    if table.view.key is None:
        if len(net.takes):
            cursor = connection.execute(_take_copies(names, table, table.stage))
            yield Expected(cursor, int(net.take_counts.sum()), table.view.name)
        connection.execute(_put_copies(names, table, table.stage))
        return
    for nulls, positions in net.null_patterns:
        cursor = connection.execute(_take_keys(names, table, nulls, table.stage))
        yield Expected(cursor, len(positions), table.view.name)
    if len(net.puts):
        connection.execute(_put_rows(names, table, table.stage))


def replace(connection: Connection, names: Names, net: Net) -> None:
    """Make the table hold exactly the puts. A reader with an older snapshot keeps what it saw: nothing is truncated."""
    table, target = net.table, names.of(net.table.view.name)
    found = connection.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(target)).fetchone()
    if found is not None and found[0]:
        if table.key and not table.nullable_key and len(net.puts):
            _reconcile(connection, names, net)
            return
        connection.execute(sql.SQL("DELETE FROM {}").format(target))
    columns = [c.name for c in table.columns] + ([ROW, COPY_NUMBER] if table.view.key is None else [])
    if table.view.key is None:
        positions = np.repeat(net.puts, net.put_counts)
        starts = np.repeat(np.cumsum(net.put_counts) - net.put_counts, net.put_counts)
        _copy(connection, columns, target, net, positions, np.arange(len(positions)) - starts + 1)
    else:
        _copy(connection, columns, target, net, net.puts, None)


def _reconcile(connection: Connection, names: Names, net: Net) -> None:
    """Write only what differs from the table's present content."""
    table, stage, target = net.table, sql.Identifier(net.table.stage), names.of(net.table.view.name)
    connection.execute(ddl.stage(names, table))
    _copy(connection, _stage_columns(table), stage, net, net.puts, net.put_counts)
    connection.execute(sql.SQL("ANALYZE {}").format(stage))
    same = sql.SQL(" AND ").join(
        sql.SQL("t.{0} = d.{0}").format(sql.Identifier(name)) for name in table.key
    )  # fmt: skip
    connection.execute(
        sql.SQL("DELETE FROM {} AS t WHERE NOT EXISTS (SELECT FROM {} AS d WHERE {})").format(target, stage, same)
    )
    connection.execute(_put_rows(names, table, table.stage, only_changed=True))


def _stage_columns(table: Table) -> list[str]:
    return [c.name for c in table.columns] + ([ROW] if table.view.key is None else []) + ["headrace_diff"]


def _copy(
    connection: Connection, columns: Sequence[str], target: sql.Identifier, net: Net, positions: Int64s,
    numbers: Int64s | None,
) -> None:  # fmt: skip
    """COPY the rows at `positions`, after them the fingerprint of a keyless row, and `numbers` as last column."""
    if not len(positions):
        return
    copied = net.lines.take(pa.array(positions))
    extra = []
    if net.table.view.key is None:
        extra.append(pa.array(net.fingerprints(positions), pa.large_string()))
    if numbers is not None:
        extra.append(pa.array(numbers).cast(pa.large_string()))
    if extra:
        copied = image.lines([copied, *extra], len(copied))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(target, sql.SQL(", ").join(map(sql.Identifier, columns)))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        body = image.payload(copied)
        for start in range(0, len(body), 1 << 20):
            copy.write(body[start : start + (1 << 20)])


def _array(values: Sequence[object]) -> str:
    """An array's input text."""
    return "{" + ",".join(map(str, values)) + "}"


def _arrays(net: Net, positions: Int64s, columns: Sequence[int] | None = None) -> Iterator[str]:
    """The values at `positions` of some columns (or all), each as the input text of an array."""
    at = pa.array(positions)
    for i in range(len(net.texts)) if columns is None else columns:
        values = net.texts[i].take(at).to_pylist()
        yield _array(["NULL" if v is None else '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values])


_PLACE = "\0"
"""Stands for a parameter while a statement is put together: no name can hold it, but one may hold a per cent sign."""


def _ready(statement: sql.Composed, stage: str | None) -> bytes:
    """The statement as the driver wants it: with parameters (no `stage`), per cent signs of names are doubled."""
    text = statement.as_bytes(None)
    return text if stage is not None else text.replace(b"%", b"%%").replace(_PLACE.encode(), b"%s")


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
def _take_keys(names: Names, table: Table, nulls: tuple[bool, ...], stage: str | None) -> bytes:
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
def _put_rows(names: Names, table: Table, stage: str | None, only_changed: bool = False) -> bytes:
    every = range(len(table.columns))
    columns = [sql.Identifier(c.name) for c in table.columns]
    conflict = sql.SQL(", ").join(map(sql.Identifier, table.key)) if table.key else sql.SQL("(true)")
    changed = [c.name for c in table.columns if c.name not in table.key or c.name in table.several_images]
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
def _take_copies(names: Names, table: Table, stage: str | None) -> bytes:
    target = names.of(table.view.name)
    highest = sql.SQL(_HIGHEST).format(target)
    where = sql.SQL(" AND d.headrace_diff < 0") if stage is not None else sql.SQL("")
    put = sql.SQL(
        "DELETE FROM {} AS t USING {} WHERE t.headrace_row = d.headrace_row "
        "AND t.headrace_copy > {} - abs(d.headrace_diff){}"
    ).format(target, _source(table, stage, (), _TAIL), highest, where)
    return _ready(put, stage)


@cache
def _put_copies(names: Names, table: Table, stage: str | None) -> bytes:
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
