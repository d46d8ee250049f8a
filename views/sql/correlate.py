"""Decorrelation: a subquery's plan, which may read columns of the query around it, turned into one that does not, and
the equalities that link its rows to the rows around it.

Always: what comes back reads nothing of the query one level up; references further up count one level less. Equalities
are pulled out of the subquery where that is all it reads and nothing in it may fail; else the distinct values it reads
(its domain) are pushed into it (`domain`). Called by `subqueries` and `tables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.operators.expressions.ir import Case, ColumnRef, Expr, Literal
from views.plan import (
    Distinct,
    Filter,
    Join,
    LeftJoin,
    Plan,
    Project,
    Reduce,
    Repeat,
    Semijoin,
    Spread,
    Top,
    Union,
    Windowed,
    expressions,
    identity,
    keyed,
    walk,
)
from views.rewrite import SPEAKING, transform, with_expressions
from views.scalar import (
    columns,
    conjunction,
    conjuncts,
    equality,
    fallible,
    null_safe,
    outer_place,
    outer_ref,
    rewrite,
    seen,
    substituted,
)
from views.scalar import walk as parts_of
from views.sql.domain import pushed
from views.sql.outer import TRUE


@dataclass(frozen=True)
class Linked:
    """A subquery made free: its rows belong to a row around it where each of `pairs` (an expression over that row, one
    over this plan's) is equal. Its own columns stand from `first` on.

    `empty`: what it gives a row around that has no row here, one value a column; None: nothing.
    """

    plan: Plan
    pairs: tuple[tuple[Expr, Expr], ...]
    first: int
    width: int
    empty: tuple[Expr, ...] | None = None


def parameters(plan: Plan) -> tuple[tuple[int, Expr], ...]:
    """The columns of the query one level up that a plan reads: (position, the reference), in order."""
    found: dict[int, Expr] = {}
    for node in walk(plan):
        for expr in expressions(node):
            for part in parts_of(expr):
                place = outer_place(part)
                if place is not None and place[0] == 1:
                    found[place[1]] = part
    return tuple(sorted(found.items()))


def levels_read(plan: Plan) -> set[int]:
    """How many levels up stand the queries whose columns a plan reads."""
    places = (outer_place(part) for n in walk(plan) for e in expressions(n) for part in parts_of(e))
    return {place[0] for place in places if place is not None}


def link(around: Plan, plan: Plan, values: Mapping[int, Expr], *, whole: bool = False) -> Linked:
    """The subquery `plan` linked to the rows of `around`; `values`: what it reads there, over such a row, by position.

    `whole`: `empty` must be None.
    """
    width = len(plan.schema.columns)
    if not values:
        return Linked(lowered(plan, {}), (), 0, width)
    if not any(isinstance(node, Spread) or any(map(fallible, expressions(node))) for node in walk(plan)):
        found = _pulled(plan)
        if found is not None and not (whole and found.empty is not None):
            pairs = tuple(
                (lowered_in(expr, values), ColumnRef(at, found.plan.schema.columns[at].type))
                for expr, at in found.pairs
            )
            return Linked(lowered(found.plan, {}), pairs, 0, width, found.empty)
    # What looks different is asked apart, however equal it is.
    exprs = seen(tuple(values.values()))
    names = tuple(f"outer{i}" for i in range(len(exprs)))
    domain = Distinct(Project(around, exprs, names))
    # What `around` itself reads around it must stay what it is when the whole is lowered.
    inner = pushed(raised(domain), plan, {position: i for i, position in enumerate(values)})
    linked: list[tuple[Expr, Expr]] = []
    for i, (expr, column) in enumerate(zip(exprs, domain.schema.columns, strict=True)):
        keys = (null_safe(e, nullable=column.nullable) for e in (expr, ColumnRef(i, column.type)))
        linked += zip(*keys, strict=True)
    return Linked(lowered(inner, {}), tuple(linked), len(exprs), width)


def raised(plan: Plan, by: int = 1) -> Plan:
    """The plan seen from so many levels further in."""
    if not by or not levels_read(plan):
        return plan

    def change(e: Expr) -> Expr | None:
        place = outer_place(e)
        return None if place is None else outer_ref(place[0] + by, place[1], e.type)

    return transform(plan, lambda node: with_expressions(node, lambda e: rewrite(e, change)), *SPEAKING)


def lowered(plan: Plan, values: Mapping[int, Expr]) -> Plan:
    """The plan seen from one level further down: what it reads there stands in `values`."""
    return transform(plan, lambda node: with_expressions(node, lambda e: lowered_in(e, values)), *SPEAKING)


def lowered_in(expr: Expr, values: Mapping[int, Expr]) -> Expr:
    """As `lowered`, of one expression."""

    def change(e: Expr) -> Expr | None:
        place = outer_place(e)
        if place is None:
            return None
        depth, position = place
        return values[position] if depth == 1 else outer_ref(depth - 1, position, e.type)

    return rewrite(expr, change)


@dataclass(frozen=True)
class _Pulled:
    """A plan without equalities: each of `pairs` is what the row around must have, and the column that holds it here.

    The plan's own columns stand first. `empty`: as in `Linked`.
    """

    plan: Plan
    pairs: tuple[tuple[Expr, int], ...] = ()
    empty: tuple[Expr, ...] | None = None

    @property
    def extra(self) -> tuple[int, ...]:
        return tuple(at for _, at in self.pairs)


def _reads(expr: Expr | None) -> bool:
    """Whether the expression reads the query one level up."""
    return expr is not None and any((outer_place(e) or (0,))[0] == 1 for e in parts_of(expr))


_UNARY = Project | Reduce | Distinct | Top | Repeat | Windowed


def _pulled(plan: Plan) -> _Pulled | None:
    """The plan with its equalities pulled out; None where it reads the query around in another way."""
    if not any(_reads(e) for node in walk(plan) for e in expressions(node)):
        return _Pulled(plan)
    if isinstance(plan, Filter):
        return _filter(plan)
    if isinstance(plan, Join | LeftJoin | Semijoin):
        return _join(plan)
    if isinstance(plan, Union):
        return _union(plan)
    if any(_reads(e) for e in expressions(plan)) or not isinstance(plan, _UNARY):
        return None
    below = _pulled(plan.input)
    if below is None or (below.empty is not None and not isinstance(plan, Project)):
        return None
    width = len(plan.schema.columns)
    exprs = [e for e, _ in below.pairs]
    inner = below.plan
    if isinstance(plan, Project):
        keys, names = identity(inner.schema, below.extra)
        made: Plan = Project(inner, (*plan.exprs, *keys), (*plan.names, *names))
        empty = None if below.empty is None else tuple(substituted(e, below.empty) for e in plan.exprs)
        return _Pulled(made, _numbered(exprs, width), empty)
    if isinstance(plan, Reduce):
        return _reduce(plan, below)
    if isinstance(plan, Windowed):
        # The window's values stand behind all of the row: they come before what was pulled out.
        window = replace(plan, input=inner, key=(*plan.key, *below.extra))
        narrow, wide = len(plan.input.schema.columns), len(inner.schema.columns)
        order = [*range(narrow), *range(wide, wide + len(plan.functions)), *below.extra]
        return _Pulled(Project(window, *identity(window.schema, order)), _numbered(exprs, width))
    if isinstance(plan, Repeat):
        # What says how often stays last.
        count = width
        made = Repeat(Project(inner, *identity(inner.schema, [*range(width), *below.extra, count])))
        return _Pulled(made, _numbered(exprs, width))
    if isinstance(plan, Top):
        return _Pulled(replace(plan, input=inner, key=(*plan.key, *below.extra)), below.pairs)
    return _Pulled(replace(plan, input=inner), below.pairs)


def _numbered(exprs: Sequence[Expr], first: int) -> tuple[tuple[Expr, int], ...]:
    return tuple((e, first + i) for i, e in enumerate(exprs))


def _filter(plan: Filter) -> _Pulled | None:
    below = _pulled(plan.input)
    if below is None or below.empty is not None:
        return None
    stay: list[Expr] = []
    found: list[tuple[Expr, Expr]] = []
    for part in conjuncts(plan.predicate):
        pair = _split(part) if _reads(part) else None
        if pair is None and _reads(part):
            return None
        if pair is None:
            stay.append(part)
        else:
            found.append(pair)
    kept = conjunction(stay)
    inner, places = keyed(below.plan if kept is None else Filter(below.plan, kept), [b for _, b in found])
    return _Pulled(inner, (*below.pairs, *((a, place) for (a, _), place in zip(found, places, strict=True))))


def _split(part: Expr) -> tuple[Expr, Expr] | None:
    """(what the row around must have, what a row here has) where the part says that these are equal."""
    if not columns(part):
        return Case(((part, TRUE),), Literal(None, TRUE.type), TRUE.type), TRUE
    for one, two in (sides, sides[::-1]) if (sides := equality(part)) else ():
        if _reads(one) and not columns(one) and not _reads(two):
            return one, two
    return None


def _join(plan: Join | LeftJoin | Semijoin) -> _Pulled | None:
    residual = None if isinstance(plan, Semijoin) else plan.residual
    if isinstance(plan, Join) and _reads(residual):
        assert residual is not None
        return _filter(Filter(replace(plan, residual=None), residual))
    left = _pulled(plan.left)
    right = _pulled(plan.right)
    if left is None or right is None or left.empty is not None or right.empty is not None or _reads(residual):
        return None
    if not isinstance(plan, Join) and (right.pairs or (isinstance(plan, LeftJoin) and plan.full)):
        return None
    if isinstance(plan, Semijoin):
        return replace(left, plan=replace(plan, left=left.plan))
    widths = len(plan.left.schema.columns), len(plan.right.schema.columns)
    wide = len(left.plan.schema.columns)
    places = [*range(widths[0]), *(wide + i for i in range(widths[1]))]
    residual = None if residual is None else substituted(residual, identity_of(plan, places))
    joined = replace(plan, left=left.plan, right=right.plan, residual=residual)
    extra = [*left.extra, *(wide + k for k in right.extra)]
    made = Project(joined, *identity(joined.schema, [*places, *extra]))
    return _Pulled(made, _numbered([e for e, _ in (*left.pairs, *right.pairs)], sum(widths)))


def identity_of(plan: Plan, places: Sequence[int]) -> list[Expr]:
    """References by which a row of `plan` is read where its columns stand at `places`."""
    return [ColumnRef(p, c.type) for p, c in zip(places, plan.schema.columns, strict=True)]


def _union(plan: Union) -> _Pulled | None:
    parts = [_pulled(p) for p in plan.inputs]
    inputs: list[Plan] = []
    first: _Pulled | None = None
    for part in parts:
        if part is None or part.empty is not None:
            return None
        first = first or part
        if [e for e, _ in part.pairs] != [e for e, _ in first.pairs]:
            return None
        kinds = [part.plan.schema.columns[k].type.arrow for k in part.extra]
        if kinds != [first.plan.schema.columns[k].type.arrow for k in first.extra]:
            return None
        own = range(len(plan.schema.columns))
        inputs.append(Project(part.plan, *identity(part.plan.schema, [*own, *part.extra])))
    assert first is not None
    return _Pulled(Union(tuple(inputs)), _numbered([e for e, _ in first.pairs], len(plan.schema.columns)))


def _reduce(plan: Reduce, below: _Pulled) -> _Pulled:
    extra, inner = below.extra, below.plan
    names = (*(inner.schema.columns[k].name for k in extra), *plan.names)
    reduced = Reduce(inner, (*extra, *plan.key), plan.aggregates, names, plan.determined)
    order = [*range(len(extra), len(names)), *range(len(extra))]
    empty = None
    if not plan.key:
        empty = tuple(Literal(0 if a.function == "count" else None, a.type) for a in plan.aggregates)
    made = Project(reduced, *identity(reduced.schema, order))
    return _Pulled(made, _numbered([e for e, _ in below.pairs], len(plan.schema.columns)), empty)
