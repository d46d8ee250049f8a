"""The tokens of a view, before parsing: what sqlglot cuts otherwise than Postgres.

Always: what Postgres reads and we do not is refused by name, with a rewrite. Called by `parse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headrace.views.sql.parsing.constants import NUMBER, BadConstant
from headrace.views.sql.parsing.operators import check_operators

Tokenize = Callable[[str], Sequence[Token]]

WITHIN, AROUND = TokenType.COLON_GT, TokenType.NCOLON_GT
"""Kinds of tokens that Postgres's grammar has no use for: they stand for `<<=` and `>>=`."""

_TOUCHING = (WITHIN, AROUND)
_PAIRS = {
    (TokenType.LT, TokenType.LTE): WITHIN,
    (TokenType.GT, TokenType.GTE): AROUND,
    (TokenType.USING, TokenType.LT): TokenType.ASC,
    (TokenType.USING, TokenType.GT): TokenType.DESC,
}


def tokens_of(text: str, tokenize: Tokenize) -> list[Token]:
    """The tokens of `text`; of `1e3+1` three, where sqlglot would take it for one number."""
    tokens = list(tokenize(text))
    for i, token in enumerate(tokens):
        if token.token_type is not TokenType.NUMBER:
            continue
        found = NUMBER.match(text, token.start)
        if found is not None and found.end() <= token.end and text[found.end()] in "+-":
            rest = tokens_of(text[found.end() :], tokenize)
            for after in rest:
                after.start += found.end()
                after.end += found.end()
            token.text, token.end = found[0], found.end() - 1
            return [*tokens[: i + 1], *rest]
    return tokens


def operators(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with what sqlglot has in pieces as one: `<<=`, `>>=`, and the `USING <` and `USING >` of an ORDER BY."""
    out: list[Token] = []
    for token in tokens:
        before = out[-1] if out else None
        made = None if before is None else _PAIRS.get((before.token_type, token.token_type))
        if made is None or before is None or (made in _TOUCHING and before.end + 1 != token.start):
            out.append(token)
        else:
            before.token_type = made
    return out


def one_word(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with `bit varying` as the one word that sqlglot knows."""
    out: list[Token] = []
    for token in tokens:
        plain = bool(out) and out[-1].token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
        if plain and (out[-1].text.lower(), token.text.lower()) == ("bit", "varying"):
            out[-1].text, out[-1].token_type, out[-1].end = "varbit", TokenType.VAR, token.end
        else:
            out.append(token)
    return out


def check(tokens: Sequence[Token], text: str) -> None:
    """Raises BadConstant for the first token that Postgres reads and we do not, operators first."""
    check_operators(tokens, text)
    for token, after in pairwise(tokens):
        if token.token_type is TokenType.ONLY and after.token_type is TokenType.L_PAREN:
            raise BadConstant("ONLY is not supported: a partitioned table is one table; leave ONLY out", token)


def unquote_calls(tree: exp.Expr) -> None:
    """Give functions whose names are quoted (`"abs"(x)`) their names as all others have them; one of capitals is none that
    Postgres has.

    >>> import sqlglot
    >>> tree = sqlglot.parse_one('select "f"(a), "F"(a)', dialect="postgres")
    >>> unquote_calls(tree)
    >>> [call.this for call in tree.expressions]
    ['f', '"F"']
    """
    for call in tree.find_all(exp.Anonymous):
        if isinstance(call.this, exp.Identifier):
            name = call.this.name
            call.set("this", name if name == name.lower() else f'"{name}"')
