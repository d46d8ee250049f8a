"""Window functions bound: ranks, neighbours and aggregates OVER a window, named or written where it is used.

Always: while an expression is bound a window function is a call that holds its arguments, partition and order; `windowed`
puts its value behind the row, after GROUP BY and HAVING. An aggregate over a whole partition is a reduce joined to the
rows; over other frames it is one of the engine's window functions, or refused. Called by `select`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.functions import overloads as named
from headrace.engine.operators.expressions.core.ir import Aggregate, Case, ColumnRef, Expr, Literal
from headrace.engine.operators.top import Order
from headrace.engine.operators.window_frames import Frame
from headrace.engine.operators.window_values import ENDS, NEIGHBOURS, RANKS, WindowFunction, keeps_frame
from headrace.engine.schema import BIGINT, BOOLEAN, DOUBLE, INTEGER, Column, DataType
from headrace.views.expressions import null_safe, outermost, rewrite
from headrace.views.placeholders import AggregateValue, WindowValue
from headrace.views.plan import Join, Plan, Project, Reduce, Windowed, identity, keyed
from headrace.views.sql import binder as names
from headrace.views.sql import coerce
from headrace.views.sql.aggregates.aggregate_calls import AGGREGATES, aggregate
from headrace.views.sql.aggregates.collecting_aggregates import COLLECTING
from headrace.views.sql.binder import Binder, binds
from headrace.views.sql.ordering import check_ordered
from headrace.views.sql.parsing.parse import Source, name_of
from headrace.views.sql.set_operations import comparable
from headrace.views.sql.windows.frames import WHOLE, frame_of

_FUNCTIONS = RANKS | NEIGHBOURS | ENDS


@dataclass(frozen=True)
class Over:
    """One use of a window function: `name`, or the aggregate it is; how many of the call's operands are its arguments,
    its FILTER among them, and its partition; `orders`: (descending, NULLs first) of the others.
    """

    name: str
    aggregate: Aggregate | None
    type: DataType
    args: int
    partition: int
    orders: tuple[tuple[bool, bool], ...]
    frame: Frame
    number: int = 1


class Windows:
    """The window functions of one SELECT. `named`: its WINDOW clause."""

    def __init__(self, source: Source, named: Sequence[exp.Expr]) -> None:
        self.named: dict[str, exp.Expr] = {}
        for node in named:
            name = name_of(node.this)
            if name in self.named:
                source.refuse(node, f'window "{name}" is already defined')
            self.named[name] = node
        self.found: list[Over] = []
        self.used: set[str] = set()
        self.inside = False

    def call(self, over: Over, operands: Sequence[Expr]) -> Expr:
        """What stands for a window function until it is attached."""
        if over not in self.found:
            self.found.append(over)
        return WindowValue(tuple(operands), over.type, self.found.index(over))

    def attached(self, plan: Plan, exprs: Sequence[Expr]) -> tuple[Plan, list[Expr]]:
        """The plan with the functions' values behind its columns, and the expressions over it."""
        calls = list(dict.fromkeys(c for e in exprs for c in outermost(e, WindowValue)))
        if not calls:
            return plan, list(exprs)
        values: dict[Expr, Expr] = {}
        plan, places = keyed(plan, list(dict.fromkeys(a for c in calls for a in c.args)))
        at = dict(zip(dict.fromkeys(a for c in calls for a in c.args), places, strict=True))
        shared: dict[tuple[object, ...], list[WindowValue]] = {}
        for call in calls:
            over = self.found[call.number]
            window = call.args[over.args :]
            is_reduce = over.aggregate is not None
            shared.setdefault((is_reduce, window[: over.partition], window[over.partition :], over.orders), []).append(
                call
            )
        for key, some in shared.items():
            make = _reduced if key[0] else _windowed
            plan = make(plan, [(c, self.found[c.number]) for c in some], at, values)
        return plan, [rewrite(e, values.get) for e in exprs]

    def unused(self, binder: Binder) -> list[Expr]:
        """What the named windows are made of that no function uses. Raises ViewError for what is wrong with one."""
        found: list[Expr] = []
        self.inside = True
        for name, node in self.named.items():
            if name not in self.used:
                keys, asked, *_ = _window_of(binder, self, node)
                found += [*keys, *asked]
        self.inside = False
        return found


