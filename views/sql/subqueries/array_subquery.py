"""ARRAY(query): the values of a query's one column as an array, in the query's order.

Always: it is bound as the scalar subquery that says the same, `coalesce(array_agg(value ORDER BY …), '{}')` over the query, whose
ORDER BY is computed beside the value. Called by the handler of functions, for which ARRAY( is the name of one.

    array(select n from t order by m)  →  (select coalesce(array_agg(value order by key0), '{}')
                                           from (select n, m from t order by m) as gathered(value, key0))
"""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.operators.expressions.core.functions import overloads
from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.schema import DataType, array_of
from headrace.views.sql import coerce
from headrace.views.sql.aggregates.aggregate_calls import AGGREGATES
from headrace.views.sql.aggregates.ordered_set_aggregates import PERCENTILES, PLACES
from headrace.views.sql.binder import Binder
from headrace.views.sql.from_clause.set_returning import is_function
from headrace.views.sql.ordering import CLAUSES
from headrace.views.sql.output_names import output_name
from headrace.views.sql.parsing.parse import name_of

_TABLE, _VALUE = "gathered", "value"
_PLAIN = {"expressions", "from_", "joins", "where"}


def is_gathered(node: exp.Expr) -> bool:
    """Whether a call is ARRAY(query)."""
    asked = node.expressions
    return (
        str(node.this).lower() == "array" and len(asked) == 1 and isinstance(asked[0].unnest(), exp.Query | exp.Values)
    )


def gathered(binder: Binder, node: exp.Expr) -> Expr:
    """The array of the values of a query. Raises ViewError."""
    query: exp.Expr = node.expressions[0].unnest()
    # bound for its type, and to refuse several columns
    value_type = None if isinstance(query, exp.Values) else binder.bind(query).type
    inner = _from_set(query.copy())
    if _keeps_arrival(inner):
        # The functions' rows come in an order: the aggregate stands where they do.
        inner.set("expressions", [_array(inner.expressions[0].unalias())])
        return _typed(binder.bind(inner), value_type)
    order = inner.args.get("order")
    names: list[str] = [_VALUE]
    keys: list[exp.Expr] = []
    if isinstance(inner, exp.Values):
        names, keys = _as_written(binder, inner)
    for one in order.expressions if order is not None else ():
        name = _VALUE
        if not _is_value(inner, one.this):
            name = f"key{len(names) - 1}"
            names.append(name)
            inner.expressions.append(one.this.copy())
        keys.append(exp.Ordered(this=_column(name), desc=one.args.get("desc"), nulls_first=one.args.get("nulls_first")))
    value = exp.Order(this=_column(_VALUE), expressions=keys) if keys else _column(_VALUE)
    alias = exp.TableAlias(this=exp.to_identifier(_TABLE), columns=[exp.to_identifier(n) for n in names])
    whole = exp.Select(
        expressions=[_array(value)],
        from_=exp.From(this=exp.Subquery(this=inner, alias=alias)),
    )
    return _typed(binder.bind(whole), value_type)


def _as_written(binder: Binder, rows: exp.Expr) -> tuple[list[str], list[exp.Expr]]:
    """The names of VALUES' columns and what sorts its rows as they are written, which is put beside them."""
    if any(isinstance(row, exp.Tuple) and len(row.expressions) != 1 for row in rows.expressions):
        binder.source.refuse(rows, "subquery must return only one column")
    if any(rows.args.get(clause) for clause in CLAUSES):
        return [_VALUE], []
    for place, row in enumerate(list(rows.expressions)):
        cell = row.expressions[0] if isinstance(row, exp.Tuple) else row.copy()
        row.replace(exp.Tuple(expressions=[cell, exp.Literal.number(place)]))
    return [_VALUE, "place"], [exp.Ordered(this=_column("place"))]


def _array(value: exp.Expr) -> exp.Expr:
    made = exp.Anonymous(this="array_agg", expressions=[value])
    return exp.Anonymous(this="coalesce", expressions=[made, exp.Literal.string("{}")])


def _from_set(query: exp.Expr) -> exp.Expr:
    """Rewrites `select f(x)::t`, where f returns a set, to `select row::t from f(x) as row`; `select * from f(x)` alike."""
    if not isinstance(query, exp.Select) or any(v for k, v in query.args.items() if k not in ("expressions", "from_")):
        return query
    asked, start = query.expressions[0].unalias(), query.args.get("from_")
    row = exp.column(_TABLE)
    if start is not None:
        item = start.this
        if isinstance(asked, exp.Star) and is_function(item):
            alias = item.args.get("alias")
            if alias is None:
                item.set("alias", exp.TableAlias(this=exp.to_identifier(_TABLE)))
            query.set("expressions", [row if alias is None else exp.Column(this=alias.this.copy())])
        return query
    found = [n for n in asked.walk(prune=lambda n: isinstance(n, exp.Query)) if isinstance(n, exp.Anonymous)]
    sets = [n for n in found if any(o.columns for o in overloads(str(n.this).lower()))]
    if len(sets) != 1 or any(str(n.this).lower() in AGGREGATES for n in found):
        return query
    call = exp.Table(this=sets[0].copy(), alias=exp.TableAlias(this=exp.to_identifier(_TABLE)))
    sets[0].replace(row)
    query.set("expressions", [row if asked is sets[0] else asked])
    query.set("from_", exp.From(this=call))
    return query


def _keeps_arrival(query: exp.Expr) -> bool:
    """Whether a query gives its rows as they come from functions in FROM, one for each."""
    if not isinstance(query, exp.Select) or any(v for k, v in query.args.items() if k not in _PLAIN):
        return False
    items = [query.args["from_"].this] if query.args.get("from_") is not None else []
    items += [join.this for join in query.args.get("joins") or ()]
    plain = all(
        not isinstance(n, exp.Star | exp.Window) and not (isinstance(n, exp.Anonymous) and _is_own(n))
        for n in query.expressions[0].walk(prune=lambda n: isinstance(n, exp.Query))
    )
    return plain and any(is_function(item) for item in items)


def _is_own(call: exp.Expr) -> bool:
    """Whether a call is no function of one row."""
    name = str(call.this).lower()
    return name in AGGREGATES or name in PERCENTILES or name in PLACES or any(o.columns for o in overloads(name))


def _typed(found: Expr, value_type: DataType | None) -> Expr:
    if value_type is None or value_type.element is not None:
        return found
    # array_agg forgets a value's length or scale, and ARRAY( does not
    return coerce.cast(found, array_of(value_type, bare=False))


def _column(name: str) -> exp.Column:
    return exp.column(name, table=_TABLE)


def _is_value(query: exp.Expr, key: exp.Expr) -> bool:
    """Whether an ORDER BY is by the query's one column: it must be where there are no others to compute it from."""
    if not isinstance(query, exp.Select) or query.args.get("distinct") is not None or isinstance(key, exp.Literal):
        return True
    first = query.expressions[0]
    named = isinstance(key, exp.Column) and key.args.get("table") is None and name_of(key.this) == output_name(first)
    return named or key == first.unalias()
