"""Overloads that take any array: which element type the arrays and elements of a call agree on.

Always: without an array among the arguments nothing here applies; element types are bare, without modifiers, as those of
Postgres's polymorphic functions. Called by `resolve`; pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.coercion import common_type
from headrace.engine.operators.expressions.core.function_catalog import Param, Pseudo, Signature
from headrace.engine.schema import DataType, Kind, array_of

Types = Sequence[DataType | None]
_ARRAYS = (Pseudo.ARRAY, Pseudo.COMPATIBLE_ARRAY)
_EXACT = (Pseudo.ARRAY, Pseudo.ELEMENT)


def bare(element: DataType) -> DataType:
    """The type without its modifiers."""
    return element if element.kind is Kind.OTHER else DataType(element.kind)


def agreed(
    signature: Signature, args: Types, accepts: Callable[[Param, DataType | None], bool]
) -> tuple[DataType, ...] | None:
    """The parameter types of a call; None where the arguments do not fit. `accepts` decides of plain parameters."""
    found: list[DataType] = []
    arrays = 0
    for param, arg in zip(signature.params, args, strict=True):
        if not isinstance(param, Pseudo):
            if not accepts(param, arg):
                return None
        elif arg is not None:
            element = arg.element
            if (element is not None) != (param in _ARRAYS):
                return None
            arrays += element is not None
            found.append(bare(arg if element is None else element))
    if not arrays:
        return None
    if any(p in _EXACT for p in signature.params) and len(set(found)) > 1:
        return None
    try:
        common = bare(common_type(found))
    except HeadraceError:
        return None
    return tuple(_parameter(p, a, common) for p, a in zip(signature.params, args, strict=True))


def _parameter(param: Param, arg: DataType | None, common: DataType) -> DataType:
    if isinstance(param, Pseudo):
        return array_of(common) if param in _ARRAYS else common
    if param is None:
        return DataType(Kind.TEXT) if arg is None else arg
    if isinstance(param, DataType):
        return param
    return arg if arg is not None and arg.kind is param else DataType(param)
