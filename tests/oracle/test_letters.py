"""lower() and upper() of every code point, as Postgres answers."""

from __future__ import annotations

import unicodedata

import psycopg
import pyarrow as pa
import pytest

from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.ir import Call, ColumnRef
from headrace.engine.schema import TEXT
from headrace.sidecar.devstack.postgres import EmbeddedPostgres

SURROGATES = range(0xD800, 0xE000)
POINTS = [p for p in range(1, 0x110000) if p not in SURROGATES]


@pytest.mark.parametrize("function", ["lower", "upper"])
def test_every_code_point_has_postgres_case(postgres: EmbeddedPostgres, function: str) -> None:
    # many in one text: one for one, so that each has its place
    texts = ["".join(map(chr, POINTS[at : at + 4096])) for at in range(0, len(POINTS), 4096)]
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], ["t"])
    out = evaluate(Call(f"{function}(text)", (ColumnRef(0, TEXT),), TEXT), batch)
    assert out.errors is None or out.errors.null_count == len(out.errors)
    mine = {p: t for p, t in zip(POINTS, "".join(out.values.to_pylist()), strict=True) if t != chr(p)}
    query = (
        f"select p, {function}(chr(p)) from generate_series(1, 1114111) as p "
        f"where p not between {SURROGATES.start} and {SURROGATES.stop - 1} and {function}(chr(p)) <> chr(p)"
    )
    with psycopg.connect(postgres.url()) as db:
        theirs = dict(db.execute(query).fetchall())
    # what only one of Python's and the server's Unicode knows is no difference of ours
    new = {p for p in mine.keys() ^ theirs.keys() if unicodedata.category(chr(p)) == "Cn"}
    wrong = [
        f"U+{p:04X} {chr(p)}: ours {mine.get(p, chr(p))!r}, Postgres {theirs.get(p, chr(p))!r}"
        for p in sorted((mine.keys() | theirs.keys()) - new)
        if mine.get(p) != theirs.get(p)
    ]
    assert not wrong, f"{len(wrong)} code points differ:\n" + "\n".join(wrong)
