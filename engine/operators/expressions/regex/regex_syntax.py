"""Postgres's advanced regular expressions read to a tree: branches of quantified atoms, with Postgres's messages.

Always: what is read is the whole of ARE syntax; the basic and extended flavours are refused by name; characters outside
of ASCII are classed as Unicode does. Called by `regexes`; pure functions of text.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.regex.regex_tree import (
    ENDLESS,
    LONGER,
    SHORTER,
    Any,
    At,
    Back,
    Group,
    Piece,
    Test,
    unplaced,
)
from headrace.engine.operators.expressions.text.patterns import lower, upper

UNMATCHED = "regular expression not supported"


@dataclass(frozen=True)
class Options:
    """How a pattern is read: `stops`: `.` and [^…] leave newlines out; `lines`: ^ and $ are those of each line."""

    folded: bool = False
    stops: bool = False
    lines: bool = False
    expanded: bool = False
    literal: bool = False
    everywhere: bool = False


def invalid(reason: str) -> RowError:
    """Postgres's message for an expression that cannot be read."""
    return RowError(f"invalid regular expression: {reason}")


_LETTERS = {
    "i": {"folded": True},
    "c": {"folded": False},
    "n": {"stops": True, "lines": True},
    "m": {"stops": True, "lines": True},
    "p": {"stops": True, "lines": False},
    "w": {"stops": False, "lines": True},
    "s": {"stops": False, "lines": False},
    "x": {"expanded": True},
    "t": {"expanded": False},
    "q": {"literal": True},
    "g": {"everywhere": True},
}


def _other_flavour(letter: str) -> RowError:
    return RowError(f'{UNMATCHED}: option "{letter}", of other expressions than advanced ones')


def options_of(flags: str) -> Options:
    """The options that a function's flags spell. Raises RowError."""
    found = Options()
    for letter in flags:
        if letter in "be":
            raise _other_flavour(letter)
        if letter not in _LETTERS:
            raise RowError(f'invalid regular expression option: "{letter}"')
        found = replace(found, **_LETTERS[letter])
    return found


def is_word(char: str) -> bool:
    """Whether a character belongs to a word."""
    return char.isalnum() or char == "_"


