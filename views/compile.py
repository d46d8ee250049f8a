"""Views compiled: specs and a catalogue in, plans with schema, key and fingerprint out, each view after those it reads.

Always: the same specs and catalogue give the same plans and fingerprints; nothing is started or read. A view's key is
the declared one, proved or to be checked while it runs, else the smallest proved one, those without NULLs first, else None:
a multiset. A view of one row at most has the key of no columns. Called by `validate`, `run` and `replay`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from sqlglot import exp

from headrace.engine.schema import Column, Schema
from headrace.views.catalog import DEFAULT_SCHEMA, Catalog
from headrace.views.constant_folding import failing
from headrace.views.datalog.program import Programs
from headrace.views.errors import ViewError
from headrace.views.keys import is_unique, unique_sets
from headrace.views.optimize import FINAL, optimize
from headrace.views.plan import Join, LeftJoin, Plan, Recursion
from headrace.views.plan_node import ENCODER
from headrace.views.rewrite import fenced, without_fences
from headrace.views.spec import ViewSpec
from headrace.views.sql.environment import Environment
from headrace.views.sql.ordering import CLAUSES
from headrace.views.sql.parsing.parse import Source, name_of, parse
from headrace.views.sql.queries import bind_asked, bind_query, bind_view
from headrace.views.sql.query_order import with_places
from headrace.views.traversal import walk
from headrace.views.view_models import FOLLOWED
from headrace.views.yaml_models import nearest


@dataclass(frozen=True)
class CompiledView:
    """A view ready to render.

    `schema` holds the output columns and the key; `key` its positions or None. `key_proved` is False where a declared
    key must be checked while the view runs. `reads`: names of the views it reads. `failing`: the plan as bound of a query that
    fails whatever rows there are; who reads it as a view reads that plan, and so not what fails unless it is asked for. `notes`:
    what explain says of it beside its plan. `ordered`: whether the last column is each row's place, from 1, and no column of
    the query.
    """

    name: str
    spec: ViewSpec
    plan: Plan
    schema: Schema
    key: tuple[int, ...] | None
    key_proved: bool
    fingerprint: str
    reads: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=(), compare=False)
    rules: tuple[str, ...] = field(default=(), compare=False)
    failing: Plan | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)
    ordered: bool = False


Statement = tuple[Source, exp.Expr | None]
"""A view that is parsed: its statement, or None for one of a Datalog program."""


@dataclass(frozen=True)
class CheckedViews:
    """All that is to be said of some views: those that are right, each after those it reads, and every other one's first
    mistake. Views that read a wrong one are in neither. `reads`: of each view that can be parsed, the views it names.
    """

    views: tuple[CompiledView, ...]
    errors: tuple[ViewError, ...]
    reads: Mapping[str, tuple[str, ...]]


def compile_views(specs: Sequence[ViewSpec], catalog: Catalog) -> tuple[CompiledView, ...]:
    """The views in an order in which each comes after those it reads. Raises ViewError for the first mistake, each
    other view's first one in its `others`."""
    checked = check_views(specs, catalog)
    if checked.errors:
        first, *others = checked.errors
        first.others = tuple(others)
        raise first
    return checked.views


def check_views(specs: Sequence[ViewSpec], catalog: Catalog, unread: AbstractSet[str] = frozenset()) -> CheckedViews:
    """The views compiled as far as they are right. `unread`: names of views that are declared and could not be read."""
    errors: list[ViewError] = []
    parsed: dict[str, Statement] = {}
    programs = Programs(specs)
    for spec in specs:
        try:
            parsed[spec.name] = (Source(spec, spec.sql, catalog), None) if spec.program else parse(spec, catalog)
        except ViewError as error:
            errors.append(error)
    names = {s.name for s in specs} | unread
    failed = names - set(parsed)
    reads = {
        n: programs.reads(source.spec, names) if query is None else _view_reads(query, names - {n}, catalog)
        for n, (source, query) in parsed.items()
    }
    try:
        order = _ordered(parsed, reads)
    except ViewError as error:
        return CheckedViews((), (*errors, error), reads)
    done: dict[str, CompiledView] = {}
    for name in order:
        source, query = parsed[name]
        if failed & set(reads[name]):
            failed.add(name)
            continue
        env = Environment(catalog, done, name)
        try:
            if query is not None:
                done[name] = compile_view(source, query, env, reads[name])
                continue
            bound = programs.bind(source, env)
            errors += bound.errors
            if bound.plan is None:
                failed.add(name)
            else:
                compiled = compile_bound(source, bound.plan, reads[name])
                done[name] = replace(compiled, warnings=(*bound.warnings, *compiled.warnings), notes=bound.notes)
        except ViewError as error:
            errors.append(error)
            failed.add(name)
        except RecursionError:
            errors.append(source.error("the SQL is nested too deeply", "split the view, or use IN for long lists"))
            failed.add(name)
    return CheckedViews(tuple(done.values()), tuple(errors), reads)


