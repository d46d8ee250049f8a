"""Queries bound: SELECT, UNION and WITH to plans, in SQL's logical order: FROM, WHERE, GROUP BY, HAVING, SELECT.

Always: expressions stay where the clause puts them; moving them is the rules' work. A plan has the output names of the
SELECT list, `?column?` where Postgres has none. Called by `compile` through `bind_view`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from engine.errors import HeadraceError
from engine.operators.expressions.ir import Aggregate, ColumnRef, Expr
from engine.schema import Column
from views.plan import Distinct, Filter, Plan, Project, Union, identity
from views.scalar import conjunction
from views.sql import coerce, expressions, functions
from views.sql.binder import Binder
from views.sql.coerce import UNKNOWN
from views.sql.environment import Environment
from views.sql.grouping import Grouping
from views.sql.membership import divided, semijoined
from views.sql.naming import output_name
from views.sql.parse import Source, name_of
from views.sql.tables import Tables

# Importing these two registers their handlers with the binder.
HANDLERS = (expressions, functions)

UNNAMED = "?column?"

_SELECT = {"expressions", "from_", "joins", "where", "group", "having", "distinct", "with_", "kind"}


@dataclass(frozen=True)
class Item:
    """One column of a SELECT list: its node, its name, and its position when it came from a `*`."""

    node: exp.Expr
    name: str
    star: int | None = None


def bind_view(source: Source, env: Environment, query: exp.Expr) -> Plan:
    """The plan of a view's statement, with usable output names. Raises ViewError."""
    plan = bind_query(source, env, query)
    names = [c.name for c in plan.schema.columns]
    for position, name in enumerate(names):
        if name == UNNAMED or name in names[:position]:
            node = _output_node(query, position)
            if name == UNNAMED:
                source.refuse(node, f"column {position + 1} has no name", "give it one with AS")
            source.refuse(node, f'two columns are named "{name}"', "give one of them another name with AS")
    return plan


def bind_query(source: Source, env: Environment, query: exp.Expr) -> Plan:
    """The plan of a query; quoted literals without a type are text."""
    return _bind(source, env, query, settle=True)


def _bind(source: Source, env: Environment, query: exp.Expr, *, settle: bool) -> Plan:
    if isinstance(query, exp.Subquery):
        source.only(query, {"this"})
        return _bind(source, env, query.this, settle=settle)
    env = _with_ctes(source, env, query.args.get("with_"))
    if isinstance(query, exp.Union):
        return _union(source, env, query, settle=settle)
    if isinstance(query, exp.Intersect | exp.Except):
        word = type(query).__name__.upper()
        hint = "join with the other query, made DISTINCT" if word == "INTERSECT" else ""
        source.refuse_words(query, rf"\b{word}\b", f"{word} is not supported yet", hint)
    if not isinstance(query, exp.Select):
        source.refuse(query, f"{type(query).__name__.upper()} is not supported")
    return _Select(source, env, query).bind(settle=settle)


def _with_ctes(source: Source, env: Environment, clause: exp.Expr | None) -> Environment:
    if clause is None:
        return env
    if clause.args.get("recursive"):
        source.refuse_words(clause, r"\brecursive\b", "WITH RECURSIVE is not supported yet")
    source.only(clause, {"expressions"})
    seen: set[str] = set()
    for cte in clause.expressions:
        source.only(cte, {"this", "alias", "materialized"})
        alias = cte.args["alias"]
        name = name_of(alias.this)
        if name in seen:
            source.refuse(alias, f'WITH name "{name}" is used twice', "rename one of them")
        seen.add(name)
        if not isinstance(cte.this, exp.Query):
            source.refuse(cte, "a CTE that changes data is not a view")
        plan = bind_query(source, env, cte.this)
        given = [name_of(c) for c in alias.args.get("columns") or ()]
        env = env.with_cte(name, _renamed(source, alias, plan, given) if given else plan)
    return env


def _renamed(source: Source, node: exp.Expr, plan: Plan, given: list[str]) -> Plan:
    cols = plan.schema.columns
    if len(given) > len(cols):
        source.refuse(node, f"{len(given)} names are given for {len(cols)} columns")
    names = (*given, *(c.name for c in cols[len(given) :]))
    return Project(plan, tuple(ColumnRef(i, c.type) for i, c in enumerate(cols)), names)


