"""Ranges and multiranges on Python values: a range is the interval between two cuts, a multirange a list of such.

Always: a cut lies just before or just behind a value, or at an end of the line; an interval [low, high) of cuts is never
empty; a discrete range has its lower end before a value and its upper end too. Pure functions, called by `ranges`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.operators.expressions.core import text_io, text_output
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.order_keys import key_of
from headrace.engine.schema import BIGINT, DATE, INTEGER, NUMERIC, TIMESTAMP, TIMESTAMPTZ, DataType

ELEMENTS = {
    "int4range": INTEGER, "int8range": BIGINT, "numrange": NUMERIC, "daterange": DATE, "tsrange": TIMESTAMP,
    "tstzrange": TIMESTAMPTZ,
}  # fmt: skip
NOT_ORDERED = "range lower bound must be less than or equal to range upper bound"
_SPECIAL = re.compile(r'[()\[\],"\\\s]')
_BLANK = " \t\n\r\v\f"
_PART = re.compile(r'(?:[^\\",()\[\]]|\\.|"(?:[^"\\]|\\.|"")*")*', re.DOTALL)
_PIECE = re.compile(r'\\(.)|"((?:[^"\\]|\\.|"")*)"|([^\\"])', re.DOTALL)


class Cut(NamedTuple):
    """`rank` -1 and 1: the ends of the line. `side` 0: just before the value of `key`, 1: just behind it."""

    rank: int
    key: str
    side: int


START, END = Cut(-1, "", 0), Cut(1, "", 0)
Interval = tuple[Cut, Cut]


@dataclass(frozen=True)
class Element:
    """The values of a range type: how one is read, and what it sorts by. `discrete`: its ends are moved to `[)`."""

    type: DataType
    discrete: bool
    key: Callable[[str], str]

    def read(self, text: str) -> str:
        """A value's image. Raises RowError."""
        values, errors = text_io.read_text(pa.array([text], pa.large_string()), self.type)
        if errors is not None and errors[0].is_valid:
            raise RowError(errors[0].as_py())
        return str(text_output.to_text(values, self.type)[0].as_py())

    def after(self, image: str) -> str:
        """The next value of a discrete type."""
        if self.type != DATE:
            following = int(image) + 1
            if following >= 1 << (self.type.arrow.bit_width - 1):
                raise RowError(f"{self.type.kind.value} out of range")
            return str(following)
        if image.endswith("infinity"):
            return image
        day = text_io.reader(DATE)(image)
        assert isinstance(day, int)
        return str(text_output.to_text(pa.array(np.array([day + 1], np.int32)).view(pa.date32()), DATE)[0].as_py())


@lru_cache
def element_of(name: str) -> Element:
    """The element of a range type, or of a multirange type, by its name."""
    kind = ELEMENTS[name.replace("multirange", "range")]
    key = key_of(kind)
    assert key is not None, "every element type has an order"
    return Element(kind, kind in (INTEGER, BIGINT, DATE), key)


