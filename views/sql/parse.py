"""SQL text to sqlglot's tree, with every function kept by its written name, and refusals placed in the view's file.

Always: what comes back is one SELECT or UNION; anything sqlglot read that we do not look at is refused by `only`, never
dropped. `Source.refuse` is the one way in which the SQL front says no. Called by the binder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Collection as Names
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from engine.operators.expressions.ir import Expr
from engine.schema import DataType, array_of
from views.catalog import Catalog
from views.errors import ViewError
from views.spec import ViewSpec
from views.sql import foreign
from views.sql.constants import (
    INTERVAL_UNITS,
    BadConstant,
    plain_names,
    plain_numbers,
    plain_strings,
    precise_intervals,
)
from views.sql.predicates import read_test
from views.sql.refusals import matching_hint
from views.sql.tokens import AROUND, WITHIN, check, in_brackets, one_word, operators, tokens_of, unquote_calls

_CLAUSES: dict[str, tuple[str, str, str]] = {
    # sqlglot's argument: (the words to look for, reason, hint)
    "qualify": (r"\bqualify\b", "QUALIFY is not Postgres's", "use a subquery with WHERE"),
    "locks": (r"\bfor\s+(update|share|no|key)\b", "row locks have no meaning in a view", "leave FOR … out"),
    "sample": (r"\btablesample\b", "TABLESAMPLE is not supported: its answer is random", ""),
    "only": (r"\bonly\b", "ONLY is not supported: a partitioned table is one table", "leave ONLY out"),
    "into": (r"\binto\b", "SELECT INTO is not a view", "leave INTO out"),
}


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
        if name in ("CAST", "EXTRACT", "OVERLAY", "POSITION", "TRIM") or name.startswith("XML")
    } | {"SUBSTRING": lambda self: self._parse_part()}
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

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        """A subscript, or what stands behind ARRAY; an array within that is written without the word."""
        here = self._curr
        begins = this is None and here is not None and here.token_type is TokenType.L_BRACKET
        if begins and not in_brackets(self._tokens[: self._index]):
            self.raise_error('syntax error at or near "[": an array is written ARRAY[…]')
        return super()._parse_bracket(this)

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


class _Dialect(Postgres):
    Parser, Tokenizer = _Parser, _Tokenizer
    INDEX_OFFSET = 0


# sqlglot's own takes words that Postgres takes for names, and none with digits.
_Dialect.VALID_INTERVAL_UNITS = INTERVAL_UNITS


@dataclass(frozen=True)
class Source:
    """The SQL of one view; `catalog`: what names of the database's own types mean. `constants`: where each expression that is
    made of constants alone stands first, written by the binder.
    """

    spec: ViewSpec
    text: str
    catalog: Catalog = field(default_factory=Catalog)
    constants: dict[Expr, int] = field(default_factory=dict, compare=False, repr=False)

    def type_named(self, spelled: str) -> DataType:
        """The type that a name means: one of the database's own, or Postgres's."""
        bare = spelled.removesuffix("[]")
        own = self.catalog.types.get(bare.strip('"'))
        if own is None:
            return DataType.parse(spelled)
        return own if bare == spelled else array_of(own)

    def error(self, reason: str, hint: str = "", *, offset: int | None = None) -> ViewError:
        """A refusal at a character of the SQL."""
        spec, told = self.spec, hint or matching_hint(reason)
        line, column = spec.place(offset) if offset is not None else (spec.line, None)
        return ViewError(reason, hint=told, view=spec.name, file=spec.file, line=line, column=column)

    def refuse(self, node: exp.Expr | None, reason: str, hint: str = "") -> NoReturn:
        """Raises the ViewError at `node`."""
        offset = None if node is None else start_of(node)
        if offset is not None and isinstance(node, exp.Query | exp.Exists):
            # sqlglot gives keywords no place: the query begins at the SELECT before its first name.
            begin = max(_blanked(self.text).lower().rfind(word, 0, offset) for word in ("select", "with"))
            offset = begin if begin >= 0 else offset
        raise self.error(reason, hint, offset=offset)

    def refuse_words(self, node: exp.Expr, words: str, reason: str, hint: str = "") -> NoReturn:
        """Raises the ViewError at the first match of `words` in the text at or after `node`, else at `node`."""
        start = start_of(node) or 0
        places = [m.start() for m in re.finditer(words, _blanked(self.text), re.IGNORECASE)]
        found = next((at for at in places if at >= start), places[0] if places else start)
        raise self.error(reason, hint, offset=found)

    def refuse_clause(self, node: exp.Expr, clause: str) -> NoReturn:
        """Raises the ViewError of a clause that no view has."""
        words, reason, hint = _CLAUSES[clause]
        self.refuse_words(node, words, reason, hint)

    def only(self, node: exp.Expr, allowed: Names[str]) -> None:
        """Refuses what sqlglot read in `node` beyond `allowed`."""
        for key, value in node.args.items():
            if not value or key in allowed:
                continue
            if key in _CLAUSES:
                self.refuse_clause(node, key)
            self.refuse(node, f"{key.strip('_').replace('_', ' ').upper()} is not supported here")


_QUOTED_CALL = re.compile(r'"\s*\(')


def parse(spec: ViewSpec, catalog: Catalog | None = None) -> tuple[Source, exp.Expr]:
    """The view's statement; `catalog`: of the database's own types. Raises ViewError for what is not one SELECT (or UNION of
    them).
    """
    source = Source(spec, spec.sql, catalog or Catalog())
    dialect = _Dialect()
    try:
        tokens = tokens_of(spec.sql, dialect.tokenize)
    except TokenError as error:
        at = len(spec.sql.rstrip()) - 1
        raise source.error(
            f"not SQL: {str(error).splitlines()[0]}", "close the quote or comment", offset=max(at, 0)
        ) from None
    try:
        check(tokens, spec.sql)
        tokens = plain_strings(operators(plain_numbers(plain_names(tokens, spec.sql), spec.sql)), spec.sql)
    except BadConstant as error:
        raise source.error(str(error), offset=error.token.start) from None
    tokens = precise_intervals(one_word(tokens))
    try:
        # A comment after the last semicolon is a statement to sqlglot.
        parsed = dialect.parser().parse(tokens, spec.sql)
        statements = [s for s in parsed if s is not None and not isinstance(s, exp.Semicolon)]
    except ParseError as error:
        raise _syntax_error(source, error) from None
    except RecursionError:
        raise source.error("the SQL is nested too deeply", "split the view into several") from None
    if not statements:
        raise source.error("the SQL is empty", "write a SELECT")
    if len(statements) > 1:
        source.refuse(statements[1], "more than one statement", "write one SELECT a view")
    statement = statements[0]
    if isinstance(statement, exp.Query | exp.Values):
        if _QUOTED_CALL.search(spec.sql):
            unquote_calls(statement)
        return source, statement
    first = tokens[0]
    raise source.error(f"{first.text.upper()} is not a SELECT", "a view is one SELECT", offset=first.start)


def body_of(text: str) -> str:
    """A statement without the semicolons and comments after it; as it stands where it cannot be read.

    >>> body_of("select ';'; -- the end")
    "select ';'"
    """
    try:
        tokens = _Dialect().tokenize(text)
    except TokenError:
        return text
    return text[: max((t.end + 1 for t in tokens if t.token_type is not TokenType.SEMICOLON), default=0)]


def column_starts(spec: ViewSpec) -> tuple[int | None, ...]:
    """Where in the SQL each output column begins; empty where the columns do not stand there one by one.

    >>> column_starts(ViewSpec("v", "select a, b + 1 as c from t")), column_starts(ViewSpec("v", "select * from t"))
    ((7, 10), ())
    """
    query = parse(spec)[1]
    selects = query.selects if isinstance(query, exp.Query) else []
    return () if any(s.is_star for s in selects) else tuple(start_of(s) for s in selects)


def start_of(node: exp.Expr) -> int | None:
    """The first character of `node` in its SQL, as far as sqlglot tells: that of the first placed thing in it."""
    starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
    if starts:
        return int(min(starts))
    parent = node.parent
    return None if parent is None else start_of(parent)


def name_of(identifier: exp.Expr) -> str:
    """An identifier as Postgres stores it: folded to lower case unless it was quoted."""
    text = str(identifier.this)
    return text if identifier.args.get("quoted") else text.lower()


def _syntax_error(source: Source, error: ParseError) -> ViewError:
    details = error.errors[0] if error.errors else {}
    what = str(details.get("description") or error).splitlines()[0].rstrip(".")
    highlight, before = str(details.get("highlight") or ""), str(details.get("start_context") or "")
    after = str(details.get("end_context") or "")
    at = source.text.find(before + highlight + after) + len(before)
    return source.error(f"syntax error: {what[:1].lower()}{what[1:]}", offset=at)


def _blanked(text: str) -> str:
    """The text with comments and quoted strings blanked, at the same offsets."""
    pattern = r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.DOTALL)
