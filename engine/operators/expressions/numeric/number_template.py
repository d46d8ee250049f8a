"""Templates of numbers: what to_char and to_number make of 9, 0, FM, S, PR, V, RN, EEEE and the others.

Always: a template is read once, and one that Postgres does not take raises its message. The locale is C: a point, a comma
and a blank for the currency. Called by `to_char` and `to_number`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.template import Piece, pattern_of, pieces_of

_WORDS = ("B", "C", "D", "EEEE", "FM", "G", "L", "MI", "PL", "PR", "RN", "SG", "SP", "S", "TH", "V")
_PATTERN = pattern_of((",", ".", "0", "9", *_WORDS, *(w.lower() for w in _WORDS)))
_SIGNS = {"MI", "PL", "SG", "PR"}


@dataclass
class NumberTemplate:
    """A template: its pieces and what they say together. Only `_Reader` writes to it.

    `whole`, `part`: digits before and after the point; `shift`: digits after V; `zero_from`: the place of the first 0
    before the point, `zero_to`: the places up to the last 0. `sign`: where S stands, "before" or "after" the number.
    """

    pieces: tuple[Piece, ...]
    whole: int = 0
    part: int = 0
    shift: int = 0
    zero_from: int | None = None
    zero_to: int = 0
    sign: str = ""
    before_sign: int = 0
    has: set[str] = field(default_factory=set)
    """The patterns that occur, in capitals; a D counts as the point."""

    @property
    def fills(self) -> bool:
        """Whether padding is left out."""
        return "FM" in self.has

    @property
    def has_point(self) -> bool:
        """Whether there is a decimal point."""
        return "." in self.has

    @property
    def own_sign(self) -> bool:
        """Whether MI, PL or SG write the sign themselves."""
        return not self.has.isdisjoint(("MI", "PL", "SG"))


def _refuse(message: str) -> None:
    raise RowError(message)


def _digit(made: NumberTemplate, key: str) -> None:
    if "PR" in made.has:
        _refuse(f'"{key}" must be ahead of "PR"')
    if key == "9" and "V" in made.has:
        made.shift += 1
        return
    if key == "0" and made.zero_from is None and not made.has_point:
        made.zero_from = made.whole
    if made.has_point:
        made.part += 1
    else:
        made.whole += 1
    if key == "0":
        made.zero_to = made.whole + made.part


def _check(made: NumberTemplate, key: str) -> None:
    """Refuses a pattern that does not go with those before it."""
    has = made.has
    if "EEEE" in has:
        _refuse('cannot use "EEEE" twice' if key == "EEEE" else '"EEEE" must be the last pattern used')
    if key in (".", "V"):
        if key == "." and made.has_point:
            _refuse("multiple decimal points")
        if ("V" if key == "." else ".") in has:
            _refuse('cannot use "V" and decimal point together')
    elif key == "S":
        if "S" in has:
            _refuse('cannot use "S" twice')
        if has & _SIGNS:
            _refuse('cannot use "S" and "PL"/"MI"/"SG"/"PR" together')
    elif key in ("MI", "PL", "SG") and "S" in has:
        _refuse(f'cannot use "S" and "{key}" together')
    elif key == "PR" and has & {"S", "MI", "PL", "SG"}:
        _refuse('cannot use "PR" and "S"/"PL"/"MI"/"SG" together')
    elif key == "RN" and "RN" in has:
        _refuse('cannot use "RN" twice')
    elif key == "EEEE" and has & {"BLANK", "FM", "S", "PR", "MI", "PL", "SG", "RN", "V"}:
        _refuse('"EEEE" is incompatible with other formats')


@functools.lru_cache(maxsize=512)
def number_template(template: str) -> NumberTemplate:
    """The template ready to be used. Raises RowError with Postgres's message."""
    made = NumberTemplate(pieces_of(template, _PATTERN))
    for piece in made.pieces:
        key = "." if piece.key in ("D", "d") else piece.key.upper()
        if not key:
            continue
        _check(made, key)
        if key in ("0", "9"):
            _digit(made, key)
        elif key == "S":
            made.sign, made.before_sign = ("after", 0) if made.has_point else ("before", made.whole)
        elif key == "B" and not made.whole and not made.part:
            made.has.add("BLANK")
        made.has.add(key)
        if "RN" in made.has and made.has & _RULING:
            _refuse('"RN" is incompatible with other formats')
    return made


_RULING = frozenset((".", "0", "BLANK", "S", "PR", "MI", "PL", "SG", "V", "EEEE"))
"""Patterns that decide how a number is written, beside those that only count."""
