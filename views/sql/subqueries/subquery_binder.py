"""Subqueries in expressions bound: scalar ones, EXISTS, IN and comparisons with ANY and ALL of a query, in any clause.

Always: while an expression is bound a placeholder holds the columns of its row that a subquery reads; `attached` puts the
subquery's answer beside the row, by joins, and what reads that in the placeholder's place. `kept` makes semijoins of those
that WHERE asks alone. Called by `select` and `tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Aggregate, Call, Case, ColumnRef, Expr, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, DataType
from headrace.views.expressions import (
    children,
    columns,
    conjunction,
    fallible,
    may_be_null,
    moved,
    outermost,
    rebuild,
    rewrite,
    shifted,
)
from headrace.views.expressions import walk as parts_of
from headrace.views.keys import is_unique
from headrace.views.placeholders import Placeholder, SubqueryValue
from headrace.views.plan import Distinct, Filter, One, Plan, Project, Reduce, Semijoin, Top, identity, keyed
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder, binds
from headrace.views.sql.environment import Environment
from headrace.views.sql.from_clause.outer_joins import TRUE
from headrace.views.sql.limit_expressions import Count
from headrace.views.sql.parsing.parse import Source
from headrace.views.sql.rows.row_comparison import by_pairs, decided
from headrace.views.sql.scope import Bound
from headrace.views.sql.subqueries.decorrelate.link import CannotPush, Linked, link
from headrace.views.sql.subqueries.decorrelate.outer_columns import levels_read, lowered_in, parameters
from headrace.views.sql.subqueries.in_any_all import beside, marked, quantified, sides
from headrace.views.sql.unsupported import SUBQUERY
from headrace.views.traversal import walk as nodes

ONE_VALUE = "$one value(bigint,any)"
"""The engine's function that gives its second argument, and fails where the first is above one."""

BindQuery = Callable[[Source, Environment, exp.Expr], Plan]
"""How a subquery is bound; handed in, since queries hold FROM clauses and expressions, and these hold queries."""


@dataclass(frozen=True)
class Subquery:
    """One subquery: `kind` scalar, row, exists, any or all; `word`: the comparison of row, any and all; `reads`: which columns
    around it, by position, its plan reads. `node`: for messages.
    """

    kind: str
    plan: Plan
    word: str
    reads: tuple[int, ...]
    operands: int
    node: exp.Expr = field(compare=False)


