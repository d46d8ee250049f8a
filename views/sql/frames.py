"""Frames of window functions bound: ROWS, GROUPS and RANGE, with offsets and EXCLUDE.

Always: an offset is a constant. A RANGE with offsets becomes columns: what the window is sorted by, and the bounds, all of
one type, so that what lies between them is found by comparing. Called by `windows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from engine.operators.expressions import interval_text
from engine.operators.expressions.coercion import numeric_image
from engine.operators.expressions.evaluate import evaluate
from engine.operators.expressions.intervals import INTERVAL
from engine.operators.expressions.ir import Case, Expr, Literal
from engine.operators.frames import Frame
from engine.schema import BIGINT, DOUBLE, NUMERIC, TEXT, DataType, Kind
from views.scalar import ONE_ROW, columns, reaches_out
from views.sql import coerce
from views.sql.binder import Binder
from views.sql.coerce import UNKNOWN

WHOLE = Frame("rows", None, None)
_RANGE = Frame("range", None, 0)
_INTS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)
SIZE = "invalid preceding or following size in window function"

Bound = int | Expr | None
"""A count of rows or groups, 0 for the current row, None for none, or the offset of a RANGE."""


def frame_of(
    binder: Binder, node: exp.Expr, spec: Any, by: Sequence[Expr], flags: Sequence[tuple[bool, bool]]
) -> tuple[Frame, list[Expr]]:
    """(the frame, the columns of a RANGE with offsets); one that cannot hold less than the partition is the whole."""
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
        if len(by) != 1:
            reason = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column"
            binder.source.refuse(node, reason)
        start, end, reach = _reach(binder, node, by[0], flags[0][0], (start, before), (end, behind))
    assert start is None or isinstance(start, int)
    assert end is None or isinstance(end, int)
    if not exclude and ((start is None and end is None) or (not by and unit != "rows")):
        # All rows of the partition are equal in no order.
        return WHOLE, []
    descending, nulls_first = flags[0] if reach else (False, False)
    return Frame(unit, start, end, exclude, len(reach), descending, nulls_first), reach


_FARTHEST = 1 << 40
"""No partition has so many rows: a place so far off is beyond its end, and can be added to any other place."""


def _bound(binder: Binder, node: exp.Expr, value: Any, side: Any, unit: str) -> tuple[Bound, bool]:
    """(the bound, whether it lies before the row)."""
    before = str(side).upper() == "PRECEDING"
    if str(value).upper() == "CURRENT ROW":
        return 0, before
    if str(value).upper() == "UNBOUNDED":
        return None, before
    if value.find(exp.Query) is not None:
        binder.source.refuse(node, "a subquery is not supported in a frame's offset", "write a number")
    offset = binder.bind(value)
    if columns(offset) or reaches_out(offset):
        binder.source.refuse(node, "a frame's offset must be a constant")
    if unit == "range":
        return offset, before
    offset = binder.typed(value, lambda: coerce.assigned(offset, BIGINT, unit.upper()))
    found = evaluate(offset, ONE_ROW).values[0].as_py()
    if found is None or found < 0:
        what = "must not be null" if found is None else "must not be negative"
        binder.source.refuse(node, f"frame {'starting' if before else 'ending'} offset {what}")
    found = min(found, _FARTHEST)
    return (-found if before else found), before


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
        offset = _offset(binder, node, bound, by.type, step)
        found.append(_moved(order, offset, before != descending, (len(ends) == 0) != descending))
        ends.append(-1 if before else 1)
    result = found[0].type
    return ends[0], ends[1], [coerce.coerced(order, result), *found]


def _moved(order: Expr, offset: Expr, back: bool, least: bool) -> Expr:
    """The order and the offset behind or before it. From the infinity at the far end an infinite offset reaches all values
    that are numbers, or times; `least`: the bound is that below them.
    """
    moved = coerce.called("-" if back else "+", [order, offset])
    image = evaluate(coerce.coerced(offset, TEXT), ONE_ROW).values[0].as_py()
    if str(image).lower() != "infinity":
        return moved
    least_value, most = (coerce.coerced(Literal(f"{sign}infinity", UNKNOWN), moved.type) for sign in ("-", ""))
    far = coerce.called("=", [coerce.coerced(order, moved.type), most if back else least_value])
    return Case(((far, least_value if least else most),), moved, moved.type)


def _stepped(binder: Binder, node: exp.Expr, by: Expr) -> tuple[Expr, DataType]:
    """(what the window is sorted by, in a type that offsets do not overflow, the offsets' type)."""
    kind = by.type.kind
    if kind in _INTS or kind is Kind.NUMERIC:
        return coerce.coerced(by, numeric_image(by.type)), NUMERIC
    if kind in (Kind.REAL, Kind.DOUBLE):
        return coerce.coerced(by, DOUBLE), DOUBLE
    if kind in _TIMES:
        return by, INTERVAL
    reason = f"RANGE with offset PRECEDING/FOLLOWING is not supported for column type {by.type}"
    return binder.source.refuse(node, reason, "use ROWS or GROUPS")


def _offset(binder: Binder, node: exp.Expr, offset: Expr, by: DataType, step: DataType) -> Expr:
    """An offset in the type that the order asks for. Raises ViewError for one that is negative or of another type."""
    kind = offset.type.kind
    given = offset.type != UNKNOWN
    if step == INTERVAL:
        fits = not given or offset.type == INTERVAL
    else:
        fits = not given or kind in _INTS or (kind is Kind.NUMERIC and by.kind not in _INTS)
        fits = fits or (kind in (Kind.REAL, Kind.DOUBLE) and step == DOUBLE)
    if not fits:
        reason = "RANGE with offset PRECEDING/FOLLOWING is not supported for column type"
        binder.source.refuse(node, f"{reason} {by} and offset type {offset.type}")
    wide = numeric_image(offset.type) if step == NUMERIC and given else step
    made = binder.typed(node, lambda: coerce.coerced(offset, wide))
    found = evaluate(made, ONE_ROW).values[0].as_py()
    if found is None:
        binder.source.refuse(node, "a frame's offset must not be null")
    if step == INTERVAL:
        months, days, micros = interval_text.read(str(found))
        size: float = (months * 30 + days) * interval_text.DAY + micros
    else:
        size = float(found)
    if not size >= 0:
        binder.source.refuse(node, SIZE)
    return made
