"""What Postgres's own grammar says of a statement: libpg_query, the parser of Postgres 18 as a library, is the judge.

Always: what it refuses is refused in its words, where it stops; what it takes is read by sqlglot afterwards. One thread of each
process calls the library, which takes one of the process's 1,024 thread-specific keys for each thread and gives none back.
Called by `parse`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import postgast

LONGEST = 1_000_000
"""Characters of a statement: libpg_query follows the depth of a longer one on the stack and may end the process."""

_HINTS = (
    # what stands before the place where it stopped, what stands there, and what to write
    (r"\binterval\s+", r"\d", "INTERVAL takes a text: write INTERVAL '2 days'"),
    (r"\b(greatest|least|coalesce)\s*\(\s*", r"\)", "it takes a value at least"),
    (r"\bin\s*\(\s*", r"\)", "a list of IN has a value at least"),
    (r"\bnatural\b.*", r"(using|on)\b", "a NATURAL JOIN says by itself what is equal"),
    (r"\b(from|join)\s+", r"values\b", "VALUES stands in parentheses in FROM: write (VALUES …) AS name"),
    (r"\bfilter\s*\(\s*", r"", "FILTER takes a WHERE: write FILTER (WHERE …)"),
    (r"[=<>!]=?\s*\S+\s*", r"[=<>!]", "comparisons cannot be chained: use AND, or parentheses"),
    (r"", r"\[", "an array is written ARRAY[…], a list stands in parentheses, and so does what has a subscript"),
    (r"", r"(union|except|intersect)\b", "put a query that has ORDER BY or LIMIT in parentheses"),
    (r"\bqualify\s+", r"", "use a subquery with WHERE"),
    (r"", r"'[^']*$", "close the quote"),
    (r"", r"/\*", "close the comment"),
)


T = TypeVar("T")


class _OneThread:
    """Calls the library, on a thread that a forked process has anew."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="postgres-grammar")

    def __call__(self, call: Callable[[str], T], text: str) -> T:
        """What `call` gives of a text. Raises what it raises."""
        return self._threads.submit(call, text).result()


_asked = _OneThread()


class Fault(NamedTuple):
    """Why Postgres's grammar refuses a statement, a remedy (or ""), and the character at which it stopped."""

    reason: str
    hint: str
    offset: int


def fault_of(text: str) -> Fault | None:
    """What Postgres's grammar refuses in `text`; None for what it takes.

    >>> fault_of("select 'a' rlike 'h'")
    Fault(reason='syntax error at or near "\\'h\\'"', hint='', offset=17)
    >>> fault_of("select a from t where b") is None
    True
    """
    if len(text) > LONGEST:
        return Fault(f"the SQL has {len(text)} characters, and at most {LONGEST} are read", _SPLIT, 0)
    error = _error_of(text)
    if error is not None and "--" in text:
        # Postgres lets a comment stand between the pieces of a string constant; the library's scanner does not.
        error = _error_of(_without_comments(text))
    if error is not None:
        offset = max(error.cursorpos - 1, 0)  # characters, from one
        if "memory exhausted" in error.message:
            return Fault("the SQL is nested too deeply", _SPLIT, offset)
        return Fault(error.message, _hint(text[:offset], text[offset:]), offset)
    return None


_SPLIT = "split the view into several"


def _error_of(text: str) -> postgast.PgQueryError | None:
    try:
        # Its result is of no use here: of the calls that parse, it is the one that bounds the depth it follows.
        _asked(postgast.fingerprint, text)
    except postgast.PgQueryError as error:
        return error
    return None


def _without_comments(text: str) -> str:
    """The text with blanks for what stands behind `--`, as far as it can be read; nothing else moves."""
    try:
        tokens = _asked(postgast.scan, text).tokens
    except postgast.PgQueryError:
        return text
    left, data = 0, text.encode()
    out = ""
    for token in tokens:
        if data[token.start : token.start + 2] == b"--":
            out += data[left : token.start].decode() + " " * len(data[token.start : token.end].decode())
            left = token.end
    return out + data[left:].decode()


def _hint(before: str, rest: str) -> str:
    for left, here, hint in _HINTS:
        if re.match(here, rest, re.IGNORECASE) and re.search(f"(?:{left})$", before, re.IGNORECASE):
            return hint
    return ""
