"""Frames of window functions bound: ROWS, GROUPS and RANGE, with offsets and EXCLUDE.

Always: an offset is the same for all rows: a constant, or what an uncorrelated subquery says. A RANGE with offsets becomes
columns: what the window is sorted by, and the bounds, all of one type, so that what lies between them is found by comparing;
so do offsets that the tables say. Called by `window_calls`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from headrace.engine.operators.expressions.core.coercion import numeric_image
from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.framing import SIZE, clock_span, is_size
from headrace.engine.operators.expressions.core.ir import Call, Case, Expr, Literal
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL
from headrace.engine.operators.window_frames import FARTHEST, Frame
from headrace.engine.schema import BIGINT, BOOLEAN, DOUBLE, NUMERIC, TEXT, TIMETZ, DataType, Kind
from headrace.views.expressions import ONE_ROW, columns, reaches_out
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder
from headrace.views.sql.coerce import UNKNOWN
from headrace.views.sql.limit_expressions import queried, says_tables, variables
from headrace.views.sql.subqueries.subquery_binder import holds_subquery

WHOLE = Frame("rows", None, None)
_RANGE = Frame("range", None, 0)
_WHOLE = DataType(Kind.NUMERIC, scale=0)
_INTS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)

Bound = int | Expr | None
"""A count of rows or groups, 0 for the current row, None for none, or an offset: of a RANGE, or one that the tables say."""


def frame_of(
    binder: Binder, node: exp.Expr, spec: Any, by: Sequence[Expr], flags: Sequence[tuple[bool, bool]]
) -> tuple[Frame, list[Expr]]:
    """(the frame, the columns of its offsets); one that cannot hold less than the partition is the whole.

    `by`: what the window is ordered by.
    """
    if spec is None:
        return (_RANGE if by else WHOLE), []
    exclude = str(spec.args.get("exclude") or "").lower()
    exclude = "" if exclude == "no others" else exclude
    unit = str(spec.args.get("kind") or "RANGE").lower()
    start, before = _bound(binder, node, spec.args.get("start"), spec.args.get("start_side"), unit)
    given = spec.args.get("end")
    end, behind = (0, False) if given is None else _bound(binder, node, given, spec.args.get("end_side"), unit)
    if unit == "groups" and not by:
        binder.source.refuse(node, "GROUPS mode requires an ORDER BY clause")
    reach: list[Expr] = []
    if any(b is not None and not isinstance(b, int) for b in (start, end)):
        if unit != "range":
            start, end, reach = _apart((start, before), (end, behind))
        elif len(by) != 1:
            reason = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column"
            binder.source.refuse(node, reason)
        else:
            start, end, reach = _reach(binder, node, by[0], flags[0][0], (start, before), (end, behind))
    assert start is None or isinstance(start, int)
    assert end is None or isinstance(end, int)
    if not exclude and ((start is None and end is None) or (not by and unit != "rows")):
        # All rows of the partition are equal in no order.
        return WHOLE, []
    descending, nulls_first = flags[0] if reach and unit == "range" else (False, False)
    return Frame(unit, start, end, exclude, len(reach), descending, nulls_first), reach


def _bound(binder: Binder, node: exp.Expr, value: Any, side: Any, unit: str) -> tuple[Bound, bool]:
    """(the bound, whether it lies before the row)."""
    before = str(side).upper() == "PRECEDING"
    if str(value).upper() == "CURRENT ROW":
        return 0, before
    if str(value).upper() == "UNBOUNDED":
        return None, before
    what = f"frame {'starting' if before else 'ending'} offset"
    if says_tables(value):
        return queried(binder, value, unit.upper(), what, required=True), before
    offset = binder.bind(value)
    if columns(offset):
        variables(binder, value, unit.upper())
    if reaches_out(offset):
        return queried(binder, value, unit.upper(), what, required=True), before
    if unit == "range":
        return offset, before
    offset = binder.typed(value, lambda: coerce.assigned(offset, BIGINT, unit.upper()))
    found = evaluate(offset, ONE_ROW).values[0].as_py()
    if found is None or found < 0:
        binder.source.refuse(node, f"{what} must not be {'null' if found is None else 'negative'}")
    found = min(found, FARTHEST)
    return (-found if before else found), before


def _apart(start: tuple[Bound, bool], end: tuple[Bound, bool]) -> tuple[int | None, int | None, list[Expr]]:
    """The bounds of ROWS or GROUPS, and the columns that say how far off they are."""
    ends: list[int | None] = []
    found: list[Expr] = []
    for bound, before in (start, end):
        if bound:
            found.append(Literal(abs(bound), BIGINT) if isinstance(bound, int) else bound)
            ends.append(-1 if before else 1)
        else:
            ends.append(None if bound is None else 0)
    return ends[0], ends[1], found


def _reach(
    binder: Binder,
    node: exp.Expr,
    by: Expr,
    descending: bool,
    start: tuple[Bound, bool],
    end: tuple[Bound, bool],
) -> tuple[int | None, int | None, list[Expr]]:
    """The bounds of a RANGE as a frame has them, and its columns: the order, then the bounds that have an offset."""
    order, step = _stepped(binder, node, by)
    found: list[Expr] = []
    ends: list[int | None] = []
    for bound, before in (start, end):
        if bound is None or isinstance(bound, int):
            ends.append(bound)
            continue
        offset = _offset(binder, node, bound, by, step)
        found.append(_moved(order, offset, before != descending, (len(ends) == 0) != descending))
        ends.append(-1 if before else 1)
    return ends[0], ends[1], [coerce.sorting(e) for e in _alike([order, *found])]


def _alike(exprs: list[Expr]) -> list[Expr]:
    """The order and its bounds in the type of the bounds; numerics of several scales in one that holds them all."""
    kinds = {e.type for e in exprs[1:]}
    if exprs[0].type.kind is not Kind.NUMERIC or kinds == {exprs[0].type}:
        return [coerce.coerced(e, exprs[1].type) for e in exprs]
    if not all(e.type.fixed_scale for e in exprs):
        return [coerce.coerced(e, NUMERIC) for e in exprs]
    scale = max(e.type.scale or 0 for e in exprs)
    zero = Literal(f"{0:.{scale}f}", DataType(Kind.NUMERIC, scale=scale))
    return [e if (e.type.scale or 0) == scale else coerce.called("+", [e, zero]) for e in exprs]


def _moved(order: Expr, offset: Expr, back: bool, least: bool) -> Expr:
    """The order and the offset behind or before it. From the infinity at the far end an infinite offset reaches all values
    that are numbers, or times; `least`: the bound is that below them.
    """
    moved = coerce.called("-" if back else "+", [order, offset])
    if moved.type.kind is Kind.NUMERIC and moved.type.fixed_scale:
        return moved
    is_known = not holds_subquery(offset)
    spelled = coerce.called("lower", [coerce.coerced(offset, TEXT)])
    endless = coerce.called("=", [spelled, Literal("infinity", TEXT)])
    if is_known and not evaluate(endless, ONE_ROW).values[0].as_py():
        return moved
    least_value, most = (coerce.coerced(Literal(f"{sign}infinity", UNKNOWN), moved.type) for sign in ("-", ""))
    far = coerce.called("=", [coerce.coerced(order, moved.type), most if back else least_value])
    met = far if is_known else Call("and", (endless, far), BOOLEAN)
    return Case(((met, least_value if least else most),), moved, moved.type)


def _stepped(binder: Binder, node: exp.Expr, by: Expr) -> tuple[Expr, DataType]:
    """(what the window is sorted by, in a type that offsets do not overflow, the offsets' type)."""
    kind = by.type.kind
    if kind in _INTS or kind is Kind.NUMERIC:
        return coerce.coerced(by, numeric_image(by.type)), NUMERIC
    if kind in (Kind.REAL, Kind.DOUBLE):
        return coerce.coerced(by, DOUBLE), DOUBLE
    if kind in _TIMES or by.type == INTERVAL:
        return by, INTERVAL
    if kind is Kind.TIME or by.type == TIMETZ:
        clock = coerce.called("$clock", [by])
        return coerce.coerced(clock, numeric_image(clock.type)), INTERVAL
    reason = f"RANGE with offset PRECEDING/FOLLOWING is not supported for column type {by.type}"
    return binder.source.refuse(node, reason, "use ROWS or GROUPS")


def _offset(binder: Binder, node: exp.Expr, offset: Expr, by: Expr, step: DataType) -> Expr:
    """An offset in the type that the order asks for. Raises ViewError for one that is negative or of another type."""
    made = _of_type(binder, node, offset, by.type, step)
    is_clock = by.type.kind is Kind.TIME or by.type == TIMETZ
    if holds_subquery(made):
        made = coerce.called("$span", [made]) if is_clock else made
        return coerce.called("$sized", [made, coerce.called("is not null", [by])])
    found = evaluate(made, ONE_ROW).values[0].as_py()
    if found is None:
        binder.source.refuse(node, "a frame's offset must not be null")
    if is_clock:
        found = clock_span(str(found))
        moves = found.removeprefix("-").isdigit()
        made = coerce.coerced(coerce.number(found), _WHOLE) if moves else Literal(found, NUMERIC)
    if not is_size(found, made.type):
        binder.source.refuse(node, SIZE)
    return made


def _of_type(binder: Binder, node: exp.Expr, offset: Expr, by: DataType, step: DataType) -> Expr:
    """The offset as the order's step. Raises ViewError for one of a type that no step is made of."""
    kind = offset.type.kind
    given = offset.type != UNKNOWN
    if step == INTERVAL:
        fits = not given or offset.type == INTERVAL
    else:
        fits = not given or kind in _INTS or (kind is Kind.NUMERIC and by.kind not in _INTS)
        fits = fits or (kind in (Kind.REAL, Kind.DOUBLE) and step == DOUBLE)
    if not fits:
        reason = "RANGE with offset PRECEDING/FOLLOWING is not supported for column type"
        binder.source.refuse(node, f"{reason} {by} and offset type {offset.type}", "cast the offset")
    wide = numeric_image(offset.type) if step == NUMERIC and given else step
    return binder.typed(node, lambda: coerce.coerced(offset, wide))
