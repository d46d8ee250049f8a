"""Column decoders: a list of JSON values of one column becomes its Arrow lane, exactly or not at all.

`decoder` is asked once for a table and column; what it returns is called once for each run. `values` makes Python values
(cheapest for a few rows), `array` makes the lane at once; both mean the same. Invariant: a value that cannot be kept exactly
raises, and the caller finds out which row it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.connectors.formats import temporal, text_output
from headrace.connectors.formats.encodings import Form, Wire
from headrace.connectors.formats.table_specs import CannotDecode
from headrace.connectors.formats.text_decoders import ALPHABETS, FLOAT_WORDS, Mapped, by_name, image_of, numeric_image
from headrace.engine.schema import MAX_DIGITS, DataType, Kind

Values = Sequence[Any]


@dataclass(frozen=True)
class Decoder:
    """`values`: JSON values → values that Arrow takes for `lane`. `cast`: the same for whole columns, where it differs.

    Both take None for NULL, keep order and length, and raise where a value cannot be kept exactly. `alike`: it makes the
    same of a whole number beyond 64 bits whether the parser gave it as such or as the nearest double.
    """

    lane: pa.DataType
    values: Callable[[Values], Values]
    cast: Callable[[Values], pa.Array] | None = None
    alike: bool = True

    def array(self, values: Values) -> pa.Array:
        """The lane of many values."""
        return pa.array(self.values(values), self.lane) if self.cast is None else self.cast(values)


_NONE: Final = type(None)
_INTEGERS: Final[frozenset[type]] = frozenset((int, _NONE))
_DOUBLES: Final[frozenset[type]] = frozenset((float, _NONE))
_TEXTS: Final[frozenset[type]] = frozenset((str, _NONE))
_BOOLEANS: Final[frozenset[type]] = frozenset((bool, _NONE))

_EXACT: Final = Context(prec=200, traps=[InvalidOperation])
_INFINITY: Final = float("inf")
_REAL_LIMIT: Final = 3.4028235677973366e38
"""Half a step above the greatest real: from here on a double rounds to infinity."""


def decoder(kind: DataType, wire: Wire) -> Decoder:
    """The decoder of a column of type `kind` that is written as `wire`. Raises CannotDecode, saying why, where the two
    do not go together exactly."""
    made = _LANES.get(kind.kind, _images)(kind, wire)
    if made is None:
        raise CannotDecode(
            f"{kind} is written as {wire.form.value}", "declare the column's own type, or change how it is sent"
        )
    return made


def _typed(values: Values, allowed: frozenset[type]) -> Values:
    if not allowed.issuperset(map(type, values)):
        raise CannotDecode("a value of another type than the column's")
    return values


def _plain(lane: pa.DataType, allowed: frozenset[type]) -> Decoder:
    """JSON values that are the lane's own."""
    return Decoder(lane, lambda values: _typed(values, allowed))


def _each(function: Mapped, lane: pa.DataType, allowed: frozenset[type] = _TEXTS) -> Decoder:
    """Value by value: for encodings that Arrow cannot cast."""

    def converted(values: Values) -> Values:
        _typed(values, allowed)
        return [None if v is None else function(v) for v in values]

    return Decoder(lane, converted, None, allowed in (_TEXTS, _INTEGERS))


def _together(
    written: str, convert: Callable[[list[str]], list[Any]], slow: Callable[[Values], Values]
) -> Callable[[Values], Values]:
    """Texts that are all `written` (a pattern of one line) converted by one call; any other way by `slow`, one by one."""
    matches = re.compile(f"(?:{written}\n)*{written}", re.ASCII).fullmatch

    def converted(values: Values) -> Values:
        nulls = None in values
        try:
            texts = [v for v in values if v is not None] if nulls else list(values)
            if not matches("\n".join(texts)):
                return slow(values)
            made = convert(texts)
        except (TypeError, ValueError, ArithmeticError):
            # not a text, or two lines in one
            return slow(values)
        if not nulls:
            return made
        following = iter(made)
        return [None if v is None else next(following) for v in values]

    return converted


def _integers(kind: DataType, wire: Wire) -> Decoder | None:
    return _plain(kind.arrow, _INTEGERS) if wire.form is Form.INTEGER else None


