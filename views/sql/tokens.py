"""The tokens of a view, before parsing: what sqlglot cuts otherwise than Postgres, and what it reads and Postgres does not.

Always: a refusal stands where Postgres's own parser stops, with a rewrite. Called by `parse`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from views.sql.brackets import check_brackets
from views.sql.constants import NUMBER, BadConstant
from views.sql.operators import check_operators

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
    """Raises BadConstant for the first token that Postgres does not read where it stands, operators first."""
    check_operators(tokens, text)
    check_brackets(tokens, text)
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        for refuses, reason in _REFUSED:
            if refuses(before, token, after):
                raise BadConstant(reason, token)


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


def in_brackets(tokens: Sequence[Token]) -> bool:
    """Whether what stands behind these tokens stands in brackets, and in no parentheses within these."""
    closed = 0
    for token in reversed(tokens):
        if token.token_type in (TokenType.R_BRACKET, TokenType.R_PAREN):
            closed += 1
        elif token.token_type in (TokenType.L_BRACKET, TokenType.L_PAREN):
            if not closed:
                return token.token_type is TokenType.L_BRACKET
            closed -= 1
    return False


def _is(token: Token | None, *kinds: TokenType) -> bool:
    return token is not None and token.token_type in kinds


_Test = Callable[[Token | None, Token, Token | None], bool]
_REFUSED: tuple[tuple[_Test, str], ...] = (
    (
        lambda _b, t, a: t.token_type is TokenType.ALIAS and a is None,
        "syntax error at end of input",
    ),
    *(
        (
            lambda b, t, _a, kind=kind: t.token_type is kind and _is(b, TokenType.ALIAS),
            f'syntax error at or near "{sign}"',
        )
        for kind, sign in ((TokenType.R_PAREN, ")"), (TokenType.COMMA, ","))
    ),
    (
        lambda b, t, _a: t.token_type is TokenType.NUMBER and _is(b, TokenType.INTERVAL),
        "INTERVAL takes a text: write INTERVAL '2 days'",
    ),
    (
        lambda b, t, _a: t.token_type is TokenType.L_BRACKET and _is(b, TokenType.IN),
        'syntax error at or near "[": a list stands in parentheses',
    ),
    (
        lambda b, t, a: (
            t.token_type is TokenType.L_PAREN
            and _is(b, TokenType.FILTER)
            and a is not None
            and not _is(a, TokenType.WHERE)
        ),
        "FILTER takes a WHERE: write FILTER (WHERE …)",
    ),
    (
        lambda b, t, a: t.token_type is TokenType.L_PAREN and _is(b, TokenType.DECIMAL) and _is(a, TokenType.R_PAREN),
        'syntax error at or near ")"',
    ),
    (
        lambda _b, t, a: t.token_type is TokenType.ONLY and _is(a, TokenType.L_PAREN),
        "ONLY is not supported: a partitioned table is one table; leave ONLY out",
    ),
    (
        lambda b, t, _a: t.token_type is TokenType.VALUES and _is(b, TokenType.FROM, TokenType.JOIN),
        "VALUES stands in parentheses in FROM: write (VALUES …) AS name",
    ),
)
