"""TPC-H's 22 queries as views over small tables that change at random, against a Postgres with the same rows: equal at
every epoch, in any cut of steps.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from headrace.engine.batch.updates import DELETE, UPSERT, Upserts
from headrace.engine.dataflow import Dataflow
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_views
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from tests.oracle.test_views import Row, Rows, add, at, connect
from tests.views.tpch import QUERIES, TABLES

EPOCHS = 10
KEYS = {"part": 8, "supplier": 5, "customer": 8, "orders": 14, "nation": 6, "region": 3}
WORDS: dict[str, tuple[str, ...]] = {
    "p_name": ("forest green", "forest snow", "pale green"),
    "p_brand": ("Brand#12", "Brand#23", "Brand#45"),
    "p_type": ("ECONOMY ANODIZED STEEL", "PROMO POLISHED BRASS", "MEDIUM POLISHED BRASS"),
    "p_size": ("3", "9", "15"),
    "p_container": ("SM CASE", "MED BOX"),
    "n_name": ("FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA", "INDIA"),
    "r_name": ("EUROPE", "ASIA", "AMERICA"),
    "c_mktsegment": ("BUILDING", "MACHINERY"),
    "c_phone": ("13-777", "31-888", "44-999"),
    "o_orderstatus": ("F", "O"),
    "o_orderpriority": ("1-URGENT", "2-HIGH", "5-LOW"),
    "o_comment": ("special packages requests", "quick deposits"),
    "s_comment": ("Customer said Complaints", "final deposits"),
    "l_returnflag": ("R", "N"),
    "l_linestatus": ("F", "O"),
    "l_shipmode": ("MAIL", "SHIP", "AIR", "AIR REG"),
    "l_shipinstruct": ("DELIVER IN PERSON", "NONE"),
}
NUMBERS: dict[str, tuple[str, ...]] = {
    "l_quantity": ("1", "5", "10", "20", "180"),
    "l_discount": ("0.05", "0.06", "0.10"),
    "l_tax": ("0.00", "0.08"),
}


class Change(NamedTuple):
    """A row of a table that comes, or, where `row` is None, the one of that key that goes."""

    table: str
    key: Row
    row: Row | None


def columns_of(table: str) -> list[tuple[str, str]]:
    return [tuple(c.strip().split(" ", 1)) for c in re.split(r",(?![^(]*\))", TABLES[table][0])]  # type: ignore[misc]


def schema_of(table: str) -> Schema:
    return Schema.of([Column(n, DataType.parse(t), nullable=False) for n, t in columns_of(table)], TABLES[table][1])


def value(chance: random.Random, name: str, spelled: str) -> str:
    reference = re.sub(r"^(ps|[a-z])_", "", name).removesuffix("key")
    if name.endswith("key"):
        table = {"cust": "customer", "supp": "supplier", "order": "orders"}.get(reference, reference)
        return str(chance.randrange(KEYS[table]))
    if name in WORDS or name in NUMBERS:
        return chance.choice(WORDS.get(name) or NUMBERS[name])
    if spelled == "date":
        return (
            f"{chance.choice((1993, 1994, 1995, 1996))}-{chance.choice((1, 3, 7, 9, 10)):02}-{chance.randint(1, 28):02}"
        )
    if spelled.startswith("numeric"):
        return f"{chance.choice((-5, 10, 100, 250.5, 1000)):.2f}"
    return str(chance.randrange(4)) if spelled == "integer" else chance.choice(("one", "two"))


def transaction(chance: random.Random, rows: dict[str, dict[Row, Row]], size: int) -> list[Change]:
    changes = []
    for _ in range(size):
        table = chance.choice(["lineitem"] * 5 + ["orders"] * 2 + list(TABLES))
        key = TABLES[table][1]
        if rows[table] and chance.random() < 0.2:
            gone = chance.choice(list(rows[table]))
            del rows[table][gone]
            changes.append(Change(table, gone, None))
            continue
        made = {n: value(chance, n, t) for n, t in columns_of(table)}
        place = tuple(made[k] for k in key)
        rows[table][place] = tuple(made.values())
        changes.append(Change(table, place, rows[table][place]))
    return changes


def upserts(table: str, changes: list[tuple[int, Change]]) -> Upserts:
    schema = schema_of(table)
    names = list(schema.names)
    arrays = []
    for position, column in enumerate(schema.columns):
        in_key = TABLES[table][1].index(names[position]) if names[position] in TABLES[table][1] else None
        texts = [c.row[position] if c.row else None if in_key is None else c.key[in_key] for _, c in changes]
        arrays.append(from_text(pa.array(texts, pa.large_string()), column.type).values)
    kinds = np.array([DELETE if c.row is None else UPSERT for _, c in changes], np.uint8)
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    return Upserts(batch, np.array([e for e, _ in changes], np.int64), kinds)


def apply(connection: psycopg.Connection, changes: list[Change]) -> None:
    with connection.transaction():
        for change in changes:
            where = " and ".join(f"{k} = %s" for k in TABLES[change.table][1])
            connection.execute(f"delete from {change.table} where {where}", change.key)
            if change.row is not None:
                holes = ", ".join(["%s"] * len(change.row))
                connection.execute(f"insert into {change.table} values ({holes})", change.row)


def answer(connection: psycopg.Connection, name: str) -> Rows:
    with connection.cursor() as cursor:
        result = cursor.execute(f"select * from {name}").pgresult
    assert result is not None
    cells = [[result.get_value(i, j) for j in range(result.nfields)] for i in range(result.ntuples)]
    return Counter(tuple(None if c is None else c.decode() for c in row) for row in cells)


@pytest.mark.parametrize("seed", range(2))
def test_equal_at_every_epoch(postgres: EmbeddedPostgres, seed: int) -> None:
    chance = random.Random(seed)
    catalog = Catalog({f"public.{t}": schema_of(t) for t in TABLES})
    views = compile_views([ViewSpec(f"q{n}", sql) for n, sql in QUERIES.items()], catalog)
    assert not any(v.warnings for v in views)
    flow = Dataflow()
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    outputs = {v.name: render(v, flow, {}).output(v.name) for v in views}
    rows: dict[str, Rows] = {v.name: Counter() for v in views}
    errors: dict[str, Rows] = {v.name: Counter() for v in views}
    seen: Counter[str] = Counter()
    with connect(postgres, f"tpch_{seed}") as connection:
        for table in TABLES:
            columns = ", ".join(f"{n} {t} not null" for n, t in columns_of(table))
            connection.execute(f"create table {table} ({columns}, primary key ({', '.join(TABLES[table][1])}))")
        for view in views:
            connection.execute(f"create view {view.name} as {view.spec.sql}")
        stored: dict[str, dict[Row, Row]] = {t: {} for t in TABLES}
        waiting: dict[str, list[tuple[int, Change]]] = {t: [] for t in TABLES}
        answers: list[dict[str, Rows]] = []
        for epoch in range(EPOCHS):
            changes = transaction(chance, stored, 250 if epoch == 0 else 25)
            apply(connection, changes)
            answers.append({v.name: answer(connection, v.name) for v in views})
            for change in changes:
                waiting[change.table].append((epoch, change))
            if chance.random() < 0.4 and epoch != EPOCHS - 1:
                continue
            for table, some in waiting.items():
                if some:
                    flow.push(f"public.{table}", upserts(table, some))
            waiting = {t: [] for t in TABLES}
            lower = flow.frontier
            flow.step(epoch + 1)
            for view in views:
                good, bad = outputs[view.name].take()
                for e in range(lower, epoch + 1):
                    add(rows[view.name], errors[view.name], (at(good, e), at(bad, e)), view.schema)
                    assert not any(errors[view.name].values()), f"{view.name} at {e}"
                    live = Counter({row: n for row, n in rows[view.name].items() if n})
                    assert live == answers[e][view.name], f"{view.name} at {e}"
                    seen[view.name] += bool(answers[e][view.name])
    assert len(seen) >= 18, f"too few queries have rows to compare: {sorted(seen)}"
