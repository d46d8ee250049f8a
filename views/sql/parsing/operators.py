"""Operators read as Postgres reads them, before parsing: the longest run of their characters is one operator.

Always: what sqlglot would take for two operators (`*=`, `!=-`) or for one of another database (`==`, `<=>`) is told by name.
Called by `tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sqlglot.tokenizer_core import Token

from headrace.views.sql.parsing.constants import BadConstant

_KNOWN = frozenset({
    "+", "-", "*", "/", "%", "^", "<", ">", "=", "<=", ">=", "<>", "!=", "~", "~*", "!~", "!~*", "~~", "~~*", "!~~", "!~~*",
    "||", "|", "&", "#", "<<", ">>", "<<=", ">>=", "&&", "@>", "<@", "->", "->>", "#>", "#>>", "#-", "?", "?|", "?&", "@@",
    "@?", "^@", "-|-", "&<", "&>", "@", "|/", "||/", "=>", "<->",
})  # fmt: skip
_HINTS = {
    "==": "write =",
    "<=>": "write IS NOT DISTINCT FROM",
    "**": "write ^",
    "!": "write NOT",
}
_CHARACTERS = re.compile(r"[-+*/<>=~!@#%^&|?]+")
_SIGNED = re.compile(r"[~!@#%^&|?]")


def check_operators(tokens: Sequence[Token], text: str) -> None:
    """Raises BadConstant for the first operator that Headrace does not have."""
    for token, run in _runs(tokens, text):
        spelled = _longest(run)
        if spelled not in _KNOWN:
            hint = _HINTS.get(spelled, "")
            if not hint and spelled[:-1] in _KNOWN and spelled[-1] in "-+@~":
                hint = f"put a space behind {spelled[:-1]}"
            raise BadConstant(f"operator {spelled} is not supported{hint and ': '}{hint}", token)


def _runs(tokens: Sequence[Token], text: str) -> Iterator[tuple[Token, str]]:
    """The first of tokens of operators that touch each other, and their characters."""
    first, end = None, -1
    for token in tokens:
        if not _CHARACTERS.fullmatch(text, token.start, token.end + 1):
            continue
        if token.start != end:
            if first is not None:
                yield first, text[first.start : end]
            first = token
        end = token.end + 1
    if first is not None:
        yield first, text[first.start : end]


def _longest(run: str) -> str:
    """The operator that a run begins with: it ends in a sign only where it has what arithmetic and comparisons have not.

    >>> _longest("=-"), _longest("*+-"), _longest("!=-"), _longest("-|-")
    ('=', '*', '!=-', '-|-')
    """
    return run if _SIGNED.search(run) else run[0] + run[1:].rstrip("+-")
