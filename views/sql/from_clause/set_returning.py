"""Functions that return sets, bound: in FROM, alone or in step, and in a SELECT list, where they make rows of each row.

Always: their arguments are columns of the plan below; in a SELECT list placeholders hold their arguments until
GROUP BY, HAVING and the window functions are done. Called by `tables`, `functions` and `select`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from sqlglot import exp

from headrace.engine.operators.expressions.core.function_catalog import named
from headrace.engine.operators.expressions.core.functions import by_function
from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Expr
from headrace.engine.operators.expressions.core.sets import ONE
from headrace.engine.operators.table_functions import SetFunction
from headrace.engine.schema import BIGINT, BOOLEAN, DataType, Kind
from headrace.views.expressions import columns, conjunction, outermost, rewrite
from headrace.views.placeholders import Placeholder, SetValue
from headrace.views.plan import Filter, Plan, Project, Spread, identity, keyed
from headrace.views.sql import coerce
from headrace.views.sql.binder import Binder
from headrace.views.sql.from_clause.column_definitions import Records, listed, record_of
from headrace.views.sql.parsing.parse import name_of
from headrace.views.sql.rows.row_arrays import rows_of

_UNFAILING = (Kind.TEXT, Kind.JSON, Kind.JSONB)
"""Kinds that any member of an object can be read as."""


class SetCalls:
    """The set-returning functions of one SELECT list."""

    def __init__(self) -> None:
        self.found: list[Call] = []

    def call(self, call: Call) -> Expr:
        """What stands for a set-returning function until it is attached."""
        bare = Call(call.function, (), call.type)
        if bare not in self.found:
            self.found.append(bare)
        return SetValue(call.args, call.type, self.found.index(bare))

    def attached(self, plan: Plan, exprs: Sequence[Expr]) -> tuple[Plan, list[Expr]]:
        """The plan with the functions' rows behind its columns, and the expressions over it."""
        calls = list(dict.fromkeys(c for e in exprs for c in sets_in(e)))
        if not calls:
            return plan, list(exprs)
        real = [Call(self.found[c.number].function, c.args, c.type) for c in calls]
        made = spread(plan, real, [f"set{i}" for i in range(len(real))])
        width = len(made.schema.columns) - len(real)
        values: dict[Expr, Expr] = {c: ColumnRef(width + i, c.type) for i, c in enumerate(calls)}
        return made, [rewrite(e, values.get) for e in exprs]


def sets_in(expr: Expr) -> list[SetValue]:
    """The set-returning functions that stand in an expression of a SELECT list."""
    return outermost(expr, SetValue)


def spread(plan: Plan, calls: Sequence[Call], names: Sequence[str], *, ordinal: bool = False) -> Spread:
    """The plan with what the functions give, in step, behind its columns and their arguments."""
    args = list(dict.fromkeys(a for c in calls for a in c.args))
    below, places = keyed(plan, args)
    at = dict(zip(args, places, strict=True))
    functions = tuple(
        SetFunction(c.function, tuple(at[a] for a in c.args), tuple(a.type for a in c.args), column_types(c))
        for c in calls
    )
    return Spread(below, functions, tuple(names), ordinal)


def column_types(call: Call) -> tuple[DataType, ...]:
    """The types of the columns that a set-returning function gives."""
    return tuple(call.type if kind is None else kind for _, kind in by_function(call.function).columns)


def is_set(call: Expr) -> bool:
    """Whether a bound call gives a set of rows."""
    if not isinstance(call, Call) or isinstance(call, Placeholder):
        return False
    return not call.function.startswith("$") and bool(_columns(call))


def _columns(call: Call) -> tuple[tuple[str, DataType | None], ...]:
    if call.function in ("and", "or"):
        return ()
    return by_function(call.function).columns


@dataclass(frozen=True)
class FromCall:
    """A function in FROM, or several in step: their columns' own names, and those that the alias gives. `records`: those that
    each function gives, if it gives such.
    """

    calls: tuple[Call, ...]
    records: tuple[Records, ...]
    names: tuple[str, ...]
    ordinal: bool
    alias: str
    given: tuple[str, ...]

    @property
    def gives_records(self) -> bool:
        """Whether any of the functions gives rows of columns that its call names."""
        return any(r.columns for r in self.records)

    @property
    def reads(self) -> bool:
        """Whether the functions read columns of what stands before them."""
        return any(
            columns(e) for e in (*(a for c in self.calls for a in c.args), *(b for r in self.records for b in r.base))
        )

    def column_names(self) -> tuple[str, ...]:
        """The names in sight: one function whose column has no name of its own gives it the alias."""
        called = self.calls[0].function.partition("(")[0]
        single = len(self.names) == 1 and called in (*self.names, ONE) and not self.gives_records
        own = [self.alias] if single else list(self.names)
        own += ["ordinality"] if self.ordinal else []
        return (*self.given, *own[len(self.given) :])


