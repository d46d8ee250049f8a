"""`query`: one answer from the arrangements that stand, at the last complete epoch.

Always: what is answered is what a view of the same SQL would hold at that epoch, and, once answered, nothing of it is
left; it is computed beside the running dataflow, on the asker's thread. Called by the control door.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from connectors.image import text_columns
from connectors.kafka.records import json_rows
from engine.batch.updates import Updates
from engine.errors import HeadraceError
from engine.schema import Column, Schema
from sidecar.live.beside import Beside
from sidecar.plans import Plans
from sidecar.wiring import Running, tables_of
from views.catalog import Catalog
from views.compile import CompiledView, compile_ordered
from views.lineage import columns_named
from views.spec import ViewSpec
from views.sql.ordered import PLACE

ROWS_A_LINE = 1000
NAME = "?query"
"""No view can have this name."""


class QueryError(HeadraceError):
    """A query that has no answer: a table it reads is not here, or its data raise an SQL error."""

    code = "query"


@dataclass(frozen=True)
class Answered:
    """The rows, as many times as they are there, in the order that the query says; `sources`: LSN of each at the epoch."""

    columns: tuple[Column, ...]
    rows: pa.RecordBatch
    epoch: int
    sources: Mapping[str, int]

    def lines(self, *, as_json: bool) -> Iterator[dict[str, Any]]:
        """As the control door gives it: what it is, then the rows: JSON objects, or lists of Postgres's texts."""
        yield {
            "columns": [{"name": c.name, "data_type": c.type.sql()} for c in self.columns],
            "rows": self.rows.num_rows, "epoch": self.epoch, "sources": {n: {"lsn": at} for n, at in self.sources.items()},
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
    views = {v.name: v for v in running.views}
    spec = ViewSpec(NAME, sql.strip().rstrip(";"), file="query", line=1)
    query, rest = compile_ordered(spec, Catalog(dict(running.schemas)), views)
    runtime = running.runtime
    _check_tables(query, runtime.parts.tables.keys())

    def begin() -> tuple[Beside, dict[str, int]]:
        _check_columns(query, views, runtime.parts.lost)
        return Beside.begin(runtime, follow=False), {n: s.lsn for n, s in runtime.sources.items()}

    beside, sources = runtime.desk.ask(begin)
    with closing(beside):
        rows, errors = beside.answer(Plans.of([*(views[name] for name in rest), query], {}, {NAME}), NAME)
    if len(errors):
        raise QueryError(errors.rows.column(0)[0].as_py(), rows_in_error=len(errors), epoch=beside.epoch)
    return Answered(*_in_order(query.schema.columns, rows), beside.epoch, sources)


def _in_order(columns: tuple[Column, ...], rows: Updates) -> tuple[tuple[Column, ...], pa.RecordBatch]:
    """Each row as often as it is there, in its place."""
    found = rows.rows.take(pa.array(np.repeat(np.arange(len(rows)), rows.diffs)))
    if columns and columns[-1].name == PLACE:
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
    named = columns_named([*views.values(), query])[NAME]
    if texts := sorted(text for column, text in lost.items() if column in named):
        raise QueryError(texts[0])
