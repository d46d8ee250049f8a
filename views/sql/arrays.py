"""Handlers of arrays: ARRAY[…], subscripts and slices, casts of constructors, and comparisons with ANY and ALL of one.

Always: where one subscript is a slice, all are. Registered with the binder at import; `quantified` and `cast_elements` are
called by the handlers of operators and casts.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from engine.operators.expressions.arrays import MOST_DIMENSIONS, QUANTIFIED
from engine.operators.expressions.ir import Call, Expr, Literal
from engine.operators.expressions.resolve import resolve
from engine.schema import BOOLEAN, INTEGER, TEXT, DataType, Kind, array_of
from views.sql import coerce
from views.sql.binder import Binder, binds, unsupported

MADE = "$array(any,...)"
_INTS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT)
_LAST = 2**31 - 1
NESTED = "$arrays(any,...)"


@binds(exp.Array, reads="expressions")
def _array(binder: Binder, node: exp.Expr) -> Expr:
    if not node.expressions:
        binder.source.refuse(node, "cannot determine type of empty array", "cast it: ARRAY[]::integer[]")
    bound, target = coerce.unified(_parts(binder, node), "ARRAY")
    return _made(bound, target)


def _parts(binder: Binder, node: exp.Expr, element: DataType | None = None) -> list[Expr]:
    """What an array is made of; of arrays written inside, each with the type that the elements of all have in common."""
    inner = [n for n in node.expressions if isinstance(n, exp.Array)]
    if len(inner) < len(node.expressions) or not inner:
        parts = [binder.bind(n) for n in node.expressions]
        return parts if element is None else [coerce.cast(p, element) for p in parts]
    if element is None:
        element = coerce.unified([e for n in inner for e in _leaves(binder, n)], "ARRAY")[1]
    made = (_parts(binder, n, element) for n in inner)
    return [_made(parts, element if parts[0].type.element is None else parts[0].type) for parts in made]


def _leaves(binder: Binder, node: exp.Expr) -> list[Expr]:
    """The elements of an array that may be written as arrays of arrays."""
    if all(isinstance(n, exp.Array) for n in node.expressions):
        return [e for n in node.expressions for e in _leaves(binder, n)]
    return [binder.bind(n) for n in node.expressions]


def _made(elements: Sequence[Expr], target: DataType) -> Expr:
    if target.element is not None:
        return Call(NESTED, tuple(elements), target)
    return Call(MADE, tuple(elements), array_of(target))


def cast_elements(binder: Binder, node: exp.Expr, target: DataType) -> Expr:
    """ARRAY[…] cast to an array type: the elements are cast, so that unknown literals are read as that type."""
    element = target.element
    assert element is not None
    if not node.expressions:
        return Literal("{}", target)
    parts = _parts(binder, node, element)
    return coerce.cast(_made(parts, element if parts[0].type.element is None else parts[0].type), target)


@binds(exp.Bracket, reads="this expressions offset safe returns_list_for_maps")
def _subscript(binder: Binder, node: exp.Expr) -> Expr:
    # a[1][2] asks for one element of two dimensions.
    inner, places = node, list(node.expressions)
    while isinstance(inner.this, exp.Bracket) and len(inner.this.expressions) == 1:
        inner = inner.this
        places = [*inner.expressions, *places]
    if isinstance(inner.this, exp.Func | exp.Literal):
        # no subscript stands behind ARRAY[…], a call or a constant in Postgres's grammar
        binder.source.refuse(node, 'syntax error at or near "["', "put what is subscripted in parentheses")
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
    if place.args.get("step") is not None:
        binder.source.refuse(place, 'syntax error at or near ":"', "a slice has a first and a last place")
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
    array_type = held.type if kinds[1] == element else array_of(kinds[1], bare=kinds[1].kind is not Kind.NUMERIC)
    args = (coerce.coerced(value, kinds[0]), coerce.coerced(held, array_type))
    return Call(f"${'all' if every else 'any'} {word}(any,any)", args, BOOLEAN)
