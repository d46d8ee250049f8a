"""Rows of values compared, column by column as SQL says: what of their columns decides, NULLs being unknown.

Always: pure functions of columns, bound or as SQL, side by side. Called by `row_values` and `subquery_binder`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Call, Case, Expr, Literal
from headrace.engine.schema import BOOLEAN
from headrace.views.sql import coerce

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


def ordered(word: str, pairs: Pairs) -> Expr:
    """`row word row`, one of <, <=, > and >=, of two values of one type: a NULL comes last, and is as large as another."""
    found: Expr = Literal(word in ("<=", ">="), BOOLEAN)
    for one, other in reversed(pairs):
        whens = (
            (coerce.called("is not distinct from", [one, other]), found),
            (coerce.called("is null", [one]), Literal(word[0] == ">", BOOLEAN)),
            (coerce.called("is null", [other]), Literal(word[0] == "<", BOOLEAN)),
        )
        found = Case(whens, coerce.called(word[0], [one, other]), BOOLEAN)
    return found


_NODES = {"=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}


def by_pairs(left: Sequence[exp.Expr], query: exp.Expr, word: str, *, every: bool) -> exp.Expr:
    """`(left) word ANY (query)`, or ALL, as SQL that looks at every row of the query: what decides, what is unknown, else."""
    names = [exp.to_identifier(f"$column{i}", quoted=True) for i in range(len(left))]
    own = exp.to_identifier("$rows", quoted=True)
    right = [exp.Column(this=name.copy(), table=own.copy()) for name in names]
    compared = exp.Paren(
        this=_NODES[word](this=exp.Tuple(expressions=[e.copy() for e in left]), expression=exp.Tuple(expressions=right))
    )

    def some(condition: exp.Expr) -> exp.Expr:
        rows = exp.Subquery(this=query.unnest().copy(), alias=exp.TableAlias(this=own.copy(), columns=[*names]))
        found = exp.Select(expressions=[exp.Literal.number(1)]).from_(rows.copy()).where(condition)
        return exp.Exists(this=found)

    deciding = exp.Not(this=compared.copy()) if every else compared.copy()
    unknown = exp.Is(this=compared.copy(), expression=exp.Null())
    ifs = [
        exp.If(this=some(deciding), true=exp.Boolean(this=not every)),
        exp.If(this=some(unknown), true=exp.Null()),
    ]
    return exp.Case(ifs=ifs, default=exp.Boolean(this=every))
