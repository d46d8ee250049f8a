"""A table read from its source is, value by value, what its lanes would be; what cannot be read is told without a secret."""

from __future__ import annotations

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.operations.resync import ResyncError, difference, parse, parse_bytes, read_table, text_lines

TYPES = {
    "id": "bigint", "b": "boolean", "f": "double precision", "r": "real", "n": "numeric", "m": "numeric(12,3)",
    "t": "text", "c": "character(4)", "y": "bytea", "d": "date", "ti": "time without time zone",
    "ts": "timestamp without time zone", "tz": "timestamp with time zone", "u": "uuid", "j": "jsonb", "o": "integer[]",
    "i": "interval", "e": "inet",
}  # fmt: skip
VALUES = r"""
(1, true, 0.1, 0.1, 1.500, 12.3, 'plain', 'ab', '\x00ff', '2026-11-22', '01:02:03.5', '2026-11-22 01:02:03.000004',
 '2026-11-22 01:02:03+02', '0b3e1b6e-5d0e-4c38-9d0e-0a9c2a0a0a0a', '{"a": 1}', '{1,null,3}', '1 day 02:03', '10.0.0.1'),
(2, false, 'Infinity', '-0', 'NaN', -0.001, E'tab\tnl\nback\\slash\b\f\v\r', '', '', 'infinity', '23:59:59.999999',
 '-infinity', '0044-01-01 00:00:00+00 BC', null, 'null', '{}', '-1 mon', '::1'),
(3, null, null, null, null, null, E'\\N', null, null, null, null, null, null, null, null, null, null, null)"""


def test_rows_come_from_postgres_as_their_lanes_are(database: str) -> None:
    schema = Schema.of([Column(n, DataType.parse(t), n != "id") for n, t in TYPES.items()], ["id"])
    with psycopg.connect(database, autocommit=True) as db:
        columns = ", ".join(f"{n} {t}" for n, t in TYPES.items())
        db.execute(f'create schema "Odd"; create table "Odd"."the table" ({columns}, extra int default 7)')
        db.execute(f'insert into "Odd"."the table" values {VALUES.replace("), ", "), ")}')
        before = db.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()
    read = read_table(database, "Odd.the table", schema)
    assert before is not None
    assert read.lsn >= int(before[0])
    assert len(read.rows) == 3
    rows = parse(schema, read.rows.to_pylist())
    assert text_lines(schema, rows).to_pylist() == read.rows.to_pylist()
    same = difference(schema, text_lines(schema, rows), np.ones(3, np.int64), read, None)
    assert same is not None
    assert (same.added, same.changed, same.removed) == (0, 0, 0)
    with pytest.raises(HeadraceError, match=r"Odd\.gone"):
        read_table(database, "Odd.gone", schema)


def test_fields_are_what_copy_escaped() -> None:
    schema = Schema.of([Column("id", DataType.parse("bigint")), Column("t", DataType.parse("text"))], ["id"])
    texts = ["", "plain", "\\", "\\N", "tab\tnl\nback\\slash\b\f\v\r", "\\\\t\\n", "é😀", None, "N"]
    escapes = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\v": "\\v"}

    def line(number: int, text: str | None) -> str:
        return f"{number}\t" + ("\\N" if text is None else "".join(escapes.get(c, c) for c in text)) + "\n"

    for some in (texts, ["plain", ""], []):
        rows = parse_bytes(schema, "".join(line(n, t) for n, t in enumerate(some)).encode())
        assert rows.to_pydict() == {"id": list(range(len(some))), "t": some}
    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        parse_bytes(schema, b"1\t\xe9\n")
    with pytest.raises(ResyncError, match="does not fit"):
        parse_bytes(schema, b"x\ty\n")


def test_an_address_that_is_not_right_is_told_without_its_password(database: str) -> None:
    schema = Schema.of([Column("id", DataType.parse("integer"))])
    password = str(psycopg.conninfo.conninfo_to_dict(database)["password"])
    for url in (
        database.replace(password, "wrong-canary-71"),
        "host=h password='wrong-canary-71",
        "pg://u:wrong-canary-71@h",
    ):
        with pytest.raises(ResyncError) as caught:
            read_table(url, "public.t", schema)
        told = f"{caught.value} {caught.value.as_json()}"
        assert "wrong-canary-71" not in told
        assert "--from" in caught.value.hint
    with pytest.raises(ResyncError, match="does not exist") as caught:
        read_table(database, "public.t", schema)
    assert "REPLICATION" in caught.value.hint
    assert str(caught.value.where["database"]).startswith("127.0.0.1:")
