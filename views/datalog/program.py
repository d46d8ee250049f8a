"""A Datalog program bound: all of its mistakes, or the plan of each relation that it puts out.

A program is checked as a whole; then each of its views is bound, which reads the program's other views where these are not of
its own recursive group. Invariant: no program raises anything but ViewError. Called by `headrace.views.compile`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from headrace.engine.operators.expressions.core.ir import Literal
from headrace.engine.schema import BOOLEAN, DataType
from headrace.views.datalog.bound_atoms import answered
from headrace.views.datalog.checks import Relation, constraint_key, relations_of, warnings_of
from headrace.views.datalog.context import Context
from headrace.views.datalog.extremes import not_monotone
from headrace.views.datalog.groups import Strata
from headrace.views.datalog.magic import Asked, Rewritten, asked
from headrace.views.datalog.relations import Counted, Relations
from headrace.views.datalog.strata import Reading, names_read, readings, strata, unstratified
from headrace.views.datalog_text.grammar import parse_program
from headrace.views.datalog_text.syntax import Query, query_key
from headrace.views.errors import ViewError
from headrace.views.plan import Import, Plan, Project, identity
from headrace.views.recursion import IMPROVES
from headrace.views.spec import ViewSpec
from headrace.views.sql.environment import Environment
from headrace.views.sql.parsing.parse import Source

MOST_SHOWN = 100
"""Mistakes of one program that are told."""


@dataclass(frozen=True)
class Checked:
    """What was found of a program: its mistakes, or else what its views need. `groups` are the strata in order;
    `counted`: of relations that negate or aggregate themselves, how."""

    context: Context
    relations: Mapping[str, Relation]
    groups: Sequence[tuple[str, ...]]
    recursive: frozenset[str]
    read: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...]
    counted: Mapping[str, Counted]
    types: Mapping[str, tuple[DataType, ...]]

    @property
    def errors(self) -> tuple[ViewError, ...]:
        """All mistakes, in the order of their places."""
        found = sorted(self.context.mistakes.items(), key=lambda item: _place(item[1]))
        return tuple(error for _, error in found)[:MOST_SHOWN]


def external_reads(text: str) -> tuple[str, ...]:
    """The names of tables without a schema, and views, that a program's inputs read."""
    program = parse_program(text)
    inputs = [*program.inputs, *(q.asked for q in program.queries if q.asked is not None)]
    return tuple(dict.fromkeys(i.table for i in inputs if i.schema is None))


def view_reads(spec: ViewSpec, siblings: Mapping[str, str]) -> tuple[str, ...]:
    """The views of the same program that a view reads; `siblings`: the view of each relation that has one."""
    own, _, group = _shape(spec.sql)
    relation = spec.relation
    seen, work = {relation}, [relation]
    found: dict[str, None] = {}
    while work:
        for read in own.get(work.pop(), ()):
            if read in siblings and read not in group.get(relation, (relation,)):
                found[siblings[read]] = None
            elif read not in seen:
                seen.add(read)
                work.append(read)
    return tuple(found)


def check_program(spec: ViewSpec, env: Environment, siblings: Mapping[str, str]) -> Checked:
    """Everything that can be said of a program without its other views."""
    program = parse_program(spec.sql)
    context = Context(program, spec, env, Source(spec, spec.sql, env.catalog))
    for mistake in program.mistakes:
        context.tell(mistake.at, mistake.reason, mistake.hint, mistake.rule)
    if program.has_wrong_records:
        # Its records are not taken apart, and nothing else can be said of it.
        return Checked(context, {}, (), frozenset(), {}, (), {}, {})
    relations = relations_of(context)
    found = Strata.of(relations)
    groups, recursive = found.groups, found.recursive
    every = readings([r for relation in relations.values() for r in relation.rules])
    bound = Relations(context, relations)
    for group in groups:
        if group[0] in recursive and not _stratified(context, bound, group, every):
            bound.broken.update(group)
            continue
        bound.bind(group, recursive=group[0] in recursive)
    types = {n: tuple(c.type for c in plan.schema.columns) for n, (plan, _) in bound.plans.items()}
    warnings = warnings_of(context, relations)
    checked = Checked(context, relations, groups, recursive, found.read, warnings, bound.counted, types)
    if not context.mistakes:
        _check_questions(checked, siblings)
    return checked


