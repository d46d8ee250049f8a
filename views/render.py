"""Render: builds a compiled view's plan in a dataflow, node by node.

No other module of views touches the engine's dataflow. Invariant: a plan node that is met twice is built once; tables are
declared with their own schema, so that all views use their arrangement by primary key; nothing runs. The sidecar calls it, in
the order of `compile_views`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from headrace.engine.dataflow import Collection, Dataflow, Iteration, delta_join, flat_map
from headrace.engine.dataflow.constant import one_row, repeated
from headrace.engine.dataflow.recursive import recursive
from headrace.engine.dataflow.round_limit import until_it_ends
from headrace.engine.dataflow.row_limit import MostRows
from headrace.engine.dataflow.window import windowed
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr, Literal
from headrace.engine.operators.table_functions import Spreading
from headrace.engine.operators.top import MOST_ROWS
from headrace.engine.operators.window import Window
from headrace.engine.recursion.switching import Strategy
from headrace.engine.schema import BOOLEAN, Column, Schema
from headrace.views.compile import CompiledView
from headrace.views.expressions import columns, moved, null_safe, seen
from headrace.views.extreme_recursion import ByExtremes, by_extremes
from headrace.views.join_graph import flat
from headrace.views.keys import unique_sets
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
    Windowed,
    identity,
)
from headrace.views.plan_node import Variable
from headrace.views.state_recursion import ByState, by_state
from headrace.views.view_models import FOLLOWED, RecursionModel

ENDLESS = (
    "bound it in WHERE, keep a path and leave out what is on it, write UNION in the place of UNION ALL, or raise the view's "
    "limits.rounds"
)
"""What to do about a recursive query that does not end."""

TOO_MANY = ENDLESS.replace("limits.rounds", "limits.rows")
"""What to do about one that has too many rows."""


def render(view: CompiledView, flow: Dataflow, rendered: Mapping[str, Collection]) -> Collection:
    """The collection of `view` in `flow`; `rendered` holds the collections of the views it reads, by name.

    A declared key that is not proved is checked: two live rows for one key become an error of the view. Raises
    InvariantBroken for a view it reads that is not rendered.
    """
    collection = _Renderer(flow, rendered, how=view.spec.recursion).build(view.plan)
    collection = Collection(collection.flow, collection.node, Schema(view.schema.columns))
    if view.key is not None and not view.key_proved:
        collection = collection.check_key(view.key, view.name)
    return collection


class _Renderer:
    """Builds one plan; `built` holds what stands already, by digest. What a loop's body has is built by its own, which has
    the variables; what reads none of these is built outside, and enters.
    """

    def __init__(
        self,
        flow: Dataflow | Iteration,
        rendered: Mapping[str, Collection],
        outer: _Renderer | None = None,
        how: RecursionModel = FOLLOWED,
    ) -> None:
        self.flow = flow
        self.how = how
        self.rendered = rendered
        self.outer = outer
        self.variables: dict[Variable, Collection] = {}
        self.built: dict[str, Collection] = {}

    def build(self, plan: Plan) -> Collection:
        """The collection of a plan node."""
        found = self.built.get(plan.digest)
        if found is None:
            if self.outer is not None and plan.free.isdisjoint(self.variables):
                assert isinstance(self.flow, Iteration)
                found = self.flow.enter(self.outer.build(plan))
            else:
                found = self.node(plan)
            self.built[plan.digest] = found
        return found

    def node(self, plan: Plan) -> Collection:
        """One node over its built inputs."""
        if isinstance(plan, Reference):
            return self.variables[plan.variable]
        if isinstance(plan, Recursion):
            return self.recursion(plan)
        if isinstance(plan, Scan):
            assert isinstance(self.flow, Dataflow), "a table reads no variable, and so is outside of loops"
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

    def recursion(self, plan: Recursion) -> Collection:
        """The rows of the variable that is shown: by state where that can be, else round after round."""
        if self.how.strategy == "history" or self.outer is not None:
            return self.loop(plan)
        kept = by_state(plan)
        if isinstance(kept, ByState):
            return self.by_state(plan, kept)
        extremes = by_extremes(plan)
        return self.loop(plan) if isinstance(extremes, str) else self.by_extremes(plan, extremes)

    def by_state(self, plan: Recursion, kept: ByState) -> Collection:
        """The rows of the variable that is shown, followed by Updates and Bootstraps."""
        outside = [self.build(p) for p in kept.outside]
        limit = _limit(plan)
        made = recursive(self.flow, kept.program, outside, Strategy(self.how.strategy), self.how.switch, limit)
        rows, left_over = [], []
        for variable, rule in zip(made, plan.rules, strict=True):
            own, schema = identity(rule.schema)[0], Schema(rule.schema.columns)
            rows.append(variable.project(own, schema))
            left_over.append(variable.filter(ColumnRef(len(own), BOOLEAN)).project(own, schema))
        return until_it_ends(rows[plan.shown], left_over, plan.name, plan.rounds, ENDLESS)

    def by_extremes(self, plan: Recursion, kept: ByExtremes) -> Collection:
        """The rows that are shown, over extremes that are followed by Updates and Bootstraps."""
        how = Strategy(self.how.strategy)
        names = [f'recursive query "{plan.name}"'] * len(kept.variables)
        limit = MostRows(plan.rows, names, TOO_MANY, _texts)
        made = recursive(
            self.flow,
            kept.extremes.program,
            [self.build(p) for p in kept.extremes.outside],
            how,
            self.how.switch,
            limit,
        )
        left_over = []
        for variable, rows, schema in zip(kept.variables, made, kept.extremes.program.schemas, strict=False):
            own = identity(schema)[0]
            self.variables[variable] = rows.project(own, schema)
            left_over.append(rows.filter(ColumnRef(len(own), BOOLEAN)).project(own, schema))
        outside = [self.build(p) for p in kept.shown.outside]
        schema = Schema(plan.schema.columns)
        if kept.choice is not None:
            shown = outside[0].project(identity(kept.choice[0].schema, kept.choice[1])[0], schema)
        else:
            [shown] = recursive(self.flow, kept.shown.program, outside, how, self.how.switch)
            shown = shown.project(identity(schema)[0], schema)
        return until_it_ends(shown, left_over, plan.name, plan.rounds, ENDLESS)

    def loop(self, plan: Recursion) -> Collection:
        """The variables round after round, in a loop; the rows are those of the one that is shown."""
        # One round more, which must bring nothing; or the rules are applied as often as there are rounds, and no more.
        returns = plan.at_limit == "return"
        loop = self.flow.iterate(plan.name, plan.rounds - 1 if returns else plan.rounds + 1)
        within = _Renderer(loop, self.rendered, self, self.how)
        rules = {}
        for variable, start, rule in zip(plan.variables, plan.starts, plan.rules, strict=True):
            begin = None if start is None else loop.enter(self.build(start))
            within.variables[variable] = loop.variable(rule.schema, begin)
        for variable, rule in zip(plan.variables, plan.rules, strict=True):
            rules[within.variables[variable]] = within.build(rule)
        variables = [within.variables[v] for v in plan.variables]
        # Of working tables the first variable adds up all rounds, and so has something left over while any has. Of relations each
        # leaves, so that all that are shown are of one loop.
        leaving = variables[:1] if any(plan.starts) else variables
        left = loop.close(rules, [rules[v] for v in leaving], leaving, _limit(plan))
        rows, left_over = left[plan.shown], left[len(leaving) :]
        if returns:
            return rows
        takes_back = bool(plan.why) and not any(plan.starts)
        return until_it_ends(rows, left_over, plan.name, plan.rounds, ENDLESS, takes_back=takes_back)

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


def _limit(plan: Recursion) -> MostRows:
    """How many rows each variable may have."""
    names = [v.name.removesuffix(" so far").removesuffix(" begins") for v in plan.variables]
    return MostRows(plan.rows, [f'recursive query "{name}"' for name in names], TOO_MANY, _texts)


def _texts(rows: pa.RecordBatch) -> list[str]:
    """Each row as an error shows it."""
    return ["(" + ", ".join("NULL" if v is None else str(v) for v in row.values()) + ")" for row in rows.to_pylist()]


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
