"""A compiled view rendered: its plan built in a dataflow, node by node. The only module here that touches the engine's
dataflow.

Always: a plan node met twice is built once; tables are declared with their own schema, so that their arrangement by
primary key is the one every view uses; nothing runs. Called by the sidecar, in the order `compile_views` gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.dataflow import Collection, Dataflow, delta_join, flat_map
from engine.dataflow.constant import one_row, repeated
from engine.dataflow.window import windowed
from engine.errors import InvariantBroken
from engine.operators.expressions.ir import ColumnRef, Expr, Literal
from engine.operators.spread import Spreading
from engine.operators.top import MOST_ROWS
from engine.operators.window import Window
from engine.schema import Column, Schema
from views.compile import CompiledView
from views.joins import flat
from views.keys import unique_sets
from views.plan import (
    DeltaJoin,
    Distinct,
    Filter,
    Import,
    Join,
    LeftJoin,
    One,
    Plan,
    Project,
    Reduce,
    Repeat,
    Scan,
    Semijoin,
    Spread,
    Top,
    Windowed,
    identity,
)
from views.scalar import columns, moved, null_safe, seen


def render(view: CompiledView, flow: Dataflow, rendered: Mapping[str, Collection]) -> Collection:
    """The collection of `view` in `flow`; `rendered` holds the collections of the views it reads, by name.

    A declared key that is not proved is checked: two live rows for one key become an error of the view. Raises
    InvariantBroken for a view it reads that is not rendered.
    """
    collection = _Renderer(flow, rendered).build(view.plan)
    collection = Collection(collection.flow, collection.node, Schema(view.schema.columns))
    if view.key is not None and not view.key_proved:
        collection = collection.check_key(view.key, view.name)
    return collection


class _Renderer:
    """Builds one plan; `built` holds what stands already, by digest."""

    def __init__(self, flow: Dataflow, rendered: Mapping[str, Collection]) -> None:
        self.flow = flow
        self.rendered = rendered
        self.built: dict[str, Collection] = {}

    def build(self, plan: Plan) -> Collection:
        """The collection of a plan node."""
        found = self.built.get(plan.digest)
        if found is None:
            found = self.built[plan.digest] = self.node(plan)
        return found

    def node(self, plan: Plan) -> Collection:
        """One node over its built inputs."""
        if isinstance(plan, Scan):
            return self.flow.table(plan.table, plan.schema)
        if isinstance(plan, Import):
            if plan.view not in self.rendered:
                raise InvariantBroken("a view was rendered before one that it reads", view=plan.view)
            return self.rendered[plan.view]
        if isinstance(plan, Project):
            if isinstance(plan.input, Join):
                return self.projected_join(plan, plan.input)
            return self.build(plan.input).project(plan.exprs, plan.schema)
        if isinstance(plan, Filter):
            return self.build(plan.input).filter(plan.predicate)
        if isinstance(plan, Join):
            left, right = self.build(plan.left), self.build(plan.right)
            return left.join(right, plan.left_key, plan.right_key, plan.residual)
        if isinstance(plan, DeltaJoin):
            tree = flat(plan.input)
            joined = delta_join([self.build(leaf) for leaf in tree.leaves], tree.equal, tree.columns)
            return joined.project(identity(plan.schema)[0], plan.schema)
        if isinstance(plan, LeftJoin):
            return self.outer_join(plan)
        if isinstance(plan, Semijoin):
            left, right = self.build(plan.left), self.build(plan.right)
            return (left.antijoin if plan.negated else left.semijoin)(right, plan.left_key, plan.right_key)
        if isinstance(plan, Reduce):
            return self.build(plan.input).reduce(plan.key, plan.aggregates, plan.schema)
        if isinstance(plan, Distinct):
            return self.build(plan.input).distinct()
        if isinstance(plan, One):
            return one_row(self.flow)
        if isinstance(plan, Repeat):
            return repeated(self.build(plan.input))
        if isinstance(plan, Top):
            return self.top(plan)
        if isinstance(plan, Windowed):
            window = Window(plan.input.schema, plan.key, plan.orders, plan.functions, plan.schema)
            return windowed(self.build(plan.input), window)
        if isinstance(plan, Spread):
            spreading = Spreading(plan.input.schema, plan.functions, plan.ordinal, plan.outer, plan.schema)
            return flat_map(self.build(plan.input), plan.digest, spreading, plan.schema)
        first, *rest = (self.build(p) for p in plan.inputs)
        return first.concat(*rest) if rest else first

    def projected_join(self, plan: Project, join: Join) -> Collection:
        """A join whose rows hold only the columns that the projection, or the residual, reads."""
        read = set[int]().union(*(columns(e) for e in plan.exprs))
        if join.residual is not None:
            read |= columns(join.residual)
        held = sorted(read)
        to = {column: place for place, column in enumerate(held)}
        residual = None if join.residual is None else moved(join.residual, to)
        left, right = self.build(join.left), self.build(join.right)
        joined = left.join(right, join.left_key, join.right_key, residual, held)
        return joined.project([moved(e, to) for e in plan.exprs], plan.schema)

    def outer_join(self, plan: LeftJoin) -> Collection:
        """A left or full join: its pairs, and the rows of each side that are in none."""
        left, right = self.build(plan.left), self.build(plan.right)
        schema = plan.schema
        if plan.residual is None:
            if not plan.full:
                return left.left_join(right, plan.left_key, plan.right_key)
            pairs = left.join(right, plan.left_key, plan.right_key)
            lefts = left.antijoin(right, plan.left_key, plan.right_key)
            rights = right.antijoin(left, plan.right_key, plan.left_key)
        else:
            pairs = left.join(right, plan.left_key, plan.right_key, plan.residual)
            lefts = _unpaired(plan.left, left, pairs, 0)
            rights = _unpaired(plan.right, right, pairs, len(left.schema.columns)) if plan.full else right
        own, other = identity(plan.left.schema)[0], identity(plan.right.schema)[0]
        parts = [lefts.project([*own, *(Literal(None, e.type) for e in other)], schema)]
        if plan.full:
            parts.append(rights.project([*(Literal(None, e.type) for e in own), *other], schema))
        return Collection(self.flow, pairs.node, schema).concat(*parts)

    def top(self, plan: Top) -> Collection:
        """The first rows of each group; with ties, those that the last one's order meets beside them."""
        rows = self.build(plan.input)
        limit = MOST_ROWS - plan.offset if plan.limit is None else plan.limit
        found = rows.top_k(plan.key, plan.orders, limit, plan.offset)
        if not plan.ties or limit == 0:
            return found
        last = rows.top_k(plan.key, plan.orders, 1, plan.offset + limit - 1)
        before = rows.top_k(plan.key, plan.orders, plan.offset + limit)
        by = dict.fromkeys([*plan.key, *(o.column for o in plan.orders)])
        refs = [ColumnRef(c, plan.schema.columns[c].type) for c in by]
        same = [_semijoined(part, last, refs) for part in (rows, before)]
        return found.concat(same[0], same[1].negate())


