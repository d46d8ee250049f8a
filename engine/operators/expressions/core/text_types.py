"""Types that are known by their text image: how each is read, and what its values sort by.

Always: `order` gives a text whose bytes sort as the type's values do, the same for equal values; it holds no NUL unless it
is prefix-free. A family without `order` has none. Families register at import; enums carry their labels themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.schema import DataType, Kind


@dataclass(frozen=True)
class Family:
    """`read`: any spelling to the image, or RowError. `order`: an image to what it sorts by. `exact`: values are equal
    exactly where their images are.
    """

    read: Callable[[str], str]
    order: Callable[[str], str] | None
    exact: bool = True


_FAMILIES: dict[str, Family] = {}
_ARRAYS: list[Callable[[DataType], Family | None]] = []
_RECORDS: list[Callable[[tuple[str, ...]], Family | None]] = []


def family(name: str, made: Family) -> None:
    """Registers the family of a type by its bare name."""
    _FAMILIES[name] = made


def arrays_of(make: Callable[[DataType], Family | None]) -> None:
    """Registers what makes the family of arrays from the type of their elements."""
    _ARRAYS.append(make)


def records_of(make: Callable[[tuple[str, ...]], Family | None]) -> None:
    """Registers what makes the family of records from the types of their fields."""
    _RECORDS.append(make)


def families() -> tuple[str, ...]:
    """The names of the types that have one, enums apart."""
    return tuple(_FAMILIES)


def family_of(datatype: DataType) -> Family | None:
    """How values of a type are read and sorted; None for a type with a lane of its own, and for one that nobody knows."""
    if datatype.kind is Kind.JSONB:
        return _FAMILIES.get("jsonb")
    if datatype.kind is not Kind.OTHER:
        return None
    if datatype.element is not None:
        return _ARRAYS[0](datatype.element) if _ARRAYS else None
    if datatype.name == "record":
        return _RECORDS[0](datatype.labels) if _RECORDS and datatype.labels else None
    if datatype.labels:
        return _enum(datatype.name or "enum", datatype.labels)
    return _FAMILIES.get((datatype.name or "").partition("(")[0].strip())


@lru_cache
def _enum(name: str, labels: tuple[str, ...]) -> Family:
    places = {label: f"{i:05}" for i, label in enumerate(labels)}

    def read(text: str) -> str:
        if text not in places:
            raise RowError(f'invalid input value for enum {name}: "{text}"')
        return text

    return Family(read, places.__getitem__)


def has_spellings(datatype: DataType) -> bool:
    """Whether equal values of a type that is known by its text may have several, of which the key is one: intervals, jsonb …"""
    found = family_of(datatype)
    return found is not None and found.order is not None and not found.exact


def needs_key(datatype: DataType) -> bool:
    """Whether the order of the type is not that of its lane, so that something else is sorted in its place."""
    found = family_of(datatype)
    return found is not None and found.order is not None
