"""One SELECT bound, in SQL's logical order: FROM, WHERE, GROUP BY, HAVING, SELECT, DISTINCT, ORDER BY, LIMIT.

Always: expressions stay where the clause puts them; moving them is the rules' work. Called by `queries`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Aggregate, Expr
from headrace.engine.operators.top import Order
from headrace.engine.schema import TEXT, Column, DataType
from headrace.views.expressions import conjuncts
from headrace.views.plan import Distinct, Filter, One, Plan, Project, Top, identity
from headrace.views.sql import coerce
from headrace.views.sql.aggregates.grouping import Grouping, Sets, WholeRows, grouping_sets
from headrace.views.sql.binder import Binder, schema_of
from headrace.views.sql.environment import Environment
from headrace.views.sql.from_clause.set_returning import SetCalls, sets_in
from headrace.views.sql.from_clause.tables import Tables
from headrace.views.sql.implicit_order import check_arrival, keeps_arrival
from headrace.views.sql.ordering import CLAUSES, Limit, by_keys, limit_of, orders_of, ordinal, topped
from headrace.views.sql.output_names import output_name
from headrace.views.sql.parsing.nodes import UnaryPlus
from headrace.views.sql.parsing.parse import Source, name_of
from headrace.views.sql.rows import row_values
from headrace.views.sql.rows.row_text import row_value
from headrace.views.sql.scope import Relation, Scope
from headrace.views.sql.self_references import check_aggregates
from headrace.views.sql.set_operations import comparable
from headrace.views.sql.subqueries.subquery_binder import BindQuery, Subqueries, holds_subquery
from headrace.views.sql.windows.window_calls import Windows

UNNAMED = "?column?"

_SELECT = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "distinct",
    "with_",
    "kind",
    "windows",
    *CLAUSES,
}
_NOT_LISTED = "for SELECT DISTINCT, ORDER BY expressions must appear in select list"


@dataclass(frozen=True)
class Item:
    """One column of a SELECT list: its node, its name, and its position when it came from a `*`. `shown`: whether it is a column
    of the answer to a query that is asked, not stored, where a row may be a value.
    """

    node: exp.Expr
    name: str
    star: int | None = None
    shown: bool = False


class Select:
    """Binds one SELECT."""

    def __init__(
        self, source: Source, env: Environment, query: exp.Expr, bind_query: BindQuery, *, shown: bool = False
    ) -> None:
        self.source = source
        self.query = query
        self.shown = shown
        self.queries = Subqueries(source, env, bind_query)
        self.windows = Windows(source, query.args.get("windows") or [])
        self.sets = SetCalls()
        source.only(query, _SELECT)
        if query.args.get("kind"):
            source.refuse(query, f"SELECT AS {query.args['kind']} is not Postgres's")
        start = query.args.get("from_")
        self.plan: Plan = One()
        self.scope = Scope((Relation("", self.plan.schema.columns),), ())
        if start is not None:
            tables = Tables(source, env, bind_query, placed=keeps_arrival(query))
            self.plan, self.scope = tables.bind(start.this, query.args.get("joins") or [])
            if not query.args.get("joins"):
                check_arrival(source, query, start.this)
        self.scope = replace(self.scope, outer=env.outer)
        self.items = self.listed()
        self.exprs: list[Expr] = []
        """The SELECT list, then what ORDER BY and DISTINCT ask beside it."""
        self.alike: list[int] = []
        """By what DISTINCT tells rows apart where there are some: columns, in the place of a row those that it has."""
        self.texts: list[int] = []
        """The texts of those rows."""

    def bind(self, *, settle: bool) -> Plan:
        """The plan of the whole SELECT."""
        plan, query = self.plan, self.query
        where = query.args.get("where")
        if where is not None:
            plan = self.where(plan, where.this)
        collected: list[Aggregate] = []
        binder = Binder(self.source, self.scope, "SELECT", collected, self.queries, self.windows, self.sets)
        distinct, ordered = query.args.get("distinct"), query.args.get("order")
        settled = settle or distinct is not None or ordered is not None
        self.exprs = [coerce.settled(e) if settled else e for e in (self.item(binder, i) for i in self.items)]
        unused = self.windows.unused(binder)
        having_node = query.args.get("having")
        having: Expr | None = None
        if having_node is not None:
            binder.clause, binder.windows, binder.sets = "HAVING", None, None
            having = binder.boolean(having_node.this, "HAVING")
            binder.windows, binder.sets = self.windows, self.sets
        orders, firsts = self.ordered(binder, distinct, ordered)
        group = query.args.get("group")
        if collected:
            check_aggregates(self.source, self.queries.env, query)
        if group is not None or collected or having is not None:
            grouping = Grouping(binder, collected, *self.grouped(group))
            plan = grouping.reduce(plan, self.queries, self.sets)
            nodes = [i.node for i in self.items]
            nodes += [query] * (len(self.exprs) - len(nodes))
            self.exprs = [grouping.outside(e, n) for e, n in zip(self.exprs, nodes, strict=True)]
            for expr in unused:
                grouping.outside(expr, query)
            if having is not None and having_node is not None:
                plan = self.kept(plan, grouping.outside(having, having_node.this))
        elif binder.groupings:
            reason = "arguments to GROUPING must be grouping expressions of the associated query level"
            self.source.refuse(query, reason)
        plan, exprs = self.queries.attached(plan, self.exprs)
        plan, exprs = self.windows.attached(plan, exprs)
        limit = limit_of(self.source, query, self.queries, self.scope)
        if firsts or not limit.keeps_all:
            self.check_sets(exprs, orders)
        plan, exprs = self.sets.attached(plan, exprs)
        names = [i.name for i in self.items]
        names += [f"order{i}" for i in range(len(exprs) - len(names))]
        return self.cut(Project(plan, tuple(exprs), tuple(names)), orders, firsts, limit)

    def check_sets(self, exprs: list[Expr], orders: list[Order]) -> None:
        """Refuses to keep some of the rows of a set-returning function by the order in which it gives them."""
        places = {o.column for o in orders}
        for place, expr in enumerate(exprs):
            if place not in places and sets_in(expr):
                node = self.items[place].node if place < len(self.items) else self.query
                reason = "LIMIT and DISTINCT ON keep rows of a set-returning function by the order that it gives them"
                self.source.refuse(node, reason, "add its column to ORDER BY")

    def cut(self, plan: Plan, orders: list[Order], firsts: list[int], limit: Limit) -> Plan:
        """DISTINCT, ORDER BY and LIMIT over the SELECT list and what these ask beside it."""
        distinct = self.query.args.get("distinct")
        width = len(self.items)
        if firsts:
            plan, orders = by_keys(plan, orders)
            plan = Top(plan, tuple(dict.fromkeys(firsts)), tuple(o for o in orders if o.column not in firsts), 1)
        elif self.alike:
            # of rows that are equal and look otherwise the one with the least text stands for all
            texts = tuple(Order(place, False, False) for place in self.texts)
            plan = Top(plan, tuple(dict.fromkeys(self.alike)), texts, 1)
        elif distinct is not None:
            for item, column in zip(self.items, plan.schema.columns, strict=True):
                comparable(self.source, item.node, column, "DISTINCT")
            plan = Distinct(plan)
        plan = topped(self.source, self.query, plan, orders, limit, self.queries)
        if len(plan.schema.columns) == width:
            return plan
        return Project(plan, *identity(plan.schema, range(width)))

    def ordered(
        self, binder: Binder, distinct: exp.Expr | None, clause: exp.Expr | None
    ) -> tuple[list[Order], list[int]]:
        """The orders of ORDER BY, and the columns of DISTINCT ON; what they compute joins the SELECT list."""
        on = None if distinct is None else distinct.args.get("on")
        firsts: list[int] = []
        if on is not None:
            binder.clause = "DISTINCT ON"
            nodes = on.expressions if isinstance(on, exp.Tuple) else [on]
            nodes = [part for node in nodes for part in self.as_cells(binder, node)]
            firsts = [self.asked(binder, node)[0] for node in nodes]
            for node, column in zip(nodes, firsts, strict=True):
                comparable(self.source, node, Column("", self.exprs[column].type), "DISTINCT ON")
        if distinct is not None and on is None:
            binder.clause = "DISTINCT"
            self.told_apart(binder)
        binder.clause = "ORDER BY"
        width = len(self.exprs)
        clause = self.spelled_out(binder, clause)
        orders = orders_of(self.source, clause, lambda node: self.asked(binder, node))
        if distinct is not None and on is None and len(self.exprs) > width:
            node = next(o.this for o in clause.expressions if self.asked(binder, o.this)[0] >= width)  # type: ignore[union-attr]
            self.source.refuse(node, _NOT_LISTED)
        leading = [o.column for o in orders[: len(set(firsts))]]
        if firsts and orders and not set(leading) <= set(firsts):
            reason = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions"
            self.source.refuse(clause, reason)
        return orders, firsts

    def as_cells(self, binder: Binder, node: exp.Expr) -> list[exp.Expr]:
        """What a row in DISTINCT ON is told apart by: its columns; anything else as it is."""
        cells = (
            row_values.ordered_cells(binder, exp.Ordered(this=node))
            if self.output(node, binder.clause) is None
            else None
        )
        return [node] if cells is None else [cell.this for cell in cells]

    def asked(self, binder: Binder, node: exp.Expr) -> tuple[int, DataType]:
        """The column, of the SELECT list or behind it, that an expression of ORDER BY or DISTINCT ON means."""
        at = self.output(node, binder.clause)
        if at is not None and self.row_of(binder, self.items[at]) is not None:
            self.source.refuse(
                self.items[at].node, f"{binder.clause} of whole rows is not supported", "name their columns"
            )
        if at is None:
            at = self.beside(binder.settled(node))
        return at, self.exprs[at].type

    def output(self, node: exp.Expr, clause: str) -> int | None:
        """The column of the SELECT list that a number or a name means; None for anything else."""
        at = ordinal(self.source, node, len(self.items), clause)
        if at is None and isinstance(node, exp.Column) and node.args.get("table") is None:
            named = [i for i, item in enumerate(self.items) if item.name == name_of(node.this)]
            if named and any(self.exprs[i] != self.exprs[named[0]] for i in named):
                self.source.refuse(node, f'{clause} "{name_of(node.this)}" is ambiguous', "use its number")
            at = named[0] if named else None
        return at

    def beside(self, expr: Expr) -> int:
        """The place of an expression, behind the SELECT list where it is not there yet."""
        if expr not in self.exprs:
            self.exprs.append(expr)
        return self.exprs.index(expr)

    def spelled_out(self, binder: Binder, clause: exp.Expr | None) -> exp.Expr | None:
        """An ORDER BY in which a row is its columns, one after the other: so Postgres compares rows."""
        found: list[exp.Expr] = []
        shown = len(self.items)
        for one in () if clause is None else clause.expressions:
            at = self.output(one.this, binder.clause)
            meant = one
            if at is not None:
                meant = one.copy()
                meant.set("this", self.items[at].node)
            cells = (
                None if at is not None and self.items[at].star is not None else row_values.ordered_cells(binder, meant)
            )
            if cells is None and self.alike and self.asked(binder, one.this)[0] >= shown:
                self.source.refuse(one.this, _NOT_LISTED)
            found += [one] if cells is None else cells
        return None if clause is None else exp.Order(expressions=found)

    def told_apart(self, binder: Binder) -> None:
        """Puts the columns of the rows that DISTINCT is of, and their texts, beside the SELECT list."""
        rows = {at: cells for at, item in enumerate(self.items) if (cells := self.row_of(binder, item)) is not None}
        for at, item in enumerate(self.items) if rows else ():
            if at not in rows:
                comparable(self.source, item.node, Column("", self.exprs[at].type), "DISTINCT")
                self.alike.append(at)
                continue
            row_values.missing_cell(binder, item.node, rows[at])
            for cell in rows[at]:
                expr = binder.settled(cell)
                comparable(self.source, item.node, Column("", expr.type), "DISTINCT")
                self.alike.append(self.beside(expr))
            self.texts.append(self.beside(coerce.cast(self.exprs[at], TEXT)))

    def row_of(self, binder: Binder, item: Item) -> list[exp.Expr] | None:
        """The columns of a row that stands in the SELECT list; None for an item that is none."""
        return None if item.star is not None else row_values.cells(binder, item.node)

    def where(self, plan: Plan, condition: exp.Expr) -> Plan:
        """The rows for which the condition is true."""
        binder = Binder(self.source, self.scope, "WHERE", queries=self.queries)
        return self.kept(plan, binder.boolean(condition, "WHERE"))

    def kept(self, plan: Plan, condition: Expr) -> Plan:
        """The rows for which a condition is true, in which there may be subqueries."""
        if not holds_subquery(condition):
            return Filter(plan, condition)
        own, names = identity(plan.schema)
        found = self.queries.kept(plan, conjuncts(condition))
        # What subqueries put beside the row stands behind what the clauses after this one see.
        return Project(found, own, names) if len(found.schema.columns) > len(own) else found

    def listed(self) -> list[Item]:
        """The SELECT list with `*` and `t.*` spelled out."""
        found: list[Item] = []
        for node in map(_bare_star, self.query.expressions):
            if isinstance(node, exp.Star):
                self.source.only(node, ())
                found += [Item(node, n, p) for n, p in self.scope.visible]
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                self.source.only(node.this, ())
                found += self.star_of(node)
            elif isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star):
                found += self.fields_of(node, node.this)
            elif isinstance(node, exp.Alias):
                found.append(Item(node.this, name_of(node.args["alias"]), shown=self.shown))
            elif isinstance(node, exp.Aliases):
                self.source.refuse(node, "several names for one column are not supported")
            else:
                found.append(Item(node, self.star_named(node) or output_name(node) or UNNAMED, shown=self.shown))
        if not found:
            self.source.refuse(self.query, "a SELECT without columns is not supported")
        return found

    def star_named(self, node: exp.Expr) -> str | None:
        """The name of `(SELECT *)`: that of the column which the star stands for."""
        query = node.unnest().unnest()
        first = query.expressions[0] if isinstance(query, exp.Select) and query.expressions else None
        if first is None or not first.is_star or isinstance(first, exp.Dot):
            return None
        plan = self.queries.bind_query(self.source, self.queries.env.inside(self.scope), query)
        return plan.schema.columns[0].name

    def fields_of(self, node: exp.Expr, value: exp.Expr) -> list[Item]:
        """The fields of `(value).*`."""
        table = value.unnest()
        if (
            isinstance(table, exp.Column)
            and table.args.get("table") is None
            and not self.scope.find(name_of(table.this))
        ):
            return self.star_of(exp.Column(this=node.expression, table=table.this))
        binder = Binder(self.source, self.scope, "SELECT")
        parts = row_values.cells(binder, value)
        if parts is None:
            self.source.refuse(node, "the fields of a value by * are not supported", "name them one by one")
        return [Item(part, name) for part, name in zip(parts, row_values.names(binder, value, parts), strict=True)]

    def star_of(self, node: exp.Expr) -> list[Item]:
        """The columns of `t.*`."""
        alias = name_of(node.args["table"])
        relation = self.scope.relation(alias, schema_of(node))
        if relation is None:
            self.source.refuse(node, f'there is no table or alias "{alias}" in this FROM clause')
        return [Item(node, c.name, relation.offset + i) for i, c in enumerate(relation.columns)]

    def item(self, binder: Binder, item: Item) -> Expr:
        """One column of the SELECT list over the FROM row."""
        if item.star is None:
            row = row_value(binder, item.node) if item.shown else None
            return binder.bind(item.node) if row is None else row
        return binder.reference(item.star, item.node)

    def grouped(self, group: exp.Expr | None) -> tuple[Sets, WholeRows]:
        """The grouping sets, ordinals and output names looked up in the SELECT list, and what is grouped by as whole rows."""
        binder = Binder(self.source, self.scope, "GROUP BY", queries=self.queries, sets=self.sets)
        used: list[Item] = []
        wholes: set[str] = set()
        named: set[Expr] = set()

        def bind(node: exp.Expr) -> tuple[Expr, ...]:
            inner = node.this if isinstance(node, exp.Paren) and not isinstance(node, UnaryPlus) else node
            item = self.meant(inner)
            used.extend([] if item is None else [item])
            cells = row_values.cells(binder, inner) if item is None else self.row_of(binder, item)
            if cells is not None:
                row = inner if item is None else item.node
                row_values.missing_cell(binder, row, cells)
                exprs = [binder.settled(cell) for cell in cells]
                if row_values.whole(binder, row) is None:
                    named.update(exprs)
                else:
                    wholes.add(row_values.table_of(row))
            else:
                exprs = [binder.settled(inner) if item is None else coerce.settled(self.item(binder, item))]
                named.update(exprs)
            for expr in exprs:
                comparable(self.source, node, Column("", expr.type), "GROUP BY")
            return tuple(exprs)

        sets = grouping_sets(self.source, group, bind)
        if len(sets) > 1 and any(i is not u and (i.node, i.star) == (u.node, u.star) for u in used for i in self.items):
            # Each of the two columns would have NULLs of its own.
            reason = "grouping sets by one of two equal items of the SELECT list are not supported"
            self.source.refuse(group or self.query, reason, "name the columns apart in a subquery in FROM")
        return sets, WholeRows(frozenset(wholes), frozenset(named))

    def meant(self, node: exp.Expr) -> Item | None:
        """The SELECT item that an ordinal or an output name in GROUP BY means; an input column's name goes first."""
        at = ordinal(self.source, node, len(self.items), "GROUP BY")
        if at is not None:
            return self.items[at]
        if isinstance(node, exp.Column) and node.args.get("table") is None:
            name = name_of(node.this)
            named = [i for i in self.items if i.name == name and i.star is None]
            if not self.scope.find(name) and named:
                if len(named) > 1:
                    self.source.refuse(node, f'GROUP BY "{name}" is ambiguous', "write the expression")
                return named[0]
        return None


def _bare_star(node: exp.Expr) -> exp.Expr:
    """`t.*` where it stands in parentheses or with a name, which change nothing in Postgres; anything else as it is."""
    inner = node.this if isinstance(node, exp.Alias) else node
    while isinstance(inner, exp.Paren) and not isinstance(inner, UnaryPlus):
        inner = inner.this
    return inner if inner.is_star and isinstance(inner, exp.Column | exp.Dot) else node
