"""IS and what stands behind it where sqlglot has no word for it, or reads more than Postgres does: NORMALIZED, and JSON.

Always: what is read is gone from the tokens; None where it is another test. Called by `parse`'s grammar.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from headrace.views.sql.parsing.nodes import UnknownTruth

_NORMALIZED = re.compile(r"\s*is\s+(not\s+)?(?:(nfk?[cd])\s+)?normalized\b", re.IGNORECASE)
_KINDS = ("VALUE", "OBJECT", "ARRAY", "SCALAR")


def read_test(parser: Any, this: exp.Expr | None) -> exp.Expr | None:
    """The test behind an IS that was just read; None for one that sqlglot reads itself."""
    found = _NORMALIZED.match(parser.sql[parser._prev.start :])
    if found is not None:
        parser._advance(sum(1 for part in found.groups() if part) + 1)
        args = [this, exp.Literal.string((found[2] or "nfc").upper())]
        return _maybe_not(parser, exp.Anonymous(this="is_normalized", expressions=args), negated=bool(found[1]))
    begin = parser._index
    negated = parser._match(TokenType.NOT)
    if parser._match_text_seq("UNKNOWN"):
        return _maybe_not(parser, exp.Is(this=this, expression=UnknownTruth()), negated=bool(negated))
    if not parser._match(TokenType.JSON):
        parser._retreat(begin)
        return None
    kind = parser._prev.text.upper() if parser._match_texts(_KINDS) else "VALUE"
    told = next((w for w in ("WITH", "WITHOUT") if parser._match_text_seq(w, "UNIQUE")), None)
    if told:
        parser._match_text_seq("KEYS")
    test = parser.expression(exp.JSON(this=kind, unique=told == "WITH"))
    return _maybe_not(parser, exp.Is(this=this, expression=test), negated=bool(negated))


def _maybe_not(parser: Any, test: exp.Expr, *, negated: bool) -> exp.Expr:
    made: exp.Expr = parser.expression(test)
    return exp.Not(this=made) if negated else made