def _union(source: Source, env: Environment, query: exp.Expr, *, settle: bool) -> Plan:
    source.only(query, {"this", "expression", "distinct", "with_"})
    sides = [_bind(source, env, side, settle=False) for side in (query.this, query.expression)]
    widths = [len(s.schema.columns) for s in sides]
    if widths[0] != widths[1]:
        source.refuse(query.expression, f"each side of a UNION must have as many columns: {widths[0]} and {widths[1]}")
    left, right = ([_expr(p, i) for i in range(widths[0])] for p in sides)
    names = tuple(c.name for c in sides[0].schema.columns)
    bound: tuple[list[Expr], list[Expr]] = ([], [])
    for position, pair in enumerate(zip(left, right, strict=True)):
        try:
            if not settle and all(e.type == UNKNOWN for e in pair):
                both: tuple[Expr, ...] = tuple(coerce.settled(e) for e in pair)
            else:
                both = coerce.unified(pair)[0]
        except HeadraceError as error:
            node = _output_node(query.expression, position)
            source.refuse(node, f"UNION column {position + 1}: {error.what}", error.hint or "cast one side")
        bound[0].append(both[0])
        bound[1].append(both[1])
    inputs = tuple(_over(p, tuple(es), names) for p, es in zip(sides, bound, strict=True))
    union = Union(inputs)
    if not query.args.get("distinct"):
        return union
    for position, column in enumerate(union.schema.columns):
        _comparable(source, _output_node(query, position), column, "UNION")
    return Distinct(union)


def _comparable(source: Source, node: exp.Expr, column: Column, what: str) -> None:
    try:
        coerce.check_comparable(column.type, what)
    except HeadraceError as error:
        source.refuse(node, error.what, error.hint)


def _expr(plan: Plan, position: int) -> Expr:
    """Output column `position`, as the literal itself where it is one without a type."""
    column = plan.schema.columns[position]
    if column.type == UNKNOWN and isinstance(plan, Project):
        return plan.exprs[position]
    return ColumnRef(position, column.type)


def _over(plan: Plan, exprs: tuple[Expr, ...], names: tuple[str, ...]) -> Plan:
    if all(isinstance(e, ColumnRef) for e in exprs) and names == tuple(c.name for c in plan.schema.columns):
        return plan
    if isinstance(plan, Project) and any(c.type == UNKNOWN for c in plan.schema.columns):
        # Literals without a type cannot stay below: read them as the common type in the projection that has them.
        below = tuple(exprs[i] if c.type == UNKNOWN else plan.exprs[i] for i, c in enumerate(plan.schema.columns))
        plan = replace(plan, exprs=below)
        exprs = tuple(ColumnRef(i, below[i].type) if e is below[i] else e for i, e in enumerate(exprs))
    return Project(plan, exprs, names)


def _output_node(query: exp.Expr, position: int) -> exp.Expr:
    """The SELECT item that gives an output column, or the query where that cannot be told (a `*`)."""
    while not isinstance(query, exp.Select):
        query = query.this
    items = query.expressions
    if any(isinstance(i, exp.Star) or (isinstance(i, exp.Column) and isinstance(i.this, exp.Star)) for i in items):
        return query
    return items[position] if position < len(items) else query