Uses = list[tuple[WindowValue, Over]]
Values = dict[Expr, Expr]


def _windowed(plan: Plan, uses: Uses, at: Mapping[Expr, int], values: Values) -> Plan:
    """Functions of one partition and order behind the row."""
    call, over = uses[0]
    window = [at[e] for e in call.args[over.args :]]
    orders = tuple(Order(c, *flags) for c, flags in zip(window[over.partition :], over.orders, strict=True))
    width = len(plan.schema.columns)
    functions: list[WindowFunction] = []
    for place, (use, each) in enumerate(uses):
        args = tuple(at[e] for e in use.args[: each.args])
        functions.append(WindowFunction(each.name, args, each.type, each.frame, each.number))
        values[use] = ColumnRef(width + place, each.type)
    key = tuple(dict.fromkeys(window[: over.partition]))
    return Windowed(plan, key, orders, tuple(functions), tuple(f.name for f in functions))


def _reduced(plan: Plan, uses: Uses, at: Mapping[Expr, int], values: Values) -> Plan:
    """Aggregates of one partition, as a reduce that is joined to the rows."""
    call, over = uses[0]
    columns = plan.schema.columns
    key = tuple(dict.fromkeys(at[e] for e in call.args[over.args :][: over.partition]))
    aggregates: list[Aggregate] = []
    for use, each in uses:
        refs = [ColumnRef(at[e], e.type) for e in use.args[: each.args]]
        assert each.aggregate is not None
        where = refs.pop() if each.aggregate.filter is not None else None
        aggregates.append(replace(each.aggregate, arg=refs[0] if refs else None, filter=where))
    names = (*(columns[k].name for k in key), *(f"over{i}" for i in range(len(aggregates))))
    reduced = Reduce(plan, key, tuple(aggregates), names)
    left, left_key = keyed(plan, _safe(columns, key))
    right, right_key = keyed(reduced, _safe(reduced.schema.columns, range(len(key))))
    joined = Join(left, right, left_key, right_key)
    start = len(left.schema.columns) + len(key)
    order = [*range(len(columns)), *range(start, start + len(aggregates))]
    for place, (use, each) in enumerate(uses):
        values[use] = ColumnRef(len(columns) + place, each.type)
    return Project(joined, *identity(joined.schema, order))


def _safe(columns: Sequence[Column], places: Iterable[int]) -> list[Expr]:
    """Keys of the columns at `places` by which NULLs meet."""
    return [k for p in places for k in null_safe(ColumnRef(p, columns[p].type), nullable=columns[p].nullable)]


@binds(exp.Window, reads="this partition_by order spec alias over")
def _window(binder: Binder, node: exp.Expr) -> Expr:
    windows = binder.windows
    if windows is None or binder.inside_aggregate:
        inside = "an aggregate" if binder.inside_aggregate else binder.clause
        binder.source.refuse(node, f"window functions are not allowed in {inside}", "use a subquery in FROM")
    if windows.inside:
        binder.source.refuse(node, "window function calls cannot be nested", "use a subquery in FROM")
    windows.inside = True
    try:
        return _bound(binder, windows, node)
    finally:
        windows.inside = False


