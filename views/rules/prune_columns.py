"""Rule: only columns that something above reads are kept, so that arrangements hold no more than they must.

A table that is joined by its primary key, filtered or not, keeps all of its columns, because its own arrangement is read, which
every view shares. A column that is not read is not computed, and so does not fail. A left join goes if nothing of it is read
and it adds no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.engine.operators.expressions.core.ir import Aggregate, Literal
from headrace.engine.schema import BOOLEAN
from headrace.views.expressions import columns, fallible, moved
from headrace.views.join_graph import own_key
from headrace.views.keys import is_unique
from headrace.views.plan import (
    DeltaJoin,
    Distinct,
    Filter,
    Import,
    Join,
    LeftJoin,
    One,
    Plan,
    Project,
    Recursion,
    Reduce,
    Reference,
    Repeat,
    Scan,
    Semijoin,
    Spread,
    Top,
    Union,
    Windowed,
    identity,
)
from headrace.views.traversal import children, expressions, walk, with_children

Places = Mapping[int, int]


def prune_columns(plan: Plan) -> Plan:
    """The plan with the same columns, and fewer below.

    >>> from headrace.engine.operators.expressions.core.ir import ColumnRef
    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> a = Scan("public.a", Schema((Column("x", BIGINT), Column("y", BIGINT))))
    >>> both = Join(a, a, (0,), (0,))
    >>> pruned = prune_columns(Project(both, (ColumnRef(1, BIGINT),), ("y",)))
    >>> len(pruned.input.right.schema.columns)
    1
    """
    return _Pruner().exactly(plan, range(len(plan.schema.columns)))


class _Pruner:
    """Prunes one plan; what is read of a node in several places alike stays one node."""

    def __init__(self) -> None:
        self.done: dict[tuple[int, tuple[int, ...]], Plan] = {}

    def exactly(self, plan: Plan, wanted: Iterable[int]) -> Plan:
        """`plan` with the columns `wanted`, in that order, and no others."""
        order = tuple(wanted)
        found = self.done.get((id(plan), order))
        if found is None:
            pruned, places = self.pruned(plan, frozenset(order))
            at = [places[i] for i in order]
            whole = at == list(range(len(pruned.schema.columns)))
            found = pruned if whole else Project(pruned, *identity(pruned.schema, at))
            self.done[id(plan), order] = found
        return found

    def pruned(self, plan: Plan, wanted: frozenset[int]) -> tuple[Plan, Places]:
        """A plan with at least the columns `wanted`, and the places of these in it."""
        if isinstance(plan, Scan | Import | One | Reference):
            return plan, {i: i for i in range(len(plan.schema.columns))}
        if isinstance(plan, Project):
            return self.project(plan, wanted)
        if isinstance(plan, Filter):
            below, places = self.pruned(plan.input, wanted | columns(plan.predicate))
            return Filter(below, moved(plan.predicate, places)), places
        if isinstance(plan, Join | LeftJoin | Semijoin):
            return self.join(plan, wanted)
        if isinstance(plan, Reduce):
            return self.reduce(plan, wanted)
        if isinstance(plan, Top):
            return self.top(plan, wanted)
        if isinstance(plan, Windowed):
            return self.windowed(plan, wanted)
        if isinstance(plan, Spread):
            return self.spread(plan, wanted)
        if isinstance(plan, Repeat):
            kept = sorted(wanted)
            return Repeat(self.exactly(plan.input, [*kept, len(plan.schema.columns)])), {
                i: p for p, i in enumerate(kept)
            }
        if isinstance(plan, Recursion):
            # A round reads all that the one before made.
            whole = [self.exactly(p, range(len(p.schema.columns))) for p in children(plan)]
            return with_children(plan, whole), {i: i for i in range(len(plan.schema.columns))}
        order = sorted(wanted) if isinstance(plan, Union | DeltaJoin) and wanted else range(len(plan.schema.columns))
        places = {i: p for p, i in enumerate(order)}
        if isinstance(plan, Distinct):
            return Distinct(self.exactly(plan.input, order)), places
        if isinstance(plan, DeltaJoin):
            return DeltaJoin(self.exactly(plan.input, order)), places
        return Union(tuple(self.exactly(p, order) for p in plan.inputs)), places

    def project(self, plan: Project, wanted: frozenset[int]) -> tuple[Plan, Places]:
        order = sorted(wanted)
        reads = frozenset(c for i in order for c in columns(plan.exprs[i]))
        below, places = self.pruned(plan.input, reads)
        exprs = tuple(moved(plan.exprs[i], places) for i in order)
        names = tuple(plan.names[i] for i in order)
        if not order:
            # Rows are counted though nothing of them is read: a row needs a column to be one.
            exprs, names = (Literal(True, BOOLEAN),), ("row",)
        return Project(below, exprs, names), {i: p for p, i in enumerate(order)}

    def join(self, plan: Join | LeftJoin | Semijoin, wanted: frozenset[int]) -> tuple[Plan, Places]:
        width = len(plan.left.schema.columns)
        if isinstance(plan, LeftJoin) and all(i < width for i in wanted) and self.adds_nothing(plan):
            return self.pruned(plan.left, wanted)
        residual = None if isinstance(plan, Semijoin) else plan.residual
        reads = wanted | (columns(residual) if residual is not None else frozenset())
        left, left_places = self.side(plan.left, plan.left_key, frozenset(i for i in reads if i < width))
        right, right_places = self.side(plan.right, plan.right_key, frozenset(i - width for i in reads if i >= width))
        new_width = len(left.schema.columns)
        places = {**left_places, **{i + width: p + new_width for i, p in right_places.items()}}
        left_key = tuple(left_places[k] for k in plan.left_key)
        right_key = tuple(right_places[k] for k in plan.right_key)
        pruned = replace(plan, left=left, right=right, left_key=left_key, right_key=right_key)
        if not isinstance(pruned, Semijoin) and residual is not None:
            pruned = replace(pruned, residual=moved(residual, places))
        return pruned, places

    def adds_nothing(self, plan: LeftJoin) -> bool:
        """Whether each row of the left side is there once, and nothing fails on the way."""
        if plan.full or not is_unique(plan.right, plan.right_key):
            return False
        if plan.residual is not None and fallible(plan.residual):
            return False
        read, _ = self.side(plan.right, plan.right_key, frozenset())
        calm = all(isinstance(p, Scan | Import | Filter | Project | Join | Distinct) for p in walk(read))
        return calm and not any(fallible(e) for p in walk(read) for e in expressions(p))

    def side(self, plan: Plan, key: tuple[int, ...], reads: frozenset[int]) -> tuple[Plan, Places]:
        table = plan.input if isinstance(plan, Filter) else plan
        if isinstance(table, Scan) and own_key(plan) == key:
            return plan, {i: i for i in range(len(plan.schema.columns))}
        order = sorted(reads | frozenset(key))
        return self.exactly(plan, order), {i: p for p, i in enumerate(order)}

    def top(self, plan: Top, wanted: frozenset[int]) -> tuple[Plan, Places]:
        below, places = self.pruned(plan.input, wanted | frozenset(plan.key) | frozenset(o.column for o in plan.orders))
        orders = tuple(o._replace(column=places[o.column]) for o in plan.orders)
        return replace(plan, input=below, key=tuple(places[k] for k in plan.key), orders=orders), places

    def windowed(self, plan: Windowed, wanted: frozenset[int]) -> tuple[Plan, Places]:
        width = len(plan.input.schema.columns)
        kept = [i for i in range(len(plan.functions)) if width + i in wanted]
        reads = {i for i in wanted if i < width}
        if kept:
            reads |= {*plan.key, *(o.column for o in plan.orders), *(a for i in kept for a in plan.functions[i].args)}
        below, places = self.pruned(plan.input, frozenset(reads))
        if not kept:
            return below, places
        now = len(below.schema.columns)
        functions = tuple(
            replace(plan.functions[i], args=tuple(places[a] for a in plan.functions[i].args)) for i in kept
        )
        orders = tuple(o._replace(column=places[o.column]) for o in plan.orders)
        names = tuple(plan.names[i] for i in kept)
        windowed = Windowed(below, tuple(places[k] for k in plan.key), orders, functions, names)
        return windowed, {**places, **{width + i: now + p for p, i in enumerate(kept)}}

    def spread(self, plan: Spread, wanted: frozenset[int]) -> tuple[Plan, Places]:
        """All that the functions give stays: how many rows there are depends on it."""
        width = len(plan.input.schema.columns)
        order = sorted({i for i in wanted if i < width} | {a for f in plan.functions for a in f.args})
        places = {i: p for p, i in enumerate(order)}
        functions = tuple(replace(f, args=tuple(places[a] for a in f.args)) for f in plan.functions)
        made = len(plan.schema.columns) - width
        places |= {width + i: len(order) + i for i in range(made)}
        return replace(plan, input=self.exactly(plan.input, order), functions=functions), places

    def reduce(self, plan: Reduce, wanted: frozenset[int]) -> tuple[Plan, Places]:
        keys = len(plan.key)
        kept = [i for i in range(len(plan.aggregates)) if keys + i in wanted]
        if not keys and not kept:
            kept = [0]
        if not kept:
            distinct = Distinct(self.exactly(plan.input, plan.key))
            return distinct, {i: i for i in range(keys)}
        chosen = [plan.aggregates[i] for i in kept]
        reads = frozenset(plan.key) | frozenset(c for a in chosen for c in _reads(a))
        below, places = self.pruned(plan.input, reads)
        aggregates = tuple(
            replace(
                a,
                arg=None if a.arg is None else moved(a.arg, places),
                filter=None if a.filter is None else moved(a.filter, places),
            )
            for a in chosen
        )
        names = (*plan.names[:keys], *(plan.names[keys + i] for i in kept))
        reduced = Reduce(below, tuple(places[k] for k in plan.key), aggregates, names, plan.determined)
        return reduced, {**{i: i for i in range(keys)}, **{keys + i: keys + p for p, i in enumerate(kept)}}


def _reads(aggregate: Aggregate) -> frozenset[int]:
    parts = [e for e in (aggregate.arg, aggregate.filter) if e is not None]
    return frozenset(c for e in parts for c in columns(e))
