"""A query whose ORDER BY is to be seen: rewritten so that each row carries its place, or what it is sorted by, behind it.

Always: the rows are those of the query. Called by `compile` for queries that are answered once, which carry places; and by
`tables` for a subquery whose rows an aggregate collects in their order.

>>> from sqlglot import exp
>>> from headrace.views.spec import ViewSpec
>>> from headrace.views.sql.parsing.parse import parse
>>> _, query = parse(ViewSpec("q", "select a as b from t order by 1 desc"))
>>> with_places(query).sql("postgres")
'SELECT a AS b, ROW_NUMBER() OVER (ORDER BY a DESC) AS "?place" FROM t ORDER BY 1 DESC'
"""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.operators.top import Order
from headrace.views.spec import ViewSpec
from headrace.views.sql.parsing.parse import name_of, parse

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


def with_keys(query: exp.Expr) -> exp.Expr:
    """The query with what its ORDER BY sorts by, as its last columns.

    >>> _, query = parse(ViewSpec("q", "select a as b from t order by 1 desc, c limit 2"))
    >>> with_keys(query).sql("postgres")
    'SELECT a AS b, a AS "?key0", c AS "?key1" FROM t ORDER BY 1 DESC, c LIMIT 2'
    """
    order = query.args["order"].expressions
    if isinstance(query, exp.Select) and query.args.get("distinct") is None:
        changed = query.copy()
        for at, one in enumerate(order):
            changed.append("expressions", _as_key(_meant(one.this, query.expressions), at))
        return changed
    _, around = parse(ViewSpec("?", _AROUND))
    assert isinstance(query, exp.Query), "what is parsed is a query"
    keys = [_as_key(_named(o.this, query.selects), at) for at, o in enumerate(order)]
    around.set("expressions", [around.expressions[0], *keys])
    subquery = around.find(exp.Subquery)
    assert subquery is not None, "the template has one"
    subquery.set("this", query.copy())
    return around


def arrival(query: exp.Expr) -> tuple[Order, ...]:
    """The order of a query's rows, by the columns that `with_keys` puts behind; none where these cannot be told: a number
    that means a column of a `*`."""
    stars = any(item.is_star for item in query.selects) if isinstance(query, exp.Query) else True
    order = query.args["order"].expressions
    if stars and any(isinstance(o.this, exp.Literal) for o in order):
        return ()
    return tuple(Order(at, bool(o.args.get("desc")), bool(o.args.get("nulls_first"))) for at, o in enumerate(order))


def _as_key(node: exp.Expr, at: int) -> exp.Expr:
    return exp.Alias(this=node.copy(), alias=exp.to_identifier(f"?key{at}", quoted=True))


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
