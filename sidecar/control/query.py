"""`query`: one answer from the arrangements, at the last complete epoch.

Invariant: the answer is what a view of the same SQL would hold at that epoch, and nothing of it stays. The asking thread
computes it beside the running dataflow. The control channel calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from headrace.connectors.commit_place import CommitPlace
from headrace.connectors.copy_text import text_columns
from headrace.connectors.json_rows import json_rows
from headrace.engine.batch.updates import Updates
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Column, Schema
from headrace.sidecar.control.staging import StagingDataflow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.wiring.build import Running
from headrace.sidecar.wiring.project import tables_of
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_ordered
from headrace.views.lineage import rests_on
from headrace.views.proofs import ask_row, explained
from headrace.views.questions import compile_question
from headrace.views.spec import ViewSpec
from headrace.views.yaml_models import nearest

ROWS_A_LINE = 1000
NAME = "?query"
"""No view can have this name."""


class QueryError(HeadraceError):
    """A query that has no answer: a table it reads is not here, or its data raise an SQL error."""

    code = "query"


@dataclass(frozen=True)
class Answered:
    """The rows, as many times as they are there, in the order that the query says; `sources`: the place of each at the epoch."""

    columns: tuple[Column, ...]
    rows: pa.RecordBatch
    epoch: int
    sources: Mapping[str, CommitPlace]

    def lines(self, *, as_json: bool) -> Iterator[dict[str, Any]]:
        """As the control channel gives it: first what it is, then the rows, as JSON objects or lists of Postgres's texts."""
        yield {
            "columns": [{"name": c.name, "data_type": c.type.sql()} for c in self.columns],
            "rows": self.rows.num_rows, "epoch": self.epoch, "sources": {n: at.json() for n, at in self.sources.items()},
        }  # fmt: skip
        for start in range(0, self.rows.num_rows, ROWS_A_LINE):
            yield {"part": values(self.columns, self.rows.slice(start, ROWS_A_LINE), as_json=as_json)}


def values(columns: tuple[Column, ...], rows: pa.RecordBatch, *, as_json: bool) -> list[Any]:
    """Rows as JSON objects, with the values of the Kafka sink, or as lists of Postgres's texts."""
    if as_json:
        return [orjson.loads(row) for row in json_rows(columns, rows)]
    texts = text_columns(Schema(columns), rows)
    return [list(row) for row in zip(*(t.to_pylist() for t in texts), strict=True)] if texts else [[]] * rows.num_rows


def answer(running: Running, sql: str) -> Answered:
    """The answer to one SELECT. Raises ViewError, QueryError and NothingYet."""
    spec = ViewSpec(NAME, sql.strip().rstrip(";"), file="query", line=1)
    views = {v.name: v for v in running.views}
    return _answered(running, *compile_ordered(spec, Catalog(dict(running.schemas)), views))


def answer_question(running: Running, question: str, values: Mapping[str, str]) -> Answered:
    """The answer to a question PROGRAM.RELATION with the values of its columns that are given. Raises as `answer` does."""
    views = {v.name: v for v in running.views}
    return _answered(running, *compile_question(NAME, question, values, Catalog(dict(running.schemas)), views))


def _answered(running: Running, query: CompiledView, rest: Sequence[str]) -> Answered:
    views = {v.name: v for v in running.views}
    runtime = running.runtime
    _check_tables(query, runtime.parts.tables.keys())

    def begin() -> tuple[StagingDataflow, dict[str, CommitPlace]]:
        _check_columns(query, views, runtime.parts.lost)
        return StagingDataflow.begin(runtime, follow=False), {n: s.place for n, s in runtime.sources.items()}

    beside, sources = runtime.tasks.ask(begin)
    with closing(beside):
        rows, errors = beside.answer(Plans.of([*(views[name] for name in rest), query], {}, {NAME}), NAME)
    if len(errors):
        raise QueryError(errors.rows.column(0)[0].as_py(), rows_in_error=len(errors), epoch=beside.epoch)
    return Answered(*_in_order(query, rows), beside.epoch, sources)


def explain_row(running: Running, view: str, key: Sequence[str]) -> dict[str, Any]:
    """Why a row of a program's view is there, or why not. Raises ViewError, QueryError and NothingYet."""
    views = {v.name: v for v in running.views}
    if view not in views:
        raise QueryError("there is no such view", view=view, hint=nearest(view, tuple(views)))
    asked = ask_row(NAME, views[view], key, Catalog(dict(running.schemas)), views)
    runtime = running.runtime
    for part in asked.views:
        _check_tables(part, runtime.parts.tables.keys())
    beside = runtime.tasks.ask(lambda: StagingDataflow.begin(runtime, follow=False))
    names = [v.name for v in asked.views]
    found = []
    with closing(beside):
        plans = Plans.of([*(views[name] for name in asked.rest), *asked.views], {}, set(names))
        for part, (rows, errors) in zip(asked.views, beside.answers(plans, names), strict=True):
            if len(errors):
                raise QueryError(errors.rows.column(0)[0].as_py(), rows_in_error=len(errors), epoch=beside.epoch)
            found.append([tuple(row) for row in values(*_in_order(part, rows), as_json=False)])
    return {**explained(asked, found), "view": view, "epoch": beside.epoch}


def _in_order(query: CompiledView, rows: Updates) -> tuple[tuple[Column, ...], pa.RecordBatch]:
    """Each row as often as it is there, in its place where the query says an order."""
    columns = query.schema.columns
    found = rows.rows.take(pa.array(np.repeat(np.arange(len(rows)), rows.diffs)))
    if query.ordered:
        order = np.argsort(found.column(found.num_columns - 1).to_numpy(), kind="stable")
        found = found.take(pa.array(order)).select(list(range(found.num_columns - 1)))
        columns = columns[:-1]
    return columns, found


def _check_tables(query: CompiledView, read: Set[str]) -> None:
    for table in tables_of(query):
        if table not in read:
            raise QueryError(
                "the table is declared but no view reads it, so its rows are not here", table=table,
                hint="name it with `keep: true` in headrace.yaml and start with an empty state folder",
            )  # fmt: skip


def _check_columns(query: CompiledView, views: Mapping[str, CompiledView], lost: Mapping[tuple[str, str], str]) -> None:
    named = rests_on([*views.values(), query])[NAME]
    if texts := sorted(text for column, text in lost.items() if column in named):
        raise QueryError(texts[0])