class Subqueries:
    """The subqueries of one SELECT."""

    def __init__(self, source: Source, env: Environment, bind_query: BindQuery) -> None:
        self.source = source
        self.env = env
        self.bind_query = bind_query
        self.found: list[Subquery] = []
        self.asked: list[Expr] = []
        """What subqueries read behind the row: aggregates over its query's rows."""

    def bound(self, binder: Binder, node: exp.Expr, kind: str, operands: Sequence[Expr], word: str = "") -> Expr:
        """What stands for a subquery until it is attached. Raises ViewError."""
        query = node.this if isinstance(node, exp.Exists) else node
        if kind == "exists":
            query = _without_columns(_without_limit(query))
        scope = binder.scope
        if binder.aggregates is not None:
            scope = replace(scope, aggregating=partial(self._aggregating, binder))
        plan = self.bind_query(self.source, self.env.inside(scope), query)
        if kind == "exists":
            plan = _rows_alone(plan)
        width = len(plan.schema.columns)
        if kind == "scalar" and width != 1:
            self.source.refuse(node, "subquery must return only one column")
        if kind in ("row", "any", "all") and len(operands) != width:
            reason = f"subquery has too {'many' if width > len(operands) else 'few'} columns"
            self.source.refuse(node, reason, f"it gives {width} for {len(operands)} on the left")
        inside = [place for place, _ in parameters(plan)]
        sub = Subquery(kind, plan, word, tuple(inside), len(operands), node)
        if sub not in self.found:
            self.found.append(sub)
        width = scope.width
        refs = [binder.reference(p, node) if p < width else self.asked[p - width] for p in inside]
        alone = isinstance(plan, Project) and isinstance(plan.input, One)
        if kind == "scalar" and alone and node.find(Count) is None:
            # A SELECT without FROM is its expression, which CASE may leave out.
            assert isinstance(plan, Project)
            return lowered_in(plan.exprs[0], dict(zip(inside, refs, strict=True)))
        kind_of = plan.schema.columns[0].type if kind == "scalar" else BOOLEAN
        return SubqueryValue((*operands, *refs), kind_of, self.found.index(sub))

    def _aggregating(self, binder: Binder, bound: Bound) -> tuple[int, DataType]:
        """An aggregate that stands in a subquery and is over the rows of this query: where it stands behind them."""
        found = bound(binder)
        if found not in self.asked:
            self.asked.append(found)
        return binder.scope.width + self.asked.index(found), found.type

    def levels_read(self, exprs: Sequence[Expr]) -> set[int]:
        """How many levels up stand the queries that subqueries in `exprs` read, around the one that they stand in."""
        values = (e for expr in exprs for e in parts_of(expr) if isinstance(e, SubqueryValue))
        return {level - 1 for value in values for level in levels_read(self.found[value.number].plan) if level > 1}

    def attached(self, plan: Plan, exprs: Sequence[Expr]) -> tuple[Plan, list[Expr]]:
        """The plan with the answers behind its columns, and the expressions over it."""
        done: dict[Expr, Expr] = {}
        found: list[Expr] = []
        for expr in exprs:
            plan, value = self._attached(plan, expr, done)
            found.append(value)
        return plan, found

    def reads_both(self, condition: Expr, width: int) -> bool:
        """Whether some subquery in the condition of a join reads columns on both sides of `width`."""
        values = (part for part in parts_of(condition) if isinstance(part, SubqueryValue))
        return any(min(read) < width <= max(read) for value in values if (read := columns(value)))

    def apart(self, left: Plan, right: Plan, condition: Expr) -> tuple[Plan, Plan, Expr]:
        """Two sides of a join, the answers behind the columns of the side that each subquery reads, and the condition over
        them. Raises ViewError for a subquery that reads both.
        """
        width = len(left.schema.columns)
        done: dict[Expr, tuple[bool, Expr]] = {}
        for call in dict.fromkeys(outermost(condition, SubqueryValue)):
            read = columns(call)
            of_right = bool(read) and min(read) >= width
            if of_right:
                right, [value] = self.attached(right, [moved(call, {i: i - width for i in read})])
            elif any(i >= width for i in read):
                hint = "let it read one of them, or join with it in FROM"
                self.source.refuse(
                    self.found[call.number].node, "a subquery that reads both sides of an outer join", hint
                )
            else:
                left, [value] = self.attached(left, [call])
            done[call] = of_right, value
        wide = len(left.schema.columns)

        def placed(expr: Expr) -> Expr | None:
            if expr in done:
                of_right, value = done[expr]
                return shifted(value, wide) if of_right else value
            if isinstance(expr, ColumnRef):
                return expr if expr.index < width else shifted(expr, wide - width)
            return None

        return left, right, rewrite(condition, placed)

    def _attached(self, plan: Plan, expr: Expr, done: dict[Expr, Expr]) -> tuple[Plan, Expr]:
        if expr in done:
            return plan, done[expr]
        below = children(expr)
        parts: list[Expr] = []
        for part in below:
            plan, value = self._attached(plan, part, done)
            parts.append(value)
        made = expr if all(a is b for a, b in zip(parts, below, strict=True)) else rebuild(expr, parts)
        if isinstance(made, SubqueryValue):
            plan, made = self._beside(plan, made)
            done[expr] = made
        return plan, made

    def _beside(self, plan: Plan, call: SubqueryValue) -> tuple[Plan, Expr]:
        sub, operands, values = self.parts(call)
        linked = self.linked(plan, sub, values)
        if sub.kind == "scalar":
            plan, [value] = _values(plan, linked)
            return plan, value
        if sub.kind == "row":
            plan, values_of = _values(plan, linked)
            return plan, decided(sub.word, list(zip(operands, values_of, strict=True)))
        if sub.kind == "exists":
            return _exists(plan, linked)

        def refuse(reason: str) -> NoReturn:
            self.source.refuse(sub.node, reason, "compare column by column, with EXISTS")

        return quantified(plan, linked, operands, sub.word, every=sub.kind == "all", refuse=refuse)

    def parts(self, call: SubqueryValue) -> tuple[Subquery, tuple[Expr, ...], dict[int, Expr]]:
        """The subquery that a placeholder stands for, its operands, and what it reads by position."""
        sub = self.found[call.number]
        operands, reads = call.args[: sub.operands], call.args[sub.operands :]
        return sub, operands, dict(zip(sub.reads, reads, strict=True))

    def linked(self, plan: Plan, sub: Subquery, values: dict[int, Expr]) -> Linked:
        """The subquery linked to the rows of `plan`. Raises ViewError."""
        try:
            return link(plan, sub.plan, values)
        except CannotPush as error:
            self.source.refuse(sub.node, f"a {error} in a subquery that reads columns of the query around it")

    def kept(self, plan: Plan, parts: Sequence[Expr]) -> Plan:
        """The rows for which all `parts` are true: first by those without subqueries, then by semijoins, then the rest.

        A part that may fail waits for the semijoins with what does not depend on these rows: where one of them keeps a row
        out, it is out (decision 39).
        """
        plain, asked = [p for p in parts if not holds_subquery(p)], [p for p in parts if holds_subquery(p)]
        plan = _filtered(plan, [p for p in plain if not fallible(p)])
        risky = [p for p in plain if fallible(p)]
        for alone in (True, False) if risky else (False,):
            left: list[Expr] = []
            for part in asked:
                found = self._semijoined(plan, part)
                reads_plan = isinstance(found, Semijoin) and any(node is plan for node in nodes(found.right))
                if found is None or (alone and reads_plan):
                    left.append(part)
                else:
                    plan = found
            asked = left
            plan = _filtered(plan, risky) if alone else plan
        if asked:
            plan, exprs = self.attached(plan, asked)
            plan = _filtered(plan, exprs)
        return plan

    def _semijoined(self, plan: Plan, part: Expr) -> Plan | None:
        """The rows that an EXISTS, an IN, or a NOT of either keeps, where a semijoin says it; else None."""
        negated = isinstance(part, Call) and part.function.startswith("not(") and len(part.args) == 1
        call = part.args[0] if negated and isinstance(part, Call) else part
        if not isinstance(call, SubqueryValue) or any(map(holds_subquery, call.args)):
            return None
        sub, operands, values = self.parts(call)
        if sub.kind == "all" and sub.word == "<>":
            negated = not negated
        elif sub.kind not in ("exists", "any") or (sub.kind == "any" and sub.word != "="):
            return None
        linked = self.linked(plan, sub, values)
        if linked.empty is not None:
            return None
        inner = linked.plan.schema.columns
        pairs = list(linked.pairs)
        for i, operand in enumerate(operands):
            column = ColumnRef(linked.first + i, inner[linked.first + i].type)
            pairs.append(sides(operand, column))
            if negated and (may_be_null(operand, plan.schema.columns) or inner[linked.first + i].nullable):
                return None
        left, left_key = keyed(plan, [a for a, _ in pairs])
        right, right_key = keyed(linked.plan, [b for _, b in pairs])
        return Semijoin(left, right, left_key, right_key, negated)


