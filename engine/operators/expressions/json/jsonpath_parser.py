"""The SQL/JSON path language read: from its text to a tree of nodes.

Always: a node is a kind and its parts; steps of an accessor come in the order in which they are taken. What Postgres's
grammar does not have raises `RowError`; `.datetime()`, `.keyvalue()` and their like are refused by name. Called by
`jsonpath`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.json.json_text import Number
from headrace.engine.operators.expressions.numeric import decimal_math

REFUSED = "is not supported: a jsonpath here has no dates and no .keyvalue()"
REGEX = "such a regular expression or flag is not supported in like_regex"
_ALIKE = re.compile(r"(?:[^\\()\[\]{}$?*+|]|\\[^\w\s]|(?<!^)(?<![*+?|^(])[*+?]|\||\((?![?*])|\)|\[\^?[\w\- ]+\]|\$$)*")
"""Regular expressions that mean the same to Postgres and to us."""
METHODS = frozenset(
    {"type", "size", "double", "ceiling", "floor", "abs", "bigint", "integer", "number", "boolean", "string"}
)
_LATER = frozenset({"keyvalue", "datetime", "date", "time", "time_tz", "timestamp", "timestamp_tz", "decimal"})
_COMPARISONS = {"==": "=", "=": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\n\r\f]+|/\*.*?\*/)
    | (?P<number>(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?))
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<variable>\$(?:"(?:[^"\\]|\\.)*"|[\w$]*))
    | (?P<sign>&&|\|\||==|!=|<>|<=|>=|\*\*|[@.,*?()\[\]{}!<>=+\-/%])
    | (?P<word>(?:[^\W\d]|\\.)(?:[\w$]|\\.)*)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Node:
    """`kind` says what the parts are: see the parser's methods."""

    kind: str
    parts: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Path:
    """A whole path."""

    strict: bool
    root: Node


@lru_cache(maxsize=1024)
def parse(text: str) -> Path:
    """The path. Raises RowError."""
    return _Parser(text).path()


