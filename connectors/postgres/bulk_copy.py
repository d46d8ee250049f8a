"""Bulk copy: brings many rows into a view's table by COPY, through a staging table or straight into an empty one.

Invariant: deletes go before inserts, so that a key whose image changed (1.0 to 1.00) is free again. The count of deleted rows
is checked, so that a table that somebody else changed is noticed. The sink calls it inside its transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from psycopg import sql

from headrace.connectors import copy_text
from headrace.connectors.postgres import ddl, statements
from headrace.connectors.postgres.connection import Connection
from headrace.connectors.postgres.ddl import COPY_NUMBER, ROW, Names, Table
from headrace.connectors.postgres.delta.by_column import Net
from headrace.connectors.postgres.pipeline import changed_by_another, kept_out
from headrace.engine.batch.updates import Int64s

FEW = 512
"""Net changes of a view up to which arrays are sent instead of COPY: a choice, not yet tuned by measurement."""


def apply(connection: Connection, sink: str, names: Names, net: Net) -> None:
    """Copy a large net change into the staging table, then apply it from there."""
    table = net.table

    def take(statement: bytes, rows: int) -> None:
        touched = connection.execute(statement).rowcount
        if touched != rows:
            raise changed_by_another(sink, table.view.name, touched, rows)

    def put(statement: bytes, rows: int | None) -> None:
        touched = connection.execute(statement).rowcount
        if rows is not None and touched != rows:
            raise kept_out(sink, table.view.name, touched, rows)

    connection.execute(ddl.stage(names, table))
    for positions, counts in ((net.takes, -net.take_counts), (net.puts, net.put_counts)):
        _copy(connection, _stage_columns(table), sql.Identifier(table.stage), net, positions, counts)
    connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table.stage)))
    if table.view.key is None:
        if len(net.takes):
            take(statements.take_copies(names, table, table.stage), int(net.take_counts.sum()))
        put(statements.put_copies(names, table, table.stage), int(net.put_counts.sum()))
        return
    for nulls, positions in net.null_patterns:
        take(statements.take_keys(names, table, nulls, table.stage), len(positions))
    if len(net.puts):
        put(statements.put_rows(names, table, table.stage), len(net.puts) if table.replaces else None)


def replace(connection: Connection, sink: str, names: Names, net: Net) -> None:
    """Make the table hold exactly the puts. A reader with an older snapshot keeps what it saw: nothing is truncated."""
    target = names.of(net.table.view.name)
    _fill(connection, names, net, target)
    there = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(target)).fetchone()
    rows = int(net.put_counts.sum())
    if there is None or there[0] != rows:
        raise kept_out(sink, net.table.view.name, there[0] if there else 0, rows)
    if len(net) > FEW:  # a plan kept from when the table was small is made anew
        connection.execute(sql.SQL("ANALYZE {}").format(target))


def _fill(connection: Connection, names: Names, net: Net, target: sql.Identifier) -> None:
    table = net.table
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
    connection.execute(statements.put_rows(names, table, table.stage, only_changed=True))


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
        copied = copy_text.lines([copied, *extra], len(copied))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(target, sql.SQL(", ").join(map(sql.Identifier, columns)))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        body = copy_text.payload(copied)
        for start in range(0, len(body), 1 << 20):
            copy.write(body[start : start + (1 << 20)])