def _check_questions(checked: Checked, siblings: Mapping[str, str]) -> None:
    """Each question that a table asks is bound once over the whole program; what is wrong with its values is told."""
    context = checked.context
    for query in context.program.queries:
        if query.asked is None:
            continue
        made = _rewritten(checked.relations, checked.types, checked.counted, query, siblings)
        strata_of = Strata.of({**checked.relations, **made.relations})
        bound = Relations(context, strata_of.relations, checked.counted)
        for group in strata_of.groups:
            bound.bind(group, recursive=group[0] in strata_of.recursive)


def _stratified(context: Context, bound: Relations, group: Sequence[str], every: Sequence[Reading]) -> bool:
    """Whether a recursive group has a meaning: without negation and aggregates of its own relations, with extremes of
    them that only improve, or by rounds where the program asks for these. If not, that is told.
    """
    cycle = unstratified(group, every)
    if cycle is None:
        return True
    spec, first = context.spec, cycle[0]
    what = "is negated" if first.how == "negation" else f"is aggregated by {first.how}"
    how = {r.how for r in every if r.head in group and r.read in group and r.how}
    if spec.unstratified is not None:
        bound.counted.update(
            dict.fromkeys(group, Counted(f"{first.read} {what} in its own recursion", spec.unstratified))
        )
        return True
    hint = "break the cycle: let one of these rules read a relation that does not depend on the others"
    if how in ({"min"}, {"max"}):
        rules = [r for n in group for r in bound.relations[n].rules]
        why = not_monotone(group, rules, first.how)
        if why is None:
            extreme = "minimum" if first.how == "min" else "maximum"
            bound.counted.update(dict.fromkeys(group, Counted(f"the {extreme} of {first.read} {IMPROVES}")))
            return True
        what += f", and {why.reason} (line {spec.place(why.at)[0]})"
    steps = [f"{r.rule.text} (line {spec.place(r.rule.start)[0]})" for r in cycle]
    reason = f"{first.read} {what} in {first.head}, on which it depends itself: {' <- '.join(steps)}"
    hint += ", or ask for rounds from nothing: unstratified: {rounds: 1000} of the program"
    context.tell(first.at, reason, hint, first.rule.text)
    return False


def bind_relation(
    checked: Checked, spec: ViewSpec, env: Environment, siblings: Mapping[str, str]
) -> tuple[Plan, tuple[str, ...]]:
    """The plan of one view of a program that has no mistakes, over the program's views that are compiled, and what explain says
    of it.
    """
    program = checked.context.program
    query = next((q for q in program.queries if query_key(q.name) == spec.relation), None)
    if query is not None:
        return bind_question(checked, query, spec, env, siblings)
    context = Context(program, spec, env, checked.context.source)
    strata_of = Strata(checked.relations, checked.groups, checked.recursive, checked.read)
    why_whole = _why_whole(checked.relations, checked.counted, siblings)
    made = answered(strata_of, spec.relation, checked.types, why_whole)
    if made is not None:
        strata_of = Strata.of({**checked.relations, **made.relations})
    bound = Relations(context, strata_of.relations, checked.counted)
    plan = bound_plan(bound, strata_of, spec.relation, env, siblings)
    given = next((o.columns for o in program.outputs if o.name == spec.relation), None)
    names = given or checked.relations[spec.relation].columns
    columns = identity(plan.schema)[0]
    if not columns:
        # A view has columns: of a relation without any it has one row while that holds.
        columns, names = (Literal(True, BOOLEAN),), ("holds",)
    notes = strata_of.notes(spec.relation, checked.counted, siblings)
    return Project(plan, columns, names), (*(made.notes if made is not None else ()), *notes)


def bind_question(
    checked: Checked,
    query: Query,
    spec: ViewSpec,
    env: Environment,
    siblings: Mapping[str, str],
    values: Plan | None = None,
) -> tuple[Plan, tuple[str, ...]]:
    """The plan of the rows that a question asks for, and what explain says of it. `values`: what is given, where no table asks.
    Raises ViewError.
    """
    context = Context(checked.context.program, spec, env, checked.context.source)
    made = _rewritten(checked.relations, checked.types, checked.counted, query, siblings)
    strata_of = Strata.of({**checked.relations, **made.relations})
    bound = Relations(context, strata_of.relations, checked.counted)
    if values is not None:
        bound.plans[_values_of(query)] = (values, values.schema.names)
    plan = bound_plan(bound, strata_of, query_key(query.name), env, siblings)
    names = tuple(name for name, _, _ in query.columns)
    notes = strata_of.notes(query_key(query.name), checked.counted, siblings)
    return Project(plan, identity(plan.schema)[0], names), (*made.notes, *notes)