CLASSES: dict[str, Test] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "blank": lambda c: c in " \t",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": lambda c: "0" <= c <= "9",
    "graph": lambda c: c > " " and c != "\x7f" and not c.isspace(),
    "lower": str.islower,
    "print": lambda c: c >= " " and c != "\x7f",
    "punct": lambda c: "!" <= c <= "~" and not c.isalnum(),
    "space": lambda c: c in " \t\n\v\f\r" or (c > "\x7f" and c.isspace()),
    "upper": str.isupper,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
    "word": is_word,
}
_SHORTHANDS = {"d": "digit", "s": "space", "w": "word"}
_CHARACTERS = {
    "a": "\a", "b": "\b", "B": "\\", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip


def _either(tests: list[Test], *, negated: bool, stops: bool) -> Test:
    if negated:
        return lambda c: not (stops and c == "\n") and not any(t(c) for t in tests)
    return tests[0] if len(tests) == 1 else lambda c: any(t(c) for t in tests)


@dataclass
class Reader:
    """Reads one pattern; its single writer is `read`."""

    text: str
    options: Options
    at: int = 0
    captures: int = field(default=0)
    _closed: dict[int, Group] = field(default_factory=dict)
    _looking: bool = False

    def read(self) -> Group:
        """The tree of the whole pattern. Raises RowError."""
        if self.text.startswith("***="):
            self.text, self.options = self.text[4:], replace(self.options, literal=True)
        elif self.text.startswith("***:"):
            self.text = self.text[4:]
        elif self.text.startswith("***"):
            raise invalid("quantifier operand invalid")
        if self.options.literal:
            return Group((tuple(Piece(self._plain(c)) for c in self.text),))
        if self.text.startswith("(?") and self.text[2:3].isalpha():
            end = self.text.find(")")
            for letter in self.text[2:end] if end > 0 else "!":
                if letter in "be":
                    raise _other_flavour(letter)
                if letter == "g" or letter not in _LETTERS:
                    raise invalid("invalid embedded option")
                self.options = replace(self.options, **_LETTERS[letter])
            self.at = end + 1
            if self.options.literal:
                return Group((tuple(Piece(self._plain(c)) for c in self.text[self.at :]),))
        found = self._branches()
        if self.at < len(self.text):
            raise invalid("parentheses () not balanced")
        return Group(found)

    def _see(self) -> str:
        """The next character that counts; '' at the end."""
        while True:
            if self.text.startswith("(?#", self.at):
                end = self.text.find(")", self.at)
                self.at = len(self.text) if end < 0 else end + 1
            elif self.options.expanded and self.text[self.at : self.at + 1].isspace():
                self.at += 1
            elif self.options.expanded and self.text[self.at : self.at + 1] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end + 1
            else:
                return self.text[self.at : self.at + 1]

    def _branches(self) -> tuple[tuple[Piece, ...], ...]:
        found = [self._branch()]
        while self._see() == "|":
            self.at += 1
            found.append(self._branch())
        return tuple(found)

    def _branch(self) -> tuple[Piece, ...]:
        found: list[Piece] = []
        while (char := self._see()) and char not in "|)":
            atom = self._atom(char)
            if isinstance(atom, At):
                found.append(Piece(atom))
            else:
                found.append(self._quantified(atom))
        return tuple(found)

    def _quantifies(self, char: str) -> bool:
        return char != "" and (char in "*+?" or (char == "{" and self.text[self.at + 1 : self.at + 2].isdigit()))

    def _atom(self, char: str) -> Any | At | Group | Back:
        if self._quantifies(char):
            raise invalid("quantifier operand invalid")
        self.at += 1
        if char == "(":
            return self._group()
        if char == "[":
            return self._bracket()
        if char in "^$":
            return At(char)
        if char == ".":
            return Any((lambda c: c != "\n") if self.options.stops else (lambda _: True))
        return self._escape() if char == "\\" else self._plain(char)

    def _plain(self, char: str) -> Any:
        if self.options.folded:
            same = {char, lower(char), upper(char)}
            return Any(lambda c: c in same)
        return Any(lambda c: c == char)

    def _group(self) -> At | Group:
        kind = next((k for k in ("?:", "?=", "?!", "?<=", "?<!") if self.text.startswith(k, self.at)), "")
        if not kind and self.text.startswith("?", self.at):
            raise invalid("quantifier operand invalid")
        self.at += len(kind)
        capture, outside = 0, self._looking
        if not kind and not outside:
            self.captures += 1
            capture = self.captures
        self._looking = outside or kind not in ("", "?:")
        found = Group(self._branches(), capture)
        self._looking = outside
        if self._see() != ")":
            raise invalid("parentheses () not balanced")
        self.at += 1
        if capture:
            self._closed[capture] = unplaced(found)
        if kind in ("", "?:"):
            return found
        return At({"?=": "ahead", "?!": "!ahead", "?<=": "behind", "?<!": "!behind"}[kind], found)

    def _quantified(self, atom: Any | Group | Back) -> Piece:
        char = self._see()
        if not self._quantifies(char):
            return Piece(atom)
        self.at += 1
        fixed = False
        least, most = {"*": (0, ENDLESS), "+": (1, ENDLESS), "?": (0, 1)}.get(char, (0, 0))
        if char == "{":
            least, most, fixed = self._counts()
        prefers = LONGER
        if self._see() == "?":
            self.at += 1
            prefers = SHORTER
        if self._quantifies(self._see()):
            raise invalid("quantifier operand invalid")
        return Piece(atom, least, most, 0 if fixed else prefers)

    def _counts(self) -> tuple[int, int, bool]:
        least = self._count()
        most, fixed = least, True
        if self.text.startswith(",", self.at):
            self.at += 1
            fixed = False
            most = self._count() if self.text[self.at : self.at + 1].isdigit() else ENDLESS
        if self.at >= len(self.text):
            raise invalid("braces {} not balanced")
        if self.text[self.at] != "}" or (most != ENDLESS and least > most):
            raise invalid("invalid repetition count(s)")
        self.at += 1
        return least, most, fixed

    def _count(self) -> int:
        start = self.at
        while self.text[self.at : self.at + 1].isdigit():
            self.at += 1
        if int(self.text[start : self.at]) > 255:
            raise invalid("invalid repetition count(s)")
        return int(self.text[start : self.at])

    def _hex(self, least: int, most: int) -> str:
        start = self.at
        while self.at - start < most and self.text[self.at : self.at + 1] in [*"0123456789abcdefABCDEF"]:
            self.at += 1
        value = int(self.text[start : self.at] or "0", 16)
        if self.at - start < least or value > 0x10FFFF:
            raise invalid("invalid escape \\ sequence")
        return chr(value)

    def _character(self, char: str) -> str | None:
        """The character that an escape stands for; None where it stands for something else."""
        if not char:
            raise invalid("invalid escape \\ sequence")
        if not (char.isascii() and char.isalnum()):
            return char
        if char in _CHARACTERS:
            return _CHARACTERS[char]
        if char == "c":
            self.at += 1
            return chr(ord(self.text[self.at - 1 : self.at] or "@") & 31)
        if char in "uUx":
            return self._hex(*{"u": (4, 4), "U": (8, 8), "x": (1, 255)}[char])
        if char == "0":
            end = self.at
            while end < self.at + 2 and self.text[end : end + 1] in [*"01234567"]:
                end += 1
            found, self.at = chr(int(self.text[self.at - 1 : end], 8)), end
            return found
        return None

    def _escape(self) -> Any | At | Back:
        char = self.text[self.at : self.at + 1]
        self.at += 1
        plain = self._character(char)
        if plain is not None:
            return self._plain(plain)
        if char.lower() in _SHORTHANDS:
            test = CLASSES[_SHORTHANDS[char.lower()]]
            return Any((lambda c: not test(c)) if char.isupper() else test)
        if char in "AZmMyY":
            return At(char)
        if char in [*"123456789"]:
            self.at -= 1
            return self._back()
        raise invalid("invalid escape \\ sequence")

    def _back(self) -> Any | Back:
        """A back reference; of several digits it is an octal character where there are not so many parentheses."""
        number = self._digits("0123456789", 255)
        if number > 9 and number > self.captures:
            self.at -= len(str(number))
            return self._plain(chr(self._digits("01234567", 255)))
        if self._looking or number not in self._closed:
            raise invalid("invalid backreference number")
        return Back(number, self._closed[number], self.options.folded)

    def _digits(self, digits: str, most: int) -> int:
        """The number that the next digits spell, at least one and at most three of them."""
        start, value = self.at, 0
        while self.at - start < 3 and (digit := self.text[self.at : self.at + 1]) and digit in digits:
            more = value * len(digits) + int(digit)
            if more > most and self.at > start:
                break
            value, self.at = more, self.at + 1
        if self.at == start:
            raise invalid("invalid escape \\ sequence")
        return value

    def _bracket(self) -> Any | At:
        for word, where in (("[:<:]]", "m"), ("[:>:]]", "M")):
            if self.text.startswith(word, self.at):
                self.at += len(word)
                return At(where)
        negated = self.text.startswith("^", self.at)
        self.at += negated
        tests: list[Test] = []
        first = True
        while first or not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                raise invalid("brackets [] not balanced")
            tests.append(self._member())
            first = False
        self.at += 1
        return Any(_either(tests, negated=negated, stops=self.options.stops))

    def _member(self) -> Test:
        start = self._endpoint()
        if not isinstance(start, str):
            return start
        end = start
        if self.text.startswith("-", self.at) and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            last = self._endpoint()
            if not isinstance(last, str) or last < start:
                raise invalid("invalid character range")
            end = last
        if self.options.folded:
            return lambda c: any(start <= v <= end for v in (c, lower(c), upper(c)))
        return lambda c: start <= c <= end

    def _endpoint(self) -> str | Test:
        """A character of a bracket expression, or the test of a class."""
        char = self.text[self.at : self.at + 1]
        if not char:
            raise invalid("brackets [] not balanced")
        self.at += 1
        mark = self.text[self.at : self.at + 1]
        if char == "[" and mark and mark in ":.=":
            end = self.text.find(f"{mark}]", self.at + 1)
            if end < 0:
                raise invalid("brackets [] not balanced")
            name, self.at = self.text[self.at + 1 : end], end + 2
            if mark == ":":
                if self.options.folded and name in ("lower", "upper"):
                    name = "alpha"
                if name not in CLASSES:
                    raise invalid("invalid character class")
                return CLASSES[name]
            if len(name) != 1:
                raise invalid("invalid collating element")
            return name
        if char != "\\":
            return char
        char = self.text[self.at : self.at + 1]
        self.at += 1
        plain = self._character(char)
        if plain is not None:
            return plain
        if char.lower() in _SHORTHANDS:
            test = CLASSES[_SHORTHANDS[char.lower()]]
            return (lambda c: not test(c)) if char.isupper() else test
        raise invalid("invalid escape \\ sequence")
