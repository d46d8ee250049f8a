"""Rows of values compared, column by column as SQL says: what of their columns decides, NULLs being unknown.

Always: pure functions of bound columns, side by side. Called by `rows` and `subqueries`.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.operators.expressions.ir import Call, Case, Expr
from engine.schema import BOOLEAN
from views.sql import coerce

ROW_WORDS = ("=", "<>", "<", "<=", ">", ">=")
"""What rows are compared by."""

Pairs = Sequence[Sequence[Expr]]


def decided(word: str, pairs: Pairs) -> Expr:
    """`row word row`, for one of `ROW_WORDS`. Raises TypeProblem."""
    if word in ("=", "<>"):
        parts = tuple(coerce.called(word, pair) for pair in pairs)
        return Call("and" if word == "=" else "or", parts, BOOLEAN) if len(parts) > 1 else parts[0]
    # The first columns that are not equal decide; of those before the last, equal ones do not.
    found: Expr = coerce.called(word, pairs[-1])
    for pair in reversed(pairs[:-1]):
        found = Case(((coerce.called("=", pair), found),), coerce.called(word[0], pair), BOOLEAN)
    return found
