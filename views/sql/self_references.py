"""Where the items of WITH RECURSIVE name each other and themselves, and what Postgres refuses of that, in its words.

A name means the innermost WITH item in sight that has it. Postgres lets a query name itself once, in its recursive term,
where rows may not be missing: not on the nullable side of an outer join, in a subquery of an expression, or where a set
operation takes rows away. Called by `recursive`, before anything is bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from headrace.views.plan import Reference
from headrace.views.sql.aggregates.aggregate_calls import AGGREGATES
from headrace.views.sql.environment import Environment
from headrace.views.sql.parsing.parse import Source, name_of

OK = ""
TERM = "its non-recursive term"
_SUBQUERY, _OUTER, _INTERSECT, _EXCEPT = "a subquery", "an outer join", "INTERSECT", "EXCEPT"
_REMEDIES = {
    TERM: "start with rows that do not need the query; UNION them with a term that reads it",
    _SUBQUERY: "join with it in FROM",
    _OUTER: "put it on the side of the join whose rows are all kept, or use an inner join",
    _INTERSECT: "use INTERSECT without ALL, or a join",
    _EXCEPT: "let it be the left side of EXCEPT without ALL, or use NOT EXISTS on other tables",
}
_CUTTING = {"order": "ORDER BY", "offset": "OFFSET", "limit": "LIMIT", "locks": "FOR UPDATE/SHARE"}
_CUTTING_WORDS = {
    "order": r"\border\s+by\b",
    "offset": r"\boffset\b",
    "limit": r"\b(limit|fetch)\b",
    "locks": r"\bfor\s+(update|share|no|key)\b",
}


class Named(NamedTuple):
    """A name in FROM: the table's node, and where it stands (`OK`: where a query may name itself)."""

    node: exp.Expr
    where: str


def items_of(clause: exp.Expr) -> dict[str, exp.Expr]:
    """The items of a WITH by name."""
    return {name_of(cte.args["alias"].this): cte for cte in clause.expressions}


def names_in(node: exp.Expr, where: str = OK, hidden: frozenset[str] = frozenset()) -> Iterator[Named]:
    """The names in FROM, at any depth, that no WITH within `node` gives a meaning to."""
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        if node.args.get("db") is None and name_of(node.this) not in hidden:
            yield Named(node, where)
        yield from _joined([], node.args.get("joins") or [], where, hidden)
        return
    clause = node.args.get("with_")
    if clause is not None:
        inner = hidden | set(items_of(clause)) if clause.args.get("recursive") else hidden
        for name, cte in items_of(clause).items():
            yield from names_in(cte.this, where, inner)
            inner = inner | {name}
        hidden = inner
    if isinstance(node, exp.SetOperation):
        yield from _set_operation(node, where, hidden)
        return
    if isinstance(node, exp.Select):
        start = node.args.get("from_")
        if start is not None:
            yield from _joined([start.this], node.args.get("joins") or [], where, hidden)
        yield from _expressions(node, ("with_", "from_", "joins"), hidden)
        return
    if isinstance(node, exp.Subquery | exp.Lateral):
        yield from names_in(node.this, where, hidden)
        yield from _joined([], node.args.get("joins") or [], where, hidden)
        yield from _expressions(node, ("this", "with_", "joins"), hidden)
        return
    yield from _expressions(node, ("with_",), hidden)


def _set_operation(node: exp.Expr, where: str, hidden: frozenset[str]) -> Iterator[Named]:
    left = right = where
    if where == OK and isinstance(node, exp.Intersect) and not node.args.get("distinct"):
        left = right = _INTERSECT
    if where == OK and isinstance(node, exp.Except):
        left, right = OK if node.args.get("distinct") else _EXCEPT, _EXCEPT
    yield from names_in(node.this, left, hidden)
    yield from names_in(node.expression, right, hidden)
    yield from _expressions(node, ("this", "expression", "with_"), hidden)


def _joined(
    first: Sequence[exp.Expr], joins: Sequence[exp.Expr], where: str, hidden: frozenset[str]
) -> Iterator[Named]:
    """The names in the items of FROM, in order. An item is nullable where its own join, or a later one, may leave it out."""
    sides = [str(join.args.get("side") or "").upper() for join in joins]
    commas = [not any(j.args.get(k) for k in ("on", "using", "method", "kind", "side")) for j in joins]
    items = [*first, *(join.this for join in joins)]
    offset = len(items) - len(joins)
    for at, item in enumerate(items):
        k = at - offset
        later = next((i for i in range(k + 1, len(joins)) if commas[i]), len(joins))
        nullable = (k >= 0 and sides[k] in ("LEFT", "FULL")) or any(
            s in ("RIGHT", "FULL") for s in sides[k + 1 : later]
        )
        yield from names_in(item, _OUTER if nullable and where == OK else where, hidden)
    for join in joins:
        yield from _expressions(join, ("this",), hidden)


