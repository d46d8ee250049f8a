"""The naive twin of the dataflow: every collection computed anew, at every epoch, from lists of changes.

Always: rows are tuples of images (floats by repr, so that -0.0 and NaN are values like others); no engine code is used
but the types, and Postgres's division. Called by the tests of operators and dataflow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any

from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, TRUNCATE, UPSERT
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.schema import DataType, Kind, Schema

Row = tuple[Any, ...]
Content = tuple[Counter[Row], Counter[str]]


class RowFails(Exception):
    """The message of a row's error."""


@dataclass(frozen=True)
class Op:
    """One change. `unchanged`: columns not sent; `fill_from`: index, in the table's list, of an earlier delete."""

    epoch: int
    kind: int
    row: Row
    unchanged: frozenset[int] = frozenset()
    fill_from: int = -1


def meets(image: Any, kind: DataType) -> Any:
    """What Postgres compares: equal for equal values, ordered as the type is."""
    if image is None:
        return None
    if kind.kind in (Kind.REAL, Kind.DOUBLE):
        value = float(image)
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    if kind.kind is Kind.NUMERIC and not kind.fixed_scale:
        number = Decimal(image)
        return (1, Decimal(0)) if number.is_nan() else (0, number)
    if kind.kind is Kind.BPCHAR:
        return image.rstrip(" ")
    return image


def least(images: Sequence[Any], kind: DataType) -> Any:
    """The least image among equal values."""
    if kind.kind in (Kind.REAL, Kind.DOUBLE):
        return min(images, key=lambda i: (math.copysign(1.0, float(i)) > 0, i))
    return min(images, key=lambda i: i.encode() if isinstance(i, str) else i)


def changes(one: Counter[Any], two: Counter[Any]) -> dict[Any, int]:
    """two - one, without zeros."""
    keys = set(one) | set(two)
    return {k: two[k] - one[k] for k in keys if two[k] != one[k]}


class Twin:
    """A collection: a function from an epoch to (rows, errors)."""

    def __init__(self, schema: Schema, at: Callable[[int], Content]) -> None:
        self.schema = schema
        self._at = at
        self._memo: dict[int, Content] = {}

    def at(self, epoch: int) -> Content:
        if epoch < 0:
            return Counter(), Counter()
        if epoch not in self._memo:
            rows, errors = self._at(epoch)
            self._memo[epoch] = (_clean(rows), _clean(errors))
        return self._memo[epoch]

    def delta(self, epoch: int) -> tuple[dict[Row, int], dict[str, int]]:
        (rows, errors), (more, worse) = self.at(epoch - 1), self.at(epoch)
        return changes(rows, more), changes(errors, worse)

    def _linear(self, schema: Schema, each: Callable[[Row], Row | None]) -> Twin:
        def at(epoch: int) -> Content:
            rows, errors = self.at(epoch)
            out: Counter[Row] = Counter()
            failed = Counter(errors)
            for row, n in rows.items():
                try:
                    made = each(row)
                except RowFails as fault:
                    failed[str(fault)] += n
                    continue
                if made is not None:
                    out[made] += n
            return out, failed

        return Twin(schema, at)

    def project(self, functions: Sequence[Callable[[Row], Any]], schema: Schema) -> Twin:
        return self._linear(schema, lambda row: tuple(f(row) for f in functions))

    def filter(self, predicate: Callable[[Row], bool | None]) -> Twin:
        return self._linear(self.schema, lambda row: row if predicate(row) else None)

    def concat(self, *others: Twin) -> Twin:
        def at(epoch: int) -> Content:
            rows, errors = Counter[Row](), Counter[str]()
            for twin in (self, *others):
                for part, total in zip(twin.at(epoch), (rows, errors), strict=True):
                    for k, n in part.items():
                        total[k] += n  # type: ignore[index]
            return rows, errors

        return Twin(Schema(self.schema.columns), at)

    def negate(self) -> Twin:
        def at(epoch: int) -> Content:
            rows, errors = self.at(epoch)
            return Counter({k: -n for k, n in rows.items()}), errors

        return Twin(Schema(self.schema.columns), at)

    def join(
        self, other: Twin, lk: Sequence[int], rk: Sequence[int], residual: Callable[[Row], bool | None] | None = None
    ) -> Twin:
        kinds = [self.schema.columns[k].type for k in lk]

        def at(epoch: int) -> Content:
            (left, le), (right, re) = self.at(epoch), other.at(epoch)
            rows: Counter[Row] = Counter()
            errors = Counter(le)
            errors.update(re)
            for a, n in left.items():
                one = [meets(a[k], t) for k, t in zip(lk, kinds, strict=True)]
                if None in one:
                    continue
                for b, m in right.items():
                    if one == [meets(b[k], t) for k, t in zip(rk, kinds, strict=True)]:
                        try:
                            if residual is None or residual(a + b):
                                rows[a + b] += n * m
                        except RowFails as fault:
                            errors[str(fault)] += n * m
            return rows, errors

        return Twin(Schema((*self.schema.columns, *other.schema.columns)), at)

    def reduce(self, key: Sequence[int], aggregates: Sequence[NaiveAggregate], schema: Schema) -> Twin:
        kinds = [self.schema.columns[k].type for k in key]

        def at(epoch: int) -> Content:
            rows, errors = self.at(epoch)
            groups: dict[Row, Counter[Row]] = {} if key else {(): Counter()}
            for row, n in rows.items():
                found = groups.setdefault(tuple(meets(row[k], t) for k, t in zip(key, kinds, strict=True)), Counter())
                found[row] += n
            out: Counter[Row] = Counter()
            failed = Counter(errors)
            for members in groups.values():
                shown = least_key([tuple(r[k] for k in key) for r in members], kinds) if key else ()
                try:
                    out[(*shown, *(a.of(members, self.schema) for a in aggregates))] += 1
                except RowFails as fault:
                    failed[str(fault)] += 1
            return out, failed

        return Twin(schema, at)

    def distinct(self) -> Twin:
        return self.reduce(range(len(self.schema.columns)), [], Schema(self.schema.columns))

    def check_key(self, key: Sequence[int], message: Callable[[Row], str]) -> Twin:
        def at(epoch: int) -> Content:
            rows, errors = self.at(epoch)
            counts: Counter[Row] = Counter()
            for row, n in rows.items():
                counts[tuple(row[k] for k in key)] += n
            return rows, errors + Counter({message(k): 1 for k, n in counts.items() if n > 1})

        return Twin(self.schema, at)


