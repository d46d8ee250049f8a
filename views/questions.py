"""Questions to running Datalog programs: a `.query` of one relation, asked with values for some of its columns.

Invariant: the answer is the rows of the whole relation that have the given values, though only what these reach is derived.
Called by the control door of a running sidecar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.engine.operators.expressions.core.ir import Literal
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_bound
from headrace.views.datalog.program import bind_question, check_program
from headrace.views.datalog_text.grammar import parse_program
from headrace.views.errors import ViewError
from headrace.views.plan import Import, One, Project
from headrace.views.sql.coerce import UNKNOWN, cast
from headrace.views.sql.environment import Environment
from headrace.views.sql.parsing.parse import Source
from headrace.views.traversal import walk
from headrace.views.yaml_models import nearest


def compile_question(
    name: str, question: str, values: Mapping[str, str], catalog: Catalog, views: Mapping[str, CompiledView]
) -> tuple[CompiledView, tuple[str, ...]]:
    """The view `name` of the rows that a question PROGRAM.RELATION asks for, and the views that it rests on, in their order.

    `values`: the texts of the columns that are given, as SQL would read them quoted. Raises ViewError.
    """
    program, _, relation = question.partition(".")
    own = [v for v in views.values() if v.spec.program == program]
    if not own:
        known = dict.fromkeys(v.spec.program for v in views.values() if v.spec.program)
        raise ViewError(f"no program {program} is running", hint=nearest(program, tuple(known)))
    spec = replace(own[0].spec, name=name)
    queries = {q.name: q for q in parse_program(spec.sql).queries}
    query = queries.get(relation)
    if query is None:
        hint = (
            f"its questions are {', '.join(queries)}" if queries else f"declare it: .query {relation}(+column, -column)"
        )
        raise ViewError(f"the program {program} has no question {relation}", hint=hint)
    given = [query.columns[place][0] for place in query.given]
    for column in [c for c in values if c not in given] + [c for c in given if c not in values]:
        reason = (
            f"{question} does not ask for {column}" if column in values else f"{question} needs a value of {column}"
        )
        raise ViewError(reason, hint=f"give {' '.join(f'--{c} VALUE' for c in given)}")
    env = Environment(catalog, {n: v for n, v in views.items() if v.spec.program != program}, name)
    siblings = {v.spec.relation: v.name for v in own}
    checked = check_program(spec, env, siblings)
    if checked.errors:
        raise checked.errors[0]
    kinds = checked.types[relation]
    exprs = tuple(cast(Literal(values[c], UNKNOWN), kinds[p]) for c, p in zip(given, query.given, strict=True))
    seeds = Project(One(), exprs, tuple(given))
    env = Environment(catalog, views, name)
    plan, notes = bind_question(checked, query, spec, env, siblings, seeds)
    compiled = compile_bound(Source(replace(spec, columns=(), indexes=(), key=None), spec.sql, catalog), plan)
    rest = rests_on(compiled, views)
    return replace(compiled, notes=notes, reads=rest), rest


def rests_on(compiled: CompiledView, views: Mapping[str, CompiledView]) -> tuple[str, ...]:
    """The views on which one rests, each after those it reads."""
    rest: dict[str, None] = {}

    def visit(found: CompiledView) -> None:
        for node in walk(found.plan):
            if isinstance(node, Import) and node.view not in rest:
                visit(views[node.view])
                rest[node.view] = None

    visit(compiled)
    return tuple(rest)


__all__ = ["compile_question", "rests_on"]