class _Select:
    """Binds one SELECT."""

    def __init__(self, source: Source, env: Environment, query: exp.Expr) -> None:
        self.source = source
        self.env = env
        self.query = query
        source.only(query, _SELECT)
        if query.args.get("kind"):
            source.refuse(query, f"SELECT AS {query.args['kind']} is not Postgres's")
        start = query.args.get("from_")
        if start is None:
            source.refuse(query, "a SELECT without FROM is not supported", "a view reads at least one table")
        self.plan, self.scope = Tables(source, env, bind_query).bind(start.this, query.args.get("joins") or [])

    def bind(self, *, settle: bool) -> Plan:
        """The plan of the whole SELECT."""
        plan, query = self.plan, self.query
        where = query.args.get("where")
        if where is not None:
            plan = self.where(plan, where.this)
        items = self.items()
        collected: list[Aggregate] = []
        binder = Binder(self.source, self.scope, "SELECT", collected)
        exprs = [self.item(binder, i) for i in items]
        having_node = query.args.get("having")
        having: Expr | None = None
        if having_node is not None:
            binder.clause = "HAVING"
            having = binder.boolean(having_node.this, "HAVING")
        group = query.args.get("group")
        if group is not None or collected or having is not None:
            nodes = self.group_nodes(group, items)
            grouping = Grouping(binder, collected, nodes)
            plan = grouping.reduce(plan)
            exprs = [grouping.outside(e, i.node) for e, i in zip(exprs, items, strict=True)]
            if having is not None and having_node is not None:
                plan = Filter(plan, grouping.outside(having, having_node.this))
        distinct = query.args.get("distinct")
        if settle or distinct is not None:
            exprs = [coerce.settled(e) for e in exprs]
        plan = Project(plan, tuple(exprs), tuple(i.name for i in items))
        if distinct is not None:
            if distinct.args.get("on") is not None:
                self.source.refuse_words(distinct, r"\bdistinct\s+on\b", "DISTINCT ON is not supported yet")
            for item, column in zip(items, plan.schema.columns, strict=True):
                _comparable(self.source, item.node, column, "DISTINCT")
            return Distinct(plan)
        return plan

    def where(self, plan: Plan, condition: exp.Expr) -> Plan:
        """The rows for which the condition is true."""
        binder = Binder(self.source, self.scope, "WHERE")
        members, parts = divided(condition)
        rest = conjunction([binder.boolean(part, "WHERE") for part in parts])
        if rest is not None:
            plan = Filter(plan, rest)
        own, names = identity(plan.schema)
        for member in members:
            plan = semijoined(plan, binder, member, lambda query: bind_query(self.source, self.env, query))
        # Keys that were computed stand behind the row that the clauses after WHERE see.
        return Project(plan, own, names) if len(plan.schema.columns) > len(own) else plan

    def items(self) -> list[Item]:
        """The SELECT list with `*` and `t.*` spelled out."""
        found: list[Item] = []
        for node in self.query.expressions:
            if isinstance(node, exp.Star):
                self.source.only(node, ())
                found += [Item(node, n, p) for n, p in self.scope.visible]
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                found += self.star_of(node)
            elif isinstance(node, exp.Alias):
                found.append(Item(node.this, name_of(node.args["alias"])))
            elif isinstance(node, exp.Aliases):
                self.source.refuse(node, "several names for one column are not supported")
            else:
                found.append(Item(node, output_name(node) or UNNAMED))
        if not found:
            self.source.refuse(self.query, "a SELECT without columns is not supported")
        return found

    def star_of(self, node: exp.Expr) -> list[Item]:
        alias = name_of(node.args["table"])
        relation = self.scope.relation(alias)
        if relation is None:
            self.source.refuse(node, f'there is no table or alias "{alias}" in this FROM clause')
        return [Item(node, c.name, relation.offset + i) for i, c in enumerate(relation.columns)]

    def item(self, binder: Binder, item: Item) -> Expr:
        if item.star is None:
            return binder.bind(item.node)
        return binder.reference(item.star, item.node)

    def group_nodes(self, group: exp.Expr | None, items: list[Item]) -> list[tuple[exp.Expr, Expr]]:
        """The GROUP BY items with their expressions: ordinals and output names looked up in the SELECT list."""
        if group is None:
            return []
        self.source.only(group, {"expressions"})
        binder = Binder(self.source, self.scope, "GROUP BY")
        found: list[tuple[exp.Expr, Expr]] = []
        for node in group.expressions:
            if isinstance(node, exp.Cube | exp.Rollup | exp.GroupingSets):
                clause = {exp.Cube: "cube", exp.Rollup: "rollup"}.get(type(node), "grouping_sets")
                self.source.refuse_clause(node, clause)
            if isinstance(node, exp.Tuple):
                self.source.refuse(node, "a row in GROUP BY is not supported", "list the columns without parentheses")
            item = self.meant(node, items)
            if item is None:
                found.append((node, binder.settled(node)))
            else:
                found.append((node, coerce.settled(self.item(binder, item))))
            _comparable(self.source, node, Column("", found[-1][1].type), "GROUP BY")
        return found

    def meant(self, node: exp.Expr, items: list[Item]) -> Item | None:
        """The SELECT item that an ordinal or an output name in GROUP BY means; an input column's name goes first."""
        if isinstance(node, exp.Literal) and not node.args.get("is_string"):
            text = str(node.this)
            if not text.isdigit() or not 1 <= int(text) <= len(items):
                self.source.refuse(node, f"GROUP BY position {text} is not in the select list")
            return items[int(text) - 1]
        if isinstance(node, exp.Column) and node.args.get("table") is None:
            name = name_of(node.this)
            named = [i for i in items if i.name == name and i.star is None]
            if not self.scope.find(name) and named:
                if len(named) > 1:
                    self.source.refuse(node, f'GROUP BY "{name}" is ambiguous', "write the expression")
                return named[0]
        return None