def _window_of(
    binder: Binder, windows: names.Windows, node: exp.Expr
) -> tuple[list[Expr], list[Expr], list[tuple[bool, bool]], Frame, list[Expr]]:
    """(partition, order, (descending, NULLs first) of each of that, the frame, the columns of its offsets)."""
    partition, ordering, spec = _definition(binder, windows, node)
    keys = [binder.settled(p) for p in partition]
    for part, expr in zip(partition, keys, strict=True):
        comparable(binder.source, part, Column("", expr.type), "PARTITION BY")
    asked: list[Expr] = []
    flags: list[tuple[bool, bool]] = []
    for item in ordering:
        binder.source.only(item, {"this", "desc", "nulls_first"})
        asked.append(binder.settled(item.this))
        check_ordered(binder.source, item.this, asked[-1].type)
        flags.append((bool(item.args.get("desc")), bool(item.args.get("nulls_first"))))
    return keys, asked, flags, *frame_of(binder, node, spec, asked, flags)


def _bound(binder: Binder, windows: names.Windows, node: exp.Expr) -> Expr:
    keys, asked, flags, frame, reach = _window_of(binder, windows, node)
    by = [coerce.sorting(expr) for expr in asked]
    called, where = (
        (node.this.this, node.this.expression.this) if isinstance(node.this, exp.Filter) else (node.this, None)
    )
    name = str(called.this).lower() if isinstance(called, exp.Anonymous) else ""

    def standing(over: Over, args: list[Expr]) -> Expr:
        # Where nothing depends on the order there is none.
        ordered = over.aggregate is None
        if over.frame.reach:
            args = [*args, *reach]
        over = replace(over, args=len(args), partition=len(keys), orders=tuple(flags) if ordered else ())
        return windows.call(over, [*args, *keys, *(by if ordered else ())])

    if name in AGGREGATES:
        return _aggregate(binder, node, called, where, frame, standing, ordered=bool(by))
    if name not in _FUNCTIONS or where is not None:
        if name and where is None and not named(name):
            coerce.called(name, [binder.bind(arg) for arg in called.expressions])
        reason = f"OVER specified, but {name or 'this'} is not a window function nor an aggregate function"
        binder.source.refuse(node, reason, "leave OVER out")
    return standing(*_function(binder, called, name, frame))


def _definition(binder: Binder, windows: names.Windows, node: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr], Any]:
    """(partition, order items, frame) of a window, with what the named one that it begins with says."""
    partition = list(node.args.get("partition_by") or ())
    order = node.args.get("order")
    ordering = [] if order is None else list(order.expressions)
    spec = node.args.get("spec")
    alias = node.args.get("alias")
    if alias is None and isinstance(node.this, exp.Identifier):
        return partition, ordering, spec
    if alias is not None:
        base = windows.named.get(name_of(alias))
        if base is None:
            binder.source.refuse(node, f'window "{name_of(alias)}" does not exist')
        windows.used.add(name_of(alias))
        theirs = _definition(binder, windows, base)
        own = bool(partition), bool(ordering), spec is not None
        _check_copied(binder, node, name_of(alias), own, tuple(map(bool, theirs)))
        return partition or theirs[0], ordering or theirs[1], spec or theirs[2]
    return partition, ordering, spec


def _check_copied(binder: Binder, node: exp.Expr, name: str, own: tuple[bool, ...], theirs: tuple[bool, ...]) -> None:
    """Refuses a window that says again what the named one that it begins with says; (partition, order, frame) of both."""
    if own[0]:
        binder.source.refuse(node, f'cannot override PARTITION BY clause of window "{name}"')
    if own[1] and theirs[1]:
        binder.source.refuse(node, f'cannot override ORDER BY clause of window "{name}"')
    if theirs[2] and (any(own) or isinstance(node.this, exp.Identifier)):
        binder.source.refuse(
            node, f'cannot copy window "{name}" because it has a frame clause', "write its clauses out"
        )


def _aggregate(
    binder: Binder,
    node: exp.Expr,
    called: exp.Expr,
    where: exp.Expr | None,
    frame: Frame,
    standing: Callable[[Over, list[Expr]], Expr],
    *,
    ordered: bool,
) -> Expr:
    """An aggregate OVER a window. One that is computed from several (variance) becomes as many window calls."""
    found: list[Aggregate] = []
    # What collects has the window's order, where there is one.
    collects = ordered and str(called.this).lower() in COLLECTING
    value = aggregate(binder, called, where, over=found, in_order=collects)
    calls = [standing(*_kept(binder, node, made, frame, collects=collects)) for made in found]

    return rewrite(value, lambda e: calls[e.number] if isinstance(e, AggregateValue) else None)


