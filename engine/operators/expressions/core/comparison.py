"""Comparisons, as Postgres orders each type: NaN above all floats, text by bytes (collation C), numerics by value.

Always: both operands come in one kind (`resolve` sees to it); NULL gives NULL but for IS DISTINCT FROM, IN's list and
the IS tests. Registered in the catalogue at import.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.operators.expressions.core import columns as col
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.casts import date_to_stamp
from headrace.engine.operators.expressions.core.coercion import FLOATS, INTEGERS
from headrace.engine.operators.expressions.core.function_catalog import Kernel, Maker, Outcome, Values, entry
from headrace.engine.operators.expressions.core.text_types import family_of
from headrace.engine.operators.expressions.datetime.calendar_text import DATE_INFINITY, DAY, STAMP_LIMIT
from headrace.engine.operators.expressions.numeric import decimals
from headrace.engine.schema import DataType, Kind

_ARROW = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
COMPARED = (
    Kind.SMALLINT,
    Kind.INTEGER,
    Kind.BIGINT,
    Kind.NUMERIC,
    Kind.REAL,
    Kind.DOUBLE,
    Kind.BOOLEAN,
    Kind.TEXT,
    Kind.BPCHAR,
    Kind.BYTEA,
    Kind.DATE,
    Kind.TIME,
    Kind.TIMESTAMP,
    Kind.TIMESTAMPTZ,
    Kind.UUID,
)
"""Kinds with the six comparisons; VARCHAR is compared as TEXT."""

_LAST_DAY, _ENDLESS = pa.scalar(STAMP_LIMIT // DAY, pa.int32()), pa.scalar(DATE_INFINITY, pa.int32())
MIXED = tuple(
    (a, b)
    for group in (INTEGERS, FLOATS, (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ))
    for a in group
    for b in group
    if a is not b
)
"""Pairs of kinds with operators of their own in Postgres; what is not compared here is compared after a cast."""

Compare = Callable[[Values, Values], Outcome]


def _float(name: str) -> Compare:
    plain = pc.get_function(_ARROW[name])

    def compare(left: Values, right: Values) -> Outcome:
        out = plain.call([left, right])
        a, b = pc.is_nan(left), pc.is_nan(right)
        if not pc.any(pc.or_(a, b)).as_py() if not isinstance(out, pa.Scalar) else False:
            return out, None
        # NaN is equal to itself and above everything else, so its order is that of the pair (is NaN).
        either = pc.or_(a, b)
        nan_order = pc.call_function(_ARROW[name], [pc.cast(a, pa.int8()), pc.cast(b, pa.int8())])
        return pc.if_else(either, nan_order, out), None

    return compare


def _trimmed(name: str) -> Compare:
    plain = pc.get_function(_ARROW[name])
    return lambda left, right: (plain.call([pc.ascii_rtrim(left, " "), pc.ascii_rtrim(right, " ")]), None)


@functools.lru_cache(maxsize=1024)
def comparer(name: str, left: DataType, right: DataType) -> Compare:
    """The comparison `name` of two columns of comparable kinds: NULL where either is NULL, an error where one has no order."""
    if left.kind is not right.kind:
        return _mixed(name, left, right)
    if left.kind is Kind.NUMERIC:
        numbers = decimals.comparer(_ARROW[name], left, right)
        return lambda a, b: (numbers(a, b), None)
    if left.kind in (Kind.REAL, Kind.DOUBLE):
        return _float(name)
    if left.kind is Kind.BPCHAR:
        return _trimmed(name)
    family = family_of(left)
    if family is not None and family.order is not None and not (family.exact and name in ("=", "<>")):
        return _by_key(name, family.order)
    plain = pc.get_function(_ARROW[name])
    return lambda a, b: (plain.call([a, b]), None)


def _by_key(name: str, key: Callable[[str], str]) -> Compare:
    test = fallback.COMPARE[_ARROW[name]]
    return lambda a, b: fallback.map_values(lambda x, y: test(key(x), key(y)), pa.bool_(), [a, b])


def _mixed(name: str, left: DataType, right: DataType) -> Compare:
    """Operands of two kinds that Postgres compares without a cast: integers, floats, dates with timestamps."""
    wide = next((t for t in (left, right) if t.kind is not Kind.DATE and t.kind is not Kind.REAL), left)
    if left.kind in INTEGERS:
        wide = max(left, right, key=lambda t: INTEGERS.index(t.kind))
    within = comparer(name, wide, wide)

    def widened(value: Values, source: DataType) -> Values:
        if source.kind is Kind.DATE:
            # A date beyond all timestamps is above them and below infinity, not out of range.
            raw = col.retyped(value if isinstance(value, pa.Array) else pa.repeat(value, 1), pa.int32())
            beyond = pc.and_(pc.greater(raw, _LAST_DAY), pc.less(raw, _ENDLESS))
            stamps = date_to_stamp(col.retyped(pc.if_else(beyond, _LAST_DAY, raw), pa.date32()), wide.arrow)[0]
            stamps = pc.if_else(beyond, pa.scalar(STAMP_LIMIT).cast(wide.arrow), stamps)
            return stamps if isinstance(value, pa.Array) else stamps[0]
        return value if source.arrow == wide.arrow else pc.cast(value, wide.arrow)

    return lambda a, b: within(widened(a, left), widened(b, right))


def _make(name: str) -> Maker:
    def make(params: tuple[DataType, ...], _result: DataType) -> Kernel:
        return comparer(name, params[0], params[1])

    return make


def _distinct(negated: bool) -> Maker:
    def make(params: tuple[DataType, ...], _result: DataType) -> Kernel:
        compare = comparer("=" if negated else "<>", params[0], params[1])

        def kernel(left: Values, right: Values) -> Outcome:
            a, b = pc.is_null(left), pc.is_null(right)
            on_null = pc.equal(a, b) if negated else pc.not_equal(a, b)
            found, errors = compare(left, right)
            return pc.coalesce(found, on_null), errors

        return kernel

    return make


def _in(negated: bool) -> Maker:
    def make(params: tuple[DataType, ...], _result: DataType) -> Kernel:
        compares = [comparer("=", params[0], p) for p in params[1:]]

        def kernel(value: Values, *items: Values) -> Outcome:
            found, errors = compares[0](value, items[0])
            for item, compare in zip(items[1:], compares[1:], strict=True):
                equal, failed = compare(value, item)
                found, errors = pc.or_kleene(found, equal), col.first_error(errors, failed)
            return (pc.invert(found) if negated else found), errors

        return kernel

    return make


def _extreme(greatest: bool) -> Maker:
    def make(params: tuple[DataType, ...], _result: DataType) -> Kernel:
        keep = comparer(">=" if greatest else "<=", params[0], params[0])

        def kernel(first: Values, *rest: Values) -> Outcome:
            best, errors = first, None
            for other in rest:
                kept, failed = keep(best, other)
                # Postgres keeps the earlier of equals, and passes over NULLs.
                stays = pc.or_(pc.fill_null(kept, False), pc.is_null(other))
                best, errors = pc.if_else(stays, best, other), col.first_error(errors, failed)
            return best, errors

        return kernel

    return make


def _nullif(params: tuple[DataType, ...], result: DataType) -> Kernel:
    compare = comparer("=", params[0], params[1])
    null = pa.scalar(None, result.arrow)

    def kernel(left: Values, right: Values) -> Outcome:
        equal, errors = compare(left, right)
        return pc.if_else(pc.fill_null(equal, False), null, left), errors

    return kernel


def _is_null(negated: bool) -> Maker:
    test = pc.is_valid if negated else pc.is_null
    return lambda _params, _result: lambda value: (test(value), None)


def _is_truth(wanted: bool | None, negated: bool) -> Maker:
    def kernel(value: Values) -> Outcome:
        if wanted is None:
            return (pc.is_valid(value) if negated else pc.is_null(value)), None
        holds = pc.fill_null(value if wanted else pc.invert(value), False)
        return (pc.invert(holds) if negated else holds), None

    return lambda _params, _result: kernel


def _not(_params: tuple[DataType, ...], _result: DataType) -> Kernel:
    return lambda value: (pc.invert(value), None)


def _register() -> None:
    boolean = Kind.BOOLEAN
    for kind in COMPARED:
        for name in _ARROW:
            entry(name, (kind, kind), boolean, _make(name))
    for mixed in ((Kind.REAL, Kind.DOUBLE), (Kind.DOUBLE, Kind.REAL)):
        for name in _ARROW:
            entry(name, mixed, boolean, _make(name), alias=(Kind.DOUBLE, Kind.DOUBLE))
    for mixed in MIXED:
        entry("nullif", mixed, lambda params: params[0], _nullif, strict=False)
        if Kind.DATE in mixed or Kind.TIMESTAMP in mixed:
            for name in _ARROW:
                entry(name, mixed, boolean, _make(name))
            entry("is distinct from", mixed, boolean, _distinct(False), strict=False)
            entry("is not distinct from", mixed, boolean, _distinct(True), strict=False)
    for kind in (*COMPARED, Kind.OTHER, Kind.JSONB):
        if kind not in COMPARED:
            for name in _ARROW:
                entry(name, (kind, kind), boolean, _make(name))
        entry("is distinct from", (kind, kind), boolean, _distinct(False), strict=False)
        entry("is not distinct from", (kind, kind), boolean, _distinct(True), strict=False)
        entry("in", (kind, kind), boolean, _in(False), strict=False, variadic=True)
        entry("not in", (kind, kind), boolean, _in(True), strict=False, variadic=True)
        entry("nullif", (kind, kind), lambda params: params[0], _nullif, strict=False)
    for kind in (*COMPARED, Kind.OTHER, Kind.JSONB):
        entry("greatest", (kind,), lambda params: params[0], _extreme(True), strict=False, variadic=True)
        entry("least", (kind,), lambda params: params[0], _extreme(False), strict=False, variadic=True)
    entry("is null", (None,), boolean, _is_null(False), strict=False)
    entry("is not null", (None,), boolean, _is_null(True), strict=False)
    for word, wanted in (("true", True), ("false", False), ("unknown", None)):
        entry(f"is {word}", (boolean,), boolean, _is_truth(wanted, False), strict=False)
        entry(f"is not {word}", (boolean,), boolean, _is_truth(wanted, True), strict=False)
    entry("not", (boolean,), boolean, _not)


_register()
