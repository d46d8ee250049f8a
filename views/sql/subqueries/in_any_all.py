"""Whether values are among a subquery's: IN, NOT IN and comparisons with ANY and ALL, of values and of rows, with their NULLs.

Always: what is asked of a row stands beside it by joins, so that a change costs the rows that it answers. Called by
`subquery_binder`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from headrace.engine.operators.expressions.core.ir import Aggregate, Call, Case, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.schema import BIGINT, BOOLEAN
from headrace.views.expressions import conjunction, equality, may_be_null, shifted
from headrace.views.plan import Distinct, Filter, Join, Plan, Project, Reduce, identity, keyed
from headrace.views.sql import coerce
from headrace.views.sql.from_clause.outer_joins import TRUE, outer_join
from headrace.views.sql.subqueries.decorrelate.link import Linked

FALSE = Literal(False, BOOLEAN)
UNSURE = Literal(None, BOOLEAN)
MARKS = 27
"""In how many ways a row may be one of others: with three columns, each NULL on either side."""


def beside(plan: Plan, other: Plan, pairs: Sequence[tuple[Expr, Expr]]) -> tuple[Plan, int]:
    """`plan` with the columns of `other` where `pairs` are equal, NULL elsewhere; and where these begin."""
    width = len(plan.schema.columns)
    if not pairs and _is_one_row(other):
        return Join(plan, other), width
    parts = [coerce.called("=", [a, shifted(b, width)]) for a, b in pairs]
    return outer_join(plan, other, conjunction(parts)), width


def _is_one_row(plan: Plan) -> bool:
    while isinstance(plan, Project):
        plan = plan.input
    return isinstance(plan, Reduce) and not plan.key


def sides(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """Keys that are equal where `left = right`."""
    found = equality(coerce.called("=", [left, right]))
    assert found is not None
    return found


def marked(plan: Plan, linked: Linked, pairs: list[tuple[Expr, Expr]]) -> tuple[Plan, Expr]:
    """The plan beside a mark of the rows that some row of the subquery is equal to in `pairs`, and the mark."""
    if not pairs:
        counts = Reduce(linked.plan, (), (Aggregate("count", None, BIGINT),), ("rows",))
        joined, start = beside(plan, counts, ())
        return joined, coerce.called(">", [ColumnRef(start, BIGINT), Literal(0, BIGINT)])
    names = tuple(f"key{i}" for i in range(len(pairs)))
    keys = Distinct(Project(linked.plan, tuple(b for _, b in pairs), names))
    found = Project(keys, (*identity(keys.schema)[0], TRUE), (*names, "found"))
    refs = [(a, ColumnRef(i, c.type)) for i, ((a, _), c) in enumerate(zip(pairs, keys.schema.columns, strict=True))]
    joined, start = beside(plan, found, refs)
    return joined, Call("is not null(any)", (ColumnRef(start + len(pairs), BOOLEAN),), BOOLEAN)


def quantified(
    plan: Plan,
    linked: Linked,
    operands: Sequence[Expr],
    word: str,
    *,
    every: bool,
    refuse: Callable[[str], NoReturn],
) -> tuple[Plan, Expr]:
    """`operands word ANY (or, `every`, ALL) (subquery)`, with NULL where that is unknown."""
    inner = linked.plan.schema.columns
    if linked.empty is not None:
        refuse("a comparison with an aggregate of a correlated subquery")
    refs = [ColumnRef(linked.first + i, inner[linked.first + i].type) for i in range(len(operands))]
    member = (word, every) in (("=", False), ("<>", True))
    nullable = [may_be_null(o, plan.schema.columns) for o in operands]
    sure = not any(nullable) and not any(inner[r.index].nullable for r in refs)
    if member and sure:
        plan, found = marked(plan, linked, [*linked.pairs, *map(sides, operands, refs)])
        return plan, coerce.called("not", [found]) if every else found
    if len(operands) > 1:
        return _row_member(plan, linked, operands, refs, every=every, refuse=refuse)
    operand, ref = operands[0], refs[0]
    if member:
        plan, found = marked(plan, linked, [*linked.pairs, sides(operand, ref)])
        plan, at = _totals(plan, linked, ref)
        decided = found
    else:
        plan, at = _totals(plan, linked, ref)
        least, most = (ColumnRef(at + 2 + i, ref.type) for i in range(2))
        decided = _beyond(operand, word, least, most, every=every)
    total, known = (Coalesce((ColumnRef(at + i, BIGINT), Literal(0, BIGINT)), BIGINT) for i in range(2))
    empty = coerce.called("=", [total, Literal(0, BIGINT)])
    missing = coerce.called("<", [known, total])
    if nullable[0]:
        missing = Call("or", (missing, coerce.called("is null", [operand])), BOOLEAN)
    whens = ((empty, TRUE if every else FALSE), (decided, FALSE if every else TRUE), (missing, UNSURE))
    return plan, Case(whens, TRUE if every else FALSE, BOOLEAN)


def _row_member(
    plan: Plan,
    linked: Linked,
    operands: Sequence[Expr],
    refs: Sequence[ColumnRef],
    *,
    every: bool,
    refuse: Callable[[str], NoReturn],
) -> tuple[Plan, Expr]:
    """Whether a row is one of the subquery's (`every`: is none), NULL where that depends on what is NULL in one of them.

    Each column is equal, or NULL there, or NULL here: a mark for each way in which a row could be meant.
    """
    inner = linked.plan.schema.columns
    ways = list(itertools.product(*(
        ("equal", *(["there"] if inner[r.index].nullable else []), *(["here"] if may_be_null(o, plan.schema.columns) else []))
        for o, r in zip(operands, refs, strict=True)
    )))  # fmt: skip
    if len(ways) > MARKS:
        refuse("a row is looked for among rows in which much can be NULL")
    whens: list[tuple[Expr, Expr]] = []
    for way in ways:
        columns = list(zip(way, operands, refs, strict=True))
        there = conjunction([coerce.called("is null", [r]) for how, _, r in columns if how == "there"])
        could = linked if there is None else replace(linked, plan=Filter(linked.plan, there))
        pairs = [*linked.pairs, *(sides(o, r) for how, o, r in columns if how == "equal")]
        plan, mark = marked(plan, could, pairs)
        met = conjunction([*(coerce.called("is null", [o]) for how, o, _ in columns if how == "here"), mark])
        assert met is not None
        whens.append((met, UNSURE if whens else FALSE if every else TRUE))
    return plan, Case(tuple(whens), TRUE if every else FALSE, BOOLEAN)


def _totals(plan: Plan, linked: Linked, ref: ColumnRef) -> tuple[Plan, int]:
    """Beside each row: how many rows the subquery has, how many that are not NULL, the least and the greatest."""
    wide, key = keyed(linked.plan, [b for _, b in linked.pairs])
    kinds = (("count", None, BIGINT), ("count", ref, BIGINT), ("min", ref, ref.type), ("max", ref, ref.type))
    aggregates = tuple(Aggregate(*kind) for kind in kinds)
    names = (*(f"key{i}" for i in range(len(key))), "rows", "known", "least", "greatest")
    totals = Reduce(wide, key, aggregates, names)
    pairs = [(a, ColumnRef(i, b.type)) for i, (a, b) in enumerate(linked.pairs)]
    joined, start = beside(plan, totals, pairs)
    return joined, start + len(key)


def _beyond(operand: Expr, word: str, least: Expr, most: Expr, *, every: bool) -> Expr:
    """What decides `operand word ANY` (that it is true of some) or ALL (that it is false of some)."""
    if word in ("=", "<>"):
        # Of some value it is true that it differs, or, for = ALL, false that it is equal.
        differ = [coerce.called("<>", [operand, end]) for end in (least, most)]
        return Call("or", tuple(differ), BOOLEAN)
    below = word in ("<", "<=")
    end = (least if below else most) if every else (most if below else least)
    holds = coerce.called(word, [operand, end])
    return coerce.called("not", [holds]) if every else holds