def _keyed(rows: Collection, exprs: Sequence[Expr]) -> tuple[Collection, list[int]]:
    """The collection with NULL-safe keys of `exprs` behind its columns, and where they stand."""
    columns = rows.schema.columns
    keys = [k for e in exprs for k in null_safe(e, nullable=not isinstance(e, ColumnRef) or columns[e.index].nullable)]
    if all(isinstance(k, ColumnRef) for k in keys):
        return rows, [k.index for k in keys if isinstance(k, ColumnRef)]
    made = [Column(f"key{i}", k.type, nullable=False) for i, k in enumerate(keys)]
    wide = rows.project([*identity(rows.schema)[0], *keys], Schema((*columns, *made)))
    return wide, list(range(len(columns), len(columns) + len(keys)))


def _semijoined(rows: Collection, among: Collection, refs: Sequence[ColumnRef]) -> Collection:
    """The rows whose `refs`, NULLs being equal, are those of a row in `among`, which has the same columns."""
    wide, places = _keyed(rows, refs)
    keys, there = _keyed(among, refs)
    return wide.semijoin(keys, places, there).project(identity(rows.schema)[0], rows.schema)


def _unpaired(plan: Plan, side: Collection, pairs: Collection, offset: int) -> Collection:
    """The rows of one side, whose columns stand at `offset` in the pairs, that are in none of these."""
    sets = unique_sets(plan)
    width = range(len(side.schema.columns))
    refs = seen([ColumnRef(i, side.schema.columns[i].type) for i in (sorted(sets[0]) if sets else width)])
    wide, places = _keyed(side, refs)
    schema = Schema(side.schema.columns)
    own = [ColumnRef(offset + i, c.type) for i, c in enumerate(schema.columns)]
    keys, there = _keyed(pairs.project(own, schema), refs)
    return wide.antijoin(keys, places, there).project(identity(schema)[0], schema)
