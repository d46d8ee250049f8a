"""Random histories through small dataflows: each epoch's changes and content are the twin's, in any cut."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal

from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, DOUBLE, INTEGER, NUMERIC, REAL, TEXT, Column, DataType, Kind, Schema
from tests.engine.dataflow.pairs import Agg, Both, Pair, Shape, World, keyed_ops, keyless_ops
from tests.engine.dataflow.standard import any_cut, asked_about_the_past, made_late, passes, restart
from tests.reference.dataflow import NaiveAggregate, Row, RowFails

MONEY = DataType.parse("numeric(10,2)")
CHAR3 = DataType.parse("char(3)")
SUM2 = DataType(Kind.NUMERIC, scale=2)
SUM0 = DataType(Kind.NUMERIC, scale=0)

ORDERS = Schema.of(
    [
        Column("id", INTEGER),
        Column("customer", INTEGER),
        Column("note", TEXT),
        Column("total", MONEY),
        Column("weight", DOUBLE),
        Column("rate", NUMERIC),
        Column("paid", BOOLEAN),
        Column("big", BIGINT),
    ],
    ["id"],
)
CUSTOMERS = Schema.of([Column("region", TEXT), Column("number", INTEGER), Column("name", CHAR3)], ["number", "region"])
EVENTS = Schema.of([Column("customer", INTEGER), Column("rate", NUMERIC), Column("score", REAL)])


def draw_order(rng: random.Random) -> Row:
    return (
        rng.randrange(6),
        rng.choice([None, 0, 1, 2, 3]),
        rng.choice([None, "", "a", "b", "é", "long text beyond eight"]),
        rng.choice([None, Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("99999999.99")]),
        rng.choice([None, "0.0", "-0.0", "nan", "1.5", "0.1", "1e+16", "-1e+16", "5e-324"]),
        rng.choice([None, "1.0", "1.00", "1", "-0.5", "123456789012345678901234567890123456789012.5"]),
        rng.choice([None, True, False]),
        rng.choice([None, 0, 1, 2**62, -(2**63)]),
    )


def draw_customer(rng: random.Random) -> Row:
    return (rng.choice(["n", "s"]), rng.choice([1, 2, 3]), rng.choice([None, "ab ", "ab", "xyz"]))


def draw_event(rng: random.Random) -> Row:
    return (rng.choice([None, 1, 2]), rng.choice([None, "2", "2.0", "3"]), rng.choice([None, "0.0", "-0.0", "0.5"]))


def ref(i: int, schema: Schema) -> Both:
    return Both(ColumnRef(i, schema.columns[i].type), lambda row: row[i])


def agg(function: str, column: int | None, schema: Schema, kind: DataType, *, distinct: bool = False) -> Agg:
    arg = None if column is None else ColumnRef(column, schema.columns[column].type)
    return Agg(Aggregate(function, arg, kind, distinct), NaiveAggregate(function, column, distinct))


def over(i: int, limit: int) -> Both:
    expr = Call(">(integer,integer)", (ColumnRef(i, INTEGER), Literal(limit, INTEGER)), BOOLEAN)
    return Both(expr, lambda row: None if row[i] is None else row[i] > limit)


def divide(one: int, by: int) -> Both:
    def fn(row: Row) -> int | None:
        if row[one] is None or row[by] is None:
            return None
        if row[by] == 0:
            raise RowFails("division by zero")
        return int(row[one] / row[by])

    return Both(Call("/(integer,integer)", (ColumnRef(one, INTEGER), ColumnRef(by, INTEGER)), INTEGER), fn)


def named(*kinds: DataType) -> Schema:
    return Schema(tuple(Column(f"c{i}", kind) for i, kind in enumerate(kinds)))


def linear(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    orders = t["orders"]
    some = orders.filter(over(1, 1)).project(
        [ref(1, ORDERS), ref(0, ORDERS), ref(2, ORDERS)], named(INTEGER, INTEGER, TEXT)
    )
    failing = orders.project([ref(0, ORDERS), divide(1, 0)], named(INTEGER, INTEGER))
    predicate = Both(
        Call(">(integer,integer)", (divide(1, 0).expr, Literal(1, INTEGER)), BOOLEAN),
        lambda row: None if divide(1, 0).fn(row) is None else divide(1, 0).fn(row) > 1,
    )
    return {
        "some": some,
        "failing": failing,
        "condition": orders.filter(predicate),
        "difference": failing.concat(failing.filter(over(1, 1)).negate()),
        "events": t["events"],
    }


def joins(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    orders, customers, events = t["orders"], t["customers"], t["events"]
    slim = orders.project([ref(0, ORDERS), ref(1, ORDERS), ref(4, ORDERS)], named(INTEGER, INTEGER, DOUBLE))
    by_customer = slim.join(customers, [1], [1])
    residual = Both(
        Call(">(integer,integer)", (divide(0, 4).expr, Literal(0, INTEGER)), BOOLEAN),
        lambda row: None if divide(0, 4).fn(row) is None else divide(0, 4).fn(row) > 0,
    )
    return {
        "inner": by_customer,
        "failing": events.join(slim, [0], [0], residual),
        "self": slim.join(slim, [1], [0]),
        "rates": orders.project([ref(5, ORDERS)], named(NUMERIC)).join(events, [0], [1]),
        "floats": orders.project([ref(4, ORDERS)], named(DOUBLE)).join(slim, [0], [2]),
        "composite": customers.join(customers, [1, 0], [1, 0]),
        "padded": customers.project([ref(2, CUSTOMERS)], named(CHAR3)).join(customers, [0], [2]),
        "three": by_customer.join(events, [1], [0]).check_key([0], "three"),
    }


def sums(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    orders, events = t["orders"], t["events"]
    aggregates = [
        agg("count", None, ORDERS, BIGINT),
        agg("count", 2, ORDERS, BIGINT),
        agg("sum", 0, ORDERS, BIGINT),
        agg("sum", 3, ORDERS, SUM2),
        agg("avg", 3, ORDERS, NUMERIC),
        agg("avg", 0, ORDERS, NUMERIC),
        agg("sum", 7, ORDERS, SUM0),
        agg("avg", 7, ORDERS, NUMERIC),
        agg("bool_and", 6, ORDERS, BOOLEAN),
        agg("bool_or", 6, ORDERS, BOOLEAN),
    ]
    kinds = [a.real.type for a in aggregates]
    filtered = Agg(
        Aggregate("sum", ColumnRef(0, INTEGER), BIGINT, filter=over(1, 1).expr),
        NaiveAggregate("sum", 0, where=over(1, 1).fn),
    )
    counted = Agg(
        Aggregate("count", None, BIGINT, filter=over(1, 2).expr), NaiveAggregate("count", None, where=over(1, 2).fn)
    )
    return {
        "by_customer": orders.reduce([1], aggregates, named(INTEGER, *kinds)),
        "by_two": orders.reduce([2, 1], aggregates[:4], named(TEXT, INTEGER, *kinds[:4])),
        "whole": orders.reduce([], aggregates, named(*kinds)),
        "only_count": events.reduce([], aggregates[:1], named(BIGINT)),
        "filtered": orders.reduce([1], [filtered, counted], named(INTEGER, BIGINT, BIGINT)),
        "distinct": orders.project([ref(1, ORDERS), ref(2, ORDERS)], named(INTEGER, TEXT)).distinct(),
        "checked": orders.check_key([1], "checked"),
    }


def general(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    orders, events = t["orders"], t["events"]
    aggregates = [
        agg("count", None, ORDERS, BIGINT),
        agg("min", 0, ORDERS, INTEGER),
        agg("max", 2, ORDERS, TEXT),
        agg("min", 3, ORDERS, MONEY),
        agg("max", 4, ORDERS, DOUBLE),
        agg("min", 4, ORDERS, DOUBLE),
        agg("min", 5, ORDERS, NUMERIC),
        agg("max", 5, ORDERS, NUMERIC),
        agg("max", 7, ORDERS, BIGINT),
        agg("count", 5, ORDERS, BIGINT, distinct=True),
        agg("sum", 5, ORDERS, NUMERIC, distinct=True),
        agg("sum", 0, ORDERS, BIGINT, distinct=True),
        agg("count", 2, ORDERS, BIGINT, distinct=True),
        agg("avg", 3, ORDERS, NUMERIC, distinct=True),
        agg("sum", 5, ORDERS, NUMERIC),
        agg("avg", 5, ORDERS, NUMERIC),
    ]
    kinds = [a.real.type for a in aggregates]
    floats = [agg("sum", 4, ORDERS, DOUBLE), agg("avg", 4, ORDERS, DOUBLE)]
    finite = orders.filter(
        Both(
            Call("<(double precision,double precision)", (ColumnRef(4, DOUBLE), Literal(1e300, DOUBLE)), BOOLEAN),
            lambda row: None if row[4] is None else row[4] != "nan",
        )
    )
    return {
        "by_customer": orders.reduce([1], aggregates, named(INTEGER, *kinds)),
        "whole": orders.reduce([], aggregates, named(*kinds)),
        "floats": finite.reduce([1], floats, named(INTEGER, DOUBLE, DOUBLE)),
        "by_rate": orders.reduce([5, 1], aggregates[:2], named(NUMERIC, INTEGER, *kinds[:2])),
        "distinct": events.distinct(),
        "padded": t["customers"].reduce([2], [agg("max", 2, CUSTOMERS, CHAR3)], named(CHAR3, CHAR3)),
    }


def deep(t: Mapping[str, Pair]) -> Mapping[str, Pair]:
    orders, customers = t["orders"], t["customers"]
    per = orders.reduce([1], [agg("sum", 0, ORDERS, BIGINT), agg("max", 2, ORDERS, TEXT)], named(INTEGER, BIGINT, TEXT))
    joined = per.join(customers, [0], [1])
    schema = joined.real.schema
    names = joined.project([ref(4, schema), ref(1, schema)], named(INTEGER, BIGINT))
    top = names.reduce(
        [],
        [agg("max", 1, names.real.schema, BIGINT), agg("count", None, names.real.schema, BIGINT)],
        named(BIGINT, BIGINT),
    )
    return {"per": per, "joined": joined, "top": top, "names": names.distinct()}


SHAPES: dict[str, Shape] = {"linear": linear, "joins": joins, "sums": sums, "general": general, "deep": deep}
SCHEMAS = {"orders": ORDERS, "customers": CUSTOMERS, "events": EVENTS}


def world(shape: Shape, seed: int, epochs: int = 6, rate: int = 4) -> tuple[World, random.Random]:
    rng = random.Random(seed)
    ops = {
        "orders": keyed_ops(rng, draw_order, ORDERS, epochs, rate),
        "customers": keyed_ops(rng, draw_customer, CUSTOMERS, epochs, rate // 2),
        "events": keyless_ops(rng, draw_event, epochs, rate // 2),
    }
    return World(SCHEMAS, shape, ops), rng


test_changes_of_each_epoch_in_any_cut = passes(any_cut, SHAPES, world)
test_a_restart_changes_nothing = passes(restart, SHAPES, world)
test_a_view_made_late_is_hydrated = passes(made_late, SHAPES, world)
test_the_past_is_asked = passes(asked_about_the_past, SHAPES, world)
