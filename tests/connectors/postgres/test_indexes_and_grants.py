"""The life of a result table: indexes and grants as declared, and another shape without a gap for who reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from decimal import Decimal as D

import psycopg
import pytest
from psycopg import sql

from headrace.connectors.postgres import bulk_copy
from headrace.connectors.postgres.connection import Connection
from headrace.connectors.postgres.ddl import Names
from headrace.connectors.postgres.delta.by_column import Net
from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import SinkError, SinkView
from tests.contracts.sink import ORDERS, changes, frontier, view_of, whole

NAME = ORDERS.name
WIDER = view_of(NAME, ["customer"], "f2", customer="bigint!", total="numeric(12,2)", note="text", vip="boolean")


@pytest.fixture
def reader(database: str, unique: str) -> Iterator[str]:
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(unique)))
        yield unique
        admin.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(unique)))
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(unique)))


def indexes(database: str) -> set[str]:
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT regexp_replace(indexdef, '.* USING ', '') FROM pg_indexes WHERE tablename = %s AND indexname <> %s",
            (NAME, f"{NAME}_pkey"),
        ).fetchall()
    return {row[0] for row in rows}


def may_read(database: str, role: str) -> bool:
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT has_table_privilege(%s, %s, 'SELECT') AND has_schema_privilege(%s, 'headrace', 'USAGE')",
            (role, f"headrace.{NAME}", role),
        ).fetchone()
    assert row is not None
    return bool(row[0])


def open_and_fill(database: str, view: SinkView, epoch: int, *row: object) -> None:
    sink = PostgresSink("group", database)
    try:
        missing = sink.open([view]).missing
        sink.write({view.name: whole(view, epoch, row)} if missing else {}, frontier(epoch))
    finally:
        sink.close()


def test_a_table_has_the_indexes_and_grants_declared(database: str, reader: str) -> None:
    declared = dataclasses.replace(ORDERS, indexes=(("note",), ("total", "note")), grants=(reader,))
    open_and_fill(database, declared, 1, 1, D("1.00"), "a")
    assert indexes(database) == {"btree (note)", "btree (total, note)"}
    assert may_read(database, reader)
    with psycopg.connect(database) as connection:
        connection.execute(f"CREATE INDEX theirs ON headrace.{NAME} (total)")
    open_and_fill(database, dataclasses.replace(ORDERS, indexes=(("total", "note"),)), 2)
    assert indexes(database) == {"btree (total)", "btree (total, note)"}, "what somebody else made stays"
    assert not may_read(database, reader)


def test_they_are_there_when_the_table_has_got_another_shape(database: str, reader: str) -> None:
    open_and_fill(database, dataclasses.replace(ORDERS, indexes=(("note",),), grants=(reader,)), 1, 1, D("1.00"), "a")
    wider = dataclasses.replace(WIDER, indexes=(("note",),), grants=(reader,))
    open_and_fill(database, wider, 2, 1, D("2.00"), "b", True)
    assert indexes(database) == {"btree (note)"}
    assert may_read(database, reader)
    with psycopg.connect(database) as connection:
        assert connection.execute(f"SELECT * FROM headrace.{NAME}").fetchall() == [(1, D("2.00"), "b", True)]
        left = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'headrace_next%'").fetchall()
    assert left == []


def test_a_role_that_is_not_there_is_named(database: str) -> None:
    with pytest.raises(SinkError, match="nobody_at_all"):
        open_and_fill(database, dataclasses.replace(ORDERS, grants=("nobody_at_all",)), 1, 1, D("1.00"), "a")


def test_readers_see_the_old_rows_while_another_shape_is_filled(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_and_fill(database, ORDERS, 1, 1, D("1.00"), "a")
    seen = []
    fill = bulk_copy.replace

    def filled(connection: Connection, sink: str, names: Names, net: Net) -> None:
        fill(connection, sink, names, net)
        with psycopg.connect(database, options="-c lock_timeout=2s") as other:
            seen.extend(other.execute(f"SELECT * FROM headrace.{NAME}").fetchall())

    monkeypatch.setattr(bulk_copy, "replace", filled)
    sink = PostgresSink("group", database)
    sink.open([WIDER])
    sink.write({NAME: whole(WIDER, 2, (1, D("2.00"), "b", True))}, frontier(2))
    monkeypatch.undo()
    assert seen == [(1, D("1.00"), "a")]
    sink.write(
        {NAME: changes(WIDER, ((1, D("2.00"), "b", True), 3, -1), ((1, D("2.50"), "b", False), 3, 1))}, frontier(3)
    )
    sink.close()
    with psycopg.connect(database) as connection:
        assert connection.execute(f"SELECT * FROM headrace.{NAME}").fetchall() == [(1, D("2.50"), "b", False)]


@pytest.mark.parametrize("two", [("v" * 62 + "a", "v" * 62 + "b"), ("line_pkey", "line")])
def test_keys_whose_names_are_cut_or_taken_get_others(database: str, two: tuple[str, str]) -> None:
    """Postgres names a table's key after the table, in 63 bytes."""
    for epoch, more in ((1, {}), (2, {"more": "text"}), (3, {"more": "bigint"})):
        views = [view_of(name, ["id"], f"f{epoch}", id="bigint!", **more) for name in two]
        rows = [(n, *([None] * len(more))) for n in range(3)]
        sink = PostgresSink("group", database)
        try:
            assert sink.open(views).missing == set(two)
            sink.write({view.name: whole(view, epoch, *rows) for view in views}, frontier(epoch))
        finally:
            sink.close()
    with psycopg.connect(database) as connection:
        for name in two:
            found = connection.execute(
                sql.SQL("SELECT * FROM {} ORDER BY id").format(sql.Identifier("headrace", name))
            ).fetchall()
            assert found == rows