def _filtered(plan: Plan, parts: Sequence[Expr]) -> Plan:
    predicate = conjunction(parts)
    return plan if predicate is None else Filter(plan, predicate)


def holds_subquery(expr: Expr) -> bool:
    """Whether a subquery stands in the expression."""
    return bool(outermost(expr, SubqueryValue))


def _rows_alone(plan: Plan) -> Plan:
    """The plan without what cannot change whether it has rows."""
    while isinstance(plan, Project | Distinct):
        plan = plan.input
    return plan


def _without_limit(query: exp.Expr) -> exp.Expr:
    """EXISTS asks for one row: an order and a limit above zero change nothing."""
    limit = query.args.get("limit")
    if query.args.get("offset") is not None or not isinstance(limit, exp.Limit):
        return query
    if not isinstance(limit.expression, exp.Literal) or str(limit.expression.this) == "0":
        return query
    bare = query.copy()
    bare.set("limit", None)
    return bare


def _without_columns(query: exp.Expr) -> exp.Expr:
    """EXISTS asks for rows: `SELECT FROM …` has some without any column."""
    if not isinstance(query, exp.Select) or query.expressions:
        return query
    bare = query.copy()
    bare.set("expressions", [exp.Literal.number(1)])
    return bare


def _values(plan: Plan, linked: Linked) -> tuple[Plan, list[Expr]]:
    """The columns of the subquery's one row; NULL where it has no row, an error where it has several."""
    inner = linked.plan
    kinds = [c.type for c in inner.schema.columns[linked.first : linked.first + linked.width]]
    keys = [b for _, b in linked.pairs]
    reads = frozenset(c for b in keys for c in _columns(b))
    if is_unique(inner, reads):
        defaults = linked.empty or ()
        flag = any(not (isinstance(d, Literal) and d.value is None) for d in defaults)
        if flag:
            own, names = identity(inner.schema)
            inner = Project(inner, (*own, TRUE), (*names, "found"))
        joined, start = beside(plan, inner, linked.pairs)
        found = [ColumnRef(start + linked.first + i, kind) for i, kind in enumerate(kinds)]
        if not flag:
            return joined, list[Expr](found)
        there = Call("is null(any)", (ColumnRef(start + len(own), BOOLEAN),), BOOLEAN)
        return joined, [Case(((there, d),), f, f.type) for d, f in zip(defaults, found, strict=True)]
    wide, key = keyed(inner, keys)
    names = (*(f"key{i}" for i in range(len(key))), "rows", *(f"value{i}" for i in range(len(kinds))))
    least = (Aggregate("min", ColumnRef(linked.first + i, kind), kind) for i, kind in enumerate(kinds))
    counted = Reduce(wide, key, (Aggregate("count", None, BIGINT), *least), names)
    pairs = [(a, ColumnRef(i, b.type)) for i, (a, b) in enumerate(linked.pairs)]
    joined, start = beside(plan, counted, pairs)
    rows = ColumnRef(start + len(key), BIGINT)
    behind = start + len(key) + 1
    return joined, [Call(ONE_VALUE, (rows, ColumnRef(behind + i, kind)), kind) for i, kind in enumerate(kinds)]