def _kept(binder: Binder, node: exp.Expr, made: Aggregate, frame: Frame, *, collects: bool) -> tuple[Over, list[Expr]]:
    """One of the engine's aggregates OVER a window, and its arguments."""
    if made.distinct:
        binder.source.refuse(node, "DISTINCT is not implemented for window functions")
    args = [] if made.arg is None else [made.arg]
    if frame == WHOLE and not collects:
        args += [] if made.filter is None else [made.filter]
        bare = replace(made, arg=None, filter=None if made.filter is None else Literal(True, BOOLEAN))
        return Over(made.function, bare, made.type, 0, 0, (), frame), args
    if made.filter is not None:
        arg = args[0] if args else Literal(True, BOOLEAN)
        args = [Case(((made.filter, arg),), Literal(None, arg.type), arg.type)]
    if args and not keeps_frame(made.function, args[0].type, made.type):
        name = made.function.partition(" ")[0]
        binder.source.refuse(node, f"{name} over such a frame is not supported", "use the whole partition")
    return Over(made.function, None, made.type, 0, 0, (), frame), args


def _function(binder: Binder, called: exp.Expr, name: str, frame: Frame) -> tuple[Over, list[Expr]]:
    """A function that is only one OVER a window."""
    given = list(called.expressions)
    most = {"lag": 3, "lead": 3, "first_value": 1, "last_value": 1, "nth_value": 2, "ntile": 1}.get(name, 0)
    if len(given) > most or (most and not given) or (name == "nth_value" and len(given) < 2):
        binder.source.refuse(called, f"{name} takes other arguments")
    if name in RANKS:
        kind = {"percent_rank": DOUBLE, "cume_dist": DOUBLE, "ntile": INTEGER}.get(name, BIGINT)
        asked = [_asked(binder, given[0], name)] if given and not _is_count(given[0]) else []
        number = _number(binder, given[0], name, least=1) if given and not asked else 1
        return Over(name, None, kind, 0, 0, (), WHOLE, number), asked
    if len(given) < 3 and binder.bind(given[0]).type == coerce.UNKNOWN:
        binder.source.refuse(called, "could not determine polymorphic type because input has type unknown", "cast it")
    args = [binder.settled(given[0])]
    number = 1
    if len(given) > 2:
        args = list(coerce.unified([args[0], binder.bind(given[2])])[0])
    if len(given) > 1 and not _is_count(given[1]):
        missing = [Literal(None, args[0].type)] if name in NEIGHBOURS and len(args) < 2 else []
        args += [*missing, _asked(binder, given[1], name, args[0])]
    elif len(given) > 1:
        number = _number(binder, given[1], name, least=1 if name == "nth_value" else 0)
    frame = frame if name in ENDS else WHOLE
    return Over(name, None, args[0].type, 0, 0, (), frame, number), args


def _number(binder: Binder, node: exp.Expr, what: str, *, least: int) -> int:
    if not _is_count(node) or int(str(node.this)) < least:
        binder.source.refuse(node, f"argument of {what} must be greater than zero")
    return int(str(node.this))


def _asked(binder: Binder, node: exp.Expr, name: str, *before: Expr) -> Expr:
    """A number that each row says: of rows away, of the row, of buckets."""
    given = binder.bind(node)
    try:
        return coerce.assigned_implicitly(given, INTEGER)
    except HeadraceError:
        kinds = ", ".join(str(e.type) for e in (*before, given))
        return binder.source.refuse(node, f"function {name}({kinds}) does not exist")


def _is_count(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and str(node.this).isdigit()
