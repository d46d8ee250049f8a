r"""A SQL script cut into its statements, as psql cuts it.

Always: each statement has the line on which its first word stands, and the data lines of a COPY FROM stdin; comments
between statements and psql's backslash commands are passed over. Called by the script's run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z))
    | (?P<string>'(?:[^']|'')*(?:'|\Z))
    | (?P<quoted>"(?:[^"]|"")*(?:"|\Z))
    | (?P<dollar>\$(?:[^\W\d]\w*)?\$)
    | (?P<word>[^\W\d][\w$]*|\d[\w.]*)
    | (?P<command>\\[^\n]*)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SENDS = re.compile(r"\\(g|gx|gset|gexec|gdesc|crosstabview|watch|bind|parse)\b")
_FROM_STDIN = re.compile(r"\bfrom\s+stdin\b", re.IGNORECASE)
_CHANGES = {"insert", "update", "delete", "merge"}


@dataclass(frozen=True)
class Statement:
    """One statement: `line` from 1, its text without the semicolon, its words in lower case outside of parentheses.

    `data`: what a COPY FROM stdin is given, with its newlines.
    """

    line: int
    sql: str
    words: tuple[str, ...]
    data: str | None = None

    @property
    def verb(self) -> str:
        """The first word, also of a parenthesised query."""
        return self.words[0] if self.words else ""

    @property
    def is_query(self) -> bool:
        """Whether it only asks: SELECT, VALUES, TABLE, or WITH before one of them."""
        if self.verb == "with":
            main = next((w for w in self.words[1:] if w in {"select", "values", "table", *_CHANGES}), "select")
            return main not in _CHANGES
        return self.verb in ("select", "values", "table")


def statements(text: str) -> Iterator[Statement]:
    """The statements of a script in their order; one that the end of the file cuts off is given as it stands."""
    cutter = _Cutter(text)
    while cutter.at < len(text):
        found = cutter.next()
        if found is not None:
            yield found


class _Cutter:
    """Reads one statement after the other from `at`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.counted = 0
        self.line = 1

    def next(self) -> Statement | None:
        """The next statement, or None where only comments, commands or a lone semicolon were."""
        text, start = self.text, -1
        depth = blocks = 0
        words: list[str] = []
        first: list[str] = []
        while self.at < len(text):
            match = _TOKEN.match(text, self.at)
            assert match is not None, "the last alternative takes any character"
            kind, here = match.lastgroup, self.at
            self.at = match.end()
            if kind == "space":
                continue
            if kind == "comment":
                self.at = _after_comment(text, here)
                continue
            if kind == "command":
                if start >= 0 and _SENDS.match(match.group()):
                    return self.made(start, here, words or first)
                continue
            if match.group() == ";" and depth <= 0 and not blocks:
                return None if start < 0 else self.made(start, here, words or first)
            start = here if start < 0 else start
            if kind == "dollar":
                end = text.find(match.group(), self.at)
                self.at = len(text) if end < 0 else end + len(match.group())
            elif kind == "word":
                word = match.group().lower()
                if word == "atomic" and words[-1:] == ["begin"]:
                    blocks = 1
                elif blocks and word in ("case", "end"):
                    blocks += 1 if word == "case" else -1
                (words if depth <= 0 else first).append(word)
            elif kind == "sign":
                depth += {"(": 1, ")": -1}.get(match.group(), 0)
        return None if start < 0 else self.made(start, len(text), words or first)

    def made(self, start: int, end: int, words: list[str]) -> Statement:
        """The statement in [start, end), with the lines that its COPY reads."""
        text = self.text
        self.line += text.count("\n", self.counted, start)
        self.counted = start
        sql = text[start:end].rstrip()
        # A parenthesised query begins with the first word inside.
        if text[start] == "(":
            words = re.findall(r"\w+", sql.lower())[:1] + words
        data = None
        if words[:1] == ["copy"] and _FROM_STDIN.search(sql):
            data = self.copied()
        return Statement(self.line, sql, tuple(words), data)

    def copied(self) -> str:
        r"""The lines after a COPY, up to `\.`."""
        newline = self.text.find("\n", self.at)
        begin = len(self.text) if newline < 0 else newline + 1
        end = re.compile(r"^\\\.\r?$", re.MULTILINE).search(self.text, begin)
        if end is None:
            self.at = len(self.text)
            return self.text[begin:]
        self.at = end.end()
        return self.text[begin : end.start()]


def _after_comment(text: str, at: int) -> int:
    """Where a comment that begins at `at` ends; comments nest."""
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)
