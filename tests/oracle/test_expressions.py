"""Expressions against Postgres: every value, type and error message of a large table of expressions, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import psycopg
import pyarrow as pa
import pytest

from headrace.engine.operators.expressions.core.coercion import NoSuchFunction, common_type
from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.resolve import resolve
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.operators.expressions.core.text_output import to_text
from headrace.engine.schema import Kind
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from tests.oracle import expression_cases as cases
from tests.oracle.expression_builder import Built, text

ROWS, MILD, SEED = 90, 30, 7
OIDS = {
    Kind.BOOLEAN: 16, Kind.BYTEA: 17, Kind.BIGINT: 20, Kind.SMALLINT: 21, Kind.INTEGER: 23, Kind.TEXT: 25,
    Kind.REAL: 700,
    Kind.DOUBLE: 701, Kind.BPCHAR: 1042, Kind.VARCHAR: 1043, Kind.DATE: 1082, Kind.TIME: 1083, Kind.TIMESTAMP: 1114,
    Kind.TIMESTAMPTZ: 1184, Kind.NUMERIC: 1700, Kind.UUID: 2950, Kind.JSON: 114, Kind.JSONB: 3802,
    Kind.OTHER: 1186,  # of these tables only intervals
}  # fmt: skip
Answer = list[tuple[str | None, str | None]]


@pytest.fixture(scope="module")
def connection(postgres: EmbeddedPostgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres.url(), autocommit=True) as link:
        link.execute("set timezone = 'UTC'; set client_min_messages = error; set plan_cache_mode = auto")
        columns = ", ".join(f"{name} {sql}" for name, sql, _ in cases.COLUMNS)
        link.execute(f"create temporary table t (id integer, {columns})")
        table = [*cases.rows(ROWS, SEED), *cases.mild_rows(MILD, SEED)]
        marks = ", ".join(f"%s::{sql}" for _, sql, _ in cases.COLUMNS)
        with link.cursor() as cursor:
            cursor.executemany(f"insert into t values (%s, {marks})", [[i, *r] for i, r in enumerate(table)])
        yield link


@pytest.fixture(scope="module")
def batch(connection: psycopg.Connection) -> pa.RecordBatch:
    """The table as Postgres prints it, read by `from_text`."""
    names = ", ".join(f"case when {n} is not null then format('%s', {n}) end" for n in cases.TYPES)
    found = connection.execute(f"select {names} from t order by id").fetchall()
    arrays = []
    for i, (name, datatype) in enumerate(cases.TYPES.items()):
        read = from_text(pa.array([row[i] for row in found], pa.large_string()), datatype)
        assert read.errors is None, (name, read.errors)
        assert to_text(read.values, datatype).to_pylist() == [row[i] for row in found], name
        arrays.append(read.values)
    return pa.RecordBatch.from_arrays(arrays, names=list(cases.TYPES))


def ask(connection: psycopg.Connection, built: Sequence[Built]) -> Iterator[tuple[int | None, Answer]]:
    """Postgres's (type's oid, answer of each row) for each expression."""
    for case in built:
        body = (
            f"BEGIN IF ({case.sql}) IS NULL THEN RETURN NULL; END IF; RETURN '=' || format('%s', {case.sql}); "
            "EXCEPTION WHEN OTHERS THEN RETURN '!' || SQLERRM; END"
        )
        connection.execute(f"create or replace function pg_temp.f(r t) returns text language plpgsql as $f${body}$f$")
        answers = [a for (a,) in connection.execute("select pg_temp.f(t) from t order by id").fetchall()]
        try:
            described = connection.execute(f"select {case.sql} from t as r limit 0").description
        except psycopg.DataError:
            described = None  # a constant part fails while it is planned
        oid = described[0].type_code if described else None
        yield oid, [(a[1:], None) if a and a[0] == "=" else (None, a and a[1:]) for a in answers]


def ours(case: Built, batch: pa.RecordBatch) -> Answer:
    assert case.expr is not None
    out = evaluate(case.expr, batch)
    errors = [None] * batch.num_rows if out.errors is None else out.errors.to_pylist()
    assert out.values.type == case.expr.type.arrow
    return list(zip(to_text(out.values, case.expr.type).to_pylist(), errors, strict=True))


LIMITS = ("38 digits", "not supported:", "in a fixed-scale column")
"""Our own refusals, which name what we cannot do; Postgres may answer there."""


def differences(connection: psycopg.Connection, built: Sequence[Built], batch: pa.RecordBatch) -> list[str]:
    lines = []
    for case, (oid, theirs) in zip(built, ask(connection, built), strict=True):
        assert case.type is not None
        if oid and OIDS[case.type.kind] != oid:
            lines.append(f"{case.sql}: ours is {case.type}, the type of Postgres has oid {oid}")
        try:
            mine = ours(case, batch)
            # Rows on which nothing fails go fast ways that a batch with failing rows does not; the slice has an offset.
            alone = ours(case, batch.slice(ROWS))
        except Exception as error:
            lines.append(f"{case.sql}: RAISED {type(error).__name__}: {error}")
            continue
        if alone != mine[ROWS:]:
            lines.append(f"{case.sql}: the mild rows alone answer differently: {alone} and {mine[ROWS:]}")
        wrong = [
            (i, m, t)
            for i, (m, t) in enumerate(zip(mine, theirs, strict=True))
            if m != t and not (m[1] and any(s in m[1] for s in LIMITS))
        ]
        if wrong:
            i, m, t = wrong[0]
            lines.append(f"{case.sql}: {len(wrong)} rows, row {i}: ours {m}, Postgres {t} args {used(case, batch, i)}")
    return lines


def used(case: Built, batch: pa.RecordBatch, row: int) -> dict[str, str | None]:
    return {
        n: to_text(batch.column(n).slice(row, 1), cases.TYPES[n])[0].as_py()
        for n in cases.TYPES
        if f"r.{n}" in case.sql
    }


FAMILIES = ["_arithmetic", "_comparisons", "_booleans", "_texts", "_casts", "_calendar"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_answers_as_postgres_does(connection: psycopg.Connection, batch: pa.RecordBatch, family: str) -> None:
    built = list(getattr(cases, family)())
    found = differences(connection, built, batch)
    assert not found, f"{len(found)} of {len(built)} expressions differ:\n" + "\n".join(found)


OPERATORS = ("+", "-", "*", "/", "%", "=", "<", "||", "like", "^")
FUNCTIONS = ("abs", "round", "ceil", "sign", "sqrt", "length", "lower", "btrim", "octet_length", "reverse", "mod",
        "power",
             "nullif", "coalesce", "greatest", "substr", "left", "strpos", "md5", "to_hex", "concat", "date_trunc",
             "date_part",
             "starts_with", "repeat")  # fmt: skip
SAMPLES = ("i2a", "i4a", "i8a", "n2a", "f4a", "f8a", "ba", "ta", "va", "ca", "da", "sa", "za", "tm", "bya", "u", "")


def test_resolution_never_accepts_or_types_what_postgres_does_not(connection: psycopg.Connection) -> None:
    """Every operator and function over every pair of types: the same result type, or refused here, never else."""
    found, answered = [], 0
    combinations = [(name, (a,)) for name in FUNCTIONS for a in SAMPLES]
    combinations += [(name, (a, b)) for name in (*FUNCTIONS, *OPERATORS) for a in SAMPLES for b in SAMPLES]
    for name, samples in combinations:
        args = [cases.C[s] if s else text("1") for s in samples]
        sql = f"{name}({', '.join(a.sql for a in args)})"
        if name in OPERATORS:
            sql = f"{args[0].sql} {name} {args[1].sql}"
        try:
            mine = (
                common_type([a.type for a in args])
                if name == "coalesce"
                else resolve(name, [a.type for a in args]).result
            )
        except NoSuchFunction:
            continue
        answered += 1
        try:
            described = connection.execute(f"select {sql} from t as r limit 0").description
        except psycopg.Error as error:
            if "invalid input syntax" not in str(error):
                found.append(f"{sql}: ours is {mine}, Postgres: {str(error).splitlines()[0]}")
            continue
        assert described is not None
        if described[0].type_code != OIDS[mine.kind]:
            found.append(f"{sql}: ours is {mine}, the type of Postgres has oid {described[0].type_code}")
    assert answered > 700
    assert not found, f"{len(found)} differ:\n" + "\n".join(found)