def _expressions(node: exp.Expr, but: Sequence[str], hidden: frozenset[str]) -> Iterator[Named]:
    """The names in subqueries of the node's expressions."""
    for key, value in node.args.items():
        if key in but:
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Query):
                yield from names_in(part, _SUBQUERY, hidden)
            elif isinstance(part, exp.Expr):
                yield from _expressions(part, (), hidden)


def check_form(source: Source, name: str, cte: exp.Expr) -> exp.Expr:
    """The UNION that a query which names itself is. Raises ViewError for what Postgres refuses of it."""
    body = cte.this.unnest() if isinstance(cte.this, exp.Subquery) else cte.this
    if not isinstance(body, exp.Union):
        reason = f'recursive query "{name}" does not have the form non-recursive-term UNION [ALL] recursive-term'
        source.refuse(cte.args["alias"], reason, "write SELECT … UNION ALL SELECT …, the second of which reads it")
    clause = body.args.get("with_")
    if clause is not None:
        hidden = frozenset(items_of(clause)) if clause.args.get("recursive") else frozenset[str]()
        for own, item in items_of(clause).items():
            _check(source, name, names_in(item.this, _SUBQUERY, hidden))
            hidden |= {own}
        if name in hidden:
            # What the terms read is the inner query of that name.
            source.refuse(cte.args["alias"], f'WITH query name "{name}" is given anew within itself', "rename one")
    for key, words in _CUTTING_WORDS.items():
        # sqlglot takes a lock for the last SELECT's.
        if body.args.get(key) or (key == "locks" and body.expression.args.get(key)):
            reason = f"{_CUTTING[key]} in a recursive query is not implemented"
            source.refuse_words(body, words, reason, f"read {name} with it, or put it into a query around")
    _check(source, name, names_in(body.this, TERM))
    _check(source, name, names_in(body.expression))
    return body


def check_aggregates(source: Source, env: Environment, query: exp.Expr) -> None:
    """Refuses the aggregates of a SELECT that reads, in its own FROM, the rows of a recursion around it. Raises ViewError."""
    start = query.args.get("from_")
    items = [] if start is None else [start.this, *(join.this for join in query.args.get("joins") or ())]
    while items:
        item = items.pop()
        if isinstance(item, exp.Table):
            items += [join.this for join in item.args.get("joins") or ()]
            bare = isinstance(item.this, exp.Identifier) and item.args.get("db") is None
            found = env.ctes.get(name_of(item.this)) if bare else None
            if found is not None and isinstance(found[0], Reference):
                reason = "aggregate functions are not allowed in a recursive query's recursive term"
                source.refuse(_aggregate_of(query), reason, "aggregate a subquery in FROM that reads it")
        elif isinstance(item, exp.Subquery) and not isinstance(item.this, exp.Query):
            items += [item.this, *(join.this for join in item.args.get("joins") or ())]


def _aggregate_of(query: exp.Expr) -> exp.Expr:
    """The first call of an aggregate in a SELECT, or the SELECT."""
    parts: list[exp.Expr] = [
        *query.expressions,
        *(query.args[k] for k in ("having", "order") if query.args.get(k) is not None),
    ]
    for part in parts:
        for node in part.walk(prune=lambda n: isinstance(n, exp.Query)):
            named = isinstance(node, exp.Anonymous) and str(node.this).lower() in AGGREGATES
            if named and not isinstance(node.parent, exp.Window):
                return node
    return query


def _check(source: Source, name: str, found: Iterator[Named]) -> None:
    """Refuses where a query may not name itself, and that it does so twice."""
    count = 0
    for node, where in found:
        if name_of(node.this) != name:
            continue
        told = f'recursive reference to query "{name}" must not appear'
        if where != OK:
            source.refuse(node, f"{told} within {where}", _REMEDIES[where])
        count += 1
        if count > 1:
            source.refuse(
                node, f"{told} more than once", "join the terms by other tables, or keep more columns in a row"
            )
