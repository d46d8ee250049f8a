"""ORDER BY, LIMIT, OFFSET, FETCH and DISTINCT ON bound: what is kept of a query's rows, as a top of them.

Always: an order alone keeps every row, for a view's rows have no order; a limit without an order is refused, since any
rows would do. A name in ORDER BY means an output column first, a number its place. Called by `select`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.ir import Call, Coalesce, ColumnRef, Expr, Literal
from headrace.engine.operators.expressions.core.text_types import needs_key
from headrace.engine.operators.top import MOST_ROWS, Order
from headrace.engine.operators.window_values import WindowFunction
from headrace.engine.schema import BIGINT, BOOLEAN, DataType
from headrace.views.expressions import ONE_ROW, columns, reaches_out
from headrace.views.keys import is_unique
from headrace.views.plan import Filter, Plan, Project, Top, Windowed, identity
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder, Queries
from headrace.views.sql.limit_expressions import queried, says_tables, variables
from headrace.views.sql.parsing.nodes import UnaryPlus
from headrace.views.sql.parsing.parse import Source, name_of
from headrace.views.sql.scope import Scope
from headrace.views.sql.windows.frames import WHOLE

CLAUSES = frozenset({"order", "limit", "offset"})
"""sqlglot's arguments of a query that are bound here."""

ANY_ROWS = "LIMIT without ORDER BY keeps any rows"


@dataclass(frozen=True)
class Limit:
    """How many rows (None: all) behind how many; `ties`: and those that the order cannot tell from the last. What the tables
    say is an expression, whose value may be NULL: all, and none.
    """

    rows: int | Expr | None = None
    offset: int | Expr = 0
    ties: bool = False

    @property
    def keeps_all(self) -> bool:
        """Whether it leaves out nothing."""
        return self.rows is None and not self.offset


def limit_of(source: Source, query: exp.Expr, queries: Queries, scope: Scope) -> Limit:
    """The query's LIMIT or FETCH, and OFFSET; `scope`: its row, of which they read nothing. Raises ViewError."""
    binder = Binder(source, scope, "LIMIT", queries=queries)
    node, offset = query.args.get("limit"), query.args.get("offset")
    skipped = 0 if offset is None else _count(binder, offset.expression, "OFFSET") or 0
    if node is None:
        return Limit(None, skipped)
    if isinstance(node, exp.Limit):
        source.only(node, {"expression"})
        return Limit(_count(binder, node.expression, "LIMIT"), skipped)
    options = node.args.get("limit_options")
    if options is not None and options.args.get("percent"):
        source.refuse(query, "FETCH … PERCENT is not Postgres's")
    count = node.args.get("count")
    rows = 1 if count is None else _count(binder, count, "LIMIT")
    ties = options is not None and bool(options.args.get("with_ties"))
    return Limit(rows, skipped, ties)


def _count(binder: Binder, node: exp.Expr, clause: str) -> int | Expr | None:
    """A number of rows, constant or said by tables; None for ALL and NULL."""
    source = binder.source
    if isinstance(node, exp.Var) and str(node.this).upper() == "ALL":
        return None
    if says_tables(node):
        return queried(binder, node, clause, clause, required=False)
    expr = binder.typed(node, lambda: coerce.assigned(binder.bind(node), BIGINT, clause))
    if columns(expr):
        variables(binder, node, clause)
    if reaches_out(expr):
        return queried(binder, node, clause, clause, required=False)
    value = _constant(source, node, expr, clause)
    if value is not None and not 0 <= value <= MOST_ROWS // 2:
        source.refuse(node, f"{clause} must not be negative" if value < 0 else f"{clause} is too large")
    return None if value is None else int(value)


def _constant(source: Source, node: exp.Expr, expr: Expr, clause: str) -> int | None:
    """What an expression of constants comes to."""
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return expr.value
    found = evaluate(expr, ONE_ROW)
    if found.errors is not None and found.errors.null_count < 1:
        source.refuse(node, f"{clause} must be a constant", "write a number")
    value: int | None = found.values[0].as_py()
    return value


def ordinal(source: Source, node: exp.Expr, width: int, clause: str) -> int | None:
    """The output column that a number in ORDER BY, GROUP BY or DISTINCT ON means; None for anything but a constant.

    Postgres's grammar folds signs and parentheses into a number: `-(-1)` is 1, and `+1` an expression.
    """
    bare, signs = node, 0
    while isinstance(bare, exp.Neg) or (isinstance(bare, exp.Paren) and not isinstance(bare, UnaryPlus)):
        signs += isinstance(bare, exp.Neg)
        bare = bare.this
    if not isinstance(bare, exp.Literal | exp.Boolean | exp.Null) or (signs and not bare.is_number):
        return None
    text = f"{'-' * (signs % 2)}{bare.this}"
    if bare.is_string or not text.removeprefix("-").isdigit() or abs(int(text)) >= 1 << 31:
        source.refuse(node, f"non-integer constant in {clause}", "leave it out")
    if not 1 <= int(text) <= width:
        source.refuse(node, f"{clause} position {text} is not in select list")
    return int(text) - 1


