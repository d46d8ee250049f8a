"""The join graph: a tree of inner joins as a list of inputs and the equalities between their columns.

Invariant: it looks only through joins by columns and through choices of columns; everything else is an input. The rule
`delta_joins`, render and explain call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.engine.operators.expressions.core.ir import ColumnRef
from headrace.views.plan import Filter, Join, Plan, Project, Scan, identity

Place = tuple[int, int]
"""A column: of which leaf, and which there."""


@dataclass(frozen=True)
class Flat:
    """`leaves` in the tree's order; `equal`: classes of columns that must be equal; `columns`: those of the tree."""

    leaves: tuple[Plan, ...]
    equal: tuple[tuple[Place, ...], ...]
    columns: tuple[Place, ...]

    def arranged(self) -> tuple[tuple[Plan, tuple[int, ...]], ...]:
        """What a delta join looks up by which key, once each: of a leaf the columns that are read, unless the key is its own.

        Leaves are visited as the engine does it: from each one those of most equalities first, then in order.
        """
        return tuple(dict.fromkeys(step for first in range(len(self.leaves)) for step in self.look_ups(first)))

    def look_ups(self, first: int) -> list[tuple[Plan, tuple[int, ...]]]:
        """What a change of leaf `first` is looked up in, one after the other: each collection with its key."""
        found: list[tuple[Plan, tuple[int, ...]]] = []
        seen, left = {first}, [i for i in range(len(self.leaves)) if i != first]
        while left:
            keys = {i: self._keyed(seen, i) for i in left}
            at = max(left, key=lambda i: (len(keys[i]), -i))
            found += self._steps(at, keys[at])
            seen.add(at)
            left.remove(at)
        return found

    def _steps(self, leaf: int, key: tuple[int, ...]) -> list[tuple[Plan, tuple[int, ...]]]:
        """One look-up, or, of a table by another key than its own, two: in an index of that, and in the table."""
        plan = self.leaves[leaf]
        read = sorted({c for i, c in (*self.columns, *(p for some in self.equal for p in some)) if i == leaf})
        own = own_key(plan)
        if own == key or (own is None and len(read) == len(plan.schema.columns)):
            return [(plan, key)]
        indexed = own is not None and not set(read) <= {*key, *own}
        held = sorted({*key, *own}) if own is not None and indexed else read
        part = plan if len(held) == len(plan.schema.columns) else Project(plan, *identity(plan.schema, held))
        first = (part, tuple(held.index(k) for k in key))
        table = plan.input if isinstance(plan, Filter) else plan
        return [first, (table, own)] if own is not None and indexed else [first]

    def _keyed(self, seen: set[int], leaf: int) -> tuple[int, ...]:
        some = [c for same in self.equal if any(i in seen for i, _ in same) for i, c in same if i == leaf]
        return tuple(sorted(some))


def own_key(plan: Plan) -> tuple[int, ...] | None:
    """The key by which what the plan reads is arranged already: a table's, filtered or projected so that its key is there."""
    if isinstance(plan, Scan):
        return plan.schema.key
    if not isinstance(plan, Filter | Project):
        return None
    inner = own_key(plan.input)
    if inner is None or isinstance(plan, Filter):
        return inner
    places = {e.index: k for k, e in reversed([*enumerate(plan.exprs)]) if isinstance(e, ColumnRef)}
    return tuple(places[k] for k in inner) if places.keys() >= set(inner) else None


def flat(plan: Plan) -> Flat:
    """The tree below `plan`; a plan that is no join is one leaf.

    >>> from headrace.engine.schema import BIGINT, Column, Schema
    >>> from headrace.views.plan import Scan
    >>> a, b = (Scan(f"public.{n}", Schema((Column("x", BIGINT), Column("y", BIGINT)))) for n in "ab")
    >>> flat(Join(Join(a, b, (0,), (1,)), a, (2,), (0,))).equal
    (((0, 0), (1, 1)), ((1, 0), (2, 0)))
    """
    leaves: list[Plan] = []
    pairs: list[tuple[Place, Place]] = []
    columns = _columns(plan, leaves, pairs)
    return Flat(tuple(leaves), _classes(pairs), columns)


def _columns(plan: Plan, leaves: list[Plan], pairs: list[tuple[Place, Place]]) -> tuple[Place, ...]:
    if isinstance(plan, Join) and plan.left_key and plan.residual is None:
        left, right = _columns(plan.left, leaves, pairs), _columns(plan.right, leaves, pairs)
        pairs += [(left[a], right[b]) for a, b in zip(plan.left_key, plan.right_key, strict=True)]
        return (*left, *right)
    if isinstance(plan, Project) and chooses(plan) and (isinstance(plan.input, Join) or own_key(plan.input)):
        # Of a table that is looked up by its own key in some order of the leaves nothing needs to be left out.
        below = _columns(plan.input, leaves, pairs)
        return tuple(below[e.index] for e in plan.exprs if isinstance(e, ColumnRef))
    leaves.append(plan)
    return tuple((len(leaves) - 1, c) for c in range(len(plan.schema.columns)))


def chooses(plan: Project) -> bool:
    """Whether it computes nothing."""
    return all(isinstance(e, ColumnRef) for e in plan.exprs)


def _classes(pairs: Sequence[tuple[Place, Place]]) -> tuple[tuple[Place, ...], ...]:
    """The columns that must be equal to one another, in the order in which they were first named."""
    classes: list[list[Place]] = []
    for one, other in pairs:
        mine = [c for c in classes if one in c or other in c]
        together = list(dict.fromkeys([*(p for c in mine for p in c), one, other]))
        at = classes.index(mine[0]) if mine else len(classes)
        classes = [c for c in classes if c not in mine]
        classes.insert(at, together)
    return tuple(tuple(sorted(c)) for c in classes)
