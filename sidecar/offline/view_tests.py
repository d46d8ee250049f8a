"""Unit tests of views, as they stand under `tests:`: given rows go in, the view's rows come out, and what differs is told.

Always: the same rules, renderer and engine as `run`, in one epoch and without any server; values are read from YAML as
Postgres reads their text. Called by `headrace test`.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.connectors.copy_text import text_columns
from headrace.engine.batch.updates import INSERT, UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.ir import Cast, ColumnRef
from headrace.engine.schema import TEXT, Column, DataType, Kind, Schema
from headrace.sidecar.wiring.project import Project, tables_of
from headrace.views.compile import CompiledView
from headrace.views.render import render
from headrace.views.view_models import UnitTest
from headrace.views.yaml_models import nearest

Row = tuple[str | None, ...]


class TestRefused(HeadraceError):
    """A unit test that cannot be run as it is written."""

    code = "test"
    __test__ = False


@dataclass(frozen=True)
class Outcome:
    """What became of one test. `columns`: those compared; `missing`, `extra`, `same`: rows by how often. `error`: why it
    could not be run, or the view's own error that was not expected."""

    view: str
    test: str
    file: str
    line: int
    columns: tuple[str, ...] = ()
    missing: Mapping[Row, int] = field(default_factory=dict)
    extra: Mapping[Row, int] = field(default_factory=dict)
    same: Mapping[Row, int] = field(default_factory=dict)
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether the view answered as expected."""
        return not (self.missing or self.extra or self.error)

    def json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        rows = {
            name: [dict(zip(self.columns, row, strict=True)) for row in Counter(found).elements()]
            for name, found in (("missing", self.missing), ("extra", self.extra))
        }
        return {"view": self.view, "test": self.test, "file": self.file, "line": self.line,
                "status": "passed" if self.passed else "failed", **rows, "error": self.error or None}  # fmt: skip


def run_tests(project: Project, names: Sequence[str]) -> list[Outcome]:
    """Every test of the views named, or of all. Raises ViewError, and TestRefused for a view that is not there."""
    if project.unknown:
        raise TestRefused("columns are known only from messages", tables=", ".join(project.unknown),
                          hint="declare the columns in headrace.yaml: `headrace init` writes them")  # fmt: skip
    views = {v.name: v for v in project.compile()}
    for name in names:
        if name not in views:
            raise TestRefused("there is no such view", view=name, hint=nearest(name, views))
    chosen = [views[n] for n in names] if names else list(views.values())
    return [_run(v, t, line, views, project.tables) for v in chosen for t, line in v.spec.tests]


def _run(
    view: CompiledView, test: UnitTest, line: int, views: Mapping[str, CompiledView], tables: Mapping[str, Schema]
) -> Outcome:
    outcome = Outcome(view.name, test.name, view.spec.file, line)
    try:
        rows, errors = _Bench(views, tables, test).answer(view)
        if test.expect_error is not None:
            told = "; ".join(sorted(errors)) or "none"
            right = any(test.expect_error in e for e in errors)
            return (
                outcome if right else _in_error(outcome, f"the error {test.expect_error!r} was expected, got: {told}")
            )
        if errors:
            return _in_error(outcome, f"the view is in error: {min(errors)}")
        return _compared(outcome, view, test.expect or (), rows)
    except TestRefused as refused:
        return _in_error(outcome, str(refused))


def _in_error(outcome: Outcome, error: str) -> Outcome:
    return Outcome(outcome.view, outcome.test, outcome.file, outcome.line, error=error)


class _Bench:
    """A dataflow of one view, with the given rows in it."""

    def __init__(self, views: Mapping[str, CompiledView], tables: Mapping[str, Schema], test: UnitTest) -> None:
        self._views, self._tables, self._given = views, tables, test.given
        self._flow = Dataflow()
        self._rendered: dict[str, Collection] = {}
        self._filled: set[str] = set()
        unknown = set(test.given) - tables.keys() - views.keys() - {t.removeprefix("public.") for t in tables}
        for name in sorted(unknown):
            raise TestRefused("rows are given of what is neither table nor view", given=name,
                              hint=nearest(name, (*tables, *views)))  # fmt: skip

    def answer(self, view: CompiledView) -> tuple[pa.RecordBatch, list[str]]:
        """The rows, each as often as it is there, and the errors."""
        self._render(view)
        self._flow.step(2)
        rows, errors = self._rendered[view.name].snapshot(1)
        found = rows.rows.take(pa.array(np.repeat(np.arange(len(rows)), np.maximum(rows.diffs, 0))))
        return found, errors.rows.column(0).to_pylist()

    def _render(self, view: CompiledView) -> None:
        for name in view.reads:
            if name in self._rendered:
                continue
            if name in self._given:
                schema = Schema(self._views[name].schema.columns)
                self._rendered[name] = self._flow.table(f"view {name}", schema)
                self._push(f"view {name}", schema, self._given[name])
            else:
                self._render(self._views[name])
        for table in tables_of(view):
            schema = self._tables[table]
            rows = self._given.get(table, self._given.get(table.removeprefix("public."), ()))
            if table not in self._filled:
                self._flow.table(table, schema)
                self._push(table, schema, rows)
        self._rendered[view.name] = render(view, self._flow, self._rendered)

    def _push(self, name: str, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> None:
        self._filled.add(name)
        if not rows:
            return
        batch = typed(name, schema, rows)
        keys = [tuple(str(batch.column(k)[i]) for k in schema.key or ()) for i in range(len(rows))]
        if schema.key and len(set(keys)) < len(keys):
            raise TestRefused("two given rows have one key", given=name)
        kind = UPSERT if schema.key else INSERT
        self._flow.push(name, Upserts(batch, np.ones(len(rows), np.int64), np.full(len(rows), kind, np.uint8)))


def typed(name: str, schema: Schema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Rows of YAML as rows of a table or view; what is left out is NULL. Raises TestRefused."""
    known = set(schema.names)
    for row in rows:
        for column in row.keys() - known:
            raise TestRefused("there is no such column", of=name, column=column, hint=nearest(column, known))
    columns = [_column(name, c, [row.get(c.name) for row in rows]) for c in schema.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _column(name: str, column: Column, values: Sequence[Any]) -> pa.Array:
    if not column.nullable and None in values:
        raise TestRefused("a column that cannot be NULL has no value", of=name, column=column.name)
    texts = [_scaled(_text(v), column.type) for v in values]
    rows = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
    given = ColumnRef(0, TEXT)
    found = evaluate(given if column.type.kind is Kind.OTHER else Cast(given, column.type), rows)
    for text, error in zip(texts, found.errors.to_pylist() if found.errors is not None else (), strict=False):
        if error is not None:
            raise TestRefused(str(error), of=name, column=column.name, value=text)
    return found.values


def _scaled(text: str | None, kind: DataType) -> str | None:
    """A numeric with the digits of its column, as 2 is 2.00 there; what has more of them stays for Postgres's rounding."""
    if text is None or kind.kind is not Kind.NUMERIC or not kind.fixed_scale:
        return text
    try:
        value = Decimal(text)
        digits = -int(value.as_tuple().exponent) if value.is_finite() else kind.scale or 0
    except (InvalidOperation, ValueError):
        return text
    return format(value, f".{kind.scale}f") if digits < (kind.scale or 0) else text


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return json.dumps(value)
    return value.isoformat() if isinstance(value, (datetime.date, datetime.time)) else str(value)


def _compared(
    outcome: Outcome, view: CompiledView, expect: Sequence[Mapping[str, Any]], rows: pa.RecordBatch
) -> Outcome:
    """By the columns that the expected rows name; of none expected, by all."""
    named = {c for row in expect for c in row}
    columns = [c for c in view.schema.columns if c.name in named or not expect]
    free = Schema(tuple(Column(c.name, c.type, nullable=True) for c in columns))
    others = sorted(named - set(view.schema.names))
    if others:
        raise TestRefused("the view has no such column", view=view.name, column=others[0],
                          hint=nearest(others[0], view.schema.names))  # fmt: skip
    places = [view.schema.position(c.name) for c in columns]
    got = Counter(_images(free, rows.select(places)))
    wanted = Counter(_images(free, typed(view.name, free, expect))) if expect else Counter[Row]()
    names = tuple(c.name for c in columns)
    return Outcome(
        outcome.view, outcome.test, outcome.file, outcome.line, names, wanted - got, got - wanted, wanted & got
    )


def _images(schema: Schema, rows: pa.RecordBatch) -> list[Row]:
    """Each row as texts; numerics that are equal have one text."""
    texts = [t.to_pylist() for t in text_columns(schema, rows)]
    for column, found in zip(schema.columns, texts, strict=True):
        if column.type.kind is Kind.NUMERIC:
            found[:] = [None if t is None else _plain(t) for t in found]
    return list(zip(*texts, strict=True)) if texts else [()] * rows.num_rows


def _plain(text: str) -> str:
    value = Decimal(text)
    return format(value.normalize() + 0, "f") if value.is_finite() else text
