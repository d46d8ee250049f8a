"""Rule: a UNION ALL of UNION ALLs is one union, and a DISTINCT of a DISTINCT one distinct."""

from __future__ import annotations

from headrace.views.plan import Distinct, Plan, Union
from headrace.views.rewrite import transform


def flatten_unions(plan: Plan) -> Plan:
    """Nested unions side by side; inner duplicates need no removal when the outer removes them.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> from headrace.views.plan import Scan
    >>> a = Scan("public.a", Schema((Column("x", BIGINT),)))
    >>> flatten_unions(Distinct(Union((a, Distinct(Union((a, a))))))) == Distinct(Union((a, a, a)))
    True
    """
    return transform(plan, _flat, Union, Distinct)


def _flat(plan: Plan) -> Plan:
    if isinstance(plan, Union):
        return Union(tuple(p for i in plan.inputs for p in (i.inputs if isinstance(i, Union) else (i,))))
    if isinstance(plan, Distinct):
        inner = plan.input
        if isinstance(inner, Distinct):
            return inner
        if isinstance(inner, Union) and any(isinstance(i, Distinct) for i in inner.inputs):
            bare = tuple(i.input if isinstance(i, Distinct) else i for i in inner.inputs)
            return Distinct(_flat(Union(bare)))
    return plan
