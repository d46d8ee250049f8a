"""to_char of numbers: digits laid out as a template says.

Always: a number that has more digits than the template is all #; half is rounded away from zero for numerics and as the
binary value lies for floats, as Postgres does. Pure functions, called by `formats`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.template import ordinal_suffix
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.operators.expressions.numeric.number_template import NumberTemplate, number_template

_ROMAN = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"),
          (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip
ROMAN_WIDTH = 15
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def roman(number: int) -> str:
    """The Roman numeral; # where there is none.

    >>> roman(1994)
    'MCMXCIV'
    """
    if not 1 <= number <= 3999:
        return "#" * ROMAN_WIDTH
    out = ""
    for value, letters in _ROMAN:
        out += letters * (number // value)
        number %= value
    return out


class _Layout:
    """One number being laid out. `number`: its digits without a sign; `blanks`: the places before its first digit."""

    def __init__(self, made: NumberTemplate, number: str, part: int, blanks: int, sign: str) -> None:
        self.made, self.number, self.blanks, self.sign = made, number, blanks, sign
        self.part, self.whole = part, made.whole + made.shift
        self.place = self.at = 0
        self.inside = False
        self.out: list[str] = []
        own = made.own_sign
        written = bool(made.has & {"MI", "SG"})
        self.signed = written if own else sign == "+" and made.fills and not made.sign
        self.brackets = "PR" in made.has and not (made.fills and sign == "+" and not own)
        self.anchor = made.sign
        if not own and made.sign == "before" and made.before_sign == self.whole:
            self.anchor = "after"
        self.relevant = self._relevant() if made.fills and made.has_point and "." in number else None
        self.count = self.whole + part - 1 + (not self.signed and blanks == 0)

    def _relevant(self) -> int:
        """Where the last digit stands that FM keeps."""
        point = self.number.index(".")
        last = max((i for i in range(point + 1, len(self.number)) if self.number[i] != "0"), default=point)
        if self.made.zero_to > self.blanks:
            last = max(last, min(len(self.number) - 1, self.made.zero_to - self.blanks))
        return last

    def _bare_zero(self) -> bool:
        """At the zero before a point that is not written: '0.1' by 9.9."""
        return self.made.zero_from is None and self.at == 0 and self.number[:1] == "0" and self.part != 0

    def _ends_in_point(self) -> bool:
        return self.relevant is not None and self.number[self.relevant : self.relevant + 1] == "."

    def digit(self, zero: bool) -> None:
        """One place of the number, or its point; `zero`: by 0."""
        made = self.made
        self.inside = False
        padded = made.zero_from is not None
        begins = self.place >= self.blanks or (padded and made.zero_from == self.place)
        if not self.signed and begins and (not self._bare_zero() or self._ends_in_point()):
            self._sign()
        if self.place < self.blanks:
            if made.zero_from is not None and made.zero_from <= self.place:
                self.out.append("0")
                self.inside = True
            elif not made.fills:
                self.out.append(" ")
        else:
            self._number(zero)
        end = self.count + (self.blanks > 0) + made.has_point
        if self.relevant is not None and self.relevant == self.at:
            end = self.place
        if self.place + 1 == end:
            if self.signed and self.brackets:
                self.out.append(" " if self.sign == "+" else ">")
            elif self.anchor == "after":
                self.out.append("-" if self.sign == "-" else "+")
        self.place += 1

    def _sign(self) -> None:
        if self.made.sign:
            if self.anchor == "before":
                self.out.append("-" if self.sign == "-" else "+")
                self.signed = True
            return
        self.signed = True
        if self.brackets:
            self.out.append(" " if self.sign == "+" else "<")
        elif self.sign == "-":
            self.out.append("-")
        elif not self.made.fills:
            self.out.append(" ")

    def _number(self, zero: bool) -> None:
        # Behind its last character Postgres writes the string's end, which cuts what follows.
        character = self.number[self.at : self.at + 1] or "\0"
        if character == ".":
            self.out.append(".")
        elif self.relevant is not None and self.at > self.relevant and not zero:
            pass
        elif self._bare_zero():
            if not self.made.fills:
                self.out.append(" ")
            elif self._ends_in_point():
                self.out.append("0")
        else:
            self.out.append(character)
            self.inside = True
        self.at += self.at < len(self.number)

    def other(self, key: str) -> None:
        """A pattern that is no place of the number."""
        name, fills = key.upper(), self.made.fills
        if name in (",", "G"):
            if self.inside or not fills:
                self.out.append("," if self.inside else " ")
        elif name == "L":
            self.out.append(" ")
        elif name == "TH":
            if self.number[:1] != "#" and self.sign != "-" and not self.made.has_point:
                self.out.append(_ordinal(self.number, key))
        elif name == "SG":
            self.out.append(self.sign)
        elif name in ("MI", "PL"):
            shown = "-" if name == "MI" else "+"
            if self.sign == shown or not fills:
                self.out.append(shown if self.sign == shown else " ")


def _ordinal(number: str, spelled: str) -> str:
    if not number[-1:].isdigit():
        raise RowError(f'"{number}" is not a number')
    return ordinal_suffix(number, spelled)


def _laid_out(made: NumberTemplate, image: str, part: int) -> str:
    """The number of `image`, which has `part` digits after its point, by the template."""
    sign, number = ("-", image[1:]) if image.startswith("-") else ("+", image)
    whole, digits = made.whole + made.shift, len(number.partition(".")[0])
    if digits > whole:
        number = "#" * whole + "." + "#" * part
    layout = _Layout(made, number, part, max(whole - digits, 0), sign)
    for piece in made.pieces:
        if piece.key in ("0", "9", ".", "D", "d"):
            layout.digit(piece.key == "0")
        elif piece.key:
            layout.other(piece.key)
        else:
            layout.out.append(piece.text)
    return "".join(layout.out).partition("\0")[0]


def _as_roman(made: NumberTemplate, number: int) -> str:
    spelled = roman(number)
    out = []
    for piece in made.pieces:
        if piece.key.upper() == "RN":
            shown = spelled.lower() if piece.key == "rn" else spelled
            out.append(shown if made.fills else shown.rjust(ROMAN_WIDTH))
        elif piece.key.upper() in (",", "G", "L"):
            if piece.key in "Ll" or not made.fills:
                out.append(" ")
        elif not piece.key:
            out.append(piece.text)
    return "".join(out)


def _endless(made: NumberTemplate) -> str:
    """What EEEE makes of NaN and the infinities."""
    return " " + "#" * made.whole + "." + "#" * (made.part + 4)


def _scientific(value: Decimal, digits: int) -> str:
    power = value.adjusted() if value else 0
    # What is rounded up to ten stays ten, with the power it had.
    image = f"{decimal_math.round_to(format(value.scaleb(-power, _EXACT), 'f'), digits)}e{power:+03d}"
    return image if image.startswith("-") else " " + image


def write_numeric(image: str, template: str) -> str:
    """to_char(numeric, template)."""
    made = number_template(template)
    special = image in ("NaN", "Infinity", "-Infinity")
    if "RN" in made.has:
        return _as_roman(made, 0 if special else int(decimal_math.round_to(image, 0)))
    if "EEEE" in made.has:
        return _endless(made) if special else _scientific(Decimal(image), made.part)
    shifted = decimal_math.multiply(image, str(10**made.shift)) if "V" in made.has else image
    return _laid_out(made, decimal_math.round_to(shifted, made.part), made.part)


def _write_whole(bits: int) -> Callable[[int, str], str]:
    def write(value: int, template: str) -> str:
        made = number_template(template)
        if "RN" in made.has:
            return _as_roman(made, value)
        if "EEEE" in made.has:
            if bits == 32:
                return _floating(float(value), made.part)
            return _scientific(Decimal(value), made.part)
        shifted = value * 10**made.shift
        half = 2 ** (bits - 1)
        if bits == 64 and not -half <= shifted < half:
            raise RowError("bigint out of range")
        shifted = (shifted + half) % (2 * half) - half  # Postgres's integers wrap here
        return _laid_out(made, f"{shifted}.{'0' * made.part}" if made.part else str(shifted), made.part)

    return write


write_integer = _write_whole(32)
write_bigint = _write_whole(64)


def _floating(value: float, digits: int) -> str:
    shown = f"{value:.{digits}e}"
    return shown if shown.startswith("-") else " " + shown


def _write_float(precise: int) -> Callable[[float, str], str]:
    def write(value: float, template: str) -> str:
        made = number_template(template)
        if "RN" in made.has:
            return _as_roman(made, round(value) if math.isfinite(value) else 0)
        if "EEEE" in made.has:
            return _floating(value, made.part) if math.isfinite(value) else _endless(made)
        shifted = value * 10.0**made.shift if "V" in made.has else value
        if not math.isfinite(shifted):
            image = "NaN" if shifted != shifted else "Infinity" if shifted > 0 else "-Infinity"
            digits = len("NaN" if shifted != shifted else "Infinity")
            return _laid_out(made, image, max(min(made.part, precise - digits), 0))
        digits = len(f"{abs(shifted):.0f}")
        part = max(min(made.part, precise - digits), 0)
        return _laid_out(made, f"{shifted:.{part}f}", part)

    return write


write_double = _write_float(15)
write_real = _write_float(6)
