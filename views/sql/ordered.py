"""A query whose ORDER BY is to be seen: rewritten so that each row carries its place, as its last column.

Always: the rows are those of the query, each with its place; a view has no use for it, as a view's rows have no order.
Called by `compile` for queries that are answered once.

>>> from sqlglot import exp
>>> from views.spec import ViewSpec
>>> from views.sql.parse import parse
>>> _, query = parse(ViewSpec("q", "select a as b from t order by 1 desc"))
>>> with_places(query).sql("postgres")
'SELECT a AS b, ROW_NUMBER() OVER (ORDER BY a DESC) AS "?place" FROM t ORDER BY 1 DESC'
"""

from __future__ import annotations

from sqlglot import exp

from views.spec import ViewSpec
from views.sql.parse import name_of, parse

PLACE = "?place"
"""The name of the last column: a place from 1."""

_WITH_PLACE = f'select 1, row_number() over (order by a) as "{PLACE}"'
_AROUND = f'select "?q".*, row_number() over (order by a) as "{PLACE}" from (select 1) as "?q"'  # noqa: S608 (no value goes in)


def with_places(query: exp.Expr) -> exp.Expr:
    """The query with its rows' places."""
    order = query.args["order"].expressions
    if isinstance(query, exp.Select) and query.args.get("distinct") is None:
        changed = query.copy()
        _, template = parse(ViewSpec("?", _WITH_PLACE))
        item = template.expressions[1]
        _set_order(item, [_replaced(o, _meant(o.this, query.expressions)) for o in order])
        changed.append("expressions", item)
        return changed
    _, around = parse(ViewSpec("?", _AROUND))
    assert isinstance(query, exp.Query), "what is parsed is a query"
    outputs = query.selects
    named = [_replaced(o, _named(o.this, outputs)) for o in order]
    _set_order(around.expressions[1], named)
    subquery = around.find(exp.Subquery)
    assert subquery is not None, "the template has one"
    subquery.set("this", query.copy())
    return around


def _set_order(item: exp.Expr, orders: list[exp.Expr]) -> None:
    window = item.find(exp.Window)
    assert window is not None, "the template has one"
    window.args["order"].set("expressions", orders)


def _replaced(order: exp.Expr, node: exp.Expr) -> exp.Expr:
    changed: exp.Expr = order.copy()
    changed.set("this", node.copy())
    return changed


def _meant(node: exp.Expr, outputs: list[exp.Expr]) -> exp.Expr:
    """What ORDER BY means: an output column by its number or name, else the expression itself."""
    found = _output(node, outputs)
    return node if found is None else found.unalias()


def _named(node: exp.Expr, outputs: list[exp.Expr]) -> exp.Expr:
    """A column of the query around; what it orders by must be one of the query's."""
    found = _output(node, outputs)
    if found is None:
        found = next((o for o in outputs if o.unalias() == node), node)
    name = found.alias_or_name
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier("?q", quoted=True))


def _output(node: exp.Expr, outputs: list[exp.Expr]) -> exp.Expr | None:
    if isinstance(node, exp.Literal) and not node.args.get("is_string") and str(node.this).isdigit():
        at = int(str(node.this))
        return outputs[at - 1] if 1 <= at <= len(outputs) else None
    if isinstance(node, exp.Column) and node.args.get("table") is None:
        name = name_of(node.this)
        return next((o for o in outputs if isinstance(o, exp.Alias) and name_of(o.args["alias"]) == name), None)
    return None
