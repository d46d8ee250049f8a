"""Rule: where equal values may look different ('1 day', '24 hours'), group by a key that is the same for equal values, and show
each group's least text.

Always: of several texts of one value the same is shown, whatever came first; it is the last rule, since a key is proved of
the plan before it. What has a lane of its own, as numerics have, the engine groups by value itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Expr
from headrace.engine.operators.expressions.core.text_types import has_spellings
from headrace.engine.schema import TEXT
from headrace.views.expressions import valued
from headrace.views.plan import Distinct, Plan, Project, Reduce, Top, Windowed, identity, keyed
from headrace.views.rewrite import transform

DISTINCT = ("count",)
"""Aggregates of distinct values that do not say which."""


def value_classes(plan: Plan) -> Plan:
    """The plan with keys for what its groups, tops and windows tell apart.

    >>> from headrace.engine.schema import Column, DataType, Schema
    >>> from headrace.views.plan import Scan
    >>> a = Scan("public.a", Schema((Column("x", DataType.parse("interval")),)))
    >>> value_classes(Distinct(a)).schema == Distinct(a).schema, value_classes(Distinct(a)) == Distinct(a)
    (True, False)
    """
    return transform(plan, _classed, Distinct, Reduce, Top, Windowed)


def _classed(plan: Plan) -> Plan:
    if isinstance(plan, Distinct):
        width = len(plan.schema.columns)
        if not _several(plan, range(width)):
            return plan
        return _reduce(Reduce(plan.input, tuple(range(width)), (), plan.schema.names))
    if isinstance(plan, Reduce):
        return _reduce(plan)
    if isinstance(plan, Top | Windowed) and _several(plan.input, plan.key):
        return _within(plan)
    return plan


def _several(plan: Plan, places: Sequence[int]) -> list[int]:
    """The columns whose equal values may look different."""
    return [p for p in places if has_spellings(plan.schema.columns[p].type)]


def _ref(plan: Plan, place: int) -> ColumnRef:
    return ColumnRef(place, plan.schema.columns[place].type)


def _reduce(plan: Reduce) -> Plan:
    """The groups by class, and the least text of each class."""
    several = _several(plan.input, plan.key)
    counted = [a.arg for a in plan.aggregates if a.distinct and a.function in DISTINCT and a.arg is not None]
    counted = [e for e in counted if has_spellings(e.type)]
    if not several and not counted:
        return plan
    behind = [Call("$behind key(any)", (_ref(plan.input, p),), TEXT) for p in several]
    asked: list[Expr] = [*(valued(_ref(plan.input, p)) for p in several), *behind, *map(valued, counted)]
    below, places = keyed(plan.input, asked)
    at = dict(zip(asked, places, strict=True))
    key = tuple(at[valued(_ref(plan.input, p))] if p in several else p for p in plan.key)
    aggregates = [
        replace(a, arg=ColumnRef(at[valued(a.arg)], TEXT)) if a.arg in counted and a.distinct else a
        for a in plan.aggregates
    ]
    aggregates += [Aggregate("min", ColumnRef(at[e], TEXT), TEXT) for e in behind]
    names = (*plan.names, *(f"least{i}" for i in range(len(behind))))
    reduced = Reduce(below, key, tuple(aggregates), names, plan.determined)
    own, shown = identity(reduced.schema, range(len(plan.names)))
    exprs = list(own)
    for k, p in enumerate(plan.key):
        if p in several:
            least = ColumnRef(len(plan.names) + several.index(p), TEXT)
            exprs[k] = Call("$of key(text)", (least,), plan.input.schema.columns[p].type)
    return Project(reduced, tuple(exprs), shown)


def _within(plan: Top | Windowed) -> Plan:
    """The rows kept of each class, or what a window says of them."""
    width = len(plan.input.schema.columns)
    below, key = keyed(
        plan.input, [valued(r) if has_spellings(r.type) else r for r in (_ref(plan.input, p) for p in plan.key)]
    )
    made = replace(plan, input=below, key=key)
    wide = len(below.schema.columns)
    return Project(made, *identity(made.schema, [*range(width), *range(wide, len(made.schema.columns))]))
