"""LIKE and ILIKE, and the case mappings that ILIKE rests on.

Always: a pattern matches the whole text, `%` any characters, `_` one, the escape character makes the next one plain; a
constant pattern becomes one Arrow search, a pattern column is matched through `fallback`. Registered at import.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.fallback import RowError
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.schema import DataType, Kind

DANGLING = "LIKE pattern must not end with escape character"
_Item = tuple[str, str]


def lower(text: str) -> str:
    """Each character's simple lower case: never more than one character for one."""
    return "".join(mapped if len(mapped := c.lower()) == 1 else mapped[0] for c in text)


def upper(text: str) -> str:
    """Each character's simple upper case, never more than one for one: a single title case stands in."""
    return "".join(_upper(c) for c in text)


def _upper(char: str) -> str:
    for mapped in (char.upper(), char.title()):
        if len(mapped) == 1:
            return mapped
    return char


@functools.lru_cache(maxsize=4096)
def _items(pattern: str, escape: str) -> tuple[_Item, ...]:
    """The pattern as ('%', ''), ('_', ''), ('=', character); a dangling escape is ('!', '')."""
    items: list[_Item] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if escape and char == escape:
            at += 1
            items.append(("=", pattern[at]) if at < len(pattern) else ("!", ""))
        else:
            items.append((char, "") if char in "%_" else ("=", char))
        at += 1
    return tuple(items)


def matches(text: str, pattern: str, escape: str = "\\") -> bool:
    """Whether `text` is LIKE `pattern`. Raises RowError when matching arrives at a dangling escape."""
    if len(escape) > 1:
        raise RowError("invalid escape string")
    items = _items(pattern, escape)
    if items and items[-1][0] == "!":
        return _walk(text, items, 0, 0) is True
    return re.fullmatch(_expression(items), text, re.DOTALL) is not None


def _walk(text: str, items: tuple[_Item, ...], at: int, start: int) -> bool:
    """Match step by step, as Postgres does, so that a dangling escape is noticed exactly when it is reached."""
    while at < len(items) and start < len(text):
        kind, char = items[at]
        if kind == "!":
            raise RowError(DANGLING)
        if kind == "%":
            if all(k == "%" for k, _ in items[at:]):
                return True
            if items[at + 1][0] == "!":
                raise RowError(DANGLING)
            return any(_walk(text, items, at + 1, i) for i in range(start, len(text) + 1))
        if kind == "=" and text[start] != char:
            return False
        at, start = at + 1, start + 1
    return start == len(text) and all(k == "%" for k, _ in items[at:])


def _expression(items: tuple[_Item, ...]) -> str:
    return "".join(".*" if k == "%" else "." if k == "_" else re.escape(c) for k, c in items)


def _search(items: tuple[_Item, ...]) -> Callable[[Values], Values]:
    """The cheapest Arrow search for a constant pattern without a dangling escape."""
    kinds = [k for k, _ in items]
    plain = "".join(c for k, c in items if k == "=")
    if "_" not in kinds:
        if "%" not in kinds:
            return lambda value: pc.equal(value, pa.scalar(plain, pa.large_string()))
        inner = [i for i, k in enumerate(kinds) if k == "="]
        first, last = (inner[0], inner[-1]) if inner else (0, -1)
        if last - first + 1 == len(inner):
            before, after = first > 0, last < len(items) - 1
            if not inner or (before and after):
                return lambda value: pc.match_substring(value, plain)
            return lambda value: pc.ends_with(value, plain) if before else pc.starts_with(value, plain)
    body = "".join(".*" if k == "%" else "." if k == "_" else _quoted(c) for k, c in items)
    return lambda value: pc.match_substring_regex(value, rf"(?s)\A{body}\z")


def _quoted(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 else f"\\x{{{ord(char):x}}}"


def _like(folded: bool, negated: bool) -> Maker:
    def slow(text: str, pattern: str, escape: str = "\\") -> bool:
        if folded:
            text, pattern = lower(text), lower(pattern)
        return matches(text, pattern, escape) is not negated

    def make(_params: tuple[DataType, ...], _result: DataType) -> Kernel:
        def kernel(value: Values, pattern: Values, *escape: Values) -> Outcome:
            if not folded and isinstance(pattern, pa.Scalar) and all(isinstance(e, pa.Scalar) for e in escape):
                mark = escape[0].as_py() if escape else "\\"
                items = _items(pattern.as_py(), mark) if len(mark) < 2 else (("!", ""),)
                if not items or items[-1][0] != "!":
                    found = _search(items)(value)
                    return (pc.invert(found) if negated else found), None
            return fallback.map_values(slow, pa.bool_(), [value, pattern, *escape])

        return kernel

    return make


def _register() -> None:
    text, padded = Kind.TEXT, Kind.BPCHAR
    for name, folded, negated in (
        ("like", False, False),
        ("not like", False, True),
        ("ilike", True, False),
        ("not ilike", True, True),
    ):
        for kind in (text, padded):
            entry(name, (kind, text), Kind.BOOLEAN, _like(folded, negated), fallback=folded)
            entry(name, (kind, text, text), Kind.BOOLEAN, _like(folded, negated), fallback=folded)


_register()
