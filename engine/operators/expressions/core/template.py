"""Templates of to_char and its inverses, cut into pieces: patterns, and text that stands for itself.

Always: a pattern is the longest keyword at its place, in either of its spellings; text in double quotes stands for
itself. Pure; called by `number_template` and `date_template`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """A pattern as it is spelled, with its prefix and suffix; `key` "": `text` is one character for itself.

    `quoted`: the character stood in double quotes, and so separates nothing.
    """

    key: str
    text: str
    prefix: str = ""
    suffix: str = ""
    quoted: bool = False

    @property
    def fills(self) -> bool:
        """Whether the pattern's padding is left out."""
        return self.prefix.upper() == "FM"

    @property
    def ordinal(self) -> str:
        """TH or th where the pattern has it."""
        return self.suffix if self.suffix.upper() == "TH" else ""

    @property
    def is_space(self) -> bool:
        """Whether it is a blank outside quotes."""
        return not self.key and not self.quoted and self.text in " \t\n\r\v\f"

    @property
    def is_separator(self) -> bool:
        """Whether it is a sign outside quotes: neither letter, digit nor blank."""
        return not self.key and not self.quoted and is_sign(self.text)


def is_sign(character: str) -> bool:
    """Whether a character is printable ASCII, and neither letter, digit nor blank."""
    return " " < character < "\x7f" and not character.isalnum()


def pattern_of(keywords: Iterable[str], *, affixed: bool = False) -> re.Pattern[str]:
    """What finds one of the keywords, with its prefix and suffix where such templates have them."""
    words = "|".join(re.escape(k) for k in sorted(keywords, key=len, reverse=True))
    return re.compile(rf"(FM|fm|TM|tm)?({words})(TH|th|SP)?" if affixed else rf"()({words})()")


_PREFIX = re.compile("FM|fm|TM|tm")


def pieces_of(template: str, pattern: re.Pattern[str], *, affixed: bool = False) -> tuple[Piece, ...]:
    """The template's pieces in their order."""
    out: list[Piece] = []
    at = 0
    while at < len(template):
        match = pattern.match(template, at)
        if match:
            out.append(Piece(match[2], match[2], match[1] or "", match[3] or ""))
            at = match.end()
            continue
        if affixed and (lone := _PREFIX.match(template, at)):
            at = lone.end()  # a prefix of nothing is left out, and what follows it stands for itself
        if at == len(template):
            break
        if template[at] == '"':
            at += 1
            while at < len(template) and template[at] != '"':
                at += template[at] == "\\" and at + 1 < len(template)
                out.append(Piece("", template[at], quoted=True))
                at += 1
            at += 1
            continue
        at += template.startswith('\\"', at)
        out.append(Piece("", template[at]))
        at += 1
    return tuple(out)


def ordinal_suffix(number: str, spelled: str) -> str:
    """st, nd, rd or th after a number, in capitals where `spelled` is TH.

    >>> ordinal_suffix("21", "th"), ordinal_suffix("12", "TH")
    ('st', 'TH')
    """
    last = "" if number[-2:-1] == "1" else number[-1]
    found = {"1": "st", "2": "nd", "3": "rd"}.get(last, "th")
    return found.upper() if spelled == "TH" else found
