"""ARRAY(query): the values of a query's one column as an array, in the query's order.

Always: it is bound as the scalar subquery that says the same, `coalesce(array_agg(value ORDER BY …), '{}')` over the query, whose
ORDER BY is computed beside the value. Called by the handler of functions, for which ARRAY( is the name of one.

    array(select n from t order by m)  →  (select coalesce(array_agg(value order by key0), '{}')
                                           from (select n, m from t order by m) as gathered(value, key0))
"""

from __future__ import annotations

from sqlglot import exp

from engine.operators.expressions.ir import Expr
from engine.schema import array_of
from views.sql import coerce
from views.sql.binder import Binder
from views.sql.naming import output_name
from views.sql.parse import name_of

_TABLE, _VALUE = "gathered", "value"


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
    inner = query.copy()
    order = inner.args.get("order")
    names, keys = [_VALUE], []
    for one in order.expressions if order is not None else ():
        name = _VALUE
        if not _is_value(inner, one.this):
            name = f"key{len(names) - 1}"
            names.append(name)
            inner.expressions.append(one.this.copy())
        keys.append(exp.Ordered(this=_column(name), desc=one.args.get("desc"), nulls_first=one.args.get("nulls_first")))
    value = exp.Order(this=_column(_VALUE), expressions=keys) if keys else _column(_VALUE)
    made = exp.Anonymous(this="array_agg", expressions=[value])
    alias = exp.TableAlias(this=exp.to_identifier(_TABLE), columns=[exp.to_identifier(n) for n in names])
    whole = exp.Select(
        expressions=[exp.Anonymous(this="coalesce", expressions=[made, exp.Literal.string("{}")])],
        from_=exp.From(this=exp.Subquery(this=inner, alias=alias)),
    )
    found = binder.bind(whole)
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
