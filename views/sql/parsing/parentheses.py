"""What Postgres's grammar makes of a statement, once sqlglot has read it: a query without queries around it.

Always: afterwards a query in parentheses has no clause that its parentheses do not hold, so that whoever takes these off drops
nothing: such a clause is the query's own, as in Postgres, which knows no query around it. Called by `parse`.

    (select x from t) order by y limit 1  →  (select x from t order by y limit 1)
"""

from __future__ import annotations

from sqlglot import exp

_CLAUSES = ("with_", "order", "limit", "offset")


def settle(statement: exp.Expr) -> None:
    """Move, in place, each clause behind a query in parentheses into them, the innermost first.

    >>> import sqlglot
    >>> tree = sqlglot.parse_one("((select a from t) offset 1) limit 2", dialect="postgres")
    >>> settle(tree)
    >>> tree.sql()
    '((SELECT a FROM t LIMIT 2 OFFSET 1))'
    """
    for around in reversed(list(statement.find_all(exp.Subquery))):
        inner = around.unnest()
        if not isinstance(inner, exp.Query | exp.Values):
            continue
        for key in _CLAUSES:
            if around.args.get(key):
                inner.set(key, around.args[key])
                around.set(key, None)
