"""A subquery that reads the query around it in any way, made to stand for all rows around at once: the distinct values
that it reads, its domain, go into each node as columns, first in every row.

Always: for each row of the domain the rows behind its columns are those of the subquery for that row; NULLs of the
domain are equal. Called by `link`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.engine.operators.expressions.core.ir import Coalesce, ColumnRef, Expr, Literal
from headrace.engine.schema import Schema
from headrace.views.expressions import conjunction, null_safe, rewrite
from headrace.views.placeholders import OuterColumn
from headrace.views.plan import (
    Distinct,
    Filter,
    Join,
    LeftJoin,
    Plan,
    Project,
    Recursion,
    Reduce,
    Reference,
    Repeat,
    Semijoin,
    Spread,
    Top,
    Union,
    Windowed,
    identity,
    keyed,
)
from headrace.views.plan_node import Variable
from headrace.views.sql import coerce
from headrace.views.sql.from_clause.outer_joins import outer_join
from headrace.views.sql.subqueries.decorrelate.outer_columns import read_outside


class CannotPush(Exception):
    """The subquery has a node that the domain cannot go into."""


def pushed(domain: Plan, plan: Plan, places: Mapping[int, int]) -> Plan:
    """`plan` for every row of `domain`; `places`: in which of its columns stands what the plan reads, by position.

    Raises CannotPush.
    """
    return _Pusher(domain, places).plan(plan)


class _Pusher:
    """Takes one domain down one plan."""

    def __init__(self, domain: Plan, places: Mapping[int, int]) -> None:
        self.domain = domain
        self.places = places
        self.width = len(domain.schema.columns)
        self.refs, self.names = identity(domain.schema)
        self.widened = frozenset[Variable]()
        """The recursion variables into which the domain is pushed, and which therefore have its columns."""

    def plan(self, plan: Plan) -> Plan:
        """The domain's columns, then those of `plan`."""
        if not self.reads(plan):
            return Join(self.domain, plan)
        if isinstance(plan, Project):
            return Project(self.plan(plan.input), (*self.refs, *map(self.expr, plan.exprs)), (*self.names, *plan.names))
        if isinstance(plan, Filter):
            return Filter(self.plan(plan.input), self.expr(plan.predicate))
        if isinstance(plan, Join):
            return self.join(plan)
        if isinstance(plan, LeftJoin):
            return self.left_join(plan)
        if isinstance(plan, Semijoin):
            return self.semijoin(plan)
        if isinstance(plan, Reduce):
            return self.reduce(plan)
        if isinstance(plan, Distinct | Repeat):
            return replace(plan, input=self.plan(plan.input))
        if isinstance(plan, Union):
            return Union(tuple(self.plan(p) for p in plan.inputs))
        if isinstance(plan, Top):
            orders = tuple(o._replace(column=o.column + self.width) for o in plan.orders)
            return replace(plan, input=self.plan(plan.input), key=self.key(plan.key), orders=orders)
        if isinstance(plan, Windowed):
            return self.windowed(plan)
        if isinstance(plan, Spread):
            functions = tuple(replace(f, args=tuple(a + self.width for a in f.args)) for f in plan.functions)
            return replace(plan, input=self.plan(plan.input), functions=functions)
        if isinstance(plan, Reference):
            columns = (*self.domain.schema.columns, *plan.schema.columns)
            return replace(plan, schema=Schema(columns))
        if isinstance(plan, Recursion):
            return self.recursion(plan)
        raise CannotPush(type(plan).__name__)

    def recursion(self, plan: Recursion) -> Plan:
        """One recursion for each row of the domain, all in the same rounds."""
        starts = tuple(None if p is None else self.plan(p) for p in plan.starts)
        held, self.widened = self.widened, self.widened | frozenset(plan.variables)
        rules = tuple(map(self.plan, plan.rules))
        self.widened = held
        return replace(plan, starts=starts, rules=rules)

    def windowed(self, plan: Windowed) -> Plan:
        """The window in each row of the domain apart."""
        orders = tuple(o._replace(column=o.column + self.width) for o in plan.orders)
        functions = tuple(replace(f, args=tuple(a + self.width for a in f.args)) for f in plan.functions)
        return Windowed(self.plan(plan.input), self.key(plan.key), orders, functions, plan.names)

    def reads(self, plan: Plan) -> bool:
        """Whether the plan reads the domain."""
        return bool(plan.free & self.widened) or any(column.level == 1 for column in read_outside(plan))

    def expr(self, expr: Expr) -> Expr:
        """An expression of the subquery over a row behind the domain's columns."""

        def change(e: Expr) -> Expr | None:
            if isinstance(e, ColumnRef):
                return ColumnRef(e.index + self.width, e.type)
            if isinstance(e, OuterColumn) and e.level == 1:
                return self.refs[self.places[e.index]]
            return None

        return rewrite(expr, change)

    def key(self, key: Sequence[int]) -> tuple[int, ...]:
        """Columns of the domain, then those of `key`."""
        return (*range(self.width), *(k + self.width for k in key))

    def same(self, offset: int) -> list[Expr]:
        """That the domain's columns and those at `offset` are equal."""
        found: list[Expr] = []
        for i, column in enumerate(self.domain.schema.columns):
            keys = (null_safe(ColumnRef(k, column.type), nullable=column.nullable) for k in (i, offset + i))
            found += [coerce.called("=", pair) for pair in zip(*keys, strict=True)]
        return found

    def join(self, plan: Join) -> Plan:
        left, right = plan.left, plan.right
        widths = len(left.schema.columns), len(right.schema.columns)
        residual = [] if plan.residual is None else [self.expr(plan.residual)]
        if not self.reads(right):
            return Join(self.plan(left), right, residual=conjunction(residual), at=plan.at)
        if not self.reads(left):
            turned = Join(self.plan(right), left, at=plan.at)
            start = self.width + widths[1]
            order = [*range(self.width), *range(start, start + widths[0]), *range(self.width, start)]
            made: Plan = Project(turned, *identity(turned.schema, order))
        else:
            one, two = self.plan(left), self.plan(right)
            start = self.width + widths[0]
            both = Join(one, two, residual=conjunction(self.same(start)), at=plan.at)
            order = [*range(start), *range(start + self.width, start + self.width + widths[1])]
            made = Project(both, *identity(both.schema, order))
        return made if not residual else Filter(made, residual[0])

    def left_join(self, plan: LeftJoin) -> Plan:
        left = self.plan(plan.left)
        residual = None if plan.residual is None else self.expr(plan.residual)
        keys = tuple(k + self.width for k in plan.left_key)
        if not plan.full and not self.reads(plan.right):
            return replace(plan, left=left, left_key=keys, residual=residual)
        right = self.plan(plan.right)
        start = len(left.schema.columns)
        condition = self.same(start)
        for one, two in zip(keys, plan.right_key, strict=True):
            there = start + self.width + two
            pair = (
                ColumnRef(one, left.schema.columns[one].type),
                ColumnRef(there, right.schema.columns[self.width + two].type),
            )
            condition.append(coerce.called("=", pair))
        if residual is not None:
            # The right side's columns stand behind its own copy of the domain's.
            condition.append(rewrite(residual, lambda e: self._behind(e, start)))
        joined = outer_join(left, right, conjunction(condition), full=plan.full, at=plan.at)
        order = [*range(start), *range(start + self.width, len(joined.schema.columns))]
        refs, names = identity(joined.schema, order)
        if plan.full:
            # Either side may be missing, and its copy of the domain with it.
            own = (Coalesce((r, ColumnRef(start + i, r.type)), r.type) for i, r in enumerate(self.refs))
            refs = (*own, *refs[self.width :])
        return Project(joined, refs, names)

    def _behind(self, expr: Expr, start: int) -> Expr | None:
        if isinstance(expr, ColumnRef) and expr.index >= start:
            return ColumnRef(expr.index + self.width, expr.type)
        return None

    def semijoin(self, plan: Semijoin) -> Plan:
        left = self.plan(plan.left)
        keys = tuple(k + self.width for k in plan.left_key)
        if not self.reads(plan.right):
            return replace(plan, left=left, left_key=keys)
        right = self.plan(plan.right)
        safe = [k for r, c in zip(self.refs, self.domain.schema.columns, strict=True)
                for k in null_safe(r, nullable=c.nullable)]  # fmt: skip
        width = len(left.schema.columns)
        left, mine = keyed(left, safe)
        right, theirs = keyed(right, safe)
        found = Semijoin(
            left, right, (*mine, *keys), (*theirs, *(k + self.width for k in plan.right_key)), plan.negated
        )
        return Project(found, *identity(found.schema, range(width)))

    def reduce(self, plan: Reduce) -> Plan:
        below = self.plan(plan.input)
        shift = {i: ColumnRef(i + self.width, c.type) for i, c in enumerate(plan.input.schema.columns)}
        aggregates = tuple(
            replace(
                a,
                arg=None
                if a.arg is None
                else rewrite(a.arg, lambda e: shift[e.index] if isinstance(e, ColumnRef) else None),
                filter=None
                if a.filter is None
                else rewrite(a.filter, lambda e: shift[e.index] if isinstance(e, ColumnRef) else None),
            )
            for a in plan.aggregates
        )
        found = Reduce(below, self.key(plan.key), aggregates, (*self.names, *plan.names), plan.determined)
        if plan.key:
            return found
        # A row of the domain without rows below has the one group of nothing.
        joined = outer_join(self.domain, found, conjunction(self.same(self.width)))
        exprs: list[Expr] = list(self.refs)
        for i, aggregate in enumerate(aggregates):
            value: Expr = ColumnRef(2 * self.width + i, aggregate.type)
            if aggregate.function == "count":
                value = Coalesce((value, Literal(0, aggregate.type)), aggregate.type)
            exprs.append(value)
        return Project(joined, tuple(exprs), found.names)
