"""Rule: joins get keys and an order: what is connected by equalities, by primary keys first, in FROM's order.

Conditions that cannot fail become keys, filters of one table, or residuals as soon as their columns are there; one that
may fail waits above all joins, unless nothing else connects a table (decision 12). A table joined by its primary
key is keyed by that alone, so that its one arrangement is used by every view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr, Literal
from headrace.engine.value import derived
from headrace.views.expressions import columns, conjunction, conjuncts, equality, fallible, moved, shifted, substituted
from headrace.views.keys import is_unique
from headrace.views.plan import Filter, Join, Plan, Project, Scan, keyed
from headrace.views.rewrite import once
from headrace.views.rules.push_filters import filtered
from headrace.views.traversal import children, with_children


@dataclass(frozen=True, eq=False)
class _Condition:
    """A condition over the row of all leaves, with what is asked of it at every leaf."""

    expr: Expr

    @derived
    def reads(self) -> frozenset[int]:
        return columns(self.expr)

    @derived
    def may_fail(self) -> bool:
        return fallible(self.expr)

    @derived
    def pairs(self) -> tuple[_Pair, ...]:
        """The sides of an equality of columns, either way round."""
        sides = equality(self.expr)
        if sides is None or not all(map(columns, sides)):
            return ()
        return _Pair(*sides, self), _Pair(*sides[::-1], self)


@dataclass(frozen=True, eq=False)
class _Pair:
    """An equality between what is joined already (`left`) and a leaf (`right`)."""

    left: Expr
    right: Expr
    condition: _Condition

    def connects(self, seen: frozenset[int], span: frozenset[int]) -> bool:
        return columns(self.left) <= seen and columns(self.right) <= span

    def side(self, leaf_side: bool) -> Expr:
        return self.right if leaf_side else self.left


def order_joins(plan: Plan) -> Plan:
    """Every group of inner joins with keys, in a good order.

    >>> from headrace.engine.operators.expressions.core.ir import Call
    >>> from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema
    >>> a = Scan("public.a", Schema((Column("x", BIGINT),)))
    >>> b = Scan("public.b", Schema((Column("id", BIGINT),), (0,)))
    >>> same = Call("=(bigint,bigint)", (ColumnRef(1, BIGINT), ColumnRef(0, BIGINT)), BOOLEAN)
    >>> joined = order_joins(Join(a, b, residual=same))
    >>> joined.input == Join(a, b, (0,), (0,))
    True
    """

    def ordered(node: Plan) -> Plan:
        if Join not in node.kinds:
            return node
        if not isinstance(node, Join) or node.left_key:
            return with_children(node, [visit(p) for p in children(node)])
        cluster = _Cluster(visit)
        outputs = cluster.flatten(node)
        return cluster.build(outputs, node.schema.names, node.at)

    visit = once(ordered)
    return visit(plan)


@dataclass
class _Leaf:
    """One input of the joins: its columns are `start` … of the row of all leaves."""

    plan: Plan
    start: int
    at: int
    filters: list[Expr] = field(default_factory=list)

    @derived
    def span(self) -> frozenset[int]:
        return frozenset(range(self.start, self.start + len(self.plan.schema.columns)))

    def filtered(self) -> Plan:
        """The leaf under its own filters."""
        return filtered(self.plan, self.filters)

    def primary_key(self) -> tuple[int, ...]:
        """The positions, in the row of all leaves, of the primary key if the leaf is a bare table."""
        key = self.plan.schema.key if isinstance(self.plan, Scan) else None
        return tuple(self.start + k for k in key or ())


class _Cluster:
    """A group of inner joins: leaves, and conditions over the row of all leaves' columns. `ordered` orders a leaf inside."""

    def __init__(self, ordered: Callable[[Plan], Plan]) -> None:
        self.ordered = ordered
        self.leaves: list[_Leaf] = []
        self.width = 0
        self.said: dict[Expr, None] = {}
        self.conditions: list[_Condition] = []

    # taking apart

    def flatten(self, plan: Plan, at: int = 0) -> tuple[Expr, ...]:
        """Adds the leaves and conditions of `plan`; gives its columns over the row of all leaves."""
        if isinstance(plan, Join) and not plan.left_key:
            row = (*self.flatten(plan.left, at), *self.flatten(plan.right, plan.at))
            self.said.update((substituted(c, row), None) for c in conjuncts(plan.residual))
            return row
        if isinstance(plan, Project) and all(isinstance(e, ColumnRef | Literal) for e in plan.exprs):
            row = self.flatten(plan.input, at)
            return tuple(substituted(e, row) for e in plan.exprs)
        if isinstance(plan, Filter) and not any(fallible(c) for c in conjuncts(plan.predicate)):
            row = self.flatten(plan.input, at)
            self.said.update((substituted(c, row), None) for c in conjuncts(plan.predicate))
            return row
        leaf = _Leaf(plan, self.width, plan.at if isinstance(plan, Scan) else at)
        self.leaves.append(leaf)
        self.width += len(plan.schema.columns)
        return tuple(ColumnRef(leaf.start + i, c.type) for i, c in enumerate(plan.schema.columns))

    # putting together

    def build(self, outputs: tuple[Expr, ...], names: tuple[str, ...], at: int) -> Plan:
        """The joins in order under a projection to `outputs`."""
        self.hand_out_filters()
        first, rest = self.leaves[0], self.leaves[1:]
        seen = first.span
        place = {p: p - first.start for p in seen}
        plan, alone = self.ordered(first.filtered()), True
        while rest:
            leaf = self.best(seen, rest)
            rest.remove(leaf)
            pairs = self.connecting(seen, leaf)
            pairs, late = self.by_own_key(first if alone else None, leaf, pairs)
            left_plan, left_key = keyed(plan, [moved(p.left, place) for p in pairs])
            leaf_place = {p: p - leaf.start for p in leaf.span}
            leaf_plan, right_key = keyed(self.ordered(leaf.filtered()), [moved(p.right, leaf_place) for p in pairs])
            seen = seen | leaf.span
            width = len(left_plan.schema.columns)
            place = {**place, **{p: q + width for p, q in leaf_place.items()}}
            ready = [*late, *self.take(seen)]
            residual = conjunction([moved(c.expr, place) for c in ready])
            plan, alone = Join(left_plan, leaf_plan, left_key, right_key, residual, at=leaf.at or at), False
        last = conjunction([moved(c.expr, place) for c in self.conditions])
        if last is not None:
            plan = Filter(plan, last)
        return Project(plan, tuple(moved(e, place) for e in outputs), names)

    def hand_out_filters(self) -> None:
        """Conditions on one leaf alone, which cannot fail, become its filters."""
        for condition in map(_Condition, self.said):
            reads = condition.reads
            owner = next((leaf for leaf in self.leaves if reads and reads <= leaf.span), None)
            if owner is None or condition.may_fail:
                self.conditions.append(condition)
            else:
                owner.filters.append(shifted(condition.expr, -owner.start))

    def take(self, seen: frozenset[int]) -> list[_Condition]:
        """Removes and gives the conditions that cannot fail and whose columns are all there."""
        ready = [c for c in self.conditions if c.reads <= seen and not c.may_fail]
        self.conditions = [c for c in self.conditions if c not in ready]
        return ready

    def best(self, seen: frozenset[int], rest: list[_Leaf]) -> _Leaf:
        """The next leaf: by primary key, then by a unique key, then connected at all, in FROM's order."""

        def rank(leaf: _Leaf) -> int:
            pairs = self.pairs(seen, leaf, may_fail=False)
            keyed = {p.right.index for p in pairs if isinstance(p.right, ColumnRef)}
            if leaf.primary_key() and keyed >= set(leaf.primary_key()):
                return 0
            if pairs and is_unique(leaf.plan, (k - leaf.start for k in keyed)):
                return 1
            return 2 if pairs else 3 if self.pairs(seen, leaf, may_fail=True) else 4

        return min(rest, key=rank)

    def connecting(self, seen: frozenset[int], leaf: _Leaf) -> list[_Pair]:
        """The equalities to join the leaf by, taken from the conditions; one that may fail only without others."""
        pairs = self.pairs(seen, leaf, may_fail=False) or self.pairs(seen, leaf, may_fail=True)
        used = [p.condition for p in pairs]
        self.conditions = [c for c in self.conditions if c not in used]
        return pairs

    def pairs(self, seen: frozenset[int], leaf: _Leaf, *, may_fail: bool) -> list[_Pair]:
        """Of each equality the way round, if any, that connects the leaf."""
        ways = ([p for p in c.pairs if p.connects(seen, leaf.span)] for c in self.conditions if c.may_fail is may_fail)
        return [some[0] for some in ways if some]

    def by_own_key(self, first: _Leaf | None, leaf: _Leaf, pairs: list[_Pair]) -> tuple[list[_Pair], list[_Condition]]:
        """Key pairs, and conditions left for the residual: a table joined by its whole primary key is keyed by it, in
        its order, and by nothing more."""
        for leaf_side, owner in ((True, leaf), (False, first)):
            key = () if owner is None else owner.primary_key()
            by_column: dict[int, _Pair] = {}
            for pair in pairs:
                side = pair.side(leaf_side)
                if isinstance(side, ColumnRef):
                    by_column.setdefault(side.index, pair)
            if key and all(k in by_column for k in key):
                chosen = [by_column[k] for k in key]
                return chosen, [p.condition for p in pairs if p not in chosen]
        return pairs, []
