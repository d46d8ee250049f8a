"""Handlers of arrays: ARRAY[…], subscripts and slices, casts of constructors, and comparisons with ANY and ALL of one.

Always: where one subscript is a slice, all are. Registered with the binder at import; `quantified` and `cast_elements` are
called by the handlers of operators and casts.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.engine.operators.expressions.array.arrays import MOST_DIMENSIONS
from headrace.engine.operators.expressions.array.quantified import QUANTIFIED
from headrace.engine.operators.expressions.core.ir import Call, Expr, Literal
from headrace.engine.operators.expressions.core.resolve import resolve
from headrace.engine.schema import BOOLEAN, INTEGER, TEXT, DataType, Kind, array_of
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder, binds, unsupported

MADE = "$array(any,...)"
_INTS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
_LAST = 2**31 - 1
NESTED = "$arrays(any,...)"


@binds(exp.Array, reads="expressions")
def _array(binder: Binder, node: exp.Expr) -> Expr:
    return _made_of(binder, node, None)


def _made_of(binder: Binder, node: exp.Expr, target: DataType | None) -> Expr:
    """An array written out, its elements cast to those of the array type `target`; without one they are of their common type:
    that of arrays within is their own, which is known before that of the whole.
    """
    if not node.expressions:
        if target is None:
            binder.source.refuse(node, "cannot determine type of empty array", "cast it: ARRAY[]::integer[]")
        return Literal("{}", target)
    parts = [_made_of(binder, n, target) if isinstance(n, exp.Array) else binder.bind(n) for n in node.expressions]
    if target is None:
        bound, common = coerce.unified(parts, "ARRAY")
        return _made(bound, common)
    element = target.element
    assert element is not None
    inner = target if any(p.type.element is not None for p in parts) else element
    return _made([coerce.cast(p, inner) for p in parts], inner)


def _made(elements: Sequence[Expr], target: DataType) -> Expr:
    if target.element is not None:
        return Call(NESTED, tuple(elements), target)
    return Call(MADE, tuple(elements), array_of(target))


def cast_elements(binder: Binder, node: exp.Expr, target: DataType) -> Expr:
    """ARRAY[…] cast to an array type: the elements are cast, so that unknown literals are read as that type."""
    return coerce.cast(_made_of(binder, node, target), target)


@binds(exp.Bracket, reads="this expressions offset safe returns_list_for_maps")
def _subscript(binder: Binder, node: exp.Expr) -> Expr:
    # a[1][2] asks for one element of two dimensions.
    inner, places = node, list(node.expressions)
    while isinstance(inner.this, exp.Bracket) and len(inner.this.expressions) == 1:
        inner = inner.this
        places = [*inner.expressions, *places]
    base = binder.bind(inner.this)
    if base.type.kind is Kind.JSONB:
        base, places = binder.bind(node.this), list(node.expressions)
    if base.type.kind is Kind.JSONB and not any(isinstance(n, exp.Slice) for n in node.expressions):
        for part in node.expressions:
            step = binder.bind(part)
            base = coerce.called("$json at", [base, coerce.cast(step, TEXT) if step.type.kind in _INTS else step])
        return base
    if base.type.element is None:
        reason = f"cannot subscript type {base.type} because it does not support subscripting"
        binder.source.refuse(node, reason)
    if len(node.expressions) != 1 or len(places) > MOST_DIMENSIONS:
        return unsupported(binder, node)
    if not any(isinstance(place, exp.Slice) for place in places):
        return coerce.called("$subscript", [base, *(_number(binder, place) for place in places)])
    return coerce.called("$slice", [base, *(end for place in places for end in _ends(binder, place))])


def _ends(binder: Binder, place: exp.Expr) -> list[Expr]:
    """The first and the last place of a slice; a lone number beside a slice is its last."""
    if not isinstance(place, exp.Slice):
        return [Literal(1, INTEGER), _number(binder, place)]
    first, last = place.this, place.expression
    return [
        Literal(-_LAST - 1, INTEGER) if first is None else _number(binder, first),
        Literal(_LAST, INTEGER) if last is None else _number(binder, last),
    ]


def _number(binder: Binder, node: exp.Expr) -> Expr:
    return coerce.assigned(binder.bind(node), INTEGER, "array subscript")


def quantified(binder: Binder, node: exp.Expr, word: str, array: exp.Expr, *, every: bool) -> Expr:
    """`value word ANY (array)`, or ALL. Raises ViewError."""
    value = binder.bind(node.this)
    held = binder.bind(array)
    if held.type == coerce.UNKNOWN:
        held = coerce.read(held, array_of(coerce.settled(value).type))
    element = held.type.element
    if element is None:
        binder.source.refuse(node, "op ANY/ALL (array) requires array on right side")
    if word not in QUANTIFIED:
        return unsupported(binder, node)
    found = resolve(word, [coerce.known(value), element])
    kinds = found.params
    if found.function != f"{word}({','.join(k.kind.value for k in kinds)})":
        binder.source.refuse(node, f"{word} ANY/ALL of an array of type {element} is not supported")
    if word == "=" and not every and isinstance(held, Call) and held.function == MADE:
        sides = zip((value, *held.args), (kinds[0], *[kinds[1]] * len(held.args)), strict=True)
        of_kind = [side if side.type.kind is kind.kind else coerce.coerced(side, kind) for side, kind in sides]
        return coerce.called("in", coerce.unified(of_kind)[0])
    array_type = held.type if kinds[1] == element else array_of(kinds[1], bare=kinds[1].kind is not Kind.NUMERIC)
    args = (coerce.coerced(value, kinds[0]), coerce.coerced(held, array_type))
    return Call(f"${'all' if every else 'any'} {word}(any,any)", args, BOOLEAN)