def _columns(expr: Expr) -> set[int]:
    if isinstance(expr, ColumnRef):
        return {expr.index}
    return set[int]().union(*(_columns(e) for e in children(expr)))


def _exists(plan: Plan, linked: Linked) -> tuple[Plan, Expr]:
    if linked.empty is not None:
        # An aggregate without GROUP BY always has its one row.
        return plan, TRUE
    return marked(plan, linked, list(linked.pairs))


def _query(binder: Binder, node: exp.Expr, kind: str, operands: Sequence[Expr] = (), word: str = "") -> Expr:
    if binder.queries is None:
        binder.source.refuse(node, f"a subquery is not supported in {binder.clause}", SUBQUERY)
    return binder.queries.bound(binder, node, kind, operands, word)


@binds(exp.Subquery, exp.Select, exp.Union, exp.Intersect, exp.Except, reads=None)
def _scalar_subquery(binder: Binder, node: exp.Expr) -> Expr:
    return _query(binder, node, "scalar")


@binds(exp.Exists, reads="this")
def _exists_subquery(binder: Binder, node: exp.Expr) -> Expr:
    return _query(binder, node, "exists")


def member_of(binder: Binder, node: exp.Expr, query: exp.Expr, word: str, *, every: bool) -> Expr:
    """`node word ANY (query)`, or ALL where `every`; IN is = ANY, NOT IN <> ALL. Raises ViewError."""
    asked: Sequence[exp.Expr] = node.expressions if isinstance(node, exp.Tuple) else [node]
    operands = [binder.bind(part) for part in asked]
    call = _query(binder, query, "all" if every else "any", operands, word)
    if len(operands) > 1 and (word, every) not in (("=", False), ("<>", True)):
        if any(isinstance(part, Placeholder) for operand in operands for part in parts_of(operand)):
            hint = "compute the row in a subquery in FROM"
            binder.source.refuse(node, "a row of aggregates or subqueries compared with ANY or ALL by an order", hint)
        return binder.bind(by_pairs(asked, query, word, every=every))
    return _compared(binder, node, call, word)


def row_compared(binder: Binder, node: exp.Expr, left: Sequence[exp.Expr], query: exp.Expr, word: str) -> Expr:
    """`row word (query)`: the comparison with the one row that the query has. Raises ViewError."""
    call = _query(binder, query, "row", [binder.bind(part) for part in left], word)
    return _compared(binder, node, call, word)


def _compared(binder: Binder, node: exp.Expr, call: Expr, word: str) -> Expr:
    """The placeholder with its operands brought to the types by which the comparison meets the subquery's columns."""
    assert isinstance(call, SubqueryValue)
    assert isinstance(binder.queries, Subqueries)
    sub, operands, _ = binder.queries.parts(call)
    settled: list[Expr] = []
    for operand, column in zip(operands, sub.plan.schema.columns, strict=True):
        made = binder.typed(node, lambda o=operand, c=column: coerce.called(word, [o, Literal(None, c.type)]))  # type: ignore[misc]
        settled.append(made.args[0] if operand.type == coerce.UNKNOWN and isinstance(made, Call) else operand)
    return SubqueryValue((*settled, *call.args[len(settled) :]), BOOLEAN, call.number)


__all__ = ["DataType", "Subqueries", "Top", "holds_subquery", "member_of"]
