"""GROUP BY and aggregates bound: one reduce below, and the SELECT list and HAVING over what it gives.

Always: the reduce reads columns that a projection below it makes, the keys first, then arguments and filters; an argument that
may fail is computed only where its FILTER holds, and each grouping set is a reduce of its own over that projection. A column
outside an aggregate must stand in GROUP BY, or belong to a table whose primary key stands there. Called by `select`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from headrace.engine.operators.expressions.core.ir import Aggregate, Case, ColumnRef, Expr, Literal
from headrace.engine.schema import BIGINT, INTEGER
from headrace.views.expressions import fallible, rewrite
from headrace.views.placeholders import AggregateValue, GroupingValue
from headrace.views.plan import One, Plan, Project, Reduce, Union
from headrace.views.sql.binder import Binder
from headrace.views.sql.from_clause.set_returning import SetCalls
from headrace.views.sql.parsing.nodes import WholeRowColumn
from headrace.views.sql.parsing.parse import Source
from headrace.views.sql.subqueries.subquery_binder import Subqueries

MOST_CUBED = 6

Sets = list[tuple[Expr, ...]]
"""Grouping sets: the expressions that each groups by."""


Bind = Callable[[exp.Expr], tuple[Expr, ...]]
"""What an item of GROUP BY groups by: an expression, or the columns of a row."""


def grouping_sets(source: Source, group: exp.Expr | None, bind: Bind) -> Sets:
    """The grouping sets of a GROUP BY: one, unless it has ROLLUP, CUBE or GROUPING SETS. Raises ViewError."""
    if group is None:
        return [()]
    source.only(group, {"expressions", "all"})
    if not group.expressions:
        source.refuse_words(group, r"\bgroup\b", "GROUP BY ALL is not Postgres's", "name what to group by")
    found = _crossed([_sets_of(source, item, bind) for item in group.expressions])
    if group.args.get("all") is not False:
        return found
    # GROUP BY DISTINCT: of grouping sets that hold the same expressions there is one.
    return list({frozenset(some): some for some in reversed(found)}.values())[::-1]


def _sets_of(source: Source, node: exp.Expr, bind: Bind) -> Sets:
    if isinstance(node, exp.GroupingSets):
        return [some for item in node.expressions for some in _sets_of(source, item, bind)]
    if isinstance(node.unnest(), exp.Tuple):
        return [tuple(e for part in _members(node) for e in bind(part))]
    if not isinstance(node, exp.Rollup | exp.Cube):
        return [bind(node)]
    items = [_sets_of(source, item, bind)[0] for item in node.expressions]
    if isinstance(node, exp.Rollup):
        return [tuple(e for some in items[:n] for e in some) for n in range(len(items), -1, -1)]
    if len(items) > MOST_CUBED:
        source.refuse(node, f"CUBE of more than {MOST_CUBED} expressions", "write the GROUPING SETS that are read")
    return _crossed([[some, ()] for some in items])


def _members(node: exp.Expr) -> list[exp.Expr]:
    """What stands in parentheses, at any depth: `((a, b), c)` groups by three."""
    bare = node.unnest()
    return [m for part in bare.expressions for m in _members(part)] if isinstance(bare, exp.Tuple) else [node]


def _crossed(parts: list[Sets]) -> Sets:
    return [tuple(e for some in chosen for e in some) for chosen in itertools.product(*parts)]


@dataclass(frozen=True)
class WholeRows:
    """The tables whose whole rows are grouped by, and what else is: `named`. A column of such a row is no group's by itself."""

    tables: frozenset[str] = frozenset()
    named: frozenset[Expr] = frozenset()


_NONE = WholeRows()


