"""The types that SQL names, in casts and in lists of columns.

Always: a type that the engine cannot compute with is refused at its name. Called by `functions` and `column_definitions`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Expr, Literal
from headrace.engine.operators.expressions.core.text_types import family_of
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL
from headrace.engine.schema import INTEGER, MOST_DIGITS, TEXT, TIMETZ, Column, DataType, Kind
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder
from headrace.views.sql.parsing.constants import SINGLE_BITS
from headrace.views.sql.parsing.foreign_type_names import DECLARED
from headrace.views.sql.parsing.nodes import FieldType
from headrace.views.sql.parsing.parse import spelled_as

_ELEMENTS = frozenset(
    {
        "bool", "bytea", "date", "float4", "float8", "int2", "int4", "int8", "json", "jsonb", "numeric", "text", "time",
        "timestamp", "timestamptz", "uuid", "varchar",
    }
)  # fmt: skip
"""Types whose arrays have names of their own too: `_int4` is `integer[]`."""
_MODIFIED = re.compile(r"([a-z_ ]+)\((\d+)(?:, *(\d+))?\)")
_FLOAT = re.compile(r"\bfloat(?:\((\d+)\))?(?=$|\[)")
_DOUBLE = 53
_MOST_INTEGER = 2**31 - 1
_LENGTHS = {
    **dict.fromkeys(("varchar", "char"), 10_485_760),
    **dict.fromkeys(("bit", "varbit"), 83_886_080),
}
_DIGITS = 1000
"""How many digits a numeric may say that it has, and how far off the point these may stand."""
TIMES = (Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ)


def type_named(binder: Binder, node: exp.Expr, *, precise: bool = False) -> DataType:
    """The Postgres type that a cast or a column names. Raises ViewError for one the engine cannot compute with.

    `precise`: times may have a precision, which `digits_of` tells.
    """
    spelled = spelled_as(node).lower()
    fault = _modifier_fault(spelled)
    if fault is not None:
        binder.source.refuse(node, fault)
    spelled = _FLOAT.sub(lambda found: "real" if int(found[1] or "53") <= SINGLE_BITS else "double precision", spelled)
    if spelled[:1] == "_" and spelled[1:] in _ELEMENTS and spelled not in binder.source.catalog.types:
        spelled = f"{spelled[1:]}[]"
    bare = spelled.removesuffix("[]")
    if bare in DECLARED and bare not in binder.source.catalog.types:
        binder.source.refuse(node, f'type "{spelled}" does not exist')
    target = node.known if isinstance(node, FieldType) else binder.source.type_named(spelled)
    named = target if target.element is None else target.element
    if not computable(named):
        binder.source.refuse(node, f"type {spelled} is not supported in expressions")
    sized = named.kind in (Kind.NUMERIC, Kind.VARCHAR, Kind.BPCHAR) or named.size is not None
    if "(" in spelled and not sized and not (precise and (target.kind in TIMES or target == TIMETZ)):
        binder.source.refuse(node, f"a precision is not supported for type {target}", "leave it out")
    return target


def rounded(value: Expr, digits: int | None) -> Expr:
    """A time, or an interval, with as many digits of its seconds; itself where nothing says how many."""
    if digits is None:
        return value
    if value.type == INTERVAL:
        return restricted(value, (), digits)
    return coerce.called("$rounded", [value, Literal(digits, INTEGER)])


def restricted(value: Expr, fields: Sequence[str], digits: int) -> Expr:
    """An interval of these fields alone, or of all, with as many digits of its seconds."""
    return coerce.called("$restricted", [value, Literal(" ".join(fields), TEXT), Literal(digits, INTEGER)])


def column_named(binder: Binder, name: str, node: exp.Expr) -> Column:
    """A column of the type that a list names."""
    kind = type_named(binder, node, precise=True)
    digits = digits_of(node, kind)
    return Column(name, kind, digits=MOST_DIGITS if digits is None else digits)


def _modifier_fault(spelled: str) -> str | None:
    """The error for wrong numbers behind a type's name, in Postgres's words.

    >>> _modifier_fault("varchar(0)"), _modifier_fault("decimal(5, 2)"), _modifier_fault("real")
    ('length for type varchar must be at least 1', None, None)
    """
    found = _MODIFIED.match(spelled)
    if found is None:
        return None
    name, numbers = {"bpchar": "char"}.get(found[1], found[1]), [int(n) for n in found.groups()[1:] if n]
    far = next((n for n in numbers if n > _MOST_INTEGER), None)
    if far is not None:
        return f'value "{far}" is out of range for type integer'
    if name == "float" and not 1 <= numbers[0] <= _DOUBLE:
        return f"precision for type float must be {'less than 54 bits' if numbers[0] else 'at least 1 bit'}"
    most = _LENGTHS.get(name)
    if most is not None and not 1 <= numbers[0] <= most:
        return f"length for type {name} {f'cannot exceed {most}' if numbers[0] else 'must be at least 1'}"
    if name == "decimal" and not 1 <= numbers[0] <= _DIGITS:
        return f"NUMERIC precision {numbers[0]} must be between 1 and {_DIGITS}"
    if name == "decimal" and max(numbers[1:], default=0) > _DIGITS:
        return f"NUMERIC scale {numbers[1]} must be between -{_DIGITS} and {_DIGITS}"
    return None


def computable(target: DataType) -> bool:
    """Whether the engine can compute with values of a type, or an array's elements."""
    named = target if target.element is None else target.element
    family = family_of(named)
    return named.kind is not Kind.OTHER or (family is not None and family.order is not None)


def digits_of(node: exp.Expr, target: DataType) -> int | None:
    """The number of fractional digits of seconds that a type of times declares; None where it declares none."""
    if target.kind not in TIMES and target not in (TIMETZ, INTERVAL):
        return None
    if isinstance(node, FieldType) and node.digits < MOST_DIGITS:
        return node.digits
    found = [part.name for part in node.expressions if isinstance(part, exp.DataTypeParam)]
    return min(int(found[0]), MOST_DIGITS) if found else None
