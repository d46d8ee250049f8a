"""Handlers of aggregates WITHIN GROUP: percentiles and mode, and the places that a row would have (rank and similar ones).

Always: a percentile's fractions are constants, one or an array of them; the place of a row that is not there is a count of those
before it, so that it follows a change as any count does. Called by `aggregate_calls`.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headrace.engine.operators.expressions.array import array_text
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, Case, Cast, Coalesce, Expr, Literal
from headrace.engine.operators.expressions.core.text_types import needs_key
from headrace.engine.operators.expressions.datetime.intervals import INTERVAL
from headrace.engine.operators.python_aggregates import folding
from headrace.engine.schema import BIGINT, BOOLEAN, DOUBLE, TEXT, Kind, array_of
from headrace.views.expressions import conjunction
from headrace.views.sql import coerce
from headrace.views.sql.aggregates.aggregate_placement import around, check_allowed
from headrace.views.sql.aggregates.collecting_aggregates import UNDETERMINED, constant, evaluated, placed
from headrace.views.sql.binder import Binder
from headrace.views.sql.ordering import check_ordered

PERCENTILES = frozenset({"percentile_cont", "percentile_disc", "mode"})
"""The aggregates that are only written WITHIN GROUP."""

PLACES = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Window functions that WITHIN GROUP are aggregates: of a row that is not there."""

_NUMBERS = (Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.NUMERIC)


def within_group(
    binder: Binder, node: exp.Expr, name: str, args: list[exp.Expr], orders: list[exp.Expr], where: exp.Expr | None
) -> Expr:
    """An aggregate WITHIN GROUP (ORDER BY …). Raises ViewError."""
    if name in PLACES:
        return _place(binder, node, name, args, orders, where)
    if len(orders) != 1 or len(args) != (name != "mode"):
        binder.source.refuse(node, f"{name} takes one expression to order by")
    fractions = _fractions(binder, name, args[0]) if args else [None]
    binder.inside_aggregate = True
    try:
        arg = binder.bind(orders[0].this)
        if arg.type == coerce.UNKNOWN and name != "percentile_cont":
            binder.source.refuse(orders[0], UNDETERMINED, "cast it")
        arg = coerce.settled(arg)
        condition = None if where is None else binder.boolean(where, "FILTER")
    finally:
        binder.inside_aggregate = False
    parts = [arg, *([] if condition is None else [condition])]
    outer = around(binder, node, name, parts, lambda other: within_group(other, node, name, args, orders, where))
    if outer is not None:
        return outer
    check_allowed(binder, node, name)
    check_ordered(binder.source, orders[0], arg.type)
    alike = arg.type.kind in _NUMBERS or (name == "percentile_cont" and arg.type != INTERVAL)
    if args and not alike and binder.bind(args[0]).type == coerce.UNKNOWN:
        binder.source.refuse(node, f"function {name}(unknown, {arg.type}) is not unique", "cast the fraction")
    if name == "percentile_cont" and arg.type != INTERVAL:
        if arg.type.kind not in _NUMBERS:
            binder.source.refuse(node, f"percentile_cont of type {arg.type} is not supported")
        arg = coerce.coerced(arg, DOUBLE)
    made = _Percentile(binder, name, arg, bool(orders[0].args.get("desc")), condition)
    if not isinstance(fractions, _Several):
        asked = name == "mode" or fractions[0] is not None
        return made.at(fractions[0]) if asked else made.unless_empty(Literal(None, arg.type))
    if arg.type.element is not None:
        binder.source.refuse(node, f"{name} of several fractions of arrays is not supported")
    several = Call("$array(any,...)", tuple(made.at(f) for f in fractions if f is not None), array_of(arg.type))
    return made.unless_empty(several)


class _Several(list[float | None]):
    """The fractions of an array."""


def _fractions(binder: Binder, name: str, node: exp.Expr) -> list[float | None]:
    """The fraction that a percentile asks for, or several in an array. Raises ViewError."""
    given, what = binder.bind(node), f"the fraction of {name}"
    found: list[float | None]
    if given.type.element is None:
        value = constant(binder, node, given, what, DOUBLE)
        found = [value if isinstance(value, float) else None]
    else:
        image = constant(binder, node, given, what, array_of(DOUBLE))
        shape, elements = array_text.read(str(image or "{}"))
        if image is None or len(shape) != 1 or None in elements:
            binder.source.refuse(node, f"{name} of other than one or several fractions is not supported")
        found = _Several(float(str(e)) for e in elements)
    for fraction in found:
        if fraction is not None and not 0 <= fraction <= 1:
            binder.source.refuse(node, f"percentile value {fraction:g} is not between 0 and 1")
    return found


