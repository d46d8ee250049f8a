"""Functions against Postgres, as SQL: each expression is bound as a view's would be and asked of every row of a table."""

from __future__ import annotations

import random
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.operators.expressions.core.text_output import to_text
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_views
from headrace.views.errors import ViewError
from headrace.views.plan import Project, Scan
from headrace.views.spec import ViewSpec
from tests.oracle import function_cases as cases
from tests.oracle.expression_builder import Built
from tests.oracle.test_expressions import LIMITS, Answer

ROWS, SEED = 40, 11
TYPES = {name: DataType.parse(sql) for name, (sql, _) in cases.COLUMNS.items()}
CATALOG = Catalog({"public.t": Schema.of([Column(name, datatype) for name, datatype in TYPES.items()], None)})


def rows() -> list[list[str | None]]:
    """Rows of random values, one NULL in twelve; the first ones walk through every value of a column."""
    chance = random.Random(SEED)
    return [
        [
            pool[i] if i < len(pool) else None if chance.random() < 0.08 else chance.choice(pool)
            for _, pool in cases.COLUMNS.values()
        ]
        for i in range(ROWS)
    ]


@pytest.fixture(scope="module")
def connection(postgres: EmbeddedPostgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.url(), autocommit=True) as link:
        link.execute("set timezone = 'UTC'; set client_min_messages = error")
        columns = ", ".join(f"{name} {sql}" for name, (sql, _) in cases.COLUMNS.items())
        link.execute(f"create temporary table t (id integer, {columns})")
        marks = ", ".join(f"%s::{sql}" for sql, _ in cases.COLUMNS.values())
        with link.cursor() as cursor:
            cursor.executemany(f"insert into t values (%s, {marks})", [[i, *r] for i, r in enumerate(rows())])
        yield link


@pytest.fixture(scope="module")
def batch(connection: psycopg.Connection) -> pa.RecordBatch:
    """The table as Postgres prints it."""
    names = ", ".join(f"case when {n} is not null then format('%s', {n}) end" for n in TYPES)
    found = connection.execute(f"select {names} from t order by id").fetchall()
    arrays = []
    for i, (name, datatype) in enumerate(TYPES.items()):
        read = from_text(pa.array([row[i] for row in found], pa.large_string()), datatype)
        assert read.errors is None, (name, read.errors)
        arrays.append(read.values)
    return pa.RecordBatch.from_arrays(arrays, names=list(TYPES))


def bound(sql: str) -> Built:
    """The expression as a view binds it. Raises ViewError."""
    plan = compile_views([ViewSpec("v", f"select {sql} as x from t as r")], CATALOG)[0].plan
    assert isinstance(plan, Project), plan
    assert isinstance(plan.input, Scan), plan
    assert plan.input.schema.names == tuple(TYPES)
    return Built(sql, plan.exprs[0])


def ask(connection: psycopg.Connection, sql: str) -> tuple[str | None, Answer]:
    """Postgres's (type, answer of each row), each row asked once."""
    body = (
        f"DECLARE v text; BEGIN SELECT CASE WHEN e IS NOT NULL THEN '=' || format('%s', e) END "
        f"FROM (SELECT {sql} AS e OFFSET 0) AS s INTO v; RETURN v; EXCEPTION WHEN OTHERS THEN RETURN '!' || SQLERRM; END"
    )
    connection.execute(f"create or replace function pg_temp.f(r t) returns text language plpgsql as $f${body}$f$")
    answers = [a for (a,) in connection.execute("select pg_temp.f(t) from t order by id").fetchall()]
    try:
        described = connection.execute(f"select {sql} from t as r limit 0").description
    except psycopg.DataError:
        described = None  # a constant part fails while it is planned
    oid = described[0].type_code if described else None
    named = connection.execute("select format_type(%s, -1)", [oid]).fetchone() if oid else None
    return named and named[0], [(a[1:], None) if a and a[0] == "=" else (None, a and a[1:]) for a in answers]


def difference(connection: psycopg.Connection, sql: str, batch: pa.RecordBatch) -> str | None:
    """What an expression answers differently; None where it is the same for every row."""
    try:
        built = bound(sql)
        assert built.expr is not None
        out = evaluate(built.expr, batch)
        assert out.values.type == built.expr.type.arrow
        errors = [None] * batch.num_rows if out.errors is None else out.errors.to_pylist()
        mine = list(zip(to_text(out.values, built.expr.type).to_pylist(), errors, strict=True))
    except Exception as error:
        if isinstance(error, ViewError) and any(s in str(error) for s in LIMITS):
            return None
        return f"{sql}: RAISED {type(error).__name__}: {error}"
    named, theirs = ask(connection, sql)
    spelled = DataType.parse(named) if named else None
    if spelled is not None and (spelled.kind, spelled.name) != (built.expr.type.kind, built.expr.type.bare.name):
        return f"{sql}: ours is {built.expr.type}, Postgres's {spelled}"
    wrong = [
        (i, m, t)
        for i, (m, t) in enumerate(zip(mine, theirs, strict=True))
        if m != t and not (m[1] and any(s in m[1] for s in LIMITS))
    ]
    if not wrong:
        return None
    i, m, t = wrong[0]
    args = {n: to_text(batch.column(n).slice(i, 1), TYPES[n])[0].as_py() for n in TYPES if f"r.{n}" in sql}
    return f"{sql}: {len(wrong)} rows, row {i}: ours {m}, Postgres {t} args {args}"


@pytest.mark.parametrize("family", list(cases.FAMILIES))
def test_every_row_answers_as_postgres_does(connection: psycopg.Connection, batch: pa.RecordBatch, family: str) -> None:
    asked = list(cases.FAMILIES[family])
    found = [d for sql in asked if (d := difference(connection, sql, batch))]
    assert not found, f"{len(found)} of {len(asked)} expressions differ:\n" + "\n".join(found)
