"""AT TIME ZONE, by the names of zones and by offsets as intervals; and what else takes the name of a zone.

Always: infinite times stay. Registered in the catalogue at import.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import entry
from headrace.engine.operators.expressions.datetime.calendar import TRUNCATED, WITHIN_HOURS, truncate
from headrace.engine.operators.expressions.datetime.date_parts import field_of
from headrace.engine.operators.expressions.datetime.input_decode import BadFormat, ZoneOutOfRange, offset_of
from headrace.engine.operators.expressions.datetime.interval_text import Interval, image, is_finite
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL, is_endless, on_numbers, stamp, stamp_of
from headrace.engine.operators.expressions.datetime.zone_names import Abbreviated, Zone, moment_of, offset_at, zone_of
from headrace.engine.schema import Kind


def to_local(micros: int, zone: Zone) -> int:
    """A moment as the zone's clocks show it."""
    return micros if is_endless(micros) else stamp(micros + offset_at(zone, micros))


def to_moment(micros: int, zone: Zone) -> int:
    """The moment at which the zone's clocks show a time."""
    if is_endless(micros):
        return micros
    return stamp(moment_of(micros, zone))


def _by_name(move: Callable[[int, Zone], int]) -> Callable[[str, int], int]:
    return lambda name, micros: micros if is_endless(micros) else move(micros, zone_of(name))


def _by_offset(sign: int) -> Callable[[Interval, int], int]:
    def moved(offset: Interval, micros: int) -> int:
        if is_endless(micros):
            return micros
        if not is_finite(offset):
            raise RowError(f'interval time zone "{image(offset)}" must be finite')
        if offset[0] or offset[1]:
            raise RowError(f'interval time zone "{image(offset)}" must not include months or days')
        seconds = abs(offset[2]) // 10**6 * 10**6 * (1 if offset[2] >= 0 else -1)
        return stamp(micros + sign * seconds)

    return moved


def _date_trunc(field: str, micros: int, name: str) -> int:
    zone = zone_of(name)
    zone = zone.zone if isinstance(zone, Abbreviated) else zone
    unit = field_of(field)
    if unit not in TRUNCATED:
        verb = "supported" if (unit or "").startswith("timezone") else "recognized"
        raise RowError(f'unit "{field.lower()}" not {verb} for type timestamp with time zone')
    if is_endless(micros):
        return micros
    local = micros + offset_at(zone, micros)
    cut = int(truncate(unit, np.int64(local)))
    # Within an hour the clocks are not moved: only longer units look at the zone again.
    return to_moment(cut, zone) if unit not in WITHIN_HOURS else stamp(micros - (local - cut))


def made_in(name: str) -> Zone:
    """The zone that make_timestamptz() is told: an offset with a sign is east of Greenwich, as ISO has it. Raises RowError."""
    if name[:1].isdigit():
        raise RowError(f'invalid input syntax for type numeric time zone: "{name}"')
    try:
        return offset_of(name) * 1_000_000
    except BadFormat:
        return zone_of(name)
    except ZoneOutOfRange:
        raise RowError(f'numeric time zone "{name}" out of range') from None


def _register() -> None:
    s, z, n = Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.INTEGER
    for source, target, move, sign in ((s, z, to_moment, -1), (z, s, to_local, 1)):
        entry("timezone", (Kind.TEXT, source), target, on_numbers(_by_name(move)), fallback=True)
        entry("timezone", (INTERVAL, source), target, on_numbers(_by_offset(sign)), fallback=True)
    entry("date_trunc", (Kind.TEXT, z, Kind.TEXT), z, on_numbers(_date_trunc), fallback=True)
    made = on_numbers(lambda *args: to_moment(stamp_of(*args[:-1]), made_in(args[-1])))
    entry("make_timestamptz", (n, n, n, n, n, Kind.DOUBLE, Kind.TEXT), z, made, fallback=True)


_register()