def _values_of(query: Query) -> str:
    """The relation of the values that a question gives."""
    return f"asked {query_key(query.name)}"


def _rewritten(
    relations: Mapping[str, Relation],
    types: Mapping[str, tuple[DataType, ...]],
    counted: Mapping[str, Counted],
    query: Query,
    siblings: Mapping[str, str],
) -> Rewritten:
    """The relations that answer a question."""
    question = Asked(query.name, query.given, _values_of(query), query_key(query.name))
    return asked(question, relations, types, _why_whole(relations, counted, siblings))


def _why_whole(
    relations: Mapping[str, Relation], counted: Mapping[str, Counted], siblings: Mapping[str, str]
) -> Callable[[str], str]:
    """Tells why a relation is to be taken as a whole, or nothing."""

    def why_whole(name: str) -> str:
        if name in siblings:
            return f"it stands as the view {siblings[name]}"
        if name in counted:
            return f"in its recursion {counted[name].why}"
        return "it is declared no_magic" if relations[name].whole else ""

    return why_whole


def bound_plan(bound: Relations, strata_of: Strata, wanted: str, env: Environment, siblings: Mapping[str, str]) -> Plan:
    """The plan of a relation, over the program's other views where these are not of its own group. Raises ViewError."""
    cone = strata_of.cone(wanted)
    for group in strata_of.groups:
        if not cone & set(group):
            continue
        for name in group if wanted not in group else ():
            view = env.views.get(siblings.get(name, ""))
            if view is not None:
                columns = strata_of.relations[name].columns
                bound.plans[name] = (Import(view.name, view.fingerprint, view.schema), columns)
        if not all(name in bound.plans for name in group):
            bound.bind(group, recursive=group[0] in strata_of.recursive)
    if wanted not in bound.plans:
        raise next(iter(bound.context.mistakes.values()))
    return bound.plans[wanted][0]


class Bound(NamedTuple):
    """A view of a program, bound; `notes`: what explain says of it."""

    plan: Plan | None
    errors: tuple[ViewError, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Programs:
    """The programs of some views, each checked once. Written by `compile.check_views` alone."""

    def __init__(self, specs: Sequence[ViewSpec]) -> None:
        self.siblings: dict[str, dict[str, str]] = {}
        for spec in specs:
            if spec.program:
                self.siblings.setdefault(spec.program, {})[spec.relation] = spec.name
        self.checked: dict[str, Checked] = {}

    def reads(self, spec: ViewSpec, names: Set[str]) -> tuple[str, ...]:
        """The views that a view of a program reads: what the program's inputs name, and others of the program."""
        own = view_reads(spec, self.siblings[spec.program])
        return tuple(dict.fromkeys([*(n for n in external_reads(spec.sql) if n in names), *own]))

    def bind(self, source: Source, env: Environment) -> Bound:
        """A view's plan, or None; the mistakes of its program, if they were not told yet, and its warnings likewise."""
        spec = source.spec
        checked = self.checked.get(spec.program)
        first = checked is None
        if checked is None:
            checked = self.checked[spec.program] = check_program(spec, env, self.siblings[spec.program])
        if checked.errors:
            return Bound(None, checked.errors if first else ())
        plan, notes = bind_relation(checked, spec, env, self.siblings[spec.program])
        return Bound(plan, (), checked.warnings if first else (), notes)


def _shape(text: str) -> tuple[dict[str, tuple[str, ...]], list[tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """What each relation of a text reads, constraints among them, the groups, and the group of each."""
    program = parse_program(text)
    read: dict[str, dict[str, None]] = {}
    for reading in readings(program.rules):
        read.setdefault(reading.head, {})[reading.read] = None
        read.setdefault(reading.read, {})
    for rule in program.rules:
        read.setdefault(rule.head.name, {})
    for constraint in program.constraints:
        own = read.setdefault(constraint_key(constraint.name), {})
        for name in (n for body in constraint.bodies for n in names_read(body)):
            own[name] = None
            read.setdefault(name, {})
    for query in program.queries:
        read.setdefault(query.name, {})
        read[query_key(query.name)] = {query.name: None}
    listed = {n: tuple(r) for n, r in read.items()}
    groups = strata(list(listed), listed)
    return listed, groups, {n: g for g in groups for n in g}


def _place(error: ViewError) -> tuple[int, int]:
    line, column = error.where.get("line"), error.where.get("column")
    return (line if isinstance(line, int) else 0, column if isinstance(column, int) else 0)


__all__ = ["Checked", "Programs", "bind_question", "bind_relation", "bound_plan", "check_program"]