class Ranges:
    """Intervals of one element type, and the images of the values that their cuts lie at: of equal ones the first read."""

    def __init__(self, element: Element) -> None:
        self.element = element
        self._images: dict[Cut, str] = {}

    def cut(self, image: str, side: int) -> Cut:
        """Just before (0) or behind (1) a value."""
        if side and self.element.discrete and not image.endswith("infinity"):
            image, side = self.element.after(image), 0
        cut = Cut(0, self.element.key(image), side)
        self._images.setdefault(cut, image)
        return cut

    def value(self, cut: Cut) -> str | None:
        """The image at a cut; None at an end of the line."""
        return self._images[cut] if not cut.rank else None

    def made(self, lower: str | None, upper: str | None, bounds: str) -> Interval | None:
        """The range between two values; None where it is empty. Raises RowError."""
        if bounds not in ("[)", "[]", "()", "(]"):
            raise RowError("invalid range bound flags")
        if lower is not None and upper is not None and self.element.key(lower) > self.element.key(upper):
            raise RowError(NOT_ORDERED)
        low = START if lower is None else self.cut(lower, int(bounds[0] == "("))
        high = END if upper is None else self.cut(upper, int(bounds[1] == "]"))
        return (low, high) if low < high else None

    def spelled(self, interval: Interval | None) -> str:
        """The image of a range."""
        if interval is None:
            return "empty"
        low, high = interval
        opening = "[" if not low.rank and not low.side else "("
        closing = "]" if not high.rank and high.side else ")"
        return f"{opening}{_quoted(self.value(low))},{_quoted(self.value(high))}{closing}"

    def read(self, text: str) -> Interval | None:
        """A range's text. Raises RowError."""
        body = text.strip(_BLANK)
        if body.lower() == "empty":
            return None
        interval, at = self._range(text, body, 0)
        if at != len(body):
            raise _malformed("range", text)
        return interval

    def _range(self, text: str, body: str, at: int, what: str = "range") -> tuple[Interval | None, int]:
        if body[at : at + 1] not in ("[", "("):
            raise _malformed(what, text)
        first = _PART.match(body, at + 1)
        assert first is not None
        if body[first.end() : first.end() + 1] != ",":
            raise _malformed(what, text)
        second = _PART.match(body, first.end() + 1)
        assert second is not None
        end = second.end()
        if body[end : end + 1] not in ("]", ")"):
            raise _malformed(what, text)
        ends = [self.element.read(_unquoted(m.group())) if m.group() else None for m in (first, second)]
        return self.made(ends[0], ends[1], body[at] + body[end]), end + 1

    def several(self, text: str) -> list[Interval]:
        """A multirange's text. Raises RowError."""
        body = text.strip(_BLANK)
        if not body.startswith("{"):
            raise _malformed("multirange", text)
        found: list[Interval] = []
        at = _skip(body, 1)
        while body[at : at + 1] != "}":
            if body[at : at + 5].lower() == "empty":
                at += 5
            else:
                interval, at = self._range(text, body, at, "multirange")
                found += [] if interval is None else [interval]
            at = _skip(body, at)
            if body[at : at + 1] == ",":
                at = _skip(body, at + 1)
                if body[at : at + 1] in ("}", ""):
                    raise _malformed("multirange", text)
            elif body[at : at + 1] != "}":
                raise _malformed("multirange", text)
        if at != len(body) - 1:
            raise _malformed("multirange", text)
        return united(found)

    def all_spelled(self, intervals: Sequence[Interval]) -> str:
        """The image of a multirange."""
        return "{" + ",".join(map(self.spelled, intervals)) + "}"


def _malformed(what: str, text: str) -> RowError:
    return RowError(f'malformed {what} literal: "{text}"')


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] and text[at] in _BLANK:
        at += 1
    return at


def _quoted(image: str | None) -> str:
    if image is None:
        return ""
    if image and not _SPECIAL.search(image):
        return image
    return '"' + image.replace("\\", "\\\\").replace('"', '""') + '"'


def _unquoted(text: str) -> str:
    found: list[str] = []
    for match in _PIECE.finditer(text):
        if match[2] is not None:
            found.append(re.sub(r"\\(.)|\"\"", lambda m: m[1] or '"', match[2], flags=re.DOTALL))
        else:
            found.append(match[1] or match[3])
    return "".join(found)


def united(intervals: Sequence[Interval]) -> list[Interval]:
    """The intervals sorted, those that meet or overlap in one."""
    found: list[Interval] = []
    for low, high in sorted(intervals):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def common(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """What lies in both."""
    pairs = ((max(a[0], b[0]), min(a[1], b[1])) for a in one for b in other)
    return united([(low, high) for low, high in pairs if low < high])


def without(one: Sequence[Interval], other: Sequence[Interval]) -> list[Interval]:
    """What lies in `one` and not in `other`."""
    found = list(one)
    for low, high in other:
        rest: list[Interval] = []
        for a, b in found:
            rest += [(x, y) for x, y in ((a, min(b, low)), (max(a, high), b)) if x < y]
        found = rest
    return found