class _Parser:
    """Reads by recursive descent, from the weakest operator to the strongest."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise RowError(f'syntax error at or near "{text[at]}" of jsonpath input')
            at = match.end()
            if match.lastgroup != "space":
                self.tokens.append((str(match.lastgroup), match.group()))
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        return self.tokens[self.at + ahead][1] if self.at + ahead < len(self.tokens) else ""

    def kind(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def fail(self) -> RowError:
        if not self.text.strip():
            return RowError(f'invalid input syntax for type jsonpath: "{self.text}"')
        here = self.peek()
        where = f'at or near "{here}"' if here else "at end"
        return RowError(f"syntax error {where} of jsonpath input")

    def took(self, *words: str) -> str:
        """The next token if it is one of these; words in any case."""
        here = self.peek()
        if here and here.lower() in words and self.kind() in ("sign", "word", "variable"):
            self.at += 1
            return here.lower()
        return ""

    def wanted(self, word: str) -> None:
        if not self.took(word):
            raise self.fail()

    def path(self) -> Path:
        mode = self.took("strict", "lax")
        root = self.either()
        if self.at < len(self.tokens):
            raise self.fail()
        return Path(mode == "strict", root)

    def either(self) -> Node:
        left = self.both()
        while self.took("||"):
            left = Node("or", (left, self.both()))
        return left

    def both(self) -> Node:
        left = self.negated()
        while self.took("&&"):
            left = Node("and", (left, self.negated()))
        return left

    def negated(self) -> Node:
        if self.took("!"):
            inner = self.negated()
            return Node("not", (inner,))
        return self.tested()

    def tested(self) -> Node:
        left = self.sum()
        sign = self.peek()
        if sign in _COMPARISONS and self.kind() == "sign":
            self.at += 1
            left = Node("compare", (_COMPARISONS[sign], left, self.sum()))
        elif self.took("starts"):
            self.wanted("with")
            left = Node("starts", (left, self.primary()))
        elif self.took("like_regex"):
            pattern = self.string()
            flags = self.string() if self.took("flag") else ""
            if not set(flags) <= set("isq") or not ("q" in flags or _ALIKE.fullmatch(pattern)):
                raise RowError(REGEX)
            left = Node("regex", (left, pattern, flags))
        if self.peek().lower() == "is" and self.peek(1).lower() == "unknown":
            self.at += 2
            left = Node("unknown", (left,))
        return left

    def sum(self) -> Node:
        left = self.product()
        while sign := self.took("+", "-"):
            left = Node("arithmetic", (sign, left, self.product()))
        return left

    def product(self) -> Node:
        left = self.signed()
        while sign := self.took("*", "/", "%"):
            left = Node("arithmetic", (sign, left, self.signed()))
        return left

    def signed(self) -> Node:
        sign = self.took("+", "-")
        return Node("sign", (sign, self.signed())) if sign else self.accessed()

    def accessed(self) -> Node:
        base = self.primary()
        steps: list[Node] = []
        while (step := self.step()) is not None:
            steps.append(step)
        return Node("access", (base, tuple(steps))) if steps else base

    def step(self) -> Node | None:
        if self.took("["):
            if self.peek() == "*" and self.peek(1) == "]":
                self.at += 2
                return Node("elements")
            found = [self.subscript()]
            while self.took(","):
                found.append(self.subscript())
            self.wanted("]")
            return Node("places", tuple(found))
        if self.took("?"):
            self.wanted("(")
            inner = self.either()
            self.wanted(")")
            return Node("filter", (inner,))
        return self.member() if self.took(".") else None

    def member(self) -> Node:
        if self.took("**"):
            return self.levels()
        if self.took("*"):
            return Node("members")
        kind, here = self.kind(), self.peek()
        if kind == "string":
            return Node("key", (self.string(),))
        if kind == "variable" and len(here) > 1:
            self.at += 1
            return Node("key", (here,))
        if kind != "word":
            raise self.fail()
        self.at += 1
        if self.peek() == "(" and here.lower() in METHODS | _LATER:
            if here.lower() in _LATER:
                raise RowError(f".{here}() {REFUSED}")
            self.wanted("(")
            self.wanted(")")
            return Node("method", (here.lower(),))
        return Node("key", (_unescaped(here),))

    def levels(self) -> Node:
        if not self.took("{"):
            return Node("levels", (0, None))
        first = self.level()
        last = self.level() if self.took("to") else first
        self.wanted("}")
        return Node("levels", (-1 if first is None else first, last))

    def level(self) -> int | None:
        if self.took("last"):
            return None
        if self.kind() != "number" or not self.peek().isdigit():
            raise self.fail()
        self.at += 1
        return int(self.tokens[self.at - 1][1])

    def subscript(self) -> tuple[Node, Node | None]:
        first = self.sum()
        return first, self.sum() if self.took("to") else None

    def string(self) -> str:
        if self.kind() != "string":
            raise self.fail()
        self.at += 1
        return _unescaped(self.tokens[self.at - 1][1][1:-1])

    def primary(self) -> Node:
        kind, here = self.kind(), self.peek()
        if kind == "string":
            return Node("constant", (self.string(),))
        if kind == "number":
            self.at += 1
            return Node("constant", (Number(decimal_math.parse(here)),))
        if kind == "variable":
            self.at += 1
            name = here[1:]
            return Node("variable", (_unescaped(name.strip('"')),)) if name else Node("root")
        if self.took("@"):
            return Node("current")
        if self.took("("):
            inner = self.either()
            self.wanted(")")
            return inner
        word = self.took("null", "true", "false", "last", "exists")
        if word == "last":
            return Node("last")
        if word == "exists":
            self.wanted("(")
            inner = self.either()
            self.wanted(")")
            return Node("exists", (inner,))
        if not word:
            raise self.fail()
        return Node("constant", ({"null": None, "true": True, "false": False}[word],))


_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        return chr(int(code, 16)) if code else _ESCAPES.get(match[4], match[4])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2})|(.))", one, text, flags=re.DOTALL)
