"""The equalities by which a subquery reads the row around it, pulled out of it, so that they become the keys of a join.

Called by `link`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.engine.operators.expressions.core.ir import Case, ColumnRef, Expr, Literal
from headrace.views.expressions import (
    columns,
    conjunction,
    conjuncts,
    equality,
    substituted,
)
from headrace.views.plan import (
    Distinct,
    Filter,
    Join,
    LeftJoin,
    Plan,
    Project,
    Reduce,
    Repeat,
    Semijoin,
    Top,
    Union,
    Windowed,
    identity,
    keyed,
)
from headrace.views.sql.from_clause.outer_joins import TRUE
from headrace.views.sql.subqueries.decorrelate.outer_columns import reads_around
from headrace.views.traversal import expressions, walk


@dataclass(frozen=True)
class Pulled:
    """A plan without equalities: each of `pairs` is what the row around must have, and the column that holds it here.

    The plan's own columns stand first. `empty`: as in `Linked`.
    """

    plan: Plan
    pairs: tuple[tuple[Expr, int], ...] = ()
    empty: tuple[Expr, ...] | None = None

    @property
    def extra(self) -> tuple[int, ...]:
        """The columns that hold what the row around must have."""
        return tuple(at for _, at in self.pairs)


_UNARY = Project | Reduce | Distinct | Top | Repeat | Windowed


def pulled(plan: Plan) -> Pulled | None:
    """The plan with its equalities pulled out; None where it reads the query around in another way."""
    if not any(reads_around(e) for node in walk(plan) for e in expressions(node)):
        return Pulled(plan)
    if isinstance(plan, Filter):
        return _filter(plan)
    if isinstance(plan, Join | LeftJoin | Semijoin):
        return _join(plan)
    if isinstance(plan, Union):
        return _union(plan)
    if any(reads_around(e) for e in expressions(plan)) or not isinstance(plan, _UNARY):
        return None
    below = pulled(plan.input)
    if below is None or (below.empty is not None and not isinstance(plan, Project)):
        return None
    width = len(plan.schema.columns)
    exprs = [e for e, _ in below.pairs]
    inner = below.plan
    if isinstance(plan, Project):
        keys, names = identity(inner.schema, below.extra)
        made: Plan = Project(inner, (*plan.exprs, *keys), (*plan.names, *names))
        empty = None if below.empty is None else tuple(substituted(e, below.empty) for e in plan.exprs)
        return Pulled(made, _numbered(exprs, width), empty)
    if isinstance(plan, Reduce):
        return _reduce(plan, below)
    if isinstance(plan, Windowed):
        # The window's values stand behind all of the row: they come before what was pulled out.
        window = replace(plan, input=inner, key=(*plan.key, *below.extra))
        narrow, wide = len(plan.input.schema.columns), len(inner.schema.columns)
        order = [*range(narrow), *range(wide, wide + len(plan.functions)), *below.extra]
        return Pulled(Project(window, *identity(window.schema, order)), _numbered(exprs, width))
    if isinstance(plan, Repeat):
        # What says how often stays last.
        count = width
        made = Repeat(Project(inner, *identity(inner.schema, [*range(width), *below.extra, count])))
        return Pulled(made, _numbered(exprs, width))
    if isinstance(plan, Top):
        return Pulled(replace(plan, input=inner, key=(*plan.key, *below.extra)), below.pairs)
    return Pulled(replace(plan, input=inner), below.pairs)


def _numbered(exprs: Sequence[Expr], first: int) -> tuple[tuple[Expr, int], ...]:
    return tuple((e, first + i) for i, e in enumerate(exprs))


def _filter(plan: Filter) -> Pulled | None:
    below = pulled(plan.input)
    if below is None or below.empty is not None:
        return None
    stay: list[Expr] = []
    found: list[tuple[Expr, Expr]] = []
    for part in conjuncts(plan.predicate):
        pair = _split(part) if reads_around(part) else None
        if pair is None and reads_around(part):
            return None
        if pair is None:
            stay.append(part)
        else:
            found.append(pair)
    kept = conjunction(stay)
    inner, places = keyed(below.plan if kept is None else Filter(below.plan, kept), [b for _, b in found])
    return Pulled(inner, (*below.pairs, *((a, place) for (a, _), place in zip(found, places, strict=True))))


def _split(part: Expr) -> tuple[Expr, Expr] | None:
    """(what the row around must have, what a row here has) where the part says that these are equal."""
    if not columns(part):
        return Case(((part, TRUE),), Literal(None, TRUE.type), TRUE.type), TRUE
    for one, two in (sides, sides[::-1]) if (sides := equality(part)) else ():
        if reads_around(one) and not columns(one) and not reads_around(two):
            return one, two
    return None


def _join(plan: Join | LeftJoin | Semijoin) -> Pulled | None:
    residual = None if isinstance(plan, Semijoin) else plan.residual
    if isinstance(plan, Join) and reads_around(residual):
        assert residual is not None
        return _filter(Filter(replace(plan, residual=None), residual))
    left = pulled(plan.left)
    right = pulled(plan.right)
    if left is None or right is None or left.empty is not None or right.empty is not None or reads_around(residual):
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
    return Pulled(made, _numbered([e for e, _ in (*left.pairs, *right.pairs)], sum(widths)))


def identity_of(plan: Plan, places: Sequence[int]) -> list[Expr]:
    """References by which a row of `plan` is read where its columns stand at `places`."""
    return [ColumnRef(p, c.type) for p, c in zip(places, plan.schema.columns, strict=True)]


def _union(plan: Union) -> Pulled | None:
    parts = [pulled(p) for p in plan.inputs]
    inputs: list[Plan] = []
    first: Pulled | None = None
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
    return Pulled(Union(tuple(inputs)), _numbered([e for e, _ in first.pairs], len(plan.schema.columns)))


def _reduce(plan: Reduce, below: Pulled) -> Pulled:
    extra, inner = below.extra, below.plan
    names = (*(inner.schema.columns[k].name for k in extra), *plan.names)
    reduced = Reduce(inner, (*extra, *plan.key), plan.aggregates, names, plan.determined)
    order = [*range(len(extra), len(names)), *range(len(extra))]
    empty = None
    if not plan.key:
        empty = tuple(Literal(0 if a.function == "count" else None, a.type) for a in plan.aggregates)
    made = Project(reduced, *identity(reduced.schema, order))
    return Pulled(made, _numbered([e for e, _ in below.pairs], len(plan.schema.columns)), empty)
