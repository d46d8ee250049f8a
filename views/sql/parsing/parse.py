"""SQL text to sqlglot's tree, with every function kept by its written name, and refusals placed in the view's file.

Always: what comes back is one SELECT or UNION; anything sqlglot read that we do not look at is refused by `only`, never
dropped. `Source.refuse` is the one way in which the SQL front says no. Called by the binder.
"""

from __future__ import annotations

import re
from collections.abc import Collection as Names
from collections.abc import Set
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import TokenType

from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.schema import DataType, array_of
from headrace.views.catalog import DEFAULT_SCHEMA, Catalog
from headrace.views.errors import ViewError
from headrace.views.spec import ViewSpec
from headrace.views.sql.parsing.constants import (
    BadConstant,
    plain_names,
    plain_numbers,
    plain_strings,
    precise_intervals,
)
from headrace.views.sql.parsing.parentheses import settle
from headrace.views.sql.parsing.postgres_dialect import Dialect
from headrace.views.sql.parsing.postgres_grammar import fault_of
from headrace.views.sql.parsing.tokens import check, one_word, operators, tokens_of, unquote_calls
from headrace.views.sql.unsupported import matching_hint

_CLAUSES: dict[str, tuple[str, str, str]] = {
    # sqlglot's argument: (the words to look for, reason, hint)
    "qualify": (r"\bqualify\b", "QUALIFY is not Postgres's", "use a subquery with WHERE"),
    "locks": (r"\bfor\s+(update|share|no|key)\b", "row locks have no meaning in a view", "leave FOR … out"),
    "sample": (r"\btablesample\b", "TABLESAMPLE is not supported: its answer is random", ""),
    "only": (r"\bonly\b", "ONLY is not supported: a partitioned table is one table", "leave ONLY out"),
    "into": (r"\binto\b", "SELECT INTO is not a view", "leave INTO out"),
}


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
    fault = fault_of(spec.sql)
    if fault is not None:
        raise source.error(fault.reason, fault.hint, offset=fault.offset)
    dialect = Dialect()
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
        tokens = precise_intervals(one_word(tokens))
    except BadConstant as error:
        raise source.error(str(error), offset=error.token.start) from None
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
        settle(statement)
        return source, statement
    first = tokens[0]
    raise source.error(f"{first.text.upper()} is not a SELECT", "a view is one SELECT", offset=first.start)


def body_of(text: str) -> str:
    """A statement without the semicolons and comments behind it; a statement that cannot be tokenized comes back unchanged.

    >>> body_of("select ';'; -- the end")
    "select ';'"
    """
    try:
        tokens = Dialect().tokenize(text)
    except TokenError:
        return text
    return text[: max((t.end + 1 for t in tokens if t.token_type is not TokenType.SEMICOLON), default=0)]


def unqualified(text: str, views: Set[str]) -> str:
    """The text with blanks for the schema `public` before the names of these views: nothing else moves.

    >>> unqualified("select public.v.id, 'public.v' from Public.v, public.t", {"v"})
    "select        v.id, 'public.v' from        v, public.t"
    """
    try:
        tokens = Dialect().tokenize(text)
    except TokenError:
        return text
    for schema, dot, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        is_view = name.text in views or name.text.lower() in views
        if is_view and dot.token_type is TokenType.DOT and schema.text.lower() == DEFAULT_SCHEMA:
            text = text[: schema.start] + " " * (name.start - schema.start) + text[name.start :]
    return text


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


def spelled_as(node: exp.Expr) -> str:
    """The node as SQL, for messages and for names of types."""
    return node.sql(dialect=Dialect, comments=False)


LONGEST_NAME = 63


def name_of(identifier: exp.Expr) -> str:
    """An identifier as Postgres stores it: folded to lower case unless it was quoted, and cut after 63 bytes."""
    text = str(identifier.this)
    text = text if identifier.args.get("quoted") else text.lower()
    if len(text) * 4 <= LONGEST_NAME or len(text.encode()) <= LONGEST_NAME:
        return text
    return text.encode()[:LONGEST_NAME].decode(errors="ignore")


_TOLD = re.compile(r'(syntax error at or near ".*?")(?:: (.*))?')
"""What the grammar says in Postgres's words, and a hint."""


def _syntax_error(source: Source, error: ParseError) -> ViewError:
    details = error.errors[0] if error.errors else {}
    what = str(details.get("description") or error).splitlines()[0].rstrip(".")
    highlight, before = str(details.get("highlight") or ""), str(details.get("start_context") or "")
    after = str(details.get("end_context") or "")
    at = source.text.find(before + highlight + after) + len(before)
    told = _TOLD.fullmatch(what)
    if told is not None:
        return source.error(told[1], told[2] or "", offset=at)
    return source.error(f"syntax error: {what[:1].lower()}{what[1:]}", offset=at)


def _blanked(text: str) -> str:
    """The text with comments and quoted strings blanked, at the same offsets."""
    pattern = r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.DOTALL)
