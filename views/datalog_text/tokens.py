"""The tokens of a Datalog program, each with its place in the text.

Comments are `//` to the end of the line and `/* … */`. A string stands in double quotes, as in Soufflé, or in single quotes,
as in SQL; Soufflé's `u` behind a number says nothing. Invariant: tokens stand in the order of the text and never
overlap. Called by `grammar`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["name", "number", "string", "mark", "end"]


@dataclass(frozen=True)
class Token:
    """One token: `text` as it is written, at the characters `start` to `end`."""

    kind: Kind
    text: str
    start: int
    end: int


class Wrong(Exception):
    """A mistake at a character of the text."""

    def __init__(self, at: int, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.at, self.reason, self.hint = at, reason, hint


_SKIPPED = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<name>\??[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?:u\b)?
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^']|'')*')
      | (?P<mark>:-|::|<:|->>|->|\#>>|\#>|!=|<>|<=|>=|=>|\|\||&&|@>|<@|!~\*|!~|~\*|[][(){}.,;:!=<>+\-*/%^~&|\#@$?])""",
    re.VERBOSE,
)
_KINDS: dict[str, Kind] = {"name": "name", "number": "number", "string": "string", "mark": "mark"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def tokens(text: str) -> Iterator[Token]:
    r"""The tokens of a text, and its end. Raises Wrong for a character that begins none.

    >>> [t.text for t in tokens('p(x) :- q(x, "a").  // done')]
    ['p', '(', 'x', ')', ':-', 'q', '(', 'x', ',', '"a"', ')', '.', '']
    """
    at = 0
    while True:
        skipped = _SKIPPED.match(text, at)
        at = skipped.end() if skipped else at
        if at >= len(text):
            yield Token("end", "", len(text), len(text))
            return
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unknown(text, at)
        if text.startswith("/*", at):
            raise Wrong(at, "the comment does not end", "close it with */")
        kind = found.lastgroup or "mark"
        yield Token(_KINDS[kind], found[kind], at, found.end())
        at = found.end()


def string_value(token: Token) -> str:
    r"""What a string stands for.

    >>> string_value(Token("string", '"a\\"b"', 0, 6)), string_value(Token("string", "'a''b'", 0, 6))
    ('a"b', "a'b")
    """
    inner = token.text[1:-1]
    if token.text[0] == "'":
        return inner.replace("''", "'")
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inner)


def _unknown(text: str, at: int) -> Wrong:
    if text[at] in "\"'":
        return Wrong(at, "the string does not end", f"close it with {text[at]}")
    return Wrong(at, f"unexpected character {text[at]!r}", "put text into quotes")
