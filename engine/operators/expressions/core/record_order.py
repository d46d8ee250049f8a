"""What a record sorts by, as Postgres compares two of them: field by field, NULLs equal and above every value.

Always: prefix-free. A record's type holds the types of its fields as labels; it has an order where each of them has one. The
values are never read from other texts than those that a query makes. Registered with the families at import.
"""

from __future__ import annotations

from functools import lru_cache

from headrace.engine.operators.expressions.core.order_keys import key_of
from headrace.engine.operators.expressions.core.text_types import Family, family_of, records_of
from headrace.engine.schema import DataType


@lru_cache(maxsize=256)
def _made(fields: tuple[str, ...]) -> Family | None:
    types = [DataType.parse(spelled) for spelled in fields]
    keys = [key for key in map(key_of, types) if key is not None]
    if len(keys) < len(types):
        return None
    known = [family_of(kind) for kind in types]

    def order(image: str) -> str:
        parts = fields_of(image)
        return "".join("\3" if p is None else f"\2{key(p)}\0" for key, p in zip(keys, parts, strict=True))

    return Family(str, order, all(found is None or found.exact for found in known))


def fields_of(image: str) -> list[str | None]:
    """The fields of a record's image, None for NULL.

    >>> fields_of('(1,"a, b",,"","x""y")')
    ['1', 'a, b', None, '', 'x"y']
    """
    found: list[str | None] = []
    at, last = 1, len(image) - 1
    while at <= last:
        made, quoted, begin = "", False, at
        while quoted or (at < last and image[at] != ","):
            sign = image[at]
            if sign == "\\" or (sign == '"' and quoted and image[at + 1] == '"'):
                at += 1
                made += image[at]
            elif sign == '"':
                quoted = not quoted
            else:
                made += sign
            at += 1
        found.append(None if at == begin else made)
        at += 1
    return found


records_of(_made)
