"""A compiled view rendered: its plan built in a dataflow, node by node. The only module here that touches the engine's
dataflow.

Always: a plan node met twice is built once; tables are declared with their own schema, so that their arrangement by
primary key is the one every view uses; nothing runs. Called by the sidecar, in the order `compile_views` gives.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.dataflow import Collection, Dataflow
from engine.errors import InvariantBroken
from engine.schema import Schema
from views.compile import CompiledView
from views.plan import Distinct, Filter, Import, Join, LeftJoin, Plan, Project, Reduce, Scan, Semijoin
from views.scalar import columns, moved


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
        if isinstance(plan, LeftJoin):
            left, right = self.build(plan.left), self.build(plan.right)
            return left.left_join(right, plan.left_key, plan.right_key)
        if isinstance(plan, Semijoin):
            left, right = self.build(plan.left), self.build(plan.right)
            return (left.antijoin if plan.negated else left.semijoin)(right, plan.left_key, plan.right_key)
        if isinstance(plan, Reduce):
            return self.build(plan.input).reduce(plan.key, plan.aggregates, plan.schema)
        if isinstance(plan, Distinct):
            return self.build(plan.input).distinct()
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
