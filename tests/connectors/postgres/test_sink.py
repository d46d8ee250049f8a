"""What only the Postgres sink promises: its schema, waiting, least privilege, strangers' tables, tampering."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal as D
from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql

from headrace.connectors.commit_place import Version
from headrace.connectors.postgres import sink_catalog
from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import Frontier, SinkError, SinkState, SinkView, SourceFrontier
from tests.contracts.sink import BY_REGION, LINES, ORDERS, TOTALS, changes, frontier, view_of, whole
from tests.contracts.test_postgres_sink import read_texts


@pytest.fixture
def sink(database: str) -> Iterator[PostgresSink]:
    made = PostgresSink("group", database, patience=5.0, program="headrace test")
    yield made
    made.close()


def opened(sink: PostgresSink) -> SinkState:
    state = sink.open([ORDERS, LINES])
    sink.write({ORDERS.name: whole(ORDERS, 1, (1, D("1.00"), "a")), LINES.name: whole(LINES, 1, ("a", 1))}, frontier(1))
    return state


def test_the_table_has_the_views_types_key_and_comments(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with psycopg.connect(database) as connection:
        columns = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
            "WHERE attrelid = 'headrace.orders_by_customer'::regclass AND attnum > 0 ORDER BY attnum"
        ).fetchall()
        assert columns == [("customer", "bigint", True), ("total", "numeric(12,2)", False), ("note", "text", False)]
        key = connection.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE conrelid = 'headrace.orders_by_customer'::regclass AND contype = 'p'"
        ).fetchone()
        assert key == ("PRIMARY KEY (customer)",)
        comment = connection.execute("SELECT obj_description('headrace.orders_by_customer'::regclass)").fetchone()
        assert comment == ("the view orders_by_customer",)


def test_clients_read_the_frontier(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT epoch, generation, program FROM headrace.frontier WHERE sink = 'group'"
        ).fetchone()
        assert row == (1, 1, "headrace test")
        fresh = connection.execute(
            "SELECT view, source, epoch, lsn::text, positions -> 'shop.public.orders' ->> '0', commit_time IS NOT NULL "
            "FROM headrace.freshness ORDER BY view"
        ).fetchall()
        assert fresh == [(name, "shop", 1, "1/FF", "10", True) for name in sorted([LINES.name, ORDERS.name])]
        lake = SourceFrontier({"lake.lake.prices": {0: 4}}, Version(17), 10**15)
        sink.write({}, Frontier(2, {**frontier(2).sources, "lake": lake}))
        told = "SELECT source, lsn::text, version FROM headrace.freshness WHERE view = %s ORDER BY source"
        assert connection.execute(told, [ORDERS.name]).fetchall() == [("lake", None, 17), ("shop", "2/FF", None)]


def test_wait_for_returns_when_the_lsn_is_there_and_sees_new_commits(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT headrace.wait_for('shop', '1/FF', interval '0')").fetchone() == (True,)
        assert connection.execute("SELECT headrace.wait_for('shop', '2/FF', interval '30 ms')").fetchone() == (False,)
        assert connection.execute("SELECT headrace.wait_for('nobody', '0/1', interval '0')").fetchone() == (False,)
        sink.write({}, frontier(1, lsn=-1))
        unknown = connection.execute("SELECT headrace.wait_for('shop', '0/1', interval '0')").fetchone()
        assert unknown == (False,), "an LSN that is not known has not been reached"
        late = threading.Timer(0.2, lambda: sink.write({}, frontier(2)))
        late.start()
        start = time.monotonic()
        answer = connection.execute("SELECT headrace.wait_for('shop', '2/FF', interval '10 seconds')").fetchone()
        assert answer == (True,)
        assert 0.1 < time.monotonic() - start < 5
        late.join()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_wait_for_is_refused_where_it_could_never_see_the_answer(sink: PostgresSink, database: str, level: str) -> None:
    opened(sink)
    with psycopg.connect(database) as connection:
        connection.execute(sql.SQL("SET TRANSACTION ISOLATION LEVEL {}").format(sql.SQL(level)))  # type: ignore[arg-type]
        with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="cannot see new commits"):
            connection.execute("SELECT headrace.wait_for('shop', '1/FF')")


def test_a_role_with_only_the_documented_grants_is_enough(database: str, unique: str) -> None:
    writer, reader = f"{unique}_writer", f"{unique}_reader"
    dbname = conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(database, autocommit=True) as admin:
        for role in (writer, reader):
            admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret-{role}'")
        admin.execute(f'REVOKE ALL ON DATABASE "{dbname}" FROM PUBLIC')
        admin.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        admin.execute("CREATE SCHEMA headrace")
        admin.execute(f'GRANT CONNECT, TEMPORARY ON DATABASE "{dbname}" TO {writer}')
        admin.execute(f"GRANT USAGE, CREATE ON SCHEMA headrace TO {writer}")
        admin.execute(f'GRANT CONNECT ON DATABASE "{dbname}" TO {reader}')
        admin.execute(f"GRANT USAGE ON SCHEMA headrace TO {reader}")
        admin.execute(
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {writer} IN SCHEMA headrace GRANT SELECT ON TABLES TO {reader}"
        )
    try:
        sink = PostgresSink("group", conninfo.make_conninfo(database, user=writer, password=f"secret-{writer}"))
        opened(sink)
        many = changes(ORDERS, *[((i, None, None), 2, 1) for i in range(10, 2000)])
        sink.write({ORDERS.name: many}, frontier(2))
        sink.close()
        with psycopg.connect(conninfo.make_conninfo(database, user=reader, password=f"secret-{reader}")) as connection:
            assert connection.execute("SELECT headrace.wait_for('shop', '1/FF')").fetchone() == (True,)
            assert connection.execute("SELECT count(*) FROM headrace.orders_by_customer").fetchone() == (1991,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("DELETE FROM headrace.orders_by_customer")
        lacking = PostgresSink("group", conninfo.make_conninfo(database, user=reader, password=f"secret-{reader}"))
        with pytest.raises(SinkError, match="grant") as refused:
            lacking.open([ORDERS])
        assert "secret" not in str(refused.value)
    finally:
        with psycopg.connect(database, autocommit=True) as admin:
            for role in (writer, reader):
                admin.execute(f"DROP OWNED BY {role} CASCADE")
                admin.execute(f"DROP ROLE {role}")


def test_a_strangers_table_is_refused_and_kept(sink: PostgresSink, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA headrace")
        connection.execute("CREATE TABLE headrace.orders_by_customer AS SELECT 42 AS answer")
        with pytest.raises(SinkError, match="was not made by this sink"):
            sink.open([ORDERS])
        assert connection.execute("SELECT answer FROM headrace.orders_by_customer").fetchone() == (42,)


def test_two_sinks_do_not_share_a_view_name_in_one_schema(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with pytest.raises(SinkError, match="the sink group writes a view of this name"):
        PostgresSink("other", database).open([ORDERS])


@pytest.mark.parametrize("name", ["frontier", "view", "freshness", "x" * 64])
def test_names_that_cannot_stand_are_refused(sink: PostgresSink, name: str) -> None:
    with pytest.raises(SinkError):
        sink.open([view_of(name, ["id"], id="bigint!")])


def test_a_view_that_is_gone_takes_its_table_along(sink: PostgresSink, database: str) -> None:
    opened(sink)
    sink.open([ORDERS])
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regclass('headrace.lines')").fetchone() == (None,)
        assert connection.execute("SELECT count(*) FROM headrace.orders_by_customer").fetchone() == (1,)


def test_a_table_changed_by_somebody_else_stops_the_write(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DELETE FROM headrace.lines")
    with pytest.raises(SinkError, match="somebody else changed it"):
        sink.write({LINES.name: changes(LINES, (("a", 1), 2, -1))}, frontier(2))
    with psycopg.connect(database, autocommit=True) as connection:
        assert connection.execute("SELECT epoch FROM headrace.frontier").fetchone() == (1,)


def test_a_frontier_that_went_back_is_found_out(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE headrace.frontier SET writes = writes - 1")
    with pytest.raises(SinkError, match="changed by something else"):
        sink.write({}, frontier(2))


def test_a_reader_with_an_older_snapshot_keeps_it_when_a_view_is_replaced(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with psycopg.connect(database) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM headrace.frontier")
        sink.write({ORDERS.name: whole(ORDERS, 2, (7, None, None)), LINES.name: whole(LINES, 2)}, frontier(2))
        assert read_texts(reader, LINES.name, LINES.schema.names) == {("a", "1"): 1}
        assert read_texts(reader, ORDERS.name, ORDERS.schema.names) == {("1", "1.00", "a"): 1}


def test_replacing_a_view_with_itself_writes_nothing(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with psycopg.connect(database, autocommit=True) as connection:
        before = connection.execute("SELECT ctid, xmin FROM headrace.orders_by_customer").fetchall()
        sink.write({ORDERS.name: whole(ORDERS, 2, (1, D("1.00"), "a"))}, frontier(2))
        assert connection.execute("SELECT ctid, xmin FROM headrace.orders_by_customer").fetchall() == before


def test_a_key_whose_image_changes_is_one_row(sink: PostgresSink, database: str) -> None:
    prices = view_of("prices", ["price"], price="numeric!", n="integer")
    sink.open([prices])
    sink.write({prices.name: whole(prices, 1, ("1.0", 1))}, frontier(1))
    sink.write({prices.name: changes(prices, (("1.0", 1), 2, -1), (("1.00", 2), 2, 1))}, frontier(2))
    with psycopg.connect(database) as connection:
        assert read_texts(connection, "prices", ["price", "n"]) == {("1.00", "2"): 1}


def test_a_predecessor_that_hangs_in_a_transaction_is_ended(
    sink: PostgresSink, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(sink)
    monkeypatch.setattr("headrace.connectors.postgres.sink._LOCK_TIMEOUT", "100ms")
    connection = sink._connection
    assert connection is not None
    connection.execute("UPDATE headrace.frontier SET updated_at = now()")  # and never comes back
    heir = PostgresSink("group", database)
    assert heir.open([ORDERS, LINES]).generation == 2
    heir.close()


def test_a_lock_held_by_a_user_is_waited_for(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with psycopg.connect(database) as user:
        user.execute("SELECT * FROM headrace.orders_by_customer FOR UPDATE")
        release = threading.Timer(0.3, user.rollback)
        release.start()
        sink.write({ORDERS.name: changes(ORDERS, ((1, D("1.00"), "a"), 2, -1))}, frontier(2))
        release.join()


@pytest.mark.parametrize("many_first", [False, True])
def test_rows_that_came_in_few_go_by_copy_and_the_other_way(
    sink: PostgresSink, database: str, monkeypatch: pytest.MonkeyPatch, many_first: bool
) -> None:
    odd = (("a\tb\\", None), ("c\nd", 2), ('"{}', 3), (None, None))
    sink.open([LINES])
    sink.write({LINES.name: whole(LINES, 1)}, frontier(1))
    for epoch, diff, many in ((2, 2, many_first), (3, -2, not many_first)):
        monkeypatch.setattr("headrace.connectors.postgres.bulk_copy.FEW", -1 if many else 512)
        sink.write({LINES.name: changes(LINES, *[(row, epoch, diff) for row in odd])}, frontier(epoch))
        with psycopg.connect(database) as connection:
            found = read_texts(connection, LINES.name, LINES.schema.names)
            assert sum(found.values()) == (8 if diff > 0 else 0)


def test_a_large_change_whose_net_is_small(sink: PostgresSink, database: str) -> None:
    opened(sink)
    flow = [((1, D("1.00"), "a"), 2, -1)]
    for epoch in range(2, 402):
        flow.append(((1, D(epoch), "b"), epoch, 1))
        flow.append(((1, D(epoch), "b"), epoch + 1, -1))
    sink.write({ORDERS.name: changes(ORDERS, *flow, ((2, None, "c"), 402, 1))}, frontier(402))
    with psycopg.connect(database) as connection:
        assert read_texts(connection, ORDERS.name, ORDERS.schema.names) == {("2", None, "c"): 1}


def test_a_small_write_waits_for_the_server_twice(sink: PostgresSink, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(sink)
    connection, pipeline = sink._connection, sink._pipeline
    assert connection is not None
    assert pipeline is not None
    waits: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **more: Any) -> Any:
            waits.append(name)
            return call(*args, **more)

        return wrapper

    monkeypatch.setattr(connection, "wait", counted("commit", connection.wait))
    monkeypatch.setattr(pipeline, "run", counted("run", pipeline.run))
    some = {ORDERS.name: changes(ORDERS, ((2, None, "c"), 2, 1)), LINES.name: changes(LINES, (("a", 1), 2, -1))}
    sink.write(some, frontier(2))
    assert waits == ["run", "commit"], "rows with frontier, then COMMIT"


def test_a_refused_statement_leaves_the_session_of_use(sink: PostgresSink, database: str) -> None:
    opened(sink)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER TABLE headrace.lines ADD CONSTRAINT small CHECK (quantity < 100)")
        with pytest.raises(SinkError, match="small"):
            sink.write({LINES.name: changes(LINES, (("b", 100), 2, 1))}, frontier(2))
        session = sink._connection
        sink.write({LINES.name: changes(LINES, (("b", 99), 2, 1))}, frontier(2))
        assert sink._connection is session
        assert read_texts(connection, "lines", LINES.schema.names) == {("a", "1"): 1, ("b", "99"): 1}


@pytest.mark.parametrize(
    "url", ["postgresql://u:hunter2@127.0.0.1:1/x", "postgresql://u:hunter2@[", "password=hunter2 port=x=y z"]
)
def test_a_database_that_is_not_there_is_told_without_the_password(url: str) -> None:
    start = time.monotonic()
    with pytest.raises(SinkError) as told:
        PostgresSink("group", url).open([ORDERS])
    assert "hunter2" not in str(told.value)
    assert "hunter2" not in repr(told.value.__cause__)
    assert time.monotonic() - start < 8


def _indexes(database: str, view: SinkView) -> list[str]:
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT regexp_replace(indexdef, '.* USING ', '') FROM pg_indexes WHERE tablename = %s", (view.name,)
        ).fetchall()
    return [row[0] for row in rows]


def test_a_key_that_may_be_null_and_one_of_no_columns_are_unique_indexes(sink: PostgresSink, database: str) -> None:
    sink.open([BY_REGION, TOTALS])
    assert _indexes(database, BY_REGION) == ["btree (region) NULLS NOT DISTINCT"]
    assert _indexes(database, TOTALS) == ["btree ((true))"]


def test_where_nulls_cannot_be_equal_in_an_index_the_view_is_kept_without_key(
    sink: PostgresSink, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_catalog, "NULLS_EQUAL", 10**9)
    sink.open([BY_REGION, ORDERS])
    sink.write({BY_REGION.name: whole(BY_REGION, 1, (None, 1), ("eu", 2)), ORDERS.name: whole(ORDERS, 1)}, frontier(1))
    sink.write({BY_REGION.name: changes(BY_REGION, ((None, 1), 2, -1), ((None, 5), 2, 1))}, frontier(2))
    with psycopg.connect(database) as connection:
        rows = connection.execute("SELECT region, orders FROM headrace.by_region").fetchall()
    assert sorted(rows, key=str) == [("eu", 2), (None, 5)]
    assert _indexes(database, BY_REGION) == ["btree (headrace_row, headrace_copy)"]
    assert _indexes(database, ORDERS) == ["btree (customer)"]
