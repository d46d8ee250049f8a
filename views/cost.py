"""Cost: in how many arrangements a changed row of each table is looked up, and how many take it in.

Invariant: it counts the plan and not the data, as if every look-up found one row, and also what other views share. `explain`
calls it.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from headrace.views.join_graph import flat, own_key
from headrace.views.plan import DeltaJoin, Distinct, Import, Join, LeftJoin, Plan, Reduce, Scan, Semijoin, Top, Windowed
from headrace.views.traversal import children


class Cost(NamedTuple):
    """Look-ups in arrangements, and arrangements that take the change up, the table's own among them."""

    look_ups: int
    kept: int


def costs(plan: Plan) -> dict[str, Cost]:
    """Of each table or view that is read, by name; one that is read twice pays twice.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> a, b = (Scan(f"public.{n}", Schema((Column("id", BIGINT), Column("x", BIGINT)), (0,))) for n in "ab")
    >>> costs(Join(a, b, (1,), (0,)))
    {'public.a': Cost(look_ups=1, kept=2), 'public.b': Cost(look_ups=1, kept=1)}
    """
    look_ups, kept = _counted(plan)
    return {name: Cost(look_ups[name], kept[name]) for name in sorted(kept.keys() | look_ups.keys())}


def _counted(plan: Plan) -> tuple[Counter[str], Counter[str]]:
    if isinstance(plan, Scan):
        return Counter({plan.table: 0}), Counter({plan.table: 1})
    if isinstance(plan, Import):
        return Counter({plan.view: 0}), Counter({plan.view: 0})
    look_ups, kept = Counter[str](), Counter[str]()
    if isinstance(plan, DeltaJoin):
        tree = flat(plan.input)
        arranged = [(part, key) for part, key in tree.arranged() if own_key(part) != key]
        below = [(leaf, len(tree.look_ups(k)), sum(part in (leaf, *_over(part, leaf)) for part, _ in arranged))
                 for k, leaf in enumerate(tree.leaves)]  # fmt: skip
    elif isinstance(plan, Join | LeftJoin | Semijoin):
        sides = ((plan.left, plan.left_key), (plan.right, plan.right_key))
        below = [(side, 1, int(own_key(side) != key)) for side, key in sides]
    else:
        once = int(isinstance(plan, Reduce | Distinct | Top | Windowed))
        below = [(child, once, once) for child in children(plan)]
    for child, more_look_ups, more_kept in below:
        for total, found, more in zip((look_ups, kept), _counted(child), (more_look_ups, more_kept), strict=True):
            for name, count in found.items():
                total[name] += count + more
    return look_ups, kept


def _over(part: Plan, leaf: Plan) -> tuple[Plan, ...]:
    """`part` if it is a choice of the columns of `leaf`."""
    return (part,) if leaf in children(part) else ()
