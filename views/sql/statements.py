"""What Postgres's grammar makes of a statement, and refuses in it, once it is read.

Always: afterwards a query in parentheses has no clause that its parentheses do not hold, so that whoever takes these off drops
nothing: such a clause is the query's own, as in Postgres, which knows no query around it. Called by `parse`.

    (select x from t) order by y limit 1  →  (select x from t order by y limit 1)
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

OWN = "own"
"""The mark of a WITH: how many names it had where it was read, before sqlglot put those of one within behind them."""

Fault = tuple[exp.Expr, str, str]
"""What is refused, why, and a hint."""

_CLAUSES = {"with_": "WITH", "order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET"}
_BEFORE, _ROW, _BEHIND = "PRECEDING", "CURRENT ROW", "FOLLOWING"


def settled(statement: exp.Expr) -> Fault | None:
    """Make, in place, of a statement that was read what Postgres's grammar does; gives what that refuses.

    >>> import sqlglot
    >>> tree = sqlglot.parse_one("((select a from t) offset 1) limit 2", dialect="postgres")
    >>> settled(tree), tree.sql()
    (None, '((SELECT a FROM t LIMIT 2 OFFSET 1))')
    """
    nodes = list(statement.find_all(exp.With, exp.Subquery, exp.SetOperation, exp.WindowSpec))
    twice = _merged(nodes)
    if twice is not None:
        return twice[0], f"multiple {twice[1]} clauses not allowed", "leave one of them out"
    for both in (node for node in nodes if isinstance(node, exp.SetOperation)):
        if any(not isinstance(side, exp.Subquery) and _cuts(side) for side in (both.this, both.expression)):
            word = str(both.key)
            return both, f'syntax error at or near "{word}"', "put the query with ORDER BY or LIMIT in parentheses"
    faults = ((spec, _frame_fault(spec)) for spec in nodes if isinstance(spec, exp.WindowSpec))
    return next(((spec, fault, "") for spec, fault in faults if fault is not None), None)


def _merged(nodes: Sequence[exp.Expr]) -> tuple[exp.Expr, str] | None:
    """Move the clauses of the queries among the nodes; gives one that has one of them twice, and which."""
    for clause in nodes:
        if isinstance(clause, exp.With) and len(clause.expressions) > clause.meta.get(OWN, len(clause.expressions)):
            return clause, "WITH"
    # the innermost first
    for around in (node for node in reversed(nodes) if isinstance(node, exp.Subquery)):
        found = [key for key in _CLAUSES if around.args.get(key)]
        inner = around.unnest()
        if not found or not isinstance(inner, exp.Query | exp.Values):
            continue
        for key in found:
            if inner.args.get(key):
                return around, _CLAUSES[key]
            inner.set(key, around.args[key])
            around.set(key, None)
    return None


def _cuts(query: exp.Expr) -> bool:
    return any(query.args.get(key) for key in ("order", "limit", "offset"))


def _frame_fault(spec: exp.Expr) -> str | None:
    """Why a frame ends before it begins, whatever its offsets are."""
    start, end = (_kind(spec.args.get(at), spec.args.get(f"{at}_side")) for at in ("start", "end"))
    if start == (True, _BEHIND):
        return "frame start cannot be UNBOUNDED FOLLOWING"
    if spec.args.get("end") is None:
        return None if start[1] != _BEHIND else "frame starting from following row cannot end with current row"
    if end == (True, _BEFORE):
        return "frame end cannot be UNBOUNDED PRECEDING"
    if start[1] == _ROW and end[1] == _BEFORE:
        return "frame starting from current row cannot have preceding rows"
    if start[1] == _BEHIND and end[1] in (_BEFORE, _ROW):
        return "frame starting from following row cannot have preceding rows"
    return None


def _kind(value: object, side: object) -> tuple[bool, str]:
    """Whether a bound is UNBOUNDED, and on which side of the row it lies."""
    text = str(value).upper()
    return text == "UNBOUNDED", _ROW if text == _ROW else str(side).upper()
