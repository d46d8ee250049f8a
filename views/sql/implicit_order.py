"""Queries whose answer depends on the order in which rows arrive, as Postgres's then does.

Always: an aggregate that collects has the order of the one subquery in FROM. A window function that would keep that order is
refused, and so is such an aggregate over rows that a CTE or a subquery further below orders; the error says what to write
instead. The rows of a function in FROM come in the function's order. Called by `select`.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from headrace.views.sql.aggregates.collecting_aggregates import COLLECTING
from headrace.views.sql.parsing.parse import Source, name_of


def check_arrival(source: Source, query: exp.Expr, start: exp.Expr) -> None:
    """Refuses, over a subquery with an ORDER BY, a window function that keeps the order of its rows, and an aggregate that
    collects rows in the order of a query further below."""
    inner = start.this if isinstance(start, exp.Subquery) else None
    below = None if inner is not None and inner.args.get("order") else _ordered_below(start)
    if below is not None and (node := next(filter(_keeps_order, _asked(query)), None)) is not None:
        source.refuse(node, f"the order of the rows of {below} is not kept", "write the ORDER BY inside")
    if inner is None or not inner.args.get("order"):
        return
    for node in _asked(query):
        if isinstance(node, exp.Window) and _is_open(node):
            source.refuse(node, "the order of a subquery's rows is not kept", "write the ORDER BY inside")


def _ordered_below(item: exp.Expr) -> str | None:
    """What orders the rows of an item of FROM, by name: a CTE, or a subquery that it selects from; None where nothing does."""
    if isinstance(item, exp.Subquery):
        query = item.this
    elif isinstance(item, exp.Table) and item.args.get("db") is None:
        query = _cte(item)
    else:
        return None
    if not isinstance(query, exp.Select):
        return None
    if query.args.get("order"):
        return f'"{item.alias_or_name}"'
    start = query.args.get("from_")
    if start is None or any(query.args.get(k) for k in ("joins", "group", "distinct", "having")):
        return None
    return _ordered_below(start.this)


def _cte(table: exp.Expr) -> exp.Expr | None:
    """The query of the CTE that a name in FROM means; None for a table or a view."""
    around = table.find_ancestor(exp.Query)
    while around is not None:
        clause = around.args.get("with_")
        for cte in () if clause is None else clause.expressions:
            if name_of(cte.args["alias"].this) == name_of(table.this):
                return None if cte is table.find_ancestor(exp.CTE) else cte.this
        around = around.find_ancestor(exp.Query)
    return None


def keeps_arrival(query: exp.Expr) -> bool:
    """Whether an aggregate of the query collects its rows in the order in which they come."""
    return any(_keeps_order(node) for node in _asked(query))


def _asked(query: exp.Expr) -> Iterator[exp.Expr]:
    """What is computed of the query's rows, without its subqueries."""
    for part in (*query.expressions, *(query.args[k] for k in ("having", "order") if query.args.get(k) is not None)):
        yield from part.walk(prune=lambda n: isinstance(n, exp.Query))


def _is_open(node: exp.Expr) -> bool:
    """Whether a window lets the order of its rows decide."""
    called = node.this
    plain = isinstance(called, exp.Anonymous) and str(called.this).lower() in _EVEN
    return not plain and not node.args.get("order") and not node.args.get("alias")


_EVEN = {"count", "sum", "avg", "min", "max", "bool_and", "bool_or", "every"}
"""Aggregates that give all rows of a partition the same value."""


def _keeps_order(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Anonymous):
        return False
    args = node.expressions
    window = node.parent if isinstance(node.parent, exp.Window) else None
    if str(node.this).lower() not in COLLECTING or (window is not None and window.args.get("order")):
        return False
    return bool(args) and not isinstance(args[-1], exp.Order) and not isinstance(args[0], exp.Distinct)
