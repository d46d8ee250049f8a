"""pg_input_is_valid: whether a text is a value of a type.

Always: a type, or a spelling of it, that the engine does not read is an error, never an answer. Registered in the catalogue
at import.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core import text_io
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import entry
from headrace.engine.operators.expressions.core.text_types import family_of
from headrace.engine.operators.expressions.text.strings import per_value
from headrace.engine.schema import VARBIT, DataType, Kind

UNREAD = "is not read by the engine: it cannot say whether the input is valid"


def _is_valid(text: str, name: str) -> bool:
    kind = DataType.parse(name)
    inner = kind if kind.element is None else kind.element
    if inner.kind is Kind.OTHER and inner.name != "interval" and family_of(inner) is None:
        raise RowError(f'type "{name}" {UNREAD}')
    try:
        text_io.reader(kind)(text)
        return _fits(text, kind)
    except RowError as error:
        if "not supported" in str(error):
            raise RowError(f"{error}: it {UNREAD}") from None
        return False


def _fits(text: str, kind: DataType) -> bool:
    """Whether a text that is a value of a type has its length, as elements of arrays too. Raises RowError."""
    if kind.element is not None:
        return all(_fits(e, kind.element) for e in array_text.flat(text) if e is not None)
    if kind.size is None:
        text_io.reader(kind)(text)
        return True
    bits = len(str(text_io.reader(kind.bare)(text)))
    return bits == kind.size or (bits < kind.size and kind.bare == VARBIT)


entry("pg_input_is_valid", (Kind.TEXT, Kind.TEXT), Kind.BOOLEAN, per_value(_is_valid, pa.bool_()), fallback=True)
