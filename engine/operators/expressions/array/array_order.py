"""What an array sorts by, as Postgres's btree compares two of them: element by element, then by their sizes and bounds.

Always: prefix-free; NULLs are equal and above every element. An array has an order where its elements have one. Registered
with the families at import.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core import text_io
from headrace.engine.operators.expressions.core.order_keys import key_of
from headrace.engine.operators.expressions.core.text_types import Family, arrays_of, family_of
from headrace.engine.schema import DataType, Kind, array_of

_SEVERAL = (Kind.REAL, Kind.DOUBLE, Kind.BPCHAR, Kind.TIMESTAMPTZ, Kind.JSONB)


@lru_cache(maxsize=1024)
def _made(element: DataType) -> Family | None:
    key = key_of(element)
    if key is None:
        return None
    known = family_of(element)
    exact = known.exact if known is not None else element.kind not in _SEVERAL
    if element.kind is Kind.NUMERIC:
        exact = element.scale is not None
    return Family(_reader(element), _order(key), exact)


def _reader(element: DataType) -> Callable[[str], str]:
    return lambda text: str(text_io.reader(array_of(element, bare=False))(text))


def _order(key: Callable[[str], str]) -> Callable[[str], str]:
    def order(image: str) -> str:
        shape, found = array_text.read(image)
        elements = "".join("\3" if e is None else f"\2{key(e)}\0" for e in found)
        sizes = "".join(f"{size:09}" for size in shape)
        lower = "".join(f"{low + (1 << 31):010}" for low in array_text.lows(image, len(shape)))
        return f"{elements}\1{len(shape)}{sizes}{lower}"

    return order


arrays_of(_made)