class Grouping:
    """The groups of one SELECT. `keys` are expressions over the FROM row; `sets`: by which of them each grouping set
    groups, None where there is only one; `wholes`: which of them are columns of whole rows.
    """

    def __init__(self, binder: Binder, aggregates: list[Aggregate], sets: Sets, wholes: WholeRows = _NONE) -> None:
        self.binder = binder
        self.wholes = wholes
        self.aggregates = aggregates
        self.keys: list[Expr] = list(dict.fromkeys(e for some in sets for e in some))
        self.sets = None if len(sets) == 1 else sets
        self.grouped = {k.index for k in self.keys if isinstance(k, ColumnRef)}
        given = len(self.keys)
        if self.sets is None:
            self._add_dependent()
        self.determined = len(self.keys) - given
        if self.sets is not None and not aggregates and not all(sets):
            # The one group of all rows needs something to hold it.
            aggregates.append(Aggregate("count", None, BIGINT))

    def _add_dependent(self) -> None:
        """Columns of a table grouped by its primary key have one value a group: those that are read join the key."""
        read = self.binder.read_outside
        for relation in self.binder.scope.relations:
            if not relation.key or not relation.key <= self.grouped:
                continue
            for position in range(relation.offset, relation.offset + len(relation.columns)):
                if position in read and position not in self.grouped:
                    self.keys.append(ColumnRef(position, self.binder.scope.column(position).type))

    def reduce(self, plan: Plan, queries: Subqueries, rows: SetCalls) -> Plan:
        """The reduce (one a grouping set) over a projection of keys and arguments, of the answers of subqueries, and of what
        the set-returning functions give that are grouped by.
        """
        if not self.keys and not self.aggregates:
            return One()  # there is one group, of whatever rows: Postgres does not look at them either
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
        plan, exprs = rows.attached(plan, exprs)
        below = Project(plan, tuple(exprs), spelled)
        if self.sets is None:
            return Reduce(below, tuple(range(len(self.keys))), tuple(bound), names, self.determined)
        return Union(tuple(self._set(below, some, tuple(bound), names) for some in self.sets))

    def _set(self, below: Plan, some: tuple[Expr, ...], bound: tuple[Aggregate, ...], names: tuple[str, ...]) -> Plan:
        """One grouping set: NULL for the keys that it does not group by, and what grouping() says of them."""
        key = [i for i, e in enumerate(self.keys) if e in some]
        reduced = Reduce(below, tuple(key), bound, (*(names[i] for i in key), *names[len(self.keys) :]))
        exprs: list[Expr] = [
            ColumnRef(key.index(i), e.type) if i in key else Literal(None, e.type) for i, e in enumerate(self.keys)
        ]
        exprs += [ColumnRef(len(key) + i, a.type) for i, a in enumerate(bound)]
        for args in self.binder.groupings:
            bits = "".join("0" if a in some else "1" for a in args)
            exprs.append(Literal(int(bits, 2), INTEGER))
        said = tuple(f"grouping{i}" for i in range(len(self.binder.groupings)))
        return Project(reduced, tuple(exprs), (*names, *said))

    def _grouping(self, number: int, node: exp.Expr) -> Expr:
        """What a grouping() says."""
        if any(a not in self.keys for a in self.binder.groupings[number]):
            self.binder.source.refuse(node, "arguments to GROUPING must be grouping expressions")
        if self.sets is None:
            return Literal(0, INTEGER)
        return ColumnRef(len(self.keys) + len(self.aggregates) + number, INTEGER)

    def outside(self, expr: Expr, node: exp.Expr) -> Expr:
        """An expression of SELECT or HAVING over the reduce's row. Raises ViewError for an ungrouped column."""
        at = {key: i for i, key in enumerate(self.keys)}

        def change(e: Expr) -> Expr | None:
            if isinstance(e, ColumnRef):
                self.check_whole(e, node)
            # a constant that is grouped by is that item of the SELECT list alone, and no other one that looks like it
            if e in at and (e is expr or not isinstance(e, Literal)):
                return ColumnRef(at[e], e.type)
            if isinstance(e, AggregateValue):
                return ColumnRef(len(self.keys) + e.number, e.type)
            if isinstance(e, GroupingValue):
                return self._grouping(e.number, node)
            if isinstance(e, ColumnRef):
                self.refuse(e, node)
            return None

        return rewrite(expr, change)

    def check_whole(self, ref: ColumnRef, node: exp.Expr) -> None:
        """Refuses a part of a table's whole row that has not one value a group, though each of its columns may have one."""
        place = self.binder.places.get(id(ref), (ref, node))[1]
        if not self.wholes.tables and not isinstance(place, WholeRowColumn):
            return
        relation = next(r for r in self.binder.scope.relations if ref.index < r.offset + len(r.columns))
        whole = relation.alias in self.wholes.tables
        if not isinstance(place, WholeRowColumn):
            if whole and ref not in self.wholes.named and not self._is_named(relation.key):
                self.refuse(ref, node)
            return
        if self.sets is None and whole:
            return
        if self.sets is not None or not relation.key or not relation.key <= self.grouped:
            reason = f'column "{relation.alias}.*" must appear in GROUP BY or be used in an aggregate'
            hint = f"add the primary key of {relation.alias} to GROUP BY, or name its columns"
            self.binder.source.refuse(place, reason, hint)

    def _is_named(self, key: frozenset[int]) -> bool:
        """Whether a table's primary key is grouped by, other than as a part of its whole row."""
        return bool(key) and key <= {e.index for e in self.wholes.named if isinstance(e, ColumnRef)}

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
