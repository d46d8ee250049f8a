"""Time zones by their names: those of the time zone database, Postgres's abbreviations, and offsets as POSIX writes them.

Always: a local time that there is twice is the later one, and one that there is not is taken as if the clocks had not been
moved yet, as Postgres does. Called by `zones` and by what reads times.
"""

from __future__ import annotations

import functools
import re
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from engine.operators.expressions import calendar_text as text
from engine.operators.expressions.fallback import RowError

Zone = str | int
"""A name of the time zone database, or an offset in microseconds."""

NO_NAME = "is not supported: write a name, or an interval"
_OFFSETS = {
    -36000: "hst taht",
    -34200: "mart",
    -32400: "akst gamt",
    -28800: "akdt pst",
    -25200: "mst pdt",
    -21600: "cst galt mdt",
    -18000: "act cdt cot est pet",
    -14400: "amt ast bot edt",
    -12600: "nft nst",
    -10800: "adt bra brt clst gft pmst pyst uyt wgt",
    -9000: "ndt",
    -7200: "brst fnt pmdt uyst wgst",
    -3600: "azot egt fnst",
    0: "azost egst gmt uct ut utc wet z zulu",
    3600: "bst cet met mez wat wetdst",
    7200: "bdst cest cetdst eet ist mest mesz metdst sast",
    10800: "eat eest eetdst fet idt",
    12600: "irt",
    14400: "msd mut ret sct",
    16200: "aft",
    18000: "must mvt pkt tft tjt uzt",
    20700: "npt",
    21600: "almt bdt btt kgst pkst uzst xjt yekst",
    23400: "mmt",
    25200: "almst cxt ict wast",
    28800: "awst bnt bort cct hkt myt pht wadt",
    31500: "acwst",
    32400: "awsst jayt jst kst pwt ulast wdt",
    34200: "acst cast",
    36000: "aest chut ddut kdt ligt mpt pgt trut yapt",
    37800: "acdt acsst cadt lhst sadt",
    39600: "aedt aesst pont vut",
    43200: "fjt gilt mht nzst nzt tvt wakt wft",
    45900: "chast",
    46800: "fjst nzdt tot",
    49500: "chadt",
}
ABBREVIATIONS = {name: seconds for seconds, names in _OFFSETS.items() for name in names.split()}
"""Postgres's default abbreviations of zones whose offset is one, and its seconds east of Greenwich."""

_CHANGING = (
    "amst anast anat arst art azst azt ckt clt davt easst east fkst fkt gest get gyt iot irkst irkt kgt kost "
    "krast krat lhdt lint lkt magst magt mawt msk novst novt nut omsst omst petst pett pyt sgt tkt tmt ulat "
    "vet vlast vlat volt yakst yakt yekt"
)
CHANGING = frozenset(_CHANGING.split())
"""Postgres's default abbreviations whose offset depends on the date: they are not supported."""

_POSIX = re.compile(
    r"(?:<[^>]+>|[^\d,+<>-]*)([+-]?)(\d{1,2}|1[0-5]\d|16[0-7])(?::([0-5]?\d)(?::([0-5]?\d))?)?", re.ASCII
)
"""An offset as POSIX writes it, after any letters: west of Greenwich is positive."""

_FIRST, _KNOWN, _SETTLED = text.PLAIN_MICROS[0], *(text.day_number(y, 1, 1) * text.DAY for y in (2037, 2500))
_CYCLE = 146_097 * text.DAY
"""Four hundred years, after which each day of the calendar is the same weekday again, and a rule of summer time repeats."""


@functools.lru_cache(maxsize=256)
def zone_of(name: str) -> Zone:
    """The zone that a name or an abbreviation means. Raises RowError."""
    seconds = ABBREVIATIONS.get(name.lower())
    if seconds is not None:
        return seconds * 1_000_000
    if name.lower() in CHANGING:
        raise RowError(f'time zone "{name}" {NO_NAME}')
    offset = _POSIX.fullmatch(name)
    if offset:
        seconds = int(offset[2]) * 3600 + int(offset[3] or 0) * 60 + int(offset[4] or 0)
        return (1 if offset[1] == "-" else -1) * seconds * 1_000_000
    known = known_zone(name)
    if known is None:
        # POSIX's rules for summer time have digits.
        unread = NO_NAME if any(c.isdigit() for c in name) else "not recognized"
        raise RowError(f'time zone "{name}" {unread}')
    return known


_SIGNED = re.compile(r"([+-])(?:(\d\d?)(\d\d)|(\d+)(?::(\d+)(?::(\d+))?)?)", re.ASCII)
"""An offset as ISO writes it, with its sign: east of Greenwich is positive."""

_MOST_HOURS = 15


def made_in(name: str) -> Zone:
    """The zone that make_timestamptz() is told. Raises RowError."""
    if name[:1].isdigit():
        raise RowError(f'invalid input syntax for type numeric time zone: "{name}"')
    found = _SIGNED.fullmatch(name)
    if found is None:
        return zone_of(name)
    hours, minutes, seconds = int(found[2] or found[4]), int(found[3] or found[5] or 0), int(found[6] or 0)
    if hours > _MOST_HOURS or minutes > 59 or seconds > 59:
        raise RowError(f'numeric time zone "{name}" out of range')
    return (1 if found[1] == "+" else -1) * ((hours * 60 + minutes) * 60 + seconds) * 1_000_000


def known_zone(name: str) -> str | None:
    """The name in the time zone database that a name in any case means; None for none."""
    title = name.title()
    for spelled in (name, name.upper(), title, title.replace("_Of_", "_of_"), title.replace("-Au-", "-au-")):
        if spelled and _is_known(spelled):
            return spelled
    return None


def _is_known(name: str) -> bool:
    try:
        offset_at(name, 0)
    except pa.ArrowInvalid:
        return False
    return True


def offset_at(zone: Zone, micros: int) -> int:
    """The zone's offset, in microseconds, at a moment of UTC."""
    if isinstance(zone, int):
        return zone
    if micros >= _KNOWN:
        return _offset_by_rule(zone, micros)
    # No zone's clocks were set before the year 1.
    micros = max(micros, _FIRST)
    local = pc.local_timestamp(pa.scalar(micros, pa.timestamp("us", tz=zone)))
    return int(local.value) - micros


def _offset_by_rule(zone: str, micros: int) -> int:
    """The offset by the zone's last rule: Arrow's zones do not go on by it."""
    if micros >= _SETTLED:
        micros -= (micros - _SETTLED) // _CYCLE * _CYCLE
    known = ZoneInfo(zone)
    moment = pa.scalar(micros, pa.timestamp("us")).as_py().replace(tzinfo=known)
    shown = known.fromutc(moment).utcoffset()
    assert shown is not None
    return (shown.days * 86_400 + shown.seconds) * 1_000_000


def moment_of(micros: int, zone: Zone) -> int:
    """The moment at which the zone's clocks show a time; it may be out of a timestamp's range."""
    before, after = offset_at(zone, micros - text.DAY), offset_at(zone, micros + text.DAY)
    meant = [o for o in (before, after) if offset_at(zone, micros - o) == o]
    return micros - min(meant, default=before)
