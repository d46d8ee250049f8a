"""Time zones by their names: those of the time zone database, Postgres's abbreviations, and rules as POSIX writes them.

The database is that of the package tzdata, whose version is pinned: no answer depends on the machine's own. Always: a local
time that there is twice is the later one, and one that there is not is taken as if the clocks had not been moved yet, as
Postgres does. Called by `zones` and by what reads times.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.datetime import calendar_text as text
from headrace.engine.operators.expressions.datetime.zone_rules import Rule, read_rule

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

_ZONES = {
    "America/Argentina/Buenos_Aires": "arst art",
    "America/Asuncion": "pyt",
    "America/Caracas": "vet",
    "America/Guyana": "gyt",
    "America/Santiago": "clt",
    "Antarctica/Davis": "davt",
    "Antarctica/Mawson": "mawt",
    "Asia/Anadyr": "anast anat",
    "Asia/Ashgabat": "tmt",
    "Asia/Baku": "azst azt",
    "Asia/Bishkek": "kgt",
    "Asia/Colombo": "lkt",
    "Asia/Irkutsk": "irkst irkt",
    "Asia/Kamchatka": "petst pett",
    "Asia/Krasnoyarsk": "krast krat",
    "Asia/Magadan": "magst magt",
    "Asia/Novosibirsk": "novst novt",
    "Asia/Omsk": "omsst omst",
    "Asia/Singapore": "sgt",
    "Asia/Tbilisi": "gest get",
    "Asia/Ulaanbaatar": "ulat",
    "Asia/Vladivostok": "vlast vlat",
    "Asia/Yakutsk": "yakst yakt",
    "Asia/Yekaterinburg": "yekt",
    "Asia/Yerevan": "amst",
    "Atlantic/Stanley": "fkst fkt",
    "Australia/Lord_Howe": "lhdt",
    "Europe/Moscow": "msk",
    "Europe/Volgograd": "volt",
    "Indian/Chagos": "iot",
    "Pacific/Easter": "easst east",
    "Pacific/Fakaofo": "tkt",
    "Pacific/Kiritimati": "lint",
    "Pacific/Kosrae": "kost",
    "Pacific/Niue": "nut",
    "Pacific/Rarotonga": "ckt",
}


class Abbreviated(NamedTuple):
    """An abbreviation whose offset depends on the date: that of its zone, but where the zone's own history tells it. `told`:
    (from which moment, offset), in microseconds.
    """

    zone: str
    told: tuple[tuple[int, int], ...] = ()


Zone = str | int | Rule | Abbreviated
"""A name of the time zone database, an offset in microseconds, POSIX's rule, or an abbreviation."""

CHANGING = {name: Abbreviated(zone) for zone, names in _ZONES.items() for name in names.split()}
"""Postgres's default abbreviations whose offset depends on the date."""

NO_NAME = "is not supported: its summer or winter lasts for days"
_LINKED = {
    "cst6cdt": "America/Chicago",
    "est5edt": "America/New_York",
    "mst7mdt": "America/Denver",
    "pst8pdt": "America/Los_Angeles",
}
"""Names that mean another since the database's release 2024b; the package keeps them as they were before."""

_HOUR = 3_600_000_000
# Of these abbreviations the time zone database knows only Moscow's.
_MOSCOW = ((text.PLAIN_MICROS[0], 3), (1_301_180_400_000_000, 4), (1_414_274_400_000_000, 3))
CHANGING["msk"] = Abbreviated("Europe/Moscow", tuple((since, hours * _HOUR) for since, hours in _MOSCOW))

_FIRST, _SETTLED = (text.day_number(year, 1, 2) * text.DAY for year in (1, 2500))
_CYCLE = 146_097 * text.DAY
"""Four hundred years, after which each day of the calendar is the same weekday again, and a rule of summer time repeats."""


def abbreviated(name: str) -> Zone | None:
    """The zone that an abbreviation in any case means; None for another word."""
    seconds = ABBREVIATIONS.get(name.lower())
    return CHANGING.get(name.lower()) if seconds is None else seconds * 1_000_000


@functools.lru_cache(maxsize=256)
def zone_of(name: str) -> Zone:
    """The zone that a name or an abbreviation means. Raises RowError."""
    known = abbreviated(name)
    known = (known_zone(name) or read_rule(name)) if known is None else known
    if known is None:
        raise RowError(f'time zone "{name}" not recognized')
    if isinstance(known, Rule) and known.is_close():
        raise RowError(f'time zone "{name}" {NO_NAME}')
    return known.standard if isinstance(known, Rule) and known.summer is None else known


def known_zone(name: str) -> str | None:
    """The name in the time zone database that a name in any case means; None for none."""
    return _spellings().get(name.removeprefix(":").lower())


@functools.cache
def _spellings() -> dict[str, str]:
    names = files("tzdata").joinpath("zones").read_text().split()
    return {name.lower(): name for name in names} | _LINKED


@functools.cache
def _of_database(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, name)


def offset_at(zone: Zone, micros: int) -> int:
    """The zone's offset, in microseconds, at a moment of UTC."""
    if isinstance(zone, int):
        return zone
    if isinstance(zone, Rule):
        return zone.offset_at(micros)
    if isinstance(zone, Abbreviated):
        if zone.told:
            return _told(zone, micros)
        local = micros + offset_at(zone.zone, micros)
        return local - moment_of(local, zone.zone)
    # No zone's clocks were set before the year 1, and Python's calendar ends with the year 9999.
    if micros >= _SETTLED:
        micros -= (micros - _SETTLED) // _CYCLE * _CYCLE
    known = _of_database(zone)
    moment = pa.scalar(max(micros, _FIRST), pa.timestamp("us")).as_py().replace(tzinfo=known)
    shown = known.fromutc(moment).utcoffset()
    assert shown is not None
    return (shown.days * 86_400 + shown.seconds) * 1_000_000


def _told(zone: Abbreviated, micros: int) -> int:
    return next((offset for since, offset in reversed(zone.told) if since <= micros), zone.told[0][1])


def moment_of(micros: int, zone: Zone) -> int:
    """The moment at which the zone's clocks show a time; it may be out of a timestamp's range."""
    if isinstance(zone, Abbreviated):
        moment = moment_of(micros, zone.zone)
        return micros - _told(zone, moment) if zone.told else moment
    before, after = offset_at(zone, micros - text.DAY), offset_at(zone, micros + text.DAY)
    meant = [o for o in (before, after) if offset_at(zone, micros - o) == o]
    return micros - min(meant, default=before)