def compile_view(source: Source, query: exp.Expr, env: Environment, reads: tuple[str, ...] = ()) -> CompiledView:
    """One parsed view over the tables and views in `env`. Raises ViewError."""
    return compile_bound(source, bind_view(source, env, query), reads)


def compile_bound(source: Source, bound: Plan, reads: tuple[str, ...] = ()) -> CompiledView:
    """One bound view. Raises ViewError."""
    fired: list[str] = []
    plan = optimize(_bound(source, bound), fired=fired)
    for column in source.spec.columns:
        if column.name not in plan.schema.names:
            hint = nearest(column.name, plan.schema.names)
            raise source.error(f'described column "{column.name}" is not a column of the view', hint)
    for name in (c for index in source.spec.indexes for c in index):
        if name not in plan.schema.names:
            raise source.error(f'indexed column "{name}" is not a column of the view', nearest(name, plan.schema.names))
    key, proved = _key(source, plan)
    # Only the sink-facing schema carries the key: plans know theirs by proof.
    schema = replace(plan.schema, key=key)
    plan = optimize(plan, FINAL, fired)
    # How a recursion is followed is part of what is built; where no part is given it is spelled as it always was.
    followed = source.spec.recursion if Recursion in plan.kinds else FOLLOWED
    told = [] if followed == FOLLOWED else [followed.strategy, repr(followed.switch or 0.2)]
    digest = hashlib.sha256(ENCODER.encode([plan, schema, proved, *told]).encode()).hexdigest()
    return CompiledView(
        source.spec.name,
        source.spec,
        plan,
        schema,
        key,
        proved,
        digest[:32],
        reads,
        _warnings(source, plan),
        tuple(dict.fromkeys(fired)),
    )


def compile_ordered(
    spec: ViewSpec, catalog: Catalog, views: Mapping[str, CompiledView]
) -> tuple[CompiledView, tuple[str, ...]]:
    """One query over these tables and compiled views, and the views that it rests on, in their order. Raises ViewError.

    A query that says an order is `ordered`.
    """
    source, query = parse(spec, catalog)
    env = Environment(catalog, views, spec.name)
    reads = _view_reads(query, set(views), catalog)
    compiled = compile_view(source, query, env, reads)
    if query.args.get("order") is not None:
        compiled = replace(compile_view(source, with_places(query), env, reads), ordered=True)
    rest: dict[str, None] = {}

    def visit(name: str) -> None:
        for read in views[name].reads:
            visit(read)
        rest[name] = None

    for name in reads:
        visit(name)
    return compiled, tuple(rest)


def compile_query(
    spec: ViewSpec, catalog: Catalog, views: Mapping[str, CompiledView], *, as_view: bool = False
) -> CompiledView:
    """A SELECT that is asked, not stored: its columns may be without names, or share one. Raises ViewError.

    `views` may compile a view when it is first looked up: `as_view`, so that others may read what does not fail of it.
    """
    source, query = parse(spec, catalog)
    try:
        bound = (bind_query if as_view else bind_asked)(source, Environment(catalog, views), query)
        if as_view and failing(bound) is not None:
            bound = fenced(bound) if any(query.args.get(clause) for clause in ("with_", *CLAUSES)) else bound
            return CompiledView(spec.name, spec, bound, bound.schema, None, True, bound.digest, failing=bound)
        plan = optimize(optimize(_bound(source, bound)), FINAL)
    except RecursionError:
        raise source.error("the SQL is nested too deeply", "split the query, or use IN for long lists") from None
    return CompiledView(spec.name, spec, plan, plan.schema, None, True, plan.digest)


