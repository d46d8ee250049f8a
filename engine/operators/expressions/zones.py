"""AT TIME ZONE: named zones of the time zone database, the common abbreviations, and offsets as intervals.

Always: a local time that there is twice is the later one, and one that there is not is taken as if the clocks had not been
moved yet, as Postgres does; infinite times stay. Registered in the catalogue at import.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from engine.operators.expressions import calendar_text as text
from engine.operators.expressions.fallback import RowError
from engine.operators.expressions.interval_text import DAY, Interval, image, is_finite
from engine.operators.expressions.intervals import INTERVAL, is_endless, on_numbers, stamp, stamp_of
from engine.operators.expressions.registry import entry
from engine.schema import Kind

Zone = str | int
"""A name of the time zone database, or an offset in microseconds."""

NO_NAME = "is not supported: write a name, or an interval"
HOURS = {
    "utc": 0, "gmt": 0, "z": 0, "zulu": 0, "ut": 0, "uct": 0, "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6,
    "pst": -8, "pdt": -7, "akst": -9, "akdt": -8, "hst": -10, "ast": -4, "adt": -3, "cet": 1, "cest": 2, "met": 1, "mest": 2,
    "eet": 2, "eest": 3, "wet": 0, "west": 1, "bst": 1, "jst": 9, "kst": 9, "sast": 2, "nzst": 12, "nzdt": 13,
}  # fmt: skip
"""The abbreviations of zones that are known, and their hours east."""


@functools.lru_cache(maxsize=256)
def zone_of(name: str) -> Zone:
    """The zone that a name or an abbreviation means. Raises RowError."""
    hours = HOURS.get(name.lower())
    if hours is not None:
        return hours * 3_600_000_000
    if any(c.isdigit() for c in name):
        raise RowError(f'time zone "{name}" {NO_NAME}')
    for spelled in (name, name.upper(), name.title(), name.title().replace("_Of_", "_of_")):
        if _is_known(spelled):
            return spelled
    # Postgres has a long list of abbreviations, some of them with a history.
    raise RowError(f'time zone "{name}" {NO_NAME if name.isalpha() and len(name) < 6 else "not recognized"}')


def _is_known(name: str) -> bool:
    try:
        offset_at(name, 0)
    except pa.ArrowInvalid:
        return False
    return True


def offset_at(zone: Zone, micros: int) -> int:
    """The zone's offset, in microseconds, at a moment of UTC. Raises RowError beyond the years 1 to 2036."""
    if isinstance(zone, int):
        return zone
    if not text.PLAIN_MICROS[0] <= micros < _KNOWN:
        # Arrow's zones do not go on by their last rule.
        raise RowError("a time zone is not supported: before the year 1 and after 2036")
    local = pc.local_timestamp(pa.scalar(micros, pa.timestamp("us", tz=zone)))
    return int(local.value) - micros


def to_local(micros: int, zone: Zone) -> int:
    """A moment as the zone's clocks show it."""
    return micros if is_endless(micros) else stamp(micros + offset_at(zone, micros))


def to_moment(micros: int, zone: Zone) -> int:
    """The moment at which the zone's clocks show a time."""
    if is_endless(micros):
        return micros
    before, after = offset_at(zone, micros - DAY), offset_at(zone, micros + DAY)
    meant = [o for o in (before, after) if offset_at(zone, micros - o) == o]
    return stamp(micros - min(meant, default=before))


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


_KNOWN = text.day_number(2037, 1, 1) * DAY


def _register() -> None:
    s, z, n = Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.INTEGER
    for source, target, move, sign in ((s, z, to_moment, -1), (z, s, to_local, 1)):
        entry("timezone", (Kind.TEXT, source), target, on_numbers(_by_name(move)), fallback=True)
        entry("timezone", (INTERVAL, source), target, on_numbers(_by_offset(sign)), fallback=True)
    made = on_numbers(lambda *args: to_moment(stamp_of(*args[:-1]), zone_of(args[-1])))
    entry("make_timestamptz", (n, n, n, n, n, Kind.DOUBLE, Kind.TEXT), z, made, fallback=True)


_register()
