"""Overload resolution, common types and casts: what the binder relies on. All pairs against Postgres: the oracle."""

from __future__ import annotations

import pytest

from headrace.engine.operators.expressions.core.coercion import NoSuchFunction, can_cast, common_type
from headrace.engine.operators.expressions.core.functions import catalogue, fallback_users
from headrace.engine.operators.expressions.core.resolve import aggregate_type, resolve
from headrace.engine.operators.expressions.core.text_io import InvalidLiteral, parse_literal
from headrace.engine.schema import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    NUMERIC,
    REAL,
    SMALLINT,
    TEXT,
    TIMESTAMP,
    DataType,
    Kind,
)

MONEY = DataType(Kind.NUMERIC, 12, 2)
MOOD, INET, INTERVAL = (DataType(Kind.OTHER, name=n) for n in ("mood", "inet", "interval"))


def test_params_say_what_to_cast() -> None:
    found = resolve("+", [INTEGER, BIGINT])
    assert found.params == (BIGINT, BIGINT)
    assert found.result == BIGINT
    assert resolve("+", [MONEY, INTEGER]).params == (MONEY, DataType(Kind.NUMERIC, scale=0))
    assert resolve("*", [MONEY, MONEY]).result == DataType(Kind.NUMERIC, scale=4)
    assert resolve("+", [INTEGER, REAL]).result == DOUBLE
    assert resolve("=", [DATE, None]).params == (DATE, DATE)
    assert resolve("+", [TIMESTAMP, None]).params == (TIMESTAMP, INTERVAL)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("+", [TEXT, INTEGER], "operator does not exist: text + integer"),
        ("=", [TEXT, INTEGER], "operator does not exist: text = integer"),
        ("lower", [INTEGER], "function lower(integer) does not exist"),
        (
            "*",
            [TIMESTAMP, TIMESTAMP],
            "operator does not exist: timestamp without time zone * timestamp without time zone",
        ),
        ("gamma", [DOUBLE], "function gamma(double precision) does not exist"),
        ("=", [MOOD, INET], "operator does not exist: mood = inet"),
        ("*", [INTERVAL, INTERVAL], "operator does not exist: interval * interval"),
        ("+", [DATE, INET], "operator does not exist: date + inet"),
        ("no_such", [None], "function no_such(unknown) does not exist"),
    ],
)
def test_refusals_speak_as_postgres(name: str, args: list[DataType | None], message: str) -> None:
    with pytest.raises(NoSuchFunction) as caught:
        resolve(name, args)
    assert caught.value.what == message


def test_enums_compare_by_image_and_their_literals_are_labels() -> None:
    assert resolve("=", [MOOD, None]).params == (MOOD, MOOD)
    assert parse_literal("happy", MOOD) == "happy"
    with pytest.raises(NoSuchFunction):
        resolve("<", [MOOD, MOOD])
    labelled = DataType(Kind.OTHER, name="mood", labels=("sad", "happy"))
    assert resolve("<", [labelled, None]).params == (labelled, labelled)
    with pytest.raises(InvalidLiteral, match='invalid input value for enum mood: "ok"'):
        parse_literal("ok", labelled)
    assert parse_literal("10.0.0.1/32", INET) == "10.0.0.1"


def test_literals_are_checked() -> None:
    assert parse_literal(" 42 ", INTEGER) == 42
    assert parse_literal("1.005", MONEY) == "1.01"
    assert parse_literal("2024-02-29 1:02", TIMESTAMP) == "2024-02-29 01:02:00"
    with pytest.raises(InvalidLiteral, match='invalid input syntax for type integer: "abc"'):
        parse_literal("abc", INTEGER)
    with pytest.raises(InvalidLiteral, match="scale 2"):
        parse_literal("1.5", DataType(Kind.NUMERIC, scale=2))


def test_common_types() -> None:
    assert common_type([SMALLINT, None, BIGINT]) == BIGINT
    assert common_type([MONEY, None]) == MONEY
    assert common_type([MONEY, DataType(Kind.NUMERIC, 10, 2)]) == DataType(Kind.NUMERIC, scale=2)
    assert common_type([MONEY, INTEGER]) == NUMERIC
    assert common_type([None, None]) == TEXT
    assert common_type([INTEGER, DOUBLE, MONEY]) == DOUBLE
    with pytest.raises(NoSuchFunction, match="types integer and text cannot be matched"):
        common_type([INTEGER, TEXT])


def test_casts_by_context() -> None:
    assert can_cast(INTEGER, BIGINT, "implicit")
    assert not can_cast(BIGINT, INTEGER, "implicit")
    assert can_cast(BIGINT, INTEGER, "assignment")
    assert not can_cast(TEXT, INTEGER, "assignment")
    assert can_cast(TEXT, INTEGER, "explicit")
    assert not can_cast(BOOLEAN, BIGINT, "explicit")


def test_aggregate_types() -> None:
    assert aggregate_type("sum", INTEGER) == BIGINT
    assert aggregate_type("sum", BIGINT) == DataType(Kind.NUMERIC, scale=0)
    assert aggregate_type("sum", MONEY) == DataType(Kind.NUMERIC, scale=2)
    assert aggregate_type("avg", MONEY) == NUMERIC
    assert aggregate_type("count", None) == BIGINT
    assert aggregate_type("max", DataType(Kind.VARCHAR, length=5)) == TEXT
    with pytest.raises(NoSuchFunction, match=r"function sum\(text\) does not exist"):
        aggregate_type("sum", TEXT)
    with pytest.raises(NoSuchFunction):
        aggregate_type("min", BOOLEAN)


def test_the_catalogue_lists_each_entry_once_and_names_fallbacks() -> None:
    rows = catalogue()
    assert len(rows) == len(set(rows)) > 300
    assert ("operator", "+(integer,integer)", "integer") in rows
    assert ("refused", "gamma(double precision)", "Postgres has it") in rows
    assert set(fallback_users()) <= {name for _, name, _ in rows}
