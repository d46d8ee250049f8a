"""to_char and its inverses: values written and read by a template.

Always: evaluated once per distinct value and template. Registered in the catalogue at import.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, entry
from headrace.engine.operators.expressions.datetime.date_template import write_interval, write_stamp
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL, on_numbers
from headrace.engine.operators.expressions.datetime.to_timestamp import read_day, read_stamp
from headrace.engine.operators.expressions.numeric import to_char as numbers
from headrace.engine.operators.expressions.numeric.numeric import through_text
from headrace.engine.operators.expressions.numeric.to_number import read_number
from headrace.engine.operators.expressions.text.strings import STRING, per_value
from headrace.engine.schema import DataType, Kind


def _of_image(function: Callable[[str, str], str]) -> Maker:
    def make(params: tuple[DataType, ...], _result: DataType) -> Kernel:
        return through_text(function, STRING, params)

    return make


def _register() -> None:
    t = Kind.TEXT
    for kind, write in (
        (Kind.INTEGER, numbers.write_integer),
        (Kind.BIGINT, numbers.write_bigint),
        (Kind.REAL, numbers.write_real),
        (Kind.DOUBLE, numbers.write_double),
    ):
        entry("to_char", (kind, t), t, per_value(write, STRING), fallback=True)
    entry("to_char", (Kind.NUMERIC, t), t, _of_image(numbers.write_numeric), fallback=True)
    entry("to_char", (Kind.TIMESTAMP, t), t, on_numbers(write_stamp("")), fallback=True)
    entry("to_char", (Kind.TIMESTAMPTZ, t), t, on_numbers(write_stamp("UTC")), fallback=True)
    entry("to_char", (INTERVAL, t), t, on_numbers(write_interval), fallback=True)
    of_clock = on_numbers(lambda clock, template: write_interval((0, 0, clock), template))
    entry("to_char", (Kind.TIME, t), t, of_clock, fallback=True)
    entry("to_number", (t, t), Kind.NUMERIC, per_value(read_number, STRING), fallback=True)
    entry("to_date", (t, t), Kind.DATE, on_numbers(read_day), fallback=True)
    entry("to_timestamp", (t, t), Kind.TIMESTAMPTZ, on_numbers(read_stamp), fallback=True)


_register()
