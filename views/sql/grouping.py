"""GROUP BY and aggregates bound: one reduce below, and the SELECT list and HAVING over what it gives.

Always: the reduce reads columns only, made by a projection below it in the order keys, then arguments and filters; an
argument that may fail is asked only where its FILTER holds. A column outside an aggregate must be grouped by, or belong
to a table whose primary key is. Called by `select`.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from engine.operators.expressions.ir import Aggregate, Call, Case, ColumnRef, Expr, Literal
from views.plan import Plan, Project, Reduce
from views.scalar import fallible, rewrite
from views.sql.binder import PLACEHOLDER, Binder
from views.sql.subqueries import Subqueries


class Grouping:
    """The groups of one SELECT. `keys` are expressions over the FROM row; later ones may be added by `outside`."""

    def __init__(self, binder: Binder, aggregates: list[Aggregate], nodes: list[tuple[exp.Expr, Expr]]) -> None:
        self.binder = binder
        self.aggregates = aggregates
        self.keys: list[Expr] = list(dict.fromkeys(e for _, e in nodes))
        given = len(self.keys)
        self._add_dependent()
        self.determined = len(self.keys) - given

    def _add_dependent(self) -> None:
        """Columns of a table grouped by its primary key have one value a group: those that are read join the key."""
        grouped = {k.index for k in self.keys if isinstance(k, ColumnRef)}
        read = self.binder.read_outside
        for relation in self.binder.scope.relations:
            if not relation.key or not relation.key <= grouped:
                continue
            for position in range(relation.offset, relation.offset + len(relation.columns)):
                if position in read and position not in grouped:
                    self.keys.append(ColumnRef(position, self.binder.scope.column(position).type))

    def reduce(self, plan: Plan, queries: Subqueries) -> Reduce:
        """The reduce over a projection of keys and arguments, with the answers of the subqueries in these."""
        exprs: list[Expr] = list(self.keys)

        def placed(expr: Expr) -> ColumnRef:
            if expr not in exprs:
                exprs.append(expr)
            return ColumnRef(exprs.index(expr), expr.type)

        bound: list[Aggregate] = []
        for aggregate in self.aggregates:
            arg, where = aggregate.arg, aggregate.filter
            if arg is not None and where is not None and fallible(arg):
                arg = Case(((where, arg),), Literal(None, arg.type), arg.type)
            bound.append(
                replace(
                    aggregate,
                    arg=None if arg is None else placed(arg),
                    filter=None if where is None else placed(where),
                )
            )
        names = (*(self._name(e, i) for i, e in enumerate(self.keys)), *(a.function for a in bound))
        spelled = tuple(self._name(e, i) for i, e in enumerate(exprs))
        plan, exprs = queries.attached(plan, exprs)
        below = Project(plan, tuple(exprs), spelled)
        return Reduce(below, tuple(range(len(self.keys))), tuple(bound), names, self.determined)

    def outside(self, expr: Expr, node: exp.Expr) -> Expr:
        """An expression of SELECT or HAVING over the reduce's row. Raises ViewError for an ungrouped column."""
        at = {key: i for i, key in enumerate(self.keys)}

        def change(e: Expr) -> Expr | None:
            if e in at:
                return ColumnRef(at[e], e.type)
            if isinstance(e, Call) and e.function == PLACEHOLDER:
                number = e.args[0]
                index = int(number.value or 0) if isinstance(number, Literal) else 0
                return ColumnRef(len(self.keys) + index, e.type)
            if isinstance(e, ColumnRef):
                self.refuse(e, node)
            return None

        return rewrite(expr, change)

    def refuse(self, ref: ColumnRef, node: exp.Expr) -> None:
        """Says which column is neither grouped by nor aggregated."""
        place = self.binder.places.get(id(ref), (ref, node))[1]
        name = self.binder.scope.column(ref.index).name
        reason = f'column "{name}" must appear in GROUP BY or be used in an aggregate'
        self.binder.source.refuse(place, reason, f"add {name} to GROUP BY, or take min({name})")

    def _name(self, expr: Expr, position: int) -> str:
        if isinstance(expr, ColumnRef):
            return self.binder.scope.column(expr.index).name
        return f"expr{position}"