def _booleans(kind: DataType, wire: Wire) -> Decoder | None:
    return _plain(kind.arrow, _BOOLEANS) if wire.form is Form.BOOLEAN else None


def _texts(kind: DataType, wire: Wire) -> Decoder | None:
    return _plain(kind.arrow, _TEXTS) if wire.form is Form.TEXT else None


def _floats(kind: DataType, wire: Wire) -> Decoder | None:
    """Doubles and reals. A whole number is rounded to the nearest, as Postgres reads it: beyond 2^53 it is only a
    double's digits filled up with zeros."""
    if wire.form not in (Form.FLOAT, Form.INTEGER):
        return None
    narrow = kind.kind is Kind.REAL

    def numbers(values: Values) -> Values:
        if not _DOUBLES.issuperset(map(type, values)):
            values = [FLOAT_WORDS[v] if isinstance(v, str) else float(v) if type(v) is int else v for v in values]
            _typed(values, _DOUBLES)
        if narrow and any(v is not None and _REAL_LIMIT <= abs(v) < _INFINITY for v in values):
            raise CannotDecode("a number beyond the range of real")
        return values

    return Decoder(kind.arrow, numbers)


def _bytes(kind: DataType, wire: Wire) -> Decoder | None:
    to_bytes = ALPHABETS.get(wire.form)
    return None if to_bytes is None else _each(to_bytes, kind.arrow)


def _numerics(kind: DataType, wire: Wire) -> Decoder | None:
    text = numeric_image(kind, wire)
    if text is None:
        return None
    allowed: frozenset[type] = frozenset((str, float, int, dict, _NONE))
    if not kind.fixed_scale:
        free = _each(text, pa.large_string(), allowed)
        if wire.form is not Form.DECIMAL_TEXT:
            return free
        return replace(free, values=_together(_NUMERAL, list, free.values), alike=True)
    lane = kind.arrow
    step = Decimal(1).scaleb(-lane.scale)

    def exact(value: Any) -> Decimal:
        image = text(value)
        if image in text_output.SPECIAL_NUMERICS:
            raise CannotDecode(f"{image} does not fit {kind}", "declare it as numeric")
        number = Decimal(image)
        fraction = len(image.partition(".")[2])
        finer = fraction > lane.scale and number != number.quantize(step, context=_EXACT)
        if finer or (number and number.adjusted() + 1 + lane.scale > MAX_DIGITS):
            raise CannotDecode(f"a number that does not fit {kind}", "declare it as it is in the source")
        return number

    slow = _each(exact, lane, allowed)

    def cast(values: Values) -> pa.Array:
        try:
            return pa.array(values, pa.string()).cast(lane)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array(slow.values(values), lane)

    if wire.form is Form.DECIMAL_TEXT or wire.form is Form.TEXT:
        whole = f"-?[0-9]{{1,{MAX_DIGITS - lane.scale}}}"
        written = f"{whole}\\.[0-9]{{{lane.scale}}}" if lane.scale else whole
        quick = slow.values if lane.scale == MAX_DIGITS else _together(written, _decimals, slow.values)
        return Decoder(lane, quick, cast)
    if wire.form is Form.DECIMAL_BYTES and 0 <= wire.scale == lane.scale:
        return Decoder(lane, slow.values, _unscaled_cast(lane))
    return slow


_NUMERAL: Final = r"-?[0-9]+(?:\.[0-9]+)?"
"""Decimal strings that are Postgres's images already."""


def _decimals(texts: list[str]) -> list[Any]:
    return list(map(Decimal, texts))


def _unscaled_cast(lane: pa.DataType) -> Callable[[Values], pa.Array]:
    """Decimals of the lane's own scale: their integers are the lane's buffer."""

    def cast(values: Values) -> pa.Array:
        _typed(values, _TEXTS)
        integers = [0 if v is None else text_output.unscaled(v) for v in values]
        if integers and not -(10**MAX_DIGITS) < min(integers) <= max(integers) < 10**MAX_DIGITS:
            raise CannotDecode("a number of more than 38 digits", "declare it as numeric")
        image = b"".join([i.to_bytes(16, "little", signed=True) for i in integers])
        nulls = pa.array([v is not None for v in values]).buffers()[1] if None in values else None
        return pa.Array.from_buffers(lane, len(values), [nulls, pa.py_buffer(image)])

    return cast