def in_from(binder: Binder, node: exp.Expr) -> FromCall:
    """A function in FROM bound. Raises ViewError."""
    calls: list[Call] = []
    records: list[Records] = []
    names: list[str] = []
    functions, ordinal, alias, given = _parts(node)
    lists = [_list_of(f) if len(functions) > 1 else given for f in functions for _ in _written(f)]
    written = [w for f in functions for w in _written(f)]
    for one, some in zip(written, lists, strict=True):
        binder.source.only(one, {"this", "expressions"})
        name = str(one.this).lower()
        if not isinstance(one, exp.Anonymous):
            binder.source.refuse(
                node, "this is not supported in FROM", "read a table, a view, a subquery or a set of rows"
            )
        nodes, given_as = record_of(binder, one, listed(binder, some))
        rows = rows_of(binder, nodes[0]) if name == "unnest" and len(nodes) == 1 else None
        if gives_set(name):
            args = [binder.bind(a) for a in nodes] if rows is None else [rows[0]]
            given_as = given_as if rows is None else rows[1]
            found = binder.typed(one, partial(coerce.called, name, args))
            assert isinstance(found, Call)
            names += [c.name for c in given_as.columns] or [n for n, _ in _columns(found)]
        else:
            found = coerce.called(ONE, [coerce.settled(binder.bind(one))])
            assert isinstance(found, Call)
            names.append(name)
        calls.append(found)
        records.append(given_as)
    if ordinal and any(map(listed_types, lists)):
        binder.source.refuse(node, "WITH ORDINALITY cannot be used with a column definition list")
    renamed = [name_of(c) for c in given if not isinstance(c, exp.ColumnDef)]
    own = str(written[0].this).lower() if len(written) == 1 else "unnest" if len(functions) == 1 else ""
    alias = own if alias is None else alias
    return FromCall(tuple(calls), tuple(records), tuple(names), ordinal, alias, tuple(renamed))


def gives_set(name: str) -> bool:
    """Whether a function gives a set of rows, by its name."""
    return any(signature.columns for signature in named(name))


def listed_types(nodes: Sequence[exp.Expr]) -> bool:
    """Whether a list of columns gives them types."""
    return any(isinstance(node, exp.ColumnDef) for node in nodes)


def _list_of(node: exp.Expr) -> list[exp.Expr]:
    """The list of columns behind one function of ROWS FROM."""
    alias = node.args.get("alias")
    return [] if alias is None else list(alias.args.get("columns") or ())


def _parts(node: exp.Expr) -> tuple[list[exp.Expr], bool, str | None, list[exp.Expr]]:
    """(functions, WITH ORDINALITY, alias, columns of the alias) of a function in FROM."""
    inner = node.this if isinstance(node, exp.Lateral) else node
    functions = list(inner.args.get("rows_from") or ()) or [inner]
    offset = inner.args.get("offset")
    ordinal = bool(node.args.get("ordinality") or inner.args.get("ordinality") or offset)
    alias = node.args.get("alias") or inner.args.get("alias")
    renamed = [] if alias is None else list(alias.args.get("columns") or ())
    if isinstance(offset, exp.Identifier):
        renamed.append(offset)
    return functions, ordinal, None if alias is None or alias.this is None else name_of(alias.this), renamed


def _written(node: exp.Expr) -> list[exp.Expr]:
    """The calls that a function in FROM is written as: unnest of several arrays is one of each."""
    if isinstance(node, exp.Table):
        node = node.this
    if isinstance(node, exp.Unnest):
        return [exp.Anonymous(this="unnest", expressions=[a]) for a in node.expressions]
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "unnest":
        return [exp.Anonymous(this="unnest", expressions=[a]) for a in node.expressions]
    return [node]


def is_function(node: exp.Expr) -> bool:
    """Whether an item of FROM is a function, or several in ROWS FROM."""
    if isinstance(node, exp.Lateral):
        return not isinstance(node.this, exp.Query | exp.Subquery)
    if isinstance(node, exp.Unnest):
        return True
    return isinstance(node, exp.Table) and (bool(node.args.get("rows_from")) or isinstance(node.this, exp.Anonymous))


def beside(plan: Plan, call: FromCall, *, outer: bool = False, placed: bool = False) -> Plan:
    """`plan`'s columns, then those of the functions for each of its rows, then their number, where it is asked for or
    `placed`.
    """
    ordinal = call.ordinal or placed
    given = [name for one in call.calls for name, _ in _columns(one)]
    made = replace(spread(plan, call.calls, [*given, "ordinality"], ordinal=ordinal), outer=outer)
    own, names = identity(plan.schema)
    place = len(made.input.schema.columns)
    exprs = list(own)
    for one, records in zip(call.calls, call.records, strict=True):
        for _ in _columns(one):
            ref = ColumnRef(place, made.schema.columns[place].type)
            exprs += records.fields(ref) if records.columns else [ref]
            place += 1
    last = ["ordinality"] if ordinal else []
    exprs += [ColumnRef(place, BIGINT) for _ in last]
    found = Project(made, tuple(exprs), (*names, *call.names, *last))
    return _sound(found, len(own), call) if call.gives_records else found


def _sound(plan: Plan, begin: int, call: FromCall) -> Plan:
    """The rows of functions that give records, all of whose columns are read: Postgres makes the whole record, whoever reads
    which of its columns.
    """
    made = plan.schema.columns[begin : begin + len(call.names)]
    refs = [ColumnRef(i, c.type) for i, c in enumerate(made, begin) if c.type.kind not in _UNFAILING]
    read = [Call("or", (coerce.called("is null", [r]), coerce.called("is not null", [r])), BOOLEAN) for r in refs]
    condition = conjunction(read)
    return plan if condition is None else Filter(plan, condition)
