"""Fingerprints depend on tags and values alone: renames change none, any other field does, and the golden ones stay."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from headrace.engine.dataflow import Dataflow
from headrace.engine.dataflow.node import Node, fingerprint_of
from headrace.engine.dataflow.tags import LABELS
from headrace.engine.encoding import Encoder
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.expressions.core import ir
from headrace.engine.operators.table_functions import SetFunction
from headrace.engine.operators.top import Order
from headrace.engine.operators.window_frames import Frame
from headrace.engine.operators.window_values import WindowFunction
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, TEXT, Column, DataType, Kind, Schema
from headrace.views import plan as plans
from headrace.views.compile import CompiledView, compile_views
from headrace.views.plan_node import ENCODER, PlanNode, Variable
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from tests.views.shop import catalog

GOLDEN = Path(__file__).parent / "fingerprints.json"
A, B = ir.ColumnRef(0, BIGINT), ir.ColumnRef(1, BIGINT)
ONE, TWO = (Schema((Column(n, BIGINT), Column("w", BIGINT))) for n in "vx")
SCAN, OTHER = plans.Scan("s.t", ONE), plans.Scan("s.u", ONE)
TRUE, FALSE = ir.Literal(True, BOOLEAN), ir.Literal(False, BOOLEAN)
FRAME = Frame("rows", None, 0)
SUM, MAX = (ir.Aggregate(f, A, BIGINT) for f in ("sum", "max"))
RANK, LAG = (WindowFunction(f, (0,), BIGINT, FRAME) for f in ("rank", "lag"))
SERIES, UNNEST = (SetFunction(f, (0,), (BIGINT,), (BIGINT,)) for f in ("generate_series", "unnest"))

V, W = Variable("v", 0), Variable("w", 0)
SAMPLES: list[tuple[Any, dict[str, Any]]] = [
    (DataType(Kind.NUMERIC), {
        "kind": Kind.TEXT, "precision": 5, "scale": 2, "length": 3, "name": "x", "labels": ("a",),
    }),
    (Column("a", BIGINT), {"name": "b", "type": TEXT, "nullable": False}),
    (ONE, {"columns": TWO.columns, "key": (0,)}),
    (A, {"index": 1, "type": TEXT}),
    (ir.Literal(1, BIGINT), {"value": True, "type": INTEGER}),
    (ir.Call("abs", (A,), BIGINT), {"function": "neg", "args": (B,), "type": TEXT}),
    (ir.Cast(A, TEXT), {"arg": B, "type": INTEGER, "implicit": True}),
    (ir.Case(((TRUE, A),), B, BIGINT), {"whens": ((FALSE, A),), "otherwise": A, "type": TEXT}),
    (ir.Coalesce((A, B), BIGINT), {"args": (B, A), "type": TEXT}),
    (SUM, {"function": "max", "arg": B, "type": TEXT, "distinct": True, "filter": TRUE}),
    (Order(0), {"column": 1, "descending": True, "nulls_first": False}),
    (FRAME, {
        "unit": "range", "start": -1, "end": 1, "exclude": "ties", "reach": 1, "descending": True, "nulls_first": True,
    }),
    (RANK, {"name": "lag", "args": (1,), "type": TEXT, "frame": Frame("range", None, 0), "number": 2}),
    (SERIES, {"function": "unnest", "args": (1,), "params": (TEXT,), "types": (TEXT,)}),
    (SCAN, {"table": "s.u", "schema": TWO}),
    (plans.Import("v", "f", ONE), {"view": "w", "fingerprint": "g", "schema": TWO}),
    (plans.One(), {}),
    (plans.Project(SCAN, (A,), ("a",)), {"input": OTHER, "exprs": (B,), "names": ("b",)}),
    (plans.Filter(SCAN, TRUE), {"input": OTHER, "predicate": FALSE}),
    (plans.Join(SCAN, OTHER), {
        "left": OTHER, "right": SCAN, "left_key": (0,), "right_key": (0,), "residual": TRUE, "kind": "outer",
    }),
    (plans.DeltaJoin(SCAN), {"input": OTHER}),
    (plans.LeftJoin(SCAN, OTHER, (0,), (0,)), {
        "left": OTHER, "right": SCAN, "left_key": (1,), "right_key": (1,), "residual": TRUE, "full": True,
    }),
    (plans.Semijoin(SCAN, OTHER, (0,), (0,)), {
        "left": OTHER, "right": SCAN, "left_key": (1,), "right_key": (1,), "negated": True,
    }),
    (plans.Reduce(SCAN, (0,), (SUM,), ("a", "b")), {
        "input": OTHER, "key": (1,), "aggregates": (MAX,), "names": ("a", "c"), "determined": 1,
    }),
    (plans.Distinct(SCAN), {"input": OTHER}),
    (plans.Union((SCAN, OTHER)), {"inputs": (OTHER, SCAN)}),
    (plans.Top(SCAN, (0,), (Order(0),), 1), {
        "input": OTHER, "key": (1,), "orders": (Order(1),), "limit": None, "offset": 1, "ties": True,
    }),
    (plans.Repeat(SCAN), {"input": OTHER}),
    (plans.Windowed(SCAN, (0,), (Order(0),), (RANK,), ("a",)), {
        "input": OTHER, "key": (1,), "orders": (Order(1),), "functions": (LAG,), "names": ("b",),
    }),
    (plans.Spread(SCAN, (SERIES,), ("a",)), {
        "input": OTHER, "functions": (UNNEST,), "names": ("b",), "ordinal": True, "outer": True,
    }),
    (V, {"name": "w", "level": 1}),
    (plans.Reference(V, ONE), {"variable": W, "schema": TWO}),
    (plans.Recursion("r", (V,), ("set",), (SCAN,), (plans.Reference(V, ONE),), 10), {
        "name": "s", "variables": (W,), "kinds_of": ("sum",), "starts": (None,), "rules": (OTHER,), "rounds": 11, "why": "x",
        "rows": 7, "at_limit": "return", "shown": 1,
    }),
]  # fmt: skip
"""A value of each class that has a tag, and another value for each of its fields that count."""
IDS = [type(value).__name__ for value, _ in SAMPLES]


def _fields(value: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(value):
        return tuple(f.name for f in dataclasses.fields(value) if f.compare)
    return tuple(value._fields)


def _with(value: Any, name: str, other: object) -> Any:
    return (
        dataclasses.replace(value, **{name: other})
        if dataclasses.is_dataclass(value)
        else value._replace(**{name: other})
    )


def _all_below(cls: type) -> set[type]:
    return {c for sub in cls.__subclasses__() for c in (sub, *_all_below(sub))}


def test_every_class_of_plans_and_expressions_has_a_tag_of_its_own() -> None:
    nodes = {c for c in _all_below(PlanNode) if dataclasses.is_dataclass(c) and c.__module__ == plans.__name__}
    assert nodes == set(get_args(plans.Plan))
    wanted = (
        nodes
        | set(get_args(ir.Expr))
        | {ir.Aggregate, WindowFunction, Frame, SetFunction, Order, DataType, Column, Schema, Variable}
    )
    assert set(ENCODER.tags) == wanted == {type(value) for value, _ in SAMPLES}
    assert len(set(ENCODER.tags.values())) == len(wanted)
    with pytest.raises(InvariantBroken, match="two classes have one tag"):
        Encoder({Order: "order", Frame: "order"})


def test_every_node_of_the_dataflow_has_a_label_that_is_fixed() -> None:
    own = {c for c in _all_below(Node) if c.__module__.startswith(Node.__module__.rpartition(".")[0])}
    assert {c.label for c in own} | {"node"} == LABELS | {"node"}


def test_what_has_no_tag_is_refused() -> None:
    with pytest.raises(InvariantBroken, match="without a tag"):
        ENCODER.encode(object())
    with pytest.raises(InvariantBroken, match="without a tag"):
        ENCODER.encode({"a": 1})
    with pytest.raises(InvariantBroken, match="without a fixed name"):
        fingerprint_of("a new operator", 1)


@pytest.mark.parametrize(("value", "others"), SAMPLES, ids=IDS)
def test_a_class_and_its_fields_may_be_renamed(value: Any, others: dict[str, Any]) -> None:
    """The same class as it would be under other names has the same text."""
    kind, names = type(value), _fields(value)
    defaults = (
        {f.name: f.default for f in dataclasses.fields(value)}
        if dataclasses.is_dataclass(value)
        else kind._field_defaults
    )
    fields: list[Any] = []
    for name in names:
        default = defaults.get(name, dataclasses.MISSING)
        fields.append((f"renamed_{name}", Any, dataclasses.field(default=default)))
    renamed = dataclasses.make_dataclass(
        "Renamed", fields, bases=tuple(b for b in kind.__bases__ if b is not tuple), frozen=True
    )
    renamed.__module__ = "elsewhere"
    encoder = Encoder(
        {**{c: t for c, t in ENCODER.tags.items() if c is not kind}, renamed: ENCODER.tags[kind]}, PlanNode
    )
    copy = renamed(*(getattr(value, n) for n in names))
    assert encoder.encode_fields(copy) == ENCODER.encode_fields(value)


def test_a_rename_of_a_plan_node_changes_no_digest() -> None:
    def made() -> str:
        return plans.Filter(plans.Scan("s.t", ONE), ir.Call("is null(any)", (A,), BOOLEAN)).digest

    before, classes = made(), list(ENCODER.tags)
    names = [(c.__name__, c.__qualname__, c.__module__) for c in classes]
    try:
        for cls in classes:
            cls.__name__, cls.__qualname__, cls.__module__ = f"Another{cls.__name__}", "Another", "elsewhere"
        assert plans.Scan.__name__ == "AnotherScan"
        assert made() == before
    finally:
        for cls, name in zip(classes, names, strict=True):
            cls.__name__, cls.__qualname__, cls.__module__ = name


@pytest.mark.parametrize(("value", "others"), SAMPLES, ids=IDS)
def test_values_that_differ_in_a_field_differ_in_their_text(value: Any, others: dict[str, Any]) -> None:
    assert set(others) == set(_fields(value))
    texts = [ENCODER.encode_fields(v) for v in (value, *(_with(value, n, other) for n, other in others.items()))]
    assert len(set(texts)) == len(texts)


def test_a_field_that_is_added_with_a_default_changes_no_text() -> None:
    old, new = (
        dataclasses.make_dataclass("Kind", [("a", int), *more])
        for more in ([], [("b", int, dataclasses.field(default=0))])
    )
    assert Encoder({old: "k"}).encode(old(1)) == Encoder({new: "k"}).encode(new(1)) == "k(1)"
    assert Encoder({new: "k"}).encode(new(1, 2)) == "k(1,2)"


def test_texts_of_plain_values_are_told_apart() -> None:
    values = [
        None,
        True,
        False,
        0,
        1,
        0.0,
        -0.0,
        1.0,
        float("nan"),
        "1",
        "",
        "a,b",
        b"1",
        (),
        ("a", "b"),
        (("a",), "b"),
        'a","b',
    ]
    assert len({ENCODER.encode(v) for v in values}) == len(values)


QUERIES = {
    "plain": "select id, name from customers",
    "filtered": "select id, total from orders where status = 'paid' and total > 10.5",
    "spelled": "select id, upper(name) as name, coalesce(region, '-') as region from customers",
    "cases": "select id, case when vip then 1 else 0 end as rank from customers",
    "casts": "select id, total::text as total, discount::numeric as discount from orders",
    "totals": "select customer_id, sum(total) as total, count(*) as n from orders group by customer_id",
    "distinct": "select count(distinct status) as n from orders",
    "extremes": "select region, min(born) as first, max(credit) as most from customers group by region",
    "some": "select status, sum(total) filter (where discount > 0) as cut from orders group by status",
    "joined": "select o.id, c.name from orders o join customers c on c.id = o.customer_id",
    "three": "select l.order_id, l.line_no, c.name from order_lines l join orders o on o.id = l.order_id "
             "join customers c on c.id = o.customer_id",
    "left_joined": "select c.id, o.id as order_id from customers c left join orders o on o.customer_id = c.id",
    "full_joined": "select c.id, o.id as order_id from customers c full join orders o on o.customer_id = c.id",
    "among": "select id from customers where id in (select customer_id from orders)",
    "none": "select id from customers c where not exists (select 1 from orders o where o.customer_id = c.id)",
    "different": "select distinct region from customers",
    "together": "select id::bigint as id from products union all select id from customers",
    "less": "select customer_id from visits except all select id::integer from products",
    "first_rows": "select id, total from orders order by total desc, id limit 3",
    "ranked": "select id, rank() over (partition by customer_id order by placed) as r from orders",
    "running": "select id, sum(total) over (partition by customer_id order by placed rows 2 preceding) as s from orders",
    "spread": "select id, n from orders, generate_series(1, parts) as n",
    "constant": "select 1 as one, 'a' as a",
    "over_a_view": "select region, count(*) as n from spelled group by region",
}  # fmt: skip


def _compiled() -> tuple[CompiledView, ...]:
    return compile_views([ViewSpec(name=n, sql=q) for n, q in QUERIES.items()], catalog())


def found() -> dict[str, Any]:
    """The fingerprints of all views and the names of the arrangements that they would find in a checkpoint."""
    flow, rendered = Dataflow(), {}
    for view in _compiled():
        rendered[view.name] = render(view, flow, rendered)
    names = sorted(trace.name for node in flow._known.values() for trace in node.traces())
    return {"views": {v.name: v.fingerprint for v in _compiled()}, "arrangements": names}


def test_fingerprints_and_names_of_arrangements_are_those_of_before() -> None:
    """A difference here throws every state folder away and fills every sink anew: mend the cause, not the file."""
    assert found() == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(found(), indent=1) + "\n")