def _within(slow: Decoder, low: int, high: int) -> Decoder:
    """Read integers as the lane's own if all lie between `low` and `high`, else one by one."""

    def values_(values: Values) -> Values:
        _typed(values, _INTEGERS)
        numbers = [v for v in values if v is not None] if None in values else values
        return slow.values(values) if numbers and not low <= min(numbers) <= max(numbers) <= high else values

    return Decoder(slow.lane, values_)


def _dates(kind: DataType, wire: Wire) -> Decoder | None:
    if wire.form is Form.DATE_ISO:
        return _each(temporal.date_from_iso, kind.arrow)
    if wire.form is not Form.DATE_DAYS:
        return None
    slow = _each(temporal.date_from_days, kind.arrow, _INTEGERS)
    return _within(slow, temporal.FIRST_DAY, temporal.LAST_DAY)


def _times(kind: DataType, wire: Wire) -> Decoder | None:
    if wire.form is Form.TIME_ISO:
        return _each(temporal.time_from_iso, kind.arrow)
    of_day = _TIMES.get(wire.form)
    return None if of_day is None else _each(of_day, kind.arrow, _INTEGERS)


_TIMES: Final[dict[Form, Mapped]] = {
    Form.TIME_MS: temporal.time_from_ms,
    Form.TIME_US: temporal.time_from_us,
    Form.TIME_NS: temporal.time_from_ns,
}


def _timestamps(kind: DataType, wire: Wire) -> Decoder | None:
    lane = kind.arrow
    if wire.form is Form.STAMP_US:
        return _within(_each(temporal.micros_from_us, lane, _INTEGERS), temporal.FIRST_STAMP, 2**62)
    if wire.form is Form.STAMP_MS:
        return _each(temporal.micros_from_ms, lane, _INTEGERS)
    if wire.form is Form.STAMP_NS:
        return _each(temporal.micros_from_ns, lane, _INTEGERS)
    if wire.form is not (Form.ZONED_STAMP if kind.kind is Kind.TIMESTAMPTZ else Form.STAMP_ISO):
        return None
    slow = _each(temporal.micros_from_iso, lane)

    def cast(values: Values) -> pa.Array:
        try:
            return pa.array(values, pa.string()).cast(pa.timestamp("us", "UTC")).cast(lane)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return pa.array(slow.values(values), lane)

    return Decoder(lane, _together(_ISO_STAMP, _micros, slow.values), cast)


_ISO_STAMP: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z"


def _micros(texts: list[str]) -> list[Any]:
    """Stamps at UTC → µs. Raises ValueError for a day or an hour that is none."""
    return list(np.array([text[:-1] for text in texts], "M8[us]").astype(np.int64).tolist())


def _images(kind: DataType, wire: Wire) -> Decoder | None:
    """Types without a lane: their text images."""
    wire = by_name(kind, wire)
    if wire.form is Form.TEXT:
        return _texts(kind, wire)
    return _each(image_of(kind, wire), pa.large_string(), _ANYTHING)


_ANYTHING: Final[frozenset[type]] = frozenset((str, int, float, bool, list, dict, _NONE))


_LANES: Final[dict[Kind, Callable[[DataType, Wire], Decoder | None]]] = {
    Kind.BOOLEAN: _booleans,
    Kind.SMALLINT: _integers,
    Kind.INTEGER: _integers,
    Kind.BIGINT: _integers,
    Kind.REAL: _floats,
    Kind.DOUBLE: _floats,
    Kind.NUMERIC: _numerics,
    Kind.TEXT: _texts,
    Kind.VARCHAR: _texts,
    Kind.BPCHAR: _texts,
    Kind.UUID: _texts,
    Kind.JSON: _texts,
    Kind.JSONB: _texts,
    Kind.BYTEA: _bytes,
    Kind.DATE: _dates,
    Kind.TIME: _times,
    Kind.TIMESTAMP: _timestamps,
    Kind.TIMESTAMPTZ: _timestamps,
}
