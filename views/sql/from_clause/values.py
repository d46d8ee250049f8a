"""VALUES bound: rows of constants, as a union of projections of one row.

Always: columns have their rows' common types and the names column1, column2 …; an expression in it reads a
table in a subquery alone.
Called by `select` and `tables`.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.ir import Expr
from headrace.views.plan import One, Plan, Project, Union
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder
from headrace.views.sql.coerce import UNKNOWN
from headrace.views.sql.environment import Environment
from headrace.views.sql.parsing.parse import Source
from headrace.views.sql.scope import Relation, Scope
from headrace.views.sql.subqueries.subquery_binder import BindQuery, Subqueries

MANY = 1000
"""So many rows are too many for a plan: they are a table's."""


def values(source: Source, env: Environment, node: exp.Expr, bind_query: BindQuery, *, settle: bool) -> Plan:
    """The plan of `VALUES (…), …`. Raises ViewError."""
    source.only(node, {"expressions", "alias", "order", "limit", "offset"})
    if len(node.expressions) > MANY:
        source.refuse_words(node, r"\bvalues\b", f"VALUES of more than {MANY} rows", "put the rows in a table")
    queries = Subqueries(source, env, bind_query)
    one = Scope((Relation("", One().schema.columns),), (), env.outer)
    binder = Binder(source, one, "VALUES", queries=queries)
    rows: list[list[Expr]] = []
    for row in node.expressions:
        cells = row.expressions if isinstance(row, exp.Tuple) else [row]
        if rows and len(cells) != len(rows[0]):
            source.refuse(row, "VALUES lists must all be the same length")
        rows.append([binder.bind(cell) for cell in cells])
    columns: list[tuple[Expr, ...]] = []
    for column in zip(*rows, strict=True):
        exprs: tuple[Expr, ...] = column
        if settle or any(e.type != UNKNOWN for e in exprs):
            try:
                exprs = coerce.unified(exprs, "VALUES")[0]
            except HeadraceError as error:
                source.refuse(node, error.what, error.hint)
        columns.append(exprs)
    names = tuple(f"column{i + 1}" for i in range(len(columns)))
    rows_of = (queries.attached(One(), row) for row in zip(*columns, strict=True))
    plans = tuple(Project(plan, tuple(row), names) for plan, row in rows_of)
    if not plans:
        source.refuse(node, "VALUES without columns is not supported")
    return plans[0] if len(plans) == 1 else Union(plans)