def _bound(source: Source, plan: Plan) -> Plan:
    """The plan, unless Postgres fails to plan it. Raises ViewError."""
    why = failing(plan)
    if why is not None:
        hint = "it is computed of constants alone, before any row is read"
        raise source.error(str(why), hint, offset=source.constants.get(why.expr))
    return without_fences(plan)


def _view_reads(query: exp.Expr, names: set[str], catalog: Catalog) -> tuple[str, ...]:
    """The views that a query names, in order; a CTE of the same name hides a view, and a table one named with its schema."""
    if not names:
        return ()
    hidden = {name_of(c.args["alias"].this) for c in query.find_all(exp.CTE)}
    found: dict[str, None] = {}
    for table in query.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue
        name, schema = name_of(table.this), table.args.get("db")
        if schema is None:
            is_view = name not in hidden
        else:
            is_view = name_of(schema) == DEFAULT_SCHEMA and f"{DEFAULT_SCHEMA}.{name}" not in catalog.tables
        if is_view and name in names:
            found[name] = None
    return tuple(found)


def _ordered(parsed: dict[str, Statement], reads: Mapping[str, Sequence[str]]) -> list[str]:
    """Names so that each comes after those it `reads`, otherwise as declared. Raises ViewError for a cycle."""
    order: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in order or name not in parsed:
            return
        path.append(name)
        source, query = parsed[name]
        for read in reads[name]:
            if read in path:
                circle = " -> ".join([*path[path.index(read) :], read])
                what = f"views read each other in a circle: {circle}"
                if query is None:
                    hint = "write the rules of the other views into the program, or its inputs into another program"
                    raise source.error(what, hint)
                node = next(t for t in query.find_all(exp.Table) if name_of(t.this) == read)
                hint = "make one view of them, with WITH RECURSIVE, or a Datalog program of all of them"
                source.refuse(node, what, hint)
            visit(read)
        path.pop()
        order.append(name)

    for name in parsed:
        visit(name)
    return order


def _warnings(source: Source, plan: Plan) -> tuple[str, ...]:
    """What a view costs that its SQL does not show: joins that pair every row with every row."""
    found: dict[str, None] = {}
    for node in walk(plan):
        if isinstance(node, Join | LeftJoin) and not node.left_key:
            if any(frozenset() in unique_sets(side) for side in (node.left, node.right)):
                continue
            line, _ = source.spec.place(node.at)
            where = "" if line is None else f"line {line}: "
            found[
                f"{where}a join without an equality looks at every pair of rows: a change costs the whole other side"
            ] = None
    return tuple(found)


_MOST_COLUMNS = 32
"""Of a key: an index in Postgres has no more."""


def _is_handy(key: AbstractSet[int], columns: Sequence[Column]) -> bool:
    """Whether a proved key serves those who hold the rows: of all columns, where some may be NULL, the rows do as well."""
    whole = len(key) == len(columns) and any(c.nullable for c in columns)
    return len(key) <= _MOST_COLUMNS and not whole


def _key(source: Source, plan: Plan) -> tuple[tuple[int, ...] | None, bool]:
    cols = plan.schema.columns
    declared = source.spec.key
    if declared is None:
        for may_be_null in (False, True):
            for found in unique_sets(plan):
                if any(cols[i].nullable for i in found) is may_be_null and _is_handy(found, cols):
                    return tuple(sorted(found)), True
        return None, True
    names = plan.schema.names
    places: list[int] = []
    for name in declared:
        if name not in names:
            hint = nearest(name, names)
            raise source.error(f'key column "{name}" is not a column of the view', hint)
        position = names.index(name)
        if position in places:
            raise source.error(f'key column "{name}" is listed twice')
        places.append(position)
    proved = is_unique(plan, places)
    missing = next((names[i] for i in places if cols[i].nullable and not proved), None)
    if missing is not None:
        hint = f"add WHERE {missing} IS NOT NULL, or COALESCE it to a value"
        raise source.error(f'key column "{missing}" can be NULL', hint)
    return tuple(places), proved
