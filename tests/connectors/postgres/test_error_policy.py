"""What the Postgres sink does when its database refuses, is busy, or was changed or restored by somebody else: each case
has one policy and one named error (docs/sinks.md)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal as D

import psycopg
import pytest
from psycopg import conninfo, sql

from headrace.connectors.postgres import bulk_copy
from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import Fenced, SinkAway, SinkError
from tests.connectors.postgres.test_sink import opened
from tests.contracts.sink import LINES, ORDERS, changes, frontier, whole
from tests.contracts.test_postgres_sink import read_texts

ONE = (1, D("1.00"), "a")
TWO = (2, D("2.00"), "b")


@pytest.fixture
def sink(database: str) -> Iterator[PostgresSink]:
    made = PostgresSink("group", database, patience=5.0)
    yield made
    made.close()


@pytest.fixture
def admin(database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def orders(admin: psycopg.Connection) -> dict[tuple[str | None, ...], int]:
    return dict(read_texts(admin, ORDERS.name, ORDERS.schema.names))


def raising(admin: psycopg.Connection, table: str, body: str) -> None:
    """A trigger before each row put into a table; `tries` counts its calls and is not rolled back."""
    admin.execute("CREATE SEQUENCE public.tries")
    admin.execute(
        f"CREATE FUNCTION public.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"  # type: ignore[arg-type]
    )
    admin.execute(
        sql.SQL(
            "CREATE TRIGGER meddle BEFORE INSERT OR UPDATE ON headrace.{} FOR EACH ROW EXECUTE FUNCTION public.meddle()"
        ).format(sql.Identifier(table))
    )


def test_a_deadlock_is_tried_again(sink: PostgresSink, admin: psycopg.Connection, database: str) -> None:
    opened(sink)
    with psycopg.connect(database) as user:
        user.execute("SET deadlock_timeout = '30 s'")  # so that the sink is the one that is found out
        user.execute("SELECT * FROM headrace.orders_by_customer FOR UPDATE")

        def cross() -> None:
            time.sleep(0.3)
            user.execute("SELECT * FROM headrace.frontier FOR UPDATE")  # the sink holds it, and waits for the row above
            user.rollback()

        crossing = threading.Thread(target=cross)
        crossing.start()
        sink.write({ORDERS.name: changes(ORDERS, (ONE, 2, -1), (TWO, 2, 1))}, frontier(2))
        crossing.join()
    assert orders(admin) == {("2", "2.00", "b"): 1}


def test_a_serialization_failure_is_tried_again(sink: PostgresSink, admin: psycopg.Connection) -> None:
    opened(sink)
    raising(admin, ORDERS.name, "IF nextval('public.tries') < 4 THEN RAISE 'no' USING ERRCODE = '40001'; END IF;"
            " RETURN NEW;")  # fmt: skip
    sink.write({ORDERS.name: changes(ORDERS, (TWO, 2, 1))}, frontier(2))
    assert orders(admin) == {("1", "1.00", "a"): 1, ("2", "2.00", "b"): 1}
    assert admin.execute("SELECT last_value FROM public.tries").fetchone() == (4,)


@pytest.mark.parametrize(
    ("held", "said"), [(0.6, None), (3.0, "the write was cut short.*raise statement_timeout")], ids=["short", "long"]
)
def test_a_statement_timeout_is_tried_again_for_a_while(
    database: str, admin: psycopg.Connection, held: float, said: str | None
) -> None:
    sink = PostgresSink("group", conninfo.make_conninfo(database, options="-c statement_timeout=200ms"), patience=1.5)
    opened(sink)
    with psycopg.connect(database) as user:
        user.execute("SELECT * FROM headrace.orders_by_customer FOR UPDATE")
        release = threading.Timer(held, user.rollback)
        release.start()
        some = {ORDERS.name: changes(ORDERS, (ONE, 2, -1))}
        if said is None:
            sink.write(some, frontier(2))
        else:
            with pytest.raises(SinkAway, match=said):
                sink.write(some, frontier(2))
            release.cancel()
            user.rollback()
            sink.write(some, frontier(2))
        release.join()
    assert orders(admin) == {}
    sink.close()


def test_a_lock_that_is_never_let_go_is_named(
    sink: PostgresSink, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.connectors.postgres.sink._LOCK_TIMEOUT", "100ms")
    sink._patience = 0.5
    opened(sink)
    with psycopg.connect(database) as user:
        user.execute("LOCK TABLE headrace.orders_by_customer")
        with pytest.raises(SinkAway, match=r"somebody else's locks are in the way.*pg_locks"):
            sink.write({ORDERS.name: changes(ORDERS, (ONE, 2, -1))}, frontier(2))


def test_a_permission_that_is_lost_is_named_and_given_back_it_goes_on(
    database: str, admin: psycopg.Connection, unique: str
) -> None:
    writer = f"{unique}_writer"
    admin.execute(f"CREATE ROLE {writer} LOGIN PASSWORD 'x'")
    admin.execute(f"CREATE SCHEMA headrace AUTHORIZATION {writer}")
    try:
        sink = PostgresSink("group", conninfo.make_conninfo(database, user=writer, password="x"))
        opened(sink)
        admin.execute("ALTER TABLE headrace.orders_by_customer OWNER TO postgres")
        some = {ORDERS.name: changes(ORDERS, (TWO, 2, 1))}
        with pytest.raises(SinkError, match=r"may not: permission denied for table orders_by_customer.*docs/sinks.md"):
            sink.write(some, frontier(2))
        admin.execute(f"ALTER TABLE headrace.orders_by_customer OWNER TO {writer}")
        sink.write(some, frontier(2))
        assert len(orders(admin)) == 2
        sink.close()
    finally:
        admin.execute(f"DROP OWNED BY {writer} CASCADE")
        admin.execute(f"DROP ROLE {writer}")


@pytest.mark.parametrize(
    "done",
    [
        "DROP TABLE headrace.orders_by_customer",
        "ALTER TABLE headrace.orders_by_customer DROP COLUMN note",
        "ALTER TABLE headrace.orders_by_customer DROP COLUMN customer",
        "ALTER TABLE headrace.orders_by_customer RENAME COLUMN total TO sum",
        "ALTER TABLE headrace.orders_by_customer DROP CONSTRAINT orders_by_customer_pkey",
        "ALTER TABLE headrace.orders_by_customer ALTER total TYPE date USING now()",
    ],
)
def test_a_table_dropped_or_altered_is_named_and_made_anew(
    sink: PostgresSink, admin: psycopg.Connection, done: str
) -> None:
    held = opened(sink).generation
    admin.execute(done)  # type: ignore[call-overload]
    with pytest.raises(SinkError, match="somebody else dropped or altered a table"):
        sink.write({ORDERS.name: changes(ORDERS, (ONE, 2, -1), (TWO, 2, 1))}, frontier(2))
    state = sink.open([ORDERS, LINES], held)
    assert state.missing == {ORDERS.name}
    assert state.frontier == frontier(1)
    sink.write({ORDERS.name: whole(ORDERS, 2, TWO)}, frontier(2))
    assert orders(admin) == {("2", "2.00", "b"): 1}
    assert sink.open([ORDERS, LINES]).missing == frozenset()


def test_what_others_add_to_a_table_stays(sink: PostgresSink, admin: psycopg.Connection) -> None:
    opened(sink)
    admin.execute("ALTER TABLE headrace.orders_by_customer ADD COLUMN theirs integer DEFAULT 7")
    admin.execute("CREATE INDEX theirs ON headrace.orders_by_customer (total)")
    assert sink.open([ORDERS, LINES]).missing == frozenset()
    sink.write({ORDERS.name: changes(ORDERS, (TWO, 2, 1))}, frontier(2))
    assert admin.execute("SELECT sum(theirs) FROM headrace.orders_by_customer").fetchone() == (14,)


def test_the_whole_schema_dropped_is_made_anew_beyond_the_generation_that_was_held(
    sink: PostgresSink, admin: psycopg.Connection
) -> None:
    opened(sink)
    sink.open([ORDERS, LINES])
    held = sink.open([ORDERS, LINES]).generation
    admin.execute("DROP SCHEMA headrace CASCADE")
    with pytest.raises(SinkError, match="dropped or altered"):
        sink.write({}, frontier(2))
    state = sink.open([ORDERS, LINES], held)
    assert (state.generation, state.frontier, state.missing) == (held + 1, None, {ORDERS.name, LINES.name})


@pytest.mark.parametrize("few", [True, False], ids=["arrays", "copy"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("RAISE 'not on my watch';", "a trigger on the table refuses a row: not on my watch"),
        ("IF NEW.quantity = 2 THEN RETURN NULL; END IF; RETURN NEW;", "took 1 of 2 rows: a trigger or a rule"),
    ],
    ids=["refuses", "drops"],
)
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
def test_a_trigger_that_refuses_or_drops_a_row_is_named(
    sink: PostgresSink, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, few: bool, body: str, said: str,
    keyed: bool,
) -> None:  # fmt: skip
    opened(sink)
    view = ORDERS if keyed else LINES
    raising(admin, view.name, body.replace("NEW.quantity", "NEW.customer") if keyed else body)
    monkeypatch.setattr(bulk_copy, "FEW", 512 if few else -1)
    rows = [TWO, (3, None, None)] if keyed else [("b", 2), ("c", 3)]
    with pytest.raises(SinkError, match=said):
        sink.write({view.name: changes(view, *[(row, 2, 1) for row in rows])}, frontier(2))
    with pytest.raises(SinkError, match=said):
        sink.write({view.name: whole(view, 2, *rows)}, frontier(2))
    admin.execute("DROP FUNCTION public.meddle CASCADE")
    sink.write({view.name: changes(view, *[(row, 2, 1) for row in rows])}, frontier(2))
    assert sum(read_texts(admin, view.name, view.schema.names).values()) == 3


def test_a_constraint_that_refuses_a_row_is_named_and_no_value_of_the_row(
    sink: PostgresSink, admin: psycopg.Connection
) -> None:
    opened(sink)
    admin.execute("ALTER TABLE headrace.lines ADD CONSTRAINT small CHECK (product <> 'a secret')")
    with pytest.raises(SinkError, match="a constraint on the table refuses a row") as told:
        sink.write({LINES.name: changes(LINES, (("a secret", 1), 2, 1))}, frontier(2))
    assert told.value.where["constraint"] == "small"
    assert "secret" not in str(told.value)
    assert not isinstance(told.value, SinkAway)


def test_a_deferred_constraint_refuses_at_the_commit(sink: PostgresSink, admin: psycopg.Connection) -> None:
    opened(sink)
    admin.execute("CREATE TABLE public.known (product text PRIMARY KEY)")
    admin.execute("INSERT INTO public.known VALUES ('a')")
    admin.execute("ALTER TABLE headrace.lines ADD FOREIGN KEY (product) REFERENCES public.known "
                  "DEFERRABLE INITIALLY DEFERRED")  # fmt: skip
    with pytest.raises(SinkError, match="a constraint on the table refuses a row"):
        sink.write({LINES.name: changes(LINES, (("b", 1), 2, 1))}, frontier(2))
    assert admin.execute("SELECT epoch FROM headrace.frontier").fetchone() == (1,)
    sink.write({LINES.name: changes(LINES, (("a", 1), 2, 1))}, frontier(2))


def test_a_generation_taken_twice_because_the_database_went_back_still_fences(
    sink: PostgresSink, admin: psycopg.Connection, database: str
) -> None:
    older = opened(sink).generation
    admin.execute("UPDATE headrace.frontier SET generation = generation - 1, run = gen_random_uuid()")  # a backup
    later = PostgresSink("group", database, patience=5.0)
    assert later.open([ORDERS, LINES]).generation == older, "the case is not the one that is meant"
    with pytest.raises(Fenced):
        sink.write({ORDERS.name: changes(ORDERS, (TWO, 2, 1))}, frontier(2))
    with pytest.raises(Fenced):
        sink.open([ORDERS, LINES], held=older)
    later.write({ORDERS.name: changes(ORDERS, (ONE, 2, -1))}, frontier(2))
    later.close()
    assert orders(admin) == {}


@pytest.mark.parametrize("restored", ["writes = writes - 1, epoch = 1", "generation = 0, writes = 0, epoch = NULL"])
def test_a_sink_that_went_back_is_no_other_generation(
    sink: PostgresSink, admin: psycopg.Connection, restored: str
) -> None:
    held = opened(sink).generation
    sink.write({}, frontier(2))
    admin.execute(f"UPDATE headrace.frontier SET {restored}")  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="it went back, or is gone") as told:
        sink.write({}, frontier(3))
    assert not isinstance(told.value, Fenced)
    state = sink.open([ORDERS, LINES], held)
    assert state.generation == held + 1
    sink.write({ORDERS.name: whole(ORDERS, 3, TWO)}, replace(frontier(3), incarnation=2))
    assert admin.execute("SELECT incarnation, epoch FROM headrace.frontier").fetchone() == (2, 3)
    found = sink.open([ORDERS, LINES]).frontier
    assert found is not None
    assert found.incarnation == 2


def test_a_database_that_only_reads_is_away(sink: PostgresSink, admin: psycopg.Connection, database: str) -> None:
    opened(sink)
    sink._patience = 0.5
    name = conninfo.conninfo_to_dict(database)["dbname"]
    admin.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(sql.Identifier(str(name))))
    assert sink._connection is not None
    sink._connection.close()
    with pytest.raises(SinkAway, match=r"cannot be reached.*read-only"):
        sink.write({}, frontier(2))
    admin.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(sql.Identifier(str(name))))
    sink.write({}, frontier(2))
