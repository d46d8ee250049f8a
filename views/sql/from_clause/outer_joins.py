"""LEFT, RIGHT and FULL JOIN bound: the condition taken apart into keys, filters of one side and a residual.

Always: the row is the left side's columns, then the right side's; a row whose side's own condition is not true has no
partner, because its key is NULL then; what may fail is asked of pairs alone. Called by `tables` and `pull_up`.
"""

from __future__ import annotations

from headrace.engine.operators.expressions.core.ir import Case, Expr, Literal
from headrace.engine.schema import BOOLEAN
from headrace.views.expressions import columns, conjunction, conjuncts, equality, fallible, moved, reaches_out, shifted
from headrace.views.plan import Filter, LeftJoin, Plan, Project, identity, keyed

TRUE = Literal(True, BOOLEAN)


def right_join(left: Plan, right: Plan, condition: Expr | None, at: int = 0) -> Plan:
    """`left RIGHT JOIN right ON condition`."""
    wide, narrow = len(left.schema.columns), len(right.schema.columns)
    turned = {**{i: narrow + i for i in range(wide)}, **{wide + i: i for i in range(narrow)}}
    joined = outer_join(right, left, None if condition is None else moved(condition, turned), at=at)
    return Project(joined, *identity(joined.schema, [turned[i] for i in range(wide + narrow)]))


def outer_join(left: Plan, right: Plan, condition: Expr | None, *, full: bool = False, at: int = 0) -> Plan:
    """`left LEFT (or FULL) JOIN right ON condition`, which is over both rows, one after the other."""
    width = len(left.schema.columns)
    pairs: list[tuple[Expr, Expr]] = []
    lefts: list[Expr] = []
    rights: list[Expr] = []
    rest: list[Expr] = []
    for part in conjuncts(condition):
        reads = columns(part)
        if part == TRUE:
            continue
        if fallible(part) or reaches_out(part):
            rest.append(part)
        elif reads and min(reads) >= width:
            rights.append(shifted(part, -width))
        elif all(c < width for c in reads):
            lefts.append(part)
        else:
            pair = _pair(part, width)
            if pair is None:
                rest.append(part)
            else:
                pairs.append(pair)
    kept = conjunction(rights)
    if kept is not None and not full:
        right, kept = Filter(right, kept), None
    asked = conjunction(lefts)
    if not pairs and (asked is not None or kept is not None):
        pairs = [(TRUE, TRUE)]
    if pairs:
        pairs[0] = _under(asked, pairs[0][0]), _under(kept, pairs[0][1])
    return _joined(left, right, pairs, conjunction(rest), full=full, at=at)


def _under(condition: Expr | None, key: Expr) -> Expr:
    """The key, NULL where the condition is not true: such a row meets nothing."""
    return key if condition is None else Case(((condition, key),), Literal(None, key.type), key.type)


def _pair(part: Expr, width: int) -> tuple[Expr, Expr] | None:
    """The sides of an equality between the two rows, each over its own."""
    for one, two in (sides, sides[::-1]) if (sides := equality(part)) else ():
        if columns(one) and columns(two) and max(columns(one)) < width <= min(columns(two)):
            return one, shifted(two, -width)
    return None


def _joined(
    left: Plan, right: Plan, pairs: list[tuple[Expr, Expr]], residual: Expr | None, *, full: bool, at: int
) -> Plan:
    """The join by `pairs`; keys that are no columns are computed beside them, and left out again."""
    one, left_key = keyed(left, [a for a, _ in pairs])
    two, right_key = keyed(right, [b for _, b in pairs])
    width, narrow = len(left.schema.columns), len(one.schema.columns)
    places = [*range(width), *(narrow + k for k in range(len(right.schema.columns)))]
    if residual is not None:
        residual = moved(residual, dict(enumerate(places)))
    joined = LeftJoin(one, two, left_key, right_key, residual, full, at=at)
    if one is left and two is right:
        return joined
    return Project(joined, *identity(joined.schema, places))