@dataclass
class TwinTable(Twin):
    """A table: its changes in order."""

    name: str
    schema: Schema
    ops: list[Op] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.schema, self._content)

    def add(self, op: Op) -> None:
        self.ops.append(op)
        self._memo.clear()

    def _content(self, epoch: int) -> Content:
        return self._keyed(epoch) if self.schema.key else self._keyless(epoch)

    def _keyed(self, epoch: int) -> Content:
        key = self.schema.key
        assert key is not None
        live: dict[Row, Row] = {}
        lacking: dict[Row, tuple[Row, frozenset[int]]] = {}
        before: list[Row | None] = []
        for op in self.ops:
            if op.epoch > epoch:
                break
            at = tuple(meets(op.row[k], self.schema.columns[k].type) for k in key)
            before.append(live.get(at))
            lacking.pop(at, None)
            if op.kind == TRUNCATE:
                live.clear()
                lacking.clear()
            elif op.kind == DELETE:
                live.pop(at, None)
            else:
                assert op.kind == UPSERT
                old = before[op.fill_from] if op.fill_from >= 0 else live.get(at)
                if op.unchanged and old is None:
                    lacking[at] = (tuple(op.row[k] for k in key), op.unchanged)
                    continue
                live[at] = tuple(old[i] if i in op.unchanged and old else v for i, v in enumerate(op.row))
        errors = [self._unsent(image, c) for image, columns in lacking.values() for c in columns]
        return Counter(live.values()), Counter(errors)

    def _unsent(self, image: Row, column: int) -> str:
        names = ", ".join(self.schema.columns[k].name for k in self.schema.key or ())
        values = ", ".join("'" + v.replace("'", "''") + "'" if isinstance(v, str) else str(v) for v in image)
        text = f"the unchanged value of column {self.schema.columns[column].name} was not sent"
        return f"table {self.name}: {text}, and its key ({names}) = ({values}) has no earlier row"

    def _keyless(self, epoch: int) -> Content:
        live: Counter[Row] = Counter()
        errors: Counter[str] = Counter()
        for op in self.ops:
            if op.epoch > epoch:
                break
            if op.kind == TRUNCATE:
                live.clear()
            elif op.kind == INSERT:
                live[op.row] += 1
            else:
                assert op.kind == RETRACT
                if live[op.row] > 0:
                    live[op.row] -= 1
                else:
                    text = "a row without a key was retracted that is not there; the table needs REPLICA IDENTITY FULL"
                    errors[f"table {self.name}: {text}"] += 1
        return live, errors


