"""What a jsonb sorts by, as Postgres's btree compares two of them.

Always: prefix-free, and the same for equal values, in which numbers count by their value. Registered with the families at
import.
"""

from __future__ import annotations

from typing import Any

from headrace.engine.operators.expressions.core.order_keys import number_key
from headrace.engine.operators.expressions.core.text_types import Family, family
from headrace.engine.operators.expressions.json.json_text import Number, canonical, loads
from headrace.engine.operators.expressions.numeric import decimal_math


def order(image: str) -> str:
    """The key of a jsonb's image: kinds, then sizes, then what is inside.

    >>> images = ["[]", "null", '"a"', "1", "1.5", "true", "[1]", "[1, 2]", "{}", '{"a": 1}', '{"a": 2}']
    >>> [order(i) for i in images] == sorted(map(order, images)), order("1.0") == order("1")
    (True, True)
    """
    value = loads(image)
    if isinstance(value, dict | list):
        return _key(value)
    # A bare value is an array of one that goes before the others of that size.
    return f"5{1:09}0{_key(value)}"


def _key(value: Any) -> str:
    if value is None:
        return "0"
    if isinstance(value, Number):
        return f"2{number_key(decimal_math.parse(value))}\0"
    if isinstance(value, str):
        return f"1{value}\0"
    if isinstance(value, bool):
        return f"3{int(value)}"
    if isinstance(value, list):
        return f"5{len(value):09}1" + "".join(map(_key, value))
    keys = sorted(value, key=lambda k: (len(k.encode()), k.encode()))
    return f"6{len(keys):09}" + "".join(_key(str(k)) + _key(value[k]) for k in keys)


family("jsonb", Family(canonical, order, exact=False))
