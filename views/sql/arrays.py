"""Handlers of arrays: ARRAY[…], subscripts and slices, casts of constructors, and comparisons with ANY and ALL of one.

Always: an array has one dimension and begins at 1; other shapes come in data only. Registered with the binder at import;
`quantified` and `cast_elements` are called by the handlers of operators and casts.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from engine.operators.expressions.arrays import QUANTIFIED
from engine.operators.expressions.ir import Call, Expr, Literal
from engine.operators.expressions.resolve import resolve
from engine.schema import BOOLEAN, INTEGER, TEXT, DataType, Kind, array_of
from views.sql import coerce
from views.sql.binder import Binder, binds, unsupported

MADE = "$array(any,...)"
_INTS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
_LAST = 2**31 - 1
SEVERAL = "arrays of several dimensions are not supported"


@binds(exp.Array, reads="expressions")
def _array(binder: Binder, node: exp.Expr) -> Expr:
    if not node.expressions:
        binder.source.refuse(node, "cannot determine type of empty array", "cast it: ARRAY[]::integer[]")
    bound, target = coerce.unified([binder.bind(n) for n in node.expressions])
    return _made(binder, node, bound, target)


def _made(binder: Binder, node: exp.Expr, elements: Sequence[Expr], target: DataType) -> Expr:
    if target.element is not None:
        binder.source.refuse(node, SEVERAL)
    return Call(MADE, tuple(elements), array_of(target))


def cast_elements(binder: Binder, node: exp.Expr, target: DataType) -> Expr:
    """ARRAY[…] cast to an array type: the elements are cast, so that unknown literals are read as that type."""
    element = target.element
    assert element is not None
    if not node.expressions:
        return Literal("{}", target)
    if any(isinstance(n, exp.Array) for n in node.expressions):
        binder.source.refuse(node, SEVERAL)
    elements = [coerce.cast(binder.bind(n), element) for n in node.expressions]
    return coerce.cast(_made(binder, node, elements, element), target)


@binds(exp.Bracket, reads="this expressions offset safe returns_list_for_maps")
def _subscript(binder: Binder, node: exp.Expr) -> Expr:
    base = binder.bind(node.this)
    if base.type.kind is Kind.JSONB and not any(isinstance(n, exp.Slice) for n in node.expressions):
        for part in node.expressions:
            step = binder.bind(part)
            base = coerce.called("$json at", [base, coerce.cast(step, TEXT) if step.type.kind in _INTS else step])
        return base
    if base.type.element is None or len(node.expressions) != 1:
        return unsupported(binder, node)
    place = node.expressions[0]
    if not isinstance(place, exp.Slice):
        return coerce.called("$subscript", [base, _number(binder, place)])
    first, last = place.this, place.expression
    ends = [
        Literal(1, INTEGER) if first is None else _number(binder, first),
        Literal(_LAST, INTEGER) if last is None else _number(binder, last),
    ]
    return coerce.called("$slice", [base, *ends])


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
    array_type = held.type if kinds[1] == element else array_of(kinds[1], bare=kinds[1].kind is not Kind.NUMERIC)
    args = (coerce.coerced(value, kinds[0]), coerce.coerced(held, array_type))
    return Call(f"${'all' if every else 'any'} {word}(any,any)", args, BOOLEAN)
