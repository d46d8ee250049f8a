"""Rule: what every branch of an OR asks is asked once, before the OR, so that joins find their keys in it."""

from __future__ import annotations

from headrace.engine.operators.expressions.core.ir import Call, Expr, Literal
from headrace.engine.schema import BOOLEAN
from headrace.views.expressions import base_name, conjunction, conjuncts
from headrace.views.plan import Filter, Join, LeftJoin, Plan
from headrace.views.rewrite import transform, with_expressions

TRUE = Literal(True, BOOLEAN)


def factor_conditions(plan: Plan) -> Plan:
    """The common parts of OR's branches in filters and join conditions, taken out.

    >>> from headrace.engine.operators.expressions.core.ir import ColumnRef
    >>> from headrace.engine.schema import Column, Schema
    >>> from headrace.views.plan import Scan
    >>> a = Scan("public.a", Schema(tuple(Column(n, BOOLEAN) for n in "xyz")))
    >>> x, y, z = (ColumnRef(i, BOOLEAN) for i in range(3))
    >>> both = lambda *parts: Call("and", parts, BOOLEAN)
    >>> given = Filter(a, Call("or", (both(x, y), both(x, z)), BOOLEAN))
    >>> factor_conditions(given) == Filter(a, both(x, Call("or", (y, z), BOOLEAN)))
    True
    """
    return transform(plan, _factored, Filter, Join, LeftJoin)


def _factored(plan: Plan) -> Plan:
    if not isinstance(plan, Filter | Join | LeftJoin):
        return plan
    return with_expressions(plan, lambda e: conjunction([p for c in conjuncts(e) for p in _parts(c)]) or TRUE)


def _parts(condition: Expr) -> list[Expr]:
    if not (isinstance(condition, Call) and base_name(condition) == "or"):
        return [condition]
    branches = [conjuncts(a) for a in condition.args]
    common = [p for p in dict.fromkeys(branches[0]) if all(p in b for b in branches[1:])]
    if not common:
        return [condition]
    rests = [conjunction([p for p in b if p not in common]) for b in branches]
    # A branch that asks nothing more is true wherever the common parts are.
    if any(r is None for r in rests):
        return common
    return [*common, Call("or", tuple(r for r in rests if r is not None), BOOLEAN)]
