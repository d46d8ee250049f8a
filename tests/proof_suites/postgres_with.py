"""Postgres's regression file on WITH: each query as a view over the tables as they stand there, against an embedded Postgres.

The file is run in Postgres statement by statement. A query is also compiled here and run over the same rows; what changes
data, or is no query, is only run there. Invariant: equal means the same rows, or that both refuse or fail.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa

from headrace.engine.batch.updates import INSERT, Upserts
from headrace.engine.dataflow import Dataflow
from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_query
from headrace.views.errors import ViewError
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from tests.oracle.test_views import images
from tests.proof_suites.souffle import Outcome

Table = tuple[Schema, list[tuple[str | None, ...]]]
_QUERY = re.compile(r"\s*(?:\(|select\b|with\b|values\b|table\b)", re.IGNORECASE)
_CHANGES = re.compile(
    r"\b(?:insert\s+into|update\s+\w+\s+(?:\w+\s+)?set|delete\s+from|merge\s+into)\b|\bfor\s+update\b", re.IGNORECASE
)
_PIECE = re.compile(r"\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|;|[^$'\"/;-]+|.", re.DOTALL)
_RELATIONS = """
    select c.oid, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'v', 'p') and pg_table_is_visible(c.oid) and n.nspname not in ('pg_catalog', 'information_schema')
    order by c.relname
"""
_COLUMNS = """
    select attname, format_type(atttypid, atttypmod) from pg_attribute
    where attrelid = %s and attnum > 0 and not attisdropped order by attnum
"""


def outcomes(file: Path) -> Iterator[Outcome]:
    """What became of each query of the file."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(folder) as server,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        connection.execute("set timezone = 'UTC'")
        connection.execute("set statement_timeout = '3s'")
        for line, statement in statements(file.read_text()):
            theirs = _answer(connection, statement)
            if _QUERY.match(statement) and not _CHANGES.search(statement):
                yield _tried(f"line {line}", statement, theirs, _tables(connection))


def statements(text: str) -> Iterator[tuple[int, str]]:
    """The statements of a file with their lines, without comments and commands of psql."""
    text = "\n".join("" if line.startswith("\\") else line for line in text.splitlines())
    begin, now = 0, ""
    for piece in _PIECE.finditer(text):
        if piece[0] == ";" and not _is_open(now):
            if now.strip():
                yield text.count("\n", 0, begin) + 1, now.strip()
            begin, now = piece.end(), ""
        elif not piece[0].startswith(("--", "/*")):
            begin = begin if now.strip() else piece.start()
            now += piece[0]


def _is_open(text: str) -> bool:
    """Whether a body that holds semicolons goes on."""
    return text.count("(") > text.count(")")


def _answer(connection: psycopg.Connection, sql: str) -> Counter[tuple[str | None, ...]] | str:
    """A query's rows as texts, or the message of its error."""
    try:
        with connection.cursor() as cursor:
            found = cursor.execute(sql.encode()).pgresult
    except psycopg.Error as error:
        return str(error.diag.message_primary or error)
    assert found is not None
    cells = [[found.get_value(i, j) for j in range(found.nfields)] for i in range(found.ntuples)]
    return Counter(tuple(None if c is None else c.decode() for c in row) for row in cells)


def _tables(connection: psycopg.Connection) -> dict[str, Table]:
    """The tables and views that can be seen, with their rows."""
    made = {}
    for oid, name in connection.execute(_RELATIONS).fetchall():
        columns = connection.execute(_COLUMNS, [oid]).fetchall()
        schema = Schema(tuple(Column(n, DataType.parse(spelled)) for n, spelled in columns))
        rows = _answer(connection, f'select * from "{name}"')
        if isinstance(rows, Counter) and columns:
            made[f"public.{name}"] = (schema, list(rows.elements()))
    return made


def _tried(name: str, sql: str, theirs: Counter[tuple[str | None, ...]] | str, tables: Mapping[str, Table]) -> Outcome:
    try:
        ours = _ours(sql, tables)
    except ViewError as error:
        ours = f"refused: {error.what}"
    except HeadraceError as error:
        ours = f"failed: {error}"
    shown = " ".join(sql.split())[:90]
    if isinstance(theirs, str):
        if isinstance(ours, str):
            return Outcome(name, "equal", theirs)
        return Outcome(name, "different", f"Postgres says {theirs!r}, and there are {len(ours)} rows: {shown}")
    if isinstance(ours, str):
        how = "refused" if ours.startswith("refused") else "different"
        return Outcome(name, how, f"{ours.removeprefix('refused: ')}: {shown}")
    if ours == theirs:
        return Outcome(name, "equal")
    return Outcome(name, "different", f"missing {list(theirs - ours)[:3]}, too many {list(ours - theirs)[:3]}: {shown}")


def _ours(sql: str, tables: Mapping[str, Table]) -> Counter[tuple[str | None, ...]] | str:
    """The query's rows as texts, or an error of rows. Raises HeadraceError."""
    view = compile_query(ViewSpec("q", sql), Catalog({n: schema for n, (schema, _) in tables.items()}), {})
    flow = Dataflow()
    for name, (schema, _) in tables.items():
        flow.table(name, schema)
    output = render(view, flow, {}).output("q")
    for name, (schema, rows) in tables.items():
        if rows:
            arrays = [
                from_text(pa.array([r[k] for r in rows], pa.large_string()), c.type).values
                for k, c in enumerate(schema.columns)
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
            flow.push(name, Upserts(batch, np.zeros(len(rows), np.int64), np.full(len(rows), INSERT, np.uint8)))
    flow.step(1)
    good, bad = output.snapshot(0)
    if len(bad):
        return f"failed: {bad.rows.column(0)[0]}"
    found: Counter[tuple[str | None, ...]] = Counter()
    for row, _, diff in images(good, Schema(view.schema.columns)):
        found[tuple(row)] += diff
    return found
