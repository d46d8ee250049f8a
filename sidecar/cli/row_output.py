"""Rows of views on the terminal: tables for people, one JSON object a line for programs.

Always: JSON values are those of the Kafka sink (numerics and times as Postgres's text, integers and floats as numbers).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import orjson
import pyarrow as pa
from rich.console import Console

from headrace.connectors.copy_text import text_columns
from headrace.connectors.json_rows import json_rows
from headrace.engine.batch.updates import Updates
from headrace.engine.schema import Schema
from headrace.sidecar.cli.output import table
from headrace.sidecar.offline.recording_replay import Replay, ViewOutput, refuse_errors


def print_replay(replay: Replay, output: str, *, as_json: bool) -> None:
    """Run a replay and print each view's rows at the end (`final`) or its changes epoch by epoch (`changes`).

    Raises ReplayError after printing if a view is in error at the end.
    """
    for step in replay.steps():
        if output == "changes":
            for out in _by_epoch(step):
                _print_changes(out, as_json=as_json)
    final = replay.final()
    if output == "final":
        for out in final:
            _print_final(out, as_json=as_json)
    sys.stdout.flush()
    refuse_errors(final)


def _by_epoch(step: Iterable[ViewOutput]) -> Iterable[ViewOutput]:
    """Each view's changes cut into epochs, epochs ascending over all views."""
    cut = []
    for number, out in enumerate(step):
        for epoch in sorted(set(out.rows.times.tolist())):
            at = (out.rows.times == epoch).nonzero()[0]
            rows = Updates(out.rows.rows.take(at), out.rows.times[at], out.rows.diffs[at])
            cut.append((epoch, number, ViewOutput(out.view, rows, out.errors)))
    return [out for _, _, out in sorted(cut, key=lambda c: c[:2])]


def _print_changes(out: ViewOutput, *, as_json: bool) -> None:
    rows = out.rows
    if as_json:
        found = zip(
            rows.times.tolist(), json_rows(out.view.schema.columns, rows.rows), rows.diffs.tolist(), strict=True
        )
        for epoch, row, diff in found:
            _line({"view": out.view.name, "epoch": epoch, "row": orjson.Fragment(row), "diff": diff})
        return
    cells = zip(rows.diffs.tolist(), _cells(rows.rows, out.view.schema), strict=True)
    _print_table(
        f"{out.view.name} epoch {rows.times[0]}", out.view.schema, ((f"{d:+}", *row) for d, row in cells), "diff"
    )


def _print_final(out: ViewOutput, *, as_json: bool) -> None:
    rows = out.rows
    if as_json:
        for row, count in zip(json_rows(out.view.schema.columns, rows.rows), rows.diffs.tolist(), strict=True):
            _line({"view": out.view.name, "row": orjson.Fragment(row), "count": count})
        return
    cells = zip(rows.diffs.tolist(), _cells(rows.rows, out.view.schema), strict=True)
    _print_table(
        f"{out.view.name}: {int(rows.diffs.sum())} rows", out.view.schema, ((str(c), *r) for c, r in cells), "count"
    )


def _cells(rows: pa.RecordBatch, schema: Schema) -> list[tuple[str | None, ...]]:
    """Each row as Postgres prints it."""
    return list(zip(*(c.to_pylist() for c in text_columns(schema, rows)), strict=True))


def _print_table(title: str, schema: Schema, rows: Iterable[tuple[str | None, ...]], first: str) -> None:
    cells = (["NULL" if cell is None else cell for cell in row] for row in rows)
    Console(highlight=False).print(table(title, [first, *schema.names], cells))


def _line(body: dict[str, object]) -> None:
    sys.stdout.buffer.write(orjson.dumps(body) + b"\n")
