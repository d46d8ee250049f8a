"""Postgres's grammar over sqlglot's parser: every function kept by its written name, and what sqlglot reads otherwise.

Always: it reads only what Postgres's grammar has taken (`postgres_grammar`), so that it refuses nothing itself. Called by
`parse`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from headrace.views.sql.parsing import foreign_type_names
from headrace.views.sql.parsing.constants import INTERVAL_UNITS
from headrace.views.sql.parsing.nodes import WRITTEN, UnaryPlus
from headrace.views.sql.parsing.predicates import read_test
from headrace.views.sql.parsing.recursive_clauses import read_clauses
from headrace.views.sql.parsing.tokens import AROUND, WITHIN


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
    return None if operand is None else UnaryPlus(this=operand)


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
        "EXTRACT": lambda self: self._parse_extract(),
        "POSITION": lambda self: self._parse_position(),
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
        if len(args) > 2:
            self.raise_error("a text and what is cut off it are all that TRIM takes")
        return self.expression(exp.Trim(this=args[0], expression=args[1] if args[1:] else None, position=position))

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

    def _parse_derived_table_values(self, *args: Any, **more: Any) -> exp.Values | None:
        """VALUES in FROM; in parentheses it may begin a set operation, which sqlglot would not see."""
        return None if self._is_set_operation() else super()._parse_derived_table_values(*args, **more)

    def _is_set_operation(self) -> bool:
        """Whether a set operation stands in the parentheses that begin here."""
        depth = 0
        for token in self._tokens[self._index :]:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            if not depth:
                return False
            if depth == 1 and token.token_type in self.SET_OPERATIONS:
                return True
        return False

    def _parse_cte(self) -> Any:
        """An item of WITH, and SEARCH and CYCLE behind it; sqlglot would take them for the whole WITH's, and one column each."""
        found = super()._parse_cte()
        if found is not None:
            read_clauses(self, found)
        return found

    def _parse_using_identifiers(self) -> list[exp.Expr]:
        """The names of USING, then the alias of their columns, where AS is behind them."""
        found: list[exp.Expr] = super()._parse_using_identifiers()
        if found and self._match(TokenType.ALIAS):
            found.append(exp.TableAlias(this=self._parse_id_var()))
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
    KEYWORDS: ClassVar[dict[str, TokenType]] = foreign_type_names.KEYWORDS


class _Generator(PostgresGenerator):
    TRANSFORMS: ClassVar[dict[type[exp.Expr], Any]] = {**PostgresGenerator.TRANSFORMS, **WRITTEN}


class Dialect(Postgres):
    """The dialect in which `parse` reads SQL and in which messages print it."""

    Parser, Tokenizer, Generator = _Parser, _Tokenizer, _Generator
    INDEX_OFFSET = 0


# sqlglot's own takes words that Postgres takes for names, and none with digits.
Dialect.VALID_INTERVAL_UNITS = INTERVAL_UNITS
