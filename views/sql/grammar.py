"""Postgres's grammar over sqlglot's parser: every function kept by its written name, and what sqlglot reads otherwise.

Always: what sqlglot would read and Postgres would not is a ParseError in Postgres's words, where it stands. Called by `parse`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from views.sql import foreign
from views.sql.constants import INTERVAL_UNITS
from views.sql.predicates import read_test
from views.sql.statements import OWN
from views.sql.tokens import AROUND, WITHIN, in_brackets

_RANKS = {
    TokenType.WHERE: 1,
    TokenType.GROUP_BY: 2,
    TokenType.HAVING: 3,
    TokenType.WINDOW: 4,
    TokenType.ORDER_BY: 5,
    **dict.fromkeys((TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH), 6),
}
"""What clauses begin with, in the order in which they stand."""
_CLAUSES = {"where": 1, "group": 2, "having": 3, "windows": 4, "order": 5, "limit": 6, "offset": 6}
"""What sqlglot calls them."""
_BETWEEN = (TokenType.L_BRACKET, TokenType.COMMA)


def _operator(sign: str) -> Callable[..., exp.Operator]:
    """An operator that sqlglot has no node for."""
    return lambda this, expression: exp.Operator(this=this, operator=sign, expression=expression)


_OTHERS: dict[TokenType, Any] = {
    TokenType.AT_GT: exp.ArrayContainsAll,
    TokenType.LT_AT: exp.ArrayContainedBy,
    TokenType.DAMP: exp.ArrayOverlaps,
    TokenType.QMARK_PIPE: exp.JSONBContainsAnyTopKeys,
    TokenType.QMARK_AMP: exp.JSONBContainsAllTopKeys,
    TokenType.HASH_DASH: exp.JSONBDeleteAtPath,
    TokenType.AMP_LT: exp.ExtendsLeft,
    TokenType.AMP_GT: exp.ExtendsRight,
    TokenType.ADJACENT: exp.Adjacent,
    TokenType.AT_QMARK: exp.JSONBPathExists,
    TokenType.DAT: _operator("@@"),
    WITHIN: _operator("<<="),
    AROUND: _operator(">>="),
}


def _plus(operand: exp.Expr | None) -> exp.Expr | None:
    """`+ operand`: its value, without its name."""
    if operand is None:
        return None
    made = exp.Paren(this=operand)
    made.meta["plus"] = True
    return made


_PREFIXES: dict[TokenType, type[exp.Expr]] = {
    TokenType.TILDE: exp.BitwiseNot,
    TokenType.RLIKE: exp.BitwiseNot,
    TokenType.PIPE_SLASH: exp.Sqrt,
    TokenType.DPIPE_SLASH: exp.Cbrt,
}


def _absolute(parser: Any) -> exp.Expr:
    """`@ operand`; a dollar is the same token, and begins a parameter, of which a view has none."""
    kind, operand = (
        (exp.Parameter, parser._parse_primary) if parser._prev.text == "$" else (exp.Abs, parser._parse_term)
    )
    return parser.expression(kind(this=operand()))  # type: ignore[no-any-return]


def _before(kind: type[exp.Expr]) -> Any:
    """The parser of an operator that stands before its operand: it binds less tightly than arithmetic does."""
    return lambda self: self.expression(kind(this=self._parse_term()))


class _Parser(PostgresParser):
    """Postgres's grammar without sqlglot's translation of functions: the catalogue of expressions knows their names."""

    FUNCTIONS: ClassVar[dict[str, object]] = {}  # type: ignore[assignment]
    # Postgres has no lambdas: an arrow behind a name is JSON's.
    LAMBDAS: ClassVar[dict[TokenType, Any]] = {
        token: parser for token, parser in PostgresParser.LAMBDAS.items() if token is not TokenType.ARROW
    }
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parser
        for name, parser in PostgresParser.FUNCTION_PARSERS.items()
        if name in ("CAST", "OVERLAY", "TRIM") or name.startswith("XML")
    } | {
        "SUBSTRING": lambda self: self._parse_part(),
        "EXTRACT": lambda self: self._without_comma(self._parse_extract),
        "POSITION": lambda self: self._without_comma(self._parse_position),
    }
    # Postgres's operators of no rank of their own all bind alike, from left to right.
    BITWISE: ClassVar[dict[TokenType, Any]] = {**PostgresParser.BITWISE, **_OTHERS}
    RANGE_PARSERS: ClassVar[dict[TokenType, Any]] = {
        token: parser for token, parser in PostgresParser.RANGE_PARSERS.items() if token not in _OTHERS
    }
    JSON_OPERATORS: ClassVar[dict[TokenType, Any]] = {
        TokenType.ARROW: lambda self, this, key: self.expression(exp.JSONExtract(this=this, expression=key)),
        TokenType.DARROW: lambda self, this, key: self.expression(exp.JSONExtractScalar(this=this, expression=key)),
        TokenType.HASH_ARROW: lambda self, this, path: self.expression(exp.JSONBExtract(this=this, expression=path)),
        TokenType.DHASH_ARROW: lambda self, this, path: self.expression(
            exp.JSONBExtractScalar(this=this, expression=path)
        ),
        TokenType.PLACEHOLDER: lambda self, this, key: self.expression(
            exp.JSONBContainsTopKey(this=this, expression=key)
        ),
    }
    UNARY_PARSERS: ClassVar[dict[TokenType, Any]] = {
        **PostgresParser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: _plus(self._parse_unary()),
        **{token: _before(kind) for token, kind in _PREFIXES.items()},
        TokenType.PARAMETER: _absolute,
    }

    TYPE_LITERAL_PARSERS: ClassVar[dict[Any, Any]] = {}
    # A name behind a colon is the end of a slice.
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Any]] = {
        token: parser for token, parser in PostgresParser.PLACEHOLDER_PARSERS.items() if token is not TokenType.COLON
    }

    def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> exp.Expr | None:
        """A constant of a type, also one that sqlglot has no word for (`macaddr '…'`): what stands behind is of the constant,
        and not, as sqlglot has it, of its text."""
        here, after, index = self._curr, self._next, self._index
        if here is None or here.token_type is TokenType.INTERVAL:
            return super()._parse_type(parse_interval, fallback_to_identifier)
        if here.token_type in self.TYPE_TOKENS and here.text.lower() != "bit":
            to: exp.Expr | None = self._parse_types(check_func=True, allow_identifiers=False)
            if isinstance(to, exp.DataType) and self._match(TokenType.STRING, advance=False):
                return self._parse_column_ops(self.expression(exp.Cast(this=self._parse_primary(), to=to)))
            self._retreat(index)
        elif after is not None and after.token_type is TokenType.STRING:
            if here.token_type is not TokenType.VAR and here.text.lower() != "bit":
                return super()._parse_type(parse_interval, fallback_to_identifier)
            self._advance()
            to = exp.DataType(this=exp.DType.USERDEFINED, kind=here.text)
            return self._parse_column_ops(self.expression(exp.Cast(this=self._parse_primary(), to=to)))
        return super()._parse_type(parse_interval, fallback_to_identifier)

    def _parse_at_time_zone(self, this: exp.Expr | None) -> exp.Expr | None:
        """AT TIME ZONE, and AT LOCAL: the session's zone is UTC."""
        if not self._match_text_seq("AT", "LOCAL"):
            return super()._parse_at_time_zone(this)
        return self._parse_at_time_zone(self.expression(exp.AtTimeZone(this=this, zone=exp.Literal.string("UTC"))))

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        """IS, and IS [NOT] [NFC …] NORMALIZED, and IS [NOT] JSON …."""
        found = read_test(self, this)
        return super()._parse_is(this) if found is None else self._parse_column_ops(found)

    def _parse_trim(self) -> exp.Trim:
        """What stands in TRIM's parentheses: a place, and what is cut off FROM a text, or arguments."""
        position = self._prev.text if self._match_texts(self.TRIM_TYPES) else None
        args = [] if self._match(TokenType.FROM) else self._parse_csv(self._parse_bitwise)
        if not args or (len(args) == 1 and self._match(TokenType.FROM)):
            args = [*self._parse_csv(self._parse_bitwise), *args]
        if not args:
            self._stopped(self._curr or self._prev)
        if len(args) > 2:
            self.raise_error("a text and what is cut off it are all that TRIM takes")
        return self.expression(exp.Trim(this=args[0], expression=args[1] if args[1:] else None, position=position))

    def _without_comma(self, parse: Callable[[], exp.Expr]) -> exp.Expr:
        """What has a word between its parts; sqlglot would take a comma for it."""
        begin, depth = self._index, 0
        found = parse()
        for token in self._tokens[begin : self._index]:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            depth += (token.token_type is TokenType.L_BRACKET) - (token.token_type is TokenType.R_BRACKET)
            if not depth and token.token_type is TokenType.COMMA:
                self._stopped(token)
        return found

    def _parse_part(self) -> exp.Expr:
        """What stands in SUBSTRING's parentheses: FROM … FOR …, SIMILAR … ESCAPE …, or arguments."""
        text = self._parse_bitwise()
        if self._match_text_seq("SIMILAR"):
            pattern = self._parse_bitwise()
            self._match_text_seq("ESCAPE")
            return self.expression(exp.Substring(this=text, start=pattern, length=self._parse_bitwise()))
        start = length = None
        while self._curr is not None and self._curr.token_type is not TokenType.R_PAREN:
            if self._match(TokenType.FROM):
                start = self._parse_bitwise()
            elif self._match_text_seq("FOR"):
                length = self._parse_bitwise()
            elif self._match(TokenType.COMMA):
                start, length = (self._parse_lambda(), None) if start is None else (start, self._parse_lambda())
            else:
                break
        return self.expression(exp.Substring(this=text, start=start, length=length))

    def _parse_join(self, *args: Any, **more: Any) -> exp.Join | None:
        """One join: one without a word for its kind is told from a comma."""
        comma = self._curr is not None and self._curr.token_type is TokenType.COMMA
        join: exp.Join | None = super()._parse_join(*args, **more)
        if join is not None and not comma and not any(join.args.get(k) for k in ("method", "side", "kind")):
            join.set("kind", "INNER")
        return join

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        """A subscript, or what stands behind ARRAY; an array within that is written without the word."""
        here = self._curr
        begins = this is None and here is not None and here.token_type is TokenType.L_BRACKET
        before = self._tokens[: self._index]
        if begins and not (before and before[-1].token_type in _BETWEEN and in_brackets(before)):
            self.raise_error('syntax error at or near "[": an array is written ARRAY[…]')
        return super()._parse_bracket(this)

    def _parse_with(self, skip_with_token: bool = False) -> exp.With | None:
        """WITH once, behind which stand names; sqlglot would take it before each of them."""
        begin = self._index
        found: exp.With | None = super()._parse_with(skip_with_token)
        if found is not None:
            found.meta[OWN] = len(found.expressions)
            depth = 0
            for token in self._tokens[begin + 1 : self._index]:
                depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
                if not depth and token.token_type is TokenType.WITH:
                    self._stopped(token)
        return found

    def _parse_query_modifiers(self, this: Any) -> Any:
        """The clauses of a query in Postgres's order; sqlglot would read them in any."""
        begin, depth = self._index, 0
        args = this.args if isinstance(this, exp.Query) else {}
        last = max((rank for key, rank in _CLAUSES.items() if args.get(key)), default=0)
        joined = len(args.get("joins") or ()) if last else None
        found = super()._parse_query_modifiers(this)
        if joined is not None and len(args.get("joins") or ()) > joined:
            self._stopped(self._tokens[begin])
        for token in self._tokens[begin : self._index]:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            rank = 0 if depth else _RANKS.get(token.token_type, 0)
            if rank and rank < last:
                self._stopped(token)
            last = rank or last
        return found

    def _stopped(self, token: Any) -> None:
        """Raises what Postgres says of a token that cannot stand there."""
        self.raise_error(f'syntax error at or near "{self.sql[token.start : token.end + 1].split()[0]}"', token)

    def _parse_table_alias(self, *args: Any, **more: Any) -> exp.TableAlias | None:
        """A name behind a table; sqlglot would take a text for one, and `@name`."""
        here = self._curr
        found: exp.TableAlias | None = super()._parse_table_alias(*args, **more)
        texts = (TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING)
        if found is not None and (
            isinstance(found.this, exp.Parameter) or any(t.token_type in texts for t in (here, self._prev))
        ):
            self._stopped(here)
        return found

    def _parse_using_identifiers(self) -> list[exp.Expr]:
        """The names of USING, and the alias of their columns: AS behind them."""
        found: list[exp.Expr] = super()._parse_using_identifiers()
        if found and self._match(TokenType.ALIAS):
            found[0].meta["alias"] = self._parse_id_var()
        return found

    def _parse_csv(self, parse_method: Callable[[], Any], sep: TokenType = TokenType.COMMA) -> list[Any]:
        """A list; sqlglot would let one end in a comma."""
        found: list[Any] = []
        while True:
            item = parse_method()
            if item is None and found:
                self.raise_error(f'syntax error at or near "{self._curr.text if self._curr else sep.value}"')
            found += [] if item is None else [item]
            if item is None or not self._match(sep):
                return found

    def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
        """CUBE or ROLLUP of any expressions; sqlglot reads none with a comparison."""
        kind = exp.Cube if self._match(TokenType.CUBE) else exp.Rollup if self._match(TokenType.ROLLUP) else None
        if kind is None:
            return None
        return self.expression(
            kind(expressions=[] if with_prefix else self._parse_wrapped_csv(self._parse_disjunction))
        )

    def _parse_grouping_set(self) -> exp.Expr | None:
        return self._parse_grouping_sets() or self._parse_cube_or_rollup() or self._parse_disjunction()

    def _parse_interval_span(self, this: exp.Expr, parse_function_unit: bool = True) -> exp.Interval:  # noqa: ARG002
        """An interval's text as it stands: sqlglot would keep the first of its quantities alone."""
        unit: exp.Expr | None = None
        if self._curr is not None and self._curr.text.upper() in INTERVAL_UNITS:
            unit = self._parse_var(any_token=True, upper=True)
            if self._match_text_seq("TO"):
                unit = self.expression(
                    exp.IntervalSpan(this=unit, expression=self._parse_var(any_token=True, upper=True))
                )
        return self.expression(exp.Interval(this=this, unit=unit))


class _Tokenizer(Postgres.Tokenizer):
    KEYWORDS: ClassVar[dict[str, TokenType]] = foreign.KEYWORDS


class Dialect(Postgres):
    """The dialect that `parse` reads by."""

    Parser, Tokenizer = _Parser, _Tokenizer
    INDEX_OFFSET = 0


# sqlglot's own takes words that Postgres takes for names, and none with digits.
Dialect.VALID_INTERVAL_UNITS = INTERVAL_UNITS
