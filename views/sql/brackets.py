"""The brackets of arrays, before parsing: where Postgres's grammar has arrays written inside of arrays, and where none.

Always: `ARRAY[…]` holds either expressions or arrays in brackets alone, and nothing else of the two; what stands behind ANY, SOME
and ALL of a comparison is in parentheses. Called by `tokens`.

    ARRAY[[1], [2]], ARRAY[ARRAY[1], ARRAY[2]]: arrays; ARRAY[[1], ARRAY[2]], ARRAY(SELECT 1)[1], 1 = ANY ARRAY[1]: none
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from views.sql.constants import BadConstant

_OPENING = (TokenType.L_BRACKET, TokenType.L_PAREN)
_CLOSING = (TokenType.R_BRACKET, TokenType.R_PAREN)
_BETWEEN = (TokenType.L_BRACKET, TokenType.COMMA)
_QUANTIFIERS = (TokenType.ANY, TokenType.SOME, TokenType.ALL)
_SIGNS = frozenset("=<>!~+-*/%^&|#@?")
_WORDS = frozenset({"like", "ilike"})


class _Open:
    """A bracket or parenthesis that is not closed yet: whether it is an array's, or that of ARRAY(…), and whether what it holds
    are arrays in brackets, once that is known.
    """

    def __init__(self, *, array: bool, query: bool) -> None:
        self.array = array
        self.query = query
        self.nested: bool | None = None


def check_brackets(tokens: Sequence[Token], text: str) -> None:
    """Raises BadConstant for the first token that cannot stand where it does."""
    around: list[_Open] = []
    closed: _Open | None = None
    before: Token | None = None
    for at, token in enumerate(tokens):
        kind = token.token_type
        within = around[-1] if around else None
        begins = before is not None and before.token_type in _BETWEEN and within is not None and within.array
        nested = begins and kind is TokenType.L_BRACKET
        if closed is not None and _ends_there(closed, within, kind):
            raise _stopped(token, text)
        if begins and within is not None and kind is not TokenType.R_BRACKET:
            if within.nested not in (None, nested):
                raise _stopped(token, text)
            within.nested = nested
        if before is not None and before.token_type in _QUANTIFIERS and kind is not TokenType.L_PAREN:
            sign = tokens[at - 2] if at > 1 else None
            if sign is not None and (set(sign.text) <= _SIGNS or sign.text.lower() in _WORDS):
                raise _stopped(token, text)
        closed = None
        if kind in _OPENING:
            array = before is not None and before.token_type is TokenType.ARRAY
            of_array = kind is TokenType.L_BRACKET and (array or nested)
            around.append(_Open(array=of_array, query=array and kind is TokenType.L_PAREN))
        elif kind in _CLOSING and around:
            closed = around.pop()
        before = token


def _ends_there(closed: _Open, within: _Open | None, kind: TokenType) -> bool:
    """Whether what was just closed cannot be followed by a token: ARRAY(…) has no subscript, and an array in brackets within
    another is an element as it stands.
    """
    if closed.query:
        return kind is TokenType.L_BRACKET
    inside = within is not None and within.array and within.nested is True
    return inside and kind not in (TokenType.COMMA, TokenType.R_BRACKET)


def _stopped(token: Token, text: str) -> BadConstant:
    return BadConstant(f'syntax error at or near "{text[token.start : token.end + 1]}"', token)
