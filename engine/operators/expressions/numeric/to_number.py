"""to_number: a number read by a template, as leniently as Postgres reads it.

Always: a character that the template does not expect stops nothing but its own place. Pure, called by `formats`.
"""

from __future__ import annotations

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.operators.expressions.numeric.number_template import NumberTemplate, number_template
from headrace.engine.operators.expressions.numeric.to_char import ROMAN_WIDTH, roman

_DATA = "0123456789.,+-"


class _Reader:
    """A text being read. `at`: the next character; `digits`: what was read of the number, its point among it."""

    def __init__(self, made: NumberTemplate, text: str) -> None:
        self.made, self.text = made, text
        self.at = self.part = 0
        self.sign = self.digits = ""

    @property
    def ended(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.text)

    def _next(self, ahead: int = 0) -> str:
        return self.text[self.at + ahead : self.at + ahead + 1]

    def digit(self, point: bool) -> None:
        """One place of the number, and its sign before or after it; `point`: the place is the template's point."""
        if self._next() == " ":
            self.at += 1
        if not self.ended and not self.sign and not self.digits.strip(".") and not point:
            self._leading_sign()
        if self.ended:
            return
        read = False
        if self._next() in "0123456789":
            if "." in self.digits and self.part == self.made.part:
                return
            self.part += "." in self.digits
            self.digits += self._next()
            read = True
        elif self._next() == "." and self.made.has_point and "." not in self.digits:
            self.digits += "."
            read = True
        if not self.sign and self.digits.strip("."):
            self._trailing_sign(read)
        self.at += 1

    def _leading_sign(self) -> None:
        found = self._next()
        if self.made.sign == "before":
            taken = found in ("-", "+")
        else:
            taken = found in ("-", "+") or (found == "<" and "PR" in self.made.has)
        if taken:
            self.sign = "+" if found == "+" else "-"
            self.at += 1

    def _trailing_sign(self, read: bool) -> None:
        """A sign behind the last digit."""
        if self.made.sign:
            if read and self._next(1) in ("-", "+") and self._next(1):
                self.sign = self._next(1)
                self.at += 1
        elif not read and self.made.own_sign and self._next() in ("-", "+"):
            self.sign = self._next()

    def own_sign(self, key: str) -> None:
        """MI, PL or SG."""
        if self._next() in {"MI": "-", "PL": "+", "SG": "-+"}[key]:
            self.sign = self._next()
            self.at += 1
        else:
            self.skip(1)

    def skip(self, count: int) -> None:
        """Leaves out so many characters that are no part of a number."""
        while count and not self.ended and self._next() not in _DATA:
            self.at, count = self.at + 1, count - 1

    def roman(self) -> None:
        """A Roman numeral."""
        while not self.ended and self._next().isspace():
            self.at += 1
        end = self.at
        while end < len(self.text) and end - self.at < ROMAN_WIDTH and self.text[end].upper() in "IVXLCDM":
            end += 1
        spelled, self.at = self.text[self.at : end].upper(), end
        value = _ROMANS.get(spelled)
        if value is None:
            raise RowError("invalid Roman numeral")
        self.digits += str(value)


_ROMANS = {roman(n): n for n in range(1, 4000)}


def read_number(text: str, template: str) -> str | None:
    """to_number(text, template), as an image. Raises RowError."""
    if not template:
        return None
    made = number_template(template)
    if "EEEE" in made.has:
        raise RowError('"EEEE" not supported for input')
    reader = _Reader(made, text)
    for piece in made.pieces:
        if reader.ended:
            break
        key = piece.key.upper()
        if not key:
            reader.at += 1
        elif key in ("0", "9", ".", "D"):
            reader.digit(key in (".", "D"))
        elif key in (",", "G"):
            reader.at += text[reader.at] == "," and not made.fills
        elif key in ("L", "TH"):
            reader.skip(1 if key == "L" else 0 if made.has_point or "RN" in made.has else 2)
        elif key in ("MI", "PL", "SG"):
            reader.own_sign(key)
        elif key == "RN":
            reader.roman()
    return _value(made, reader)


def _value(made: NumberTemplate, reader: _Reader) -> str:
    spelled = reader.sign + reader.digits.removesuffix(".")
    whole = len(reader.digits) if "RN" in made.has else made.whole
    # Where nothing was read there is a blank for the sign, and no number.
    image = decimal_math.constrain(decimal_math.parse(spelled or " "), whole + made.shift + reader.part, reader.part)
    return decimal_math.multiply(image, f"0.{'0' * (made.shift - 1)}1" + "0" * 16) if made.shift else image
