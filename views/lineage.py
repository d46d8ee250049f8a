"""Lineage: the columns of tables that a view's rows, or the choice of them, depend on.

Invariant: it never names too few; what cannot be told apart counts. Pure; wiring calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.views.compile import CompiledView
from headrace.views.expressions import columns
from headrace.views.plan import Filter, Import, Join, LeftJoin, Plan, Project, Scan, Semijoin, Top, Union
from headrace.views.traversal import children, walk

Named = frozenset[tuple[str, str]]
"""(table, column) pairs."""
WHOLE = ""
"""In place of a column: the table as such."""


def columns_named(views: Sequence[CompiledView]) -> Mapping[str, Named]:
    """View → the columns that it names, through the views that it reads too. `views`: each after those it reads."""
    found: dict[str, Named] = {}
    for view in views:
        own: set[tuple[str, str]] = set()
        _gather(view.plan, range(len(view.plan.schema.columns)), found, own)
        found[view.name] = frozenset(own)
    return found


def rests_on(views: Sequence[CompiledView]) -> Mapping[str, Named]:
    """As `columns_named`, and each table that a view reads, with `WHOLE` for a column."""
    found, tables = columns_named(views), dict[str, Named]()
    for view in views:
        own = frozenset((node.table, WHOLE) for node in walk(view.plan) if isinstance(node, Scan))
        tables[view.name] = own.union(*(tables.get(name, frozenset()) for name in view.reads))
    return {name: named | tables[name] for name, named in found.items()}


def _gather(plan: Plan, wanted: Iterable[int], views: Mapping[str, Named], found: set[tuple[str, str]]) -> None:
    """Add what the columns `wanted` of a plan, and its choice of rows, rest on."""
    reads = set(wanted)
    if isinstance(plan, Scan):
        found |= {(plan.table, plan.schema.names[i]) for i in reads | set(plan.schema.key or ())}
    elif isinstance(plan, Import):
        found |= views[plan.view]
    elif isinstance(plan, Project):
        _gather(plan.input, {c for i in reads for c in columns(plan.exprs[i])}, views, found)
    elif isinstance(plan, Filter):
        _gather(plan.input, reads | columns(plan.predicate), views, found)
    elif isinstance(plan, Top):
        _gather(plan.input, reads | {*plan.key, *(o.column for o in plan.orders)}, views, found)
    elif isinstance(plan, Join | LeftJoin):
        reads |= columns(plan.residual) if plan.residual is not None else frozenset()
        width = len(plan.left.schema.columns)
        _gather(plan.left, {*plan.left_key, *(i for i in reads if i < width)}, views, found)
        _gather(plan.right, {*plan.right_key, *(i - width for i in reads if i >= width)}, views, found)
    elif isinstance(plan, Semijoin):
        _gather(plan.left, reads | set(plan.left_key), views, found)
        _gather(plan.right, plan.right_key, views, found)
    elif isinstance(plan, Union):
        for each in plan.inputs:
            _gather(each, reads, views, found)
    else:
        for each in children(plan):
            _gather(each, range(len(each.schema.columns)), views, found)