@dataclass(frozen=True)
class _Percentile:
    """A percentile or mode of one group, but for the fraction."""

    binder: Binder
    name: str
    arg: Expr
    descending: bool
    where: Expr | None

    def at(self, fraction: float | None) -> Expr:
        """The aggregate at a fraction; without one for mode."""
        if self.name == "percentile_cont" and self.arg.type == INTERVAL:
            return self.between(fraction)
        return self.folded(self.name, fraction=fraction)

    def between(self, fraction: float | None) -> Expr:
        """What lies between the two intervals at a fraction, in proportion, as Postgres computes it."""
        low, high = (self.folded("percentile_place", fraction=fraction, up=up) for up in (False, True))
        last = coerce.called("-", [self.count(), Literal(1, BIGINT)])
        place = coerce.called("*", [Literal(fraction, DOUBLE), Cast(last, DOUBLE)])
        share = coerce.called("-", [place, coerce.called("floor", [place])])
        return coerce.called("+", [coerce.called("*", [coerce.called("-", [high, low]), share]), low])

    def folded(self, name: str, **options: object) -> Expr:
        """The fold of that name."""
        arg, keyed = self.arg, needs_key(self.arg.type)
        function = folding(name, descending=self.descending, keyed=keyed, **options)
        if not keyed:
            return placed(self.binder, Aggregate(function, arg, arg.type, filter=self.where))
        behind = coerce.called("$behind key", [arg])
        found = placed(self.binder, Aggregate(function, behind, TEXT, filter=self.where))
        return Call("$of key(text)", (found,), arg.type)

    def unless_empty(self, found: Expr) -> Expr:
        """What is found, or NULL where the group has no value."""
        some = coerce.called(">", [self.count(), Literal(0, BIGINT)])
        return Case(((some, found),), Literal(None, found.type), found.type)

    def count(self) -> Expr:
        """How many values there are."""
        return placed(self.binder, coerce.aggregated("count", self.arg, distinct=False, where=self.where))


@dataclass(frozen=True)
class _Ordered:
    """One column of an order, and the value there of the row that is not."""

    column: Expr
    value: Expr
    missing: bool
    descending: bool
    nulls_first: bool

    def before(self) -> Expr:
        """That a row's column comes before the value."""
        if self.missing:
            return Literal(False, BOOLEAN) if self.nulls_first else coerce.called("is not null", [self.column])
        found = coerce.called(">" if self.descending else "<", [self.column, self.value])
        return Coalesce((found, Literal(self.nulls_first, BOOLEAN)), BOOLEAN)

    def same(self) -> Expr:
        """That it is the value's equal."""
        if self.missing:
            return coerce.called("is null", [self.column])
        return Coalesce((coerce.called("=", [self.column, self.value]), Literal(False, BOOLEAN)), BOOLEAN)


def _place(
    binder: Binder, node: exp.Expr, name: str, args: list[exp.Expr], orders: list[exp.Expr], where: exp.Expr | None
) -> Expr:
    """rank, dense_rank, percent_rank or cume_dist of a row that is not there."""
    if len(args) != len(orders):
        reason = f"{name} has {len(args)} values for an order of {len(orders)} columns"
        binder.source.refuse(node, reason, "give each column of ORDER BY a value")
    columns: list[_Ordered] = []
    binder.inside_aggregate = True
    try:
        for arg, order in zip(args, orders, strict=True):
            binder.source.only(order, {"this", "desc", "nulls_first"})
            (column, value), kind = coerce.unified([binder.bind(order.this), binder.bind(arg)], "WITHIN GROUP")
            check_ordered(binder.source, order, kind)
            missing = not evaluated(binder, arg, value, f"the value of {name}", kind).is_valid
            down, first = bool(order.args.get("desc")), bool(order.args.get("nulls_first"))
            columns.append(_Ordered(column, value, missing, down, first))
        condition = None if where is None else binder.boolean(where, "FILTER")
    finally:
        binder.inside_aggregate = False
    parts = [*(c.column for c in columns), *([] if condition is None else [condition])]
    outer = around(binder, node, name, parts, lambda other: _place(other, node, name, args, orders, where))
    if outer is not None:
        return outer
    check_allowed(binder, node, name)
    return _Places(binder, columns, condition).found(name, node)


@dataclass(frozen=True)
class _Places:
    """The rows of one group that a row which is not there is compared with."""

    binder: Binder
    columns: list[_Ordered]
    where: Expr | None

    def found(self, name: str, node: exp.Expr) -> Expr:
        """The aggregate of that name."""
        if name == "dense_rank":
            return self.dense(node)
        earlier = self.count(self.earlier(same=name == "cume_dist"))
        if name == "rank":
            return _more(earlier)
        total = self.count(None)
        if name == "cume_dist":
            return coerce.called("/", [Cast(_more(e), DOUBLE) for e in (earlier, total)])
        some = coerce.called("nullif", [total, Literal(0, BIGINT)])
        share = coerce.called("/", [Cast(earlier, DOUBLE), Cast(some, DOUBLE)])
        return Coalesce((share, Literal(0.0, DOUBLE)), DOUBLE)

    def earlier(self, *, same: bool) -> Expr:
        """That a row comes before; or, if `same`, is equal."""
        ways = []
        for i, column in enumerate(self.columns):
            ways.append(_both([*(c.same() for c in self.columns[:i]), column.before()]))
        if same:
            ways.append(_both([c.same() for c in self.columns]))
        return ways[0] if len(ways) == 1 else Call("or", tuple(ways), BOOLEAN)

    def count(self, condition: Expr | None, distinct: Expr | None = None) -> Expr:
        """How many rows, or distinct values of them, meet a condition and the FILTER."""
        parts = [e for e in (condition, self.where) if e is not None]
        counted = coerce.aggregated("count", distinct, distinct is not None, _both(parts) if parts else None)
        return placed(self.binder, counted)

    def dense(self, node: exp.Expr) -> Expr:
        """dense_rank: the distinct values before, NULL being one of them."""
        if len(self.columns) > 1:
            self.binder.source.refuse(node, "dense_rank of several columns is not supported")
        (column,) = self.columns
        found = _more(self.count(column.before(), column.column))
        if not column.nulls_first or column.missing:
            return found
        null = coerce.called("is null", [column.column])
        return coerce.called("+", [found, self.count(_both([column.before(), null]), null)])


def _more(count: Expr) -> Expr:
    return coerce.called("+", [count, Literal(1, BIGINT)])


def _both(parts: list[Expr]) -> Expr:
    found = conjunction(parts)
    assert found is not None, "there is a part at least"
    return found
