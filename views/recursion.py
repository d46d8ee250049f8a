"""Recursive queries as plans: UNION's recursive term as a fixpoint where that is the same, else with its rounds counted.

Postgres evaluates the recursive term over its *working table*, the rows of the last round alone. A term that distributes
over its input gives the same over all rows so far, and is run as a fixpoint; of every other the working table of each round
is kept apart. Invariant: a recursion without `why` is of a term that is proved to distribute. Called by the binder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal as LiteralType

from headrace.engine.operators.expressions.core.ir import Literal
from headrace.engine.operators.expressions.core.text_types import has_spellings
from headrace.engine.schema import BOOLEAN, DataType, Kind
from headrace.views.plan import (
    Distinct,
    Filter,
    Join,
    LeftJoin,
    One,
    Plan,
    Project,
    Recursion,
    Reduce,
    Reference,
    Repeat,
    Semijoin,
    Spread,
    Top,
    Union,
    Windowed,
)
from headrace.views.plan_node import Variable
from headrace.views.traversal import children, walk

TRUE, FALSE = Literal(True, BOOLEAN), Literal(False, BOOLEAN)
Kept = LiteralType["sum", "set", "working table"]

IMPROVES = "only improves"
"""How the reason ends for which the rounds of extremes count, that may stand in their own recursion."""

Less = Callable[[Plan, Plan], Plan]
"""The rows of a plan that are not among those of another, each once."""

_WORDS: dict[type, str] = {
    Distinct: "DISTINCT",
    Reduce: "groups",
    Top: "DISTINCT ON or LIMIT",
    Windowed: "a window function",
    Union: "a UNION with rows of other tables",
    Recursion: "a recursion",
    LeftJoin: "an outer join",
    Semijoin: "rows looked for among those of the recursion",
    Join: "a join of the recursion with itself",
}


def recursion(
    name: str, variable: Reference, start: Plan, step: Plan, *, every: bool, less: Less, rounds: int, rows: int
) -> Recursion:
    """`start` UNION `step`, which reads `variable`; `every`: UNION ALL. `less` makes what was not there before;
    after so many `rounds`, or with more `rows`, it is taken not to end."""
    held = undistributed(step, variable.variable, as_set=not every)
    why = f"the term holds {held}" if held else "" if every else _several(variable)
    if not why:
        union = Union((start, step))
        rule = union if every else Distinct(union)
        kept: Kept = "sum" if every else "set"
        return Recursion(name, (variable.variable,), (kept,), (None,), (rule,), rounds, rows=rows)
    working = variable
    # A space, so that no query has the name.
    so_far = Reference(Variable(f"{name} so far", variable.variable.level), variable.schema)
    every_round = Union((so_far, working))
    made: list[tuple[Variable, Kept, Plan | None, Plan]] = []
    if not empties(step, variable.variable):
        # Postgres asks the term once whatever there is, and then only while the last round brought rows.
        first = Reference(Variable(f"{name} begins", variable.variable.level), One().schema)
        marks = Project(working, (TRUE,), first.schema.names)
        made.append((first.variable, "working table", One(), Filter(One(), FALSE)))
        step = Semijoin(step, Union((marks, first)), (), ())
    if not every:
        start, step = Distinct(start), less(step, every_round)
    made = [
        (so_far.variable, "sum" if every else "set", None, every_round),
        (working.variable, "working table", start, step),
        *made,
    ]
    variables, kinds, starts, rules = zip(*made, strict=True)
    return Recursion(name, variables, kinds, starts, rules, rounds, why, rows)


def undistributed(plan: Plan, variable: Variable, *, as_set: bool) -> str:
    """What keeps a term from distributing over the rows of `variable`; empty if it is proved to. `as_set`: copies of rows do
    not count.
    """
    if isinstance(plan, Reference) and plan.variable == variable:
        return ""
    if isinstance(plan, Project | Filter | Spread | Repeat) or (as_set and isinstance(plan, Distinct)):
        return undistributed(plan.input, variable, as_set=as_set)
    if isinstance(plan, Join | LeftJoin | Semijoin):
        of_right = isinstance(plan, Join) and variable not in plan.left.free
        other, own = (plan.left, plan.right) if of_right else (plan.right, plan.left)
        full = isinstance(plan, LeftJoin) and plan.full
        if variable not in other.free and not full:
            return undistributed(own, variable, as_set=as_set)
    return _WORDS.get(type(plan), type(plan).__name__)


def empties(plan: Plan, variable: Variable) -> bool:
    """Whether the plan is proved to have no rows while `variable` has none.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> t = Reference(Variable("t", 0), Schema((Column("x", BIGINT),)))
    >>> empties(Distinct(t), t.variable), empties(Reduce(t, (), (), ()), t.variable)
    (True, False)
    """
    if isinstance(plan, Reference):
        return plan.variable == variable
    if variable not in plan.free:
        return False
    if isinstance(plan, Reduce) and not plan.key:
        return False
    if isinstance(plan, Join):
        return empties(plan.left, variable) or empties(plan.right, variable)
    if isinstance(plan, LeftJoin):
        return empties(plan.left, variable) and (not plan.full or empties(plan.right, variable))
    if isinstance(plan, Semijoin):
        return empties(plan.left, variable) or (not plan.negated and empties(plan.right, variable))
    if isinstance(plan, Recursion):
        return all(p is None or empties(p, variable) for p in plan.starts) and any(plan.starts)
    return all(empties(p, variable) for p in children(plan))


def nesting(plan: Plan) -> int:
    """How many recursions stand one in another at most, each of which reads the one around it."""
    found = 0
    for node in walk(plan):
        if isinstance(node, Recursion):
            own = frozenset(node.variables)
            inner = [p for rule in node.rules for p in walk(rule) if isinstance(p, Recursion) and p.free & own]
            found = max(found, 1 + max(map(nesting, inner), default=0))
    return found


def _several(variable: Reference) -> str:
    """That equal rows may look different, so that it matters which round brought one first."""
    found = next((c.name for c in variable.schema.columns if looks_different(c.type)), None)
    return "" if found is None else f"equal values of {found} may look different"


def looks_different(kind: DataType) -> bool:
    """Whether equal values of a type may have several texts: -0 and 0, 1.0 and 1.00, '1 day' and '24 hours'."""
    return (
        kind.kind in (Kind.REAL, Kind.DOUBLE)
        or has_spellings(kind)
        or (kind.kind is Kind.NUMERIC and kind.scale is None)
    )


__all__ = ["IMPROVES", "empties", "looks_different", "nesting", "recursion", "undistributed"]
