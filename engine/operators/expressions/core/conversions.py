"""Casts that go through a value's text, by the names of the types: those of types that are known by it, and rare ones.

Always: a conversion takes a value's image and the target's type, and gives a text that the target's input reads. Modules of
types register theirs at import; asked by `coercion` and `casts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.engine.schema import DataType, Kind


@dataclass(frozen=True)
class Conversion:
    """`context`: the weakest in which it is allowed; `one`: a value's image as the target's text."""

    context: str
    one: Callable[[str, DataType], str | None]


_FOUND: dict[tuple[str, str], Conversion] = {}


def conversion(source: DataType, target: DataType, context: str, one: Callable[[str, DataType], str | None]) -> None:
    """Registers a cast."""
    _FOUND[_name(source), _name(target)] = Conversion(context, one)


def conversion_of(source: DataType, target: DataType) -> Conversion | None:
    """The cast from one type to another; None where none is registered."""
    return _FOUND.get((_name(source), _name(target)))


def conversions() -> tuple[tuple[str, str, str], ...]:
    """(source, target, context) of every one."""
    return tuple((source, target, found.context) for (source, target), found in sorted(_FOUND.items()))


def _name(datatype: DataType) -> str:
    return datatype.kind.value if datatype.kind is not Kind.OTHER else datatype.bare.name or ""
