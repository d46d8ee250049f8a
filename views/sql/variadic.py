"""Calls whose last argument is VARIADIC: an array that stands for as many arguments as it has elements.

Always: an array written out, or a constant one, is its elements side by side; of any other array there is a function that
says the same, or the call is refused. Called by the handler of functions.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core.ir import Call, Expr, Literal
from headrace.engine.schema import TEXT, DataType, Kind
from headrace.views.sql import coerce
from headrace.views.sql.arrays import MADE
from headrace.views.sql.binder import Binder

_BEFORE = {
    **dict.fromkeys(("concat", "json_build_array", "json_build_object", "jsonb_build_array", "jsonb_build_object"), 0),
    **dict.fromkeys(("num_nulls", "num_nonnulls"), 0),
    **dict.fromkeys(("concat_ws", "format", "json_extract_path", "json_extract_path_text"), 1),
    **dict.fromkeys(("jsonb_extract_path", "jsonb_extract_path_text"), 1),
}
"""The functions with a VARIADIC parameter, each with the number of parameters before it."""

_PATHS = {"extract_path": "#>", "extract_path_text": "#>>"}
"""What a function of JSON is called that takes the array as it is."""


def is_variadic(node: exp.Expr) -> bool:
    """Whether a function's last argument is VARIADIC."""
    return bool(node.expressions) and isinstance(node.expressions[-1], exp.Variadic)


def variadic(binder: Binder, node: exp.Expr, name: str) -> Expr:
    """The call with the elements as arguments. Raises ViewError."""
    *nodes, last = node.expressions
    if _BEFORE.get(name) != len(nodes):
        binder.source.refuse(last.this, f"VARIADIC is not supported here in a call of {name}")
    before, array = [binder.bind(n) for n in nodes], binder.bind(last.this)
    kind, _, what = name.partition("_")
    if what in _PATHS:
        document = coerce.assigned_implicitly(before[0], DataType(Kind(kind)))
        return coerce.called(_PATHS[what], [document, array])
    elements = _elements(array)
    if elements:
        return coerce.called(name, [*before, *elements])
    if name not in ("concat", "concat_ws"):
        reason = f"VARIADIC of an array that is not written out is not supported for {name}"
        binder.source.refuse(last.this, reason, "write ARRAY[…] there, or the arguments one by one")
    return coerce.called("array_to_string", [array, before[0] if before else Literal("", TEXT)])


def _elements(array: Expr) -> list[Expr] | None:
    """The elements of an array of one dimension; None where it does not show how many it has."""
    if isinstance(array, Call) and array.function == MADE:
        return list(array.args)
    element = array.type.element
    if not isinstance(array, Literal) or element is None or array.value is None:
        return None
    shape, found = array_text.read(str(array.value))
    return [coerce.read(Literal(e, coerce.UNKNOWN), element) for e in found] if len(shape) == 1 else None