@dataclass(frozen=True)
class NaiveAggregate:
    """One aggregate; `column` None is count(*), `where` its filter."""

    function: str
    column: int | None
    distinct: bool = False
    where: Callable[[Row], bool | None] | None = None

    def of(self, members: Counter[Row], schema: Schema) -> Any:
        rows = [(r, n) for r, n in members.items() if self.where is None or self.where(r)]
        if self.column is None:
            return sum(n for _, n in rows)
        kind = schema.columns[self.column].type
        values: list[Any] = []
        for row, n in rows:
            values += [row[self.column]] * (n if row[self.column] is not None else 0)
        if self.distinct:
            by_value: dict[Any, list[Any]] = {}
            for v in values:
                by_value.setdefault(meets(v, kind), []).append(v)
            values = [least(images, kind) for images in by_value.values()]
        return AGGREGATES[self.function](values, kind)


def least_key(keys: Sequence[Row], kinds: Sequence[DataType]) -> Row:
    def order(row: Row) -> list[Any]:
        found: list[Any] = []
        for image, kind in zip(row, kinds, strict=True):
            if image is None:
                found.append((1, 0))
            elif kind.kind in (Kind.REAL, Kind.DOUBLE):
                found.append((0, math.copysign(1.0, float(image)) > 0))
            else:
                found.append((0, image))
        return found

    return min(keys, key=order)


def _extreme(values: list[Any], kind: DataType, pick: Callable[..., Any]) -> Any:
    if not values:
        return None
    top = pick(meets(v, kind) for v in values)
    images = [v for v in values if meets(v, kind) == top]
    if kind.kind in (Kind.REAL, Kind.DOUBLE):
        return pick(images, key=lambda i: (math.copysign(1.0, float(i)) > 0, i))
    return pick(images)


def _sum(values: list[Any], kind: DataType) -> Any:
    if not values:
        return None
    if kind.kind in (Kind.REAL, Kind.DOUBLE):
        total = math.fsum(float(v) for v in values)
        return repr(total + 0.0)
    if kind.kind is Kind.NUMERIC and not kind.fixed_scale:
        with localcontext() as context:
            context.prec = 1000
            scale = max(max(-int(Decimal(v).as_tuple().exponent), 0) for v in values)
            total_text = sum((Decimal(v) for v in values), Decimal(0)).quantize(Decimal(1).scaleb(-scale))
            return format(abs(total_text) if total_text == 0 else total_text, "f")
    total_exact = sum(values)
    if kind.kind in (Kind.SMALLINT, Kind.INTEGER) and not -(2**63) <= total_exact < 2**63:
        raise RowFails("bigint out of range")
    if isinstance(total_exact, Decimal) or kind.kind is Kind.BIGINT:
        return Decimal(total_exact)
    return total_exact


def _avg(values: list[Any], kind: DataType) -> Any:
    if not values:
        return None
    total = _sum(values, kind)
    if kind.kind in (Kind.REAL, Kind.DOUBLE):
        return repr(float(total) / len(values))
    return decimal_math.divide(
        total if isinstance(total, str) else format(total, "f") if isinstance(total, Decimal) else str(total),
        str(len(values)),
    )


AGGREGATES: dict[str, Callable[[list[Any], DataType], Any]] = {
    "count": lambda values, _: len(values),
    "sum": _sum,
    "avg": _avg,
    "min": lambda values, kind: _extreme(values, kind, min),
    "max": lambda values, kind: _extreme(values, kind, max),
    "bool_and": lambda values, _: all(values) if values else None,
    "bool_or": lambda values, _: any(values) if values else None,
}


def _clean(counter: Counter[Any]) -> Counter[Any]:
    return Counter({k: n for k, n in counter.items() if n})
