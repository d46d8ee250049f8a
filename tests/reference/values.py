"""When key values are equal and when rows are identical, value by value: the twin of `headrace.engine.batch.keys`."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from headrace.engine.schema import DataType, Kind


def key_value(value: Any, declared: DataType) -> Any:
    """A hashable that is equal exactly for values that Postgres calls equal (NULL equals NULL)."""
    if value is None:
        return ("null",)
    if isinstance(value, float):
        return ("nan",) if math.isnan(value) else ("float", value + 0.0)
    if declared.kind is Kind.BPCHAR:
        return ("text", value.rstrip(" "))
    if declared.kind is Kind.NUMERIC:
        number = Decimal(value)
        return ("nan",) if number.is_nan() else ("number", number)
    return ("value", value)


def image(value: Any) -> Any:
    """A hashable that is equal exactly for identical images."""
    if isinstance(value, float):
        return ("nan",) if math.isnan(value) else ("float", value, math.copysign(1.0, value))
    return (type(value).__name__, str(value))


def row_image(row: dict[str, Any]) -> tuple[Any, ...]:
    """The identical image of a row, as `to_pylist` gives it."""
    return tuple(image(v) for v in row.values())