def orders_of(
    source: Source, clause: exp.Expr | None, place: Callable[[exp.Expr], tuple[int, DataType]]
) -> list[Order]:
    """The orders of an ORDER BY; `place` tells the column of an expression. Raises ViewError."""
    found: list[Order] = []
    if clause is None:
        return found
    for item in clause.expressions:
        source.only(item, {"this", "desc", "nulls_first"})
        column, kind = place(item.this)
        check_ordered(source, item.this, kind)
        if all(o.column != column for o in found):
            found.append(Order(column, bool(item.args.get("desc")), bool(item.args.get("nulls_first"))))
    return found


def check_ordered(source: Source, node: exp.Expr, kind: DataType) -> None:
    """Refuses values that have no order."""
    try:
        coerce.called("<", [Literal(None, kind), Literal(None, kind)])
    except HeadraceError:
        source.refuse(node, f"could not identify an ordering operator for type {kind}", "cast it to text")


def topped(source: Source, query: exp.Expr, plan: Plan, orders: list[Order], limit: Limit, queries: Queries) -> Plan:
    """The rows that the query's limit keeps. Raises ViewError for a limit that could keep any rows."""
    if limit.keeps_all:
        return plan
    if not orders and limit.rows != 0 and not is_unique(plan, ()):
        clause = "limit" if limit.rows is not None else "offset"
        words = {"limit": r"\b(limit|fetch)\b", "offset": r"\boffset\b"}[clause]
        source.refuse_words(query, words, ANY_ROWS, "add ORDER BY")
    width = len(plan.schema.columns)
    plan, orders = by_keys(plan, orders)
    if isinstance(limit.rows, Expr) or isinstance(limit.offset, Expr):
        kept = _numbered(plan, orders, limit, queries)
        return Project(kept, *identity(kept.schema, range(width)))
    kept = Top(plan, (), tuple(orders), limit.rows, limit.offset, limit.ties)
    return kept if len(plan.schema.columns) == width else Project(kept, *identity(kept.schema, range(width)))


def _numbered(plan: Plan, orders: Sequence[Order], limit: Limit, queries: Queries) -> Plan:
    """The rows that a limit keeps which the tables say: those numbered so in the order."""
    width = len(plan.schema.columns)
    names = ("row_number", "rank") if limit.ties else ("row_number",)
    functions = tuple(WindowFunction(name, (), BIGINT, WHOLE) for name in names)
    numbered = Windowed(plan, (), tuple(orders), functions, names)
    rows = Literal(limit.rows, BIGINT) if isinstance(limit.rows, int | None) else limit.rows
    given = Literal(limit.offset, BIGINT) if isinstance(limit.offset, int) else limit.offset
    offset = Coalesce((given, Literal(0, BIGINT)), BIGINT)
    last = ColumnRef(width + len(names) - 1, BIGINT)
    parts: list[Expr] = [coerce.called(">", [ColumnRef(width, BIGINT), offset])]
    if limit.rows is not None:
        inside = coerce.called("<=", [coerce.called("-", [last, offset]), rows])
        some = [inside, coerce.called(">", [rows, Literal(0, BIGINT)])]
        parts.append(Call("or", (coerce.called("is null", [rows]), Call("and", tuple(some), BOOLEAN)), BOOLEAN))
    kept, [predicate] = queries.attached(numbered, [Call("and", tuple(parts), BOOLEAN) if parts[1:] else parts[0]])
    return Filter(kept, predicate)


def by_keys(plan: Plan, orders: Sequence[Order]) -> tuple[Plan, list[Order]]:
    """The plan, behind it the keys of what its orders cannot sort by as it stands, and the orders by these."""
    columns = plan.schema.columns
    keyed = [o.column for o in orders if needs_key(columns[o.column].type)]
    if not keyed:
        return plan, list(orders)
    own, names = identity(plan.schema)
    keys = tuple(coerce.sorting(ColumnRef(c, columns[c].type)) for c in keyed)
    made = Project(plan, (*own, *keys), (*names, *(f"key{i}" for i in range(len(keys)))))
    at = {c: len(columns) + i for i, c in enumerate(keyed)}
    return made, [o._replace(column=at.get(o.column, o.column)) for o in orders]


def order_output(source: Source, query: exp.Expr, plan: Plan) -> list[Order]:
    """The orders of a UNION, INTERSECT, EXCEPT or VALUES, which may name its columns only."""
    cols = plan.schema.columns

    def place(node: exp.Expr) -> tuple[int, DataType]:
        at = ordinal(source, node, len(cols), "ORDER BY")
        if at is None and isinstance(node, exp.Column) and node.args.get("table") is None:
            named = [i for i, c in enumerate(cols) if c.name == name_of(node.this)]
            at = named[0] if len(named) == 1 else None
        if at is None:
            source.refuse(node, "ORDER BY of a UNION, INTERSECT or EXCEPT names one of its columns", "use its number")
        return at, cols[at].type

    return orders_of(source, query.args.get("order"), place)


__all__ = ["CLAUSES", "Expr", "Limit", "limit_of", "order_output", "orders_of", "ordinal", "topped"]
