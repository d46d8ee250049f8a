"""Every supported view, kept by the dataflow through random transactions, against a Postgres to which the same
transactions are applied one by one: equal at every epoch, as multisets of text images.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import psycopg
import pyarrow as pa
import pytest

from headrace.engine.batch.updates import DELETE, INSERT, RETRACT, UPSERT, Updates, Upserts
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.operators.expressions.core.text_output import to_text
from headrace.engine.schema import DataType, Kind, Schema
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.views.compile import CompiledView, compile_views
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from tests.views.corpus import SUPPORTED
from tests.views.queries import query
from tests.views.shop import TABLES, catalog, ddl, schema_of

Row = tuple[str | None, ...]
Rows = Counter[Row]
EPOCHS = 18
FENCED = {s.name: s.fenced for s in SUPPORTED}
MAY_FAIL = {s.name for s in SUPPORTED if s.fails}

CHOICES: dict[str, tuple[str, ...]] = {
    "name": ("Ab", "ab", "A", "Bob", "", "Ähb", "AbbA"),
    "region": ("north", "south", "west"),
    "status": ("open", "paid", "void"),
    "page": ("/", "/cart", "/pay"),
    "method": ("card", "cash"),
    "sku": ("s1", "s2", "s3"),
    "born": ("1999-12-31", "2000-02-29", "2024-03-01"),
    "placed": ("2024-02-29 23:59:59.999999", "2024-03-01 00:00:00", "2023-12-31 12:30:00.5"),
    "at": ("2024-02-29 23:59:59", "2024-03-01 00:00:00"),
    "paid": ("2024-03-31 01:30:00+00", "2024-03-31 00:30:00.25+00", "2024-03-01 00:00:00+00"),
    "weight": ("0", "-0", "1.5", "NaN", "1e-05"),
    "vip": ("t", "f"),
    "details": ('{"a": 1}', "[]"),
    "amount": ("0.0000", "12.5000", "99.9999", "-3.2500"),
}


@dataclass(frozen=True)
class Change:
    """One row changed: the old row's text images or None, and the new row's or None."""

    table: str
    old: Row | None
    new: Row | None


@dataclass
class Shop:
    """Random transactions over the shop; `rows` is what stands in each table."""

    chance: random.Random
    rows: dict[str, list[Row]] = field(default_factory=lambda: {t: [] for t in TABLES})

    def transaction(self) -> list[Change]:
        """A few changes, applied to `rows`."""
        return [self.change(self.chance.choice(list(TABLES))) for _ in range(self.chance.randint(1, 7))]

    def change(self, table: str) -> Change:
        columns, key = TABLES[table]
        rows = self.rows[table]
        names = list(columns)
        new = tuple(self.value(table, n, spelled) for n, spelled in columns.items())
        act = self.chance.random()
        if key is None:
            if rows and act < 0.4:
                return Change(table, rows.pop(self.chance.randrange(len(rows))), None)
            rows.append(new)
            return Change(table, None, new)
        at = [names.index(k) for k in key]
        same = next((r for r in rows if [r[i] for i in at] == [new[i] for i in at]), None)
        if rows and act < 0.25:
            old = rows.pop(self.chance.randrange(len(rows)))
            return Change(table, old, None)
        if same is not None:
            new = tuple(n if self.chance.random() < 0.5 else o for n, o in zip(new, same, strict=True))
            rows.remove(same)
        rows.append(new)
        return Change(table, same, new)

    def value(self, table: str, name: str, spelled: str) -> str | None:
        key = TABLES[table][1] or ()
        required = name in key or spelled.endswith("not null")
        if not required and self.chance.random() < 0.2:
            return None
        if name in CHOICES:
            return self.chance.choice(CHOICES[name])
        if spelled.startswith("numeric"):
            return f"{self.chance.choice((0, 5, 12.5, 50, 60.5, 99.99, -7.25)):.2f}"
        if name == "qty":
            return str(self.chance.randint(0, 3))
        if name in ("discount", "parts"):
            # Zero is rare, so that views that divide are well most of the time.
            return str(self.chance.choice((1, 2, 3, 4, -5, 7) if self.chance.random() < 0.97 else (0,)))
        return str(self.chance.randint(1, 6))


def upserts(table: str, changes: list[tuple[int, Change]]) -> Upserts:
    """The changes of one table, with their epochs, as the dataflow takes them."""
    schema = schema_of(table)
    kinds: list[int] = []
    rows: list[Row] = []
    for _, change in changes:
        if schema.key is None:
            kinds.append(INSERT if change.new is not None else RETRACT)
        else:
            kinds.append(UPSERT if change.new is not None else DELETE)
        rows.append(change.new or change.old or ())
    arrays = []
    for position, column in enumerate(schema.columns):
        texts = pa.array([r[position] for r in rows], pa.large_string())
        arrays.append(from_text(texts, column.type).values)
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    return Upserts(batch, np.array([e for e, _ in changes], np.int64), np.array(kinds, np.uint8))


def images(updates: Updates, schema: Schema) -> list[tuple[Row, int, int]]:
    """(text images, epoch, diff) of each update."""
    texts = [to_text(updates.rows.column(i), c.type).to_pylist() for i, c in enumerate(schema.columns)]
    rows = list(zip(*texts, strict=True)) or [()] * len(updates)
    return [(r, int(t), int(d)) for r, t, d in zip(rows, updates.times, updates.diffs, strict=True)]


class Mirror:
    """The Postgres that has the same rows, and the corpus as its views."""

    def __init__(self, connection: psycopg.Connection, views: tuple[CompiledView, ...]) -> None:
        self.connection = connection
        connection.execute("set timezone = 'UTC'")
        for table in TABLES:
            connection.execute(ddl(table))
        for view in views:
            connection.execute(f'create view "{view.name}" as {FENCED.get(view.name) or view.spec.sql}')

    def apply(self, changes: list[Change]) -> None:
        with self.connection.transaction():
            for change in changes:
                self.one(change)

    def one(self, change: Change) -> None:
        columns, key = TABLES[change.table]
        if change.old is not None:
            # A keyless table may hold the row several times: one of them goes.
            named = [(c, v) for c, v in zip(columns, change.old, strict=True) if key is None or c in key]
            same = " and ".join(f"{c}::text is not distinct from %s" for c, _ in named)
            where = f"ctid = (select ctid from {change.table} where {same} limit 1)"
            done = self.connection.execute(f"delete from {change.table} where {where}", [v for _, v in named])
            assert done.rowcount == 1, change
        if change.new is not None:
            holes = ", ".join(["%s"] * len(columns))
            self.connection.execute(f"insert into {change.table} values ({holes})", change.new)

    def answer(self, view: str) -> Rows | str:
        """The view's rows as text images, or the message of its error."""
        try:
            with self.connection.cursor() as cursor:
                result = cursor.execute(f'select * from "{view}"').pgresult
        except psycopg.Error as error:
            self.connection.rollback()
            return str(error.diag.message_primary)
        assert result is not None
        cells = [[result.get_value(i, j) for j in range(result.nfields)] for i in range(result.ntuples)]
        return Counter(tuple(None if c is None else c.decode() for c in row) for row in cells)

    def types(self, view: str) -> list[tuple[str, str]]:
        found = self.connection.execute(
            "select attname, format_type(atttypid, null) from pg_attribute where attrelid = %s::regclass and attnum > 0"
            " order by attnum",
            (f'"{view}"',),
        )
        return [(str(n), str(t)) for n, t in found.fetchall()]


def bare(kind: DataType) -> str:
    """The type without its modifiers, as format_type has it."""
    if kind.element is not None:
        return f"{bare(kind.element)}[]"
    return (kind.bare.name or "text") if kind.kind is Kind.OTHER else kind.kind.value


@pytest.fixture(scope="module")
def views() -> tuple[CompiledView, ...]:
    return compile_views([ViewSpec(s.name, s.sql) for s in SUPPORTED], catalog())


def connect(postgres: EmbeddedPostgres, name: str) -> psycopg.Connection:
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as admin:
        admin.execute(f'drop database if exists "{name}"')
        admin.execute(f'create database "{name}"')
    return psycopg.connect(postgres.url(name), autocommit=True)


def test_names_and_types_are_postgres(postgres: EmbeddedPostgres, views: tuple[CompiledView, ...]) -> None:
    with connect(postgres, "view_types") as connection:
        mirror = Mirror(connection, views)
        for view in views:
            ours = [(c.name, bare(c.type)) for c in view.schema.columns]
            assert ours == mirror.types(view.name), view.name


@pytest.mark.parametrize("seed", range(2))
def test_equal_at_every_epoch(postgres: EmbeddedPostgres, views: tuple[CompiledView, ...], seed: int) -> None:
    """Random transactions, random step boundaries; half of the views are installed in the middle of the run."""
    chance = random.Random(seed)
    shop = Shop(chance)
    flow = Dataflow()
    rendered: dict[str, Collection] = {}
    outputs: dict[str, Output] = {}
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    late = chance.randrange(1, EPOCHS)
    early = [v for i, v in enumerate(views) if i % 2 == seed % 2 or v.name in ("open_or_paid", "order_payment_totals")]
    install(flow, early, rendered, outputs)
    rows: dict[str, Rows] = {v.name: Counter() for v in views}
    errors: dict[str, Rows] = {v.name: Counter() for v in views}
    with connect(postgres, f"views_{seed}") as connection:
        mirror = Mirror(connection, views)
        answers: dict[int, dict[str, Rows | str]] = {}
        waiting: dict[str, list[tuple[int, Change]]] = {t: [] for t in TABLES}
        for epoch in range(EPOCHS):
            changes = shop.transaction()
            mirror.apply(changes)
            answers[epoch] = {v.name: mirror.answer(v.name) for v in views}
            for change in changes:
                waiting[change.table].append((epoch, change))
            if chance.random() < 0.6 and epoch != late and epoch != EPOCHS - 1:
                continue
            for table, some in waiting.items():
                if some:
                    flow.push(f"public.{table}", upserts(table, some))
            waiting = {t: [] for t in TABLES}
            lower = flow.frontier
            flow.step(epoch + 1)
            compare(views, outputs, range(lower, epoch + 1), rows, errors, answers)
            flow.advance_since(epoch)
            if epoch == late:
                install(flow, [v for v in views if v not in early], rendered, outputs)
                flow.hydrate()
                for view in views:
                    if view not in early:
                        add(rows[view.name], errors[view.name], outputs[view.name].snapshot(epoch), view.schema)
                        check(view, epoch, rows, errors, answers)
    assert set(outputs) == {v.name for v in views}


def install(
    flow: Dataflow, views: list[CompiledView], rendered: dict[str, Collection], outputs: dict[str, Output]
) -> None:
    for view in views:
        rendered[view.name] = render(view, flow, rendered)
        outputs[view.name] = rendered[view.name].output(view.name)


def add(rows: Rows, errors: Rows, taken: tuple[Updates, Updates], schema: Schema) -> None:
    for row, _, diff in images(taken[0], schema):
        rows[row] += diff
    for message, diff in zip(taken[1].rows.column(0).to_pylist(), taken[1].diffs, strict=True):
        errors[(message,)] += int(diff)


def compare(
    views: tuple[CompiledView, ...],
    outputs: dict[str, Output],
    epochs: range,
    rows: dict[str, Rows],
    errors: dict[str, Rows],
    answers: dict[int, dict[str, Rows | str]],
) -> None:
    for view in views:
        if view.name not in outputs:
            continue
        good, bad = outputs[view.name].take()
        for epoch in epochs:
            add(rows[view.name], errors[view.name], (at(good, epoch), at(bad, epoch)), view.schema)
            check(view, epoch, rows, errors, answers)


def at(updates: Updates, epoch: int) -> Updates:
    mask = updates.times == epoch
    return Updates(updates.rows.filter(pa.array(mask)), updates.times[mask], updates.diffs[mask])


def check(
    view: CompiledView,
    epoch: int,
    rows: dict[str, Rows],
    errors: dict[str, Rows],
    answers: dict[int, dict[str, Rows | str]],
) -> None:
    ours = Counter({r: n for r, n in rows[view.name].items() if n})
    failing = {m[0]: n for m, n in errors[view.name].items() if n}
    theirs = answers[epoch][view.name]
    where = f"{view.name} at epoch {epoch}: {view.spec.sql}"
    if isinstance(theirs, str):
        assert view.name in MAY_FAIL, f"{where}: {theirs}"
        assert theirs in failing, where
        return
    assert not failing, where
    assert ours == theirs, where


@pytest.mark.parametrize("seed", range(3))
def test_random_views(postgres: EmbeddedPostgres, seed: int) -> None:
    """Views made at random, over a shop that grows and shrinks in a few steps."""
    chance = random.Random(1000 + seed)
    specs = [ViewSpec(f"v{i}", query(chance)) for i in range(40)]
    views = compile_views(specs, catalog())
    shop = Shop(chance)
    flow = Dataflow()
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    outputs: dict[str, Output] = {}
    install(flow, list(views), {}, outputs)
    rows: dict[str, Rows] = {v.name: Counter() for v in views}
    errors: dict[str, Rows] = {v.name: Counter() for v in views}
    with connect(postgres, f"random_views_{seed}") as connection:
        mirror = Mirror(connection, views)
        for epoch in range(5):
            changes = [c for _ in range(8) for c in shop.transaction()]
            mirror.apply(changes)
            for table in TABLES:
                some = [(epoch, c) for c in changes if c.table == table]
                if some:
                    flow.push(f"public.{table}", upserts(table, some))
            flow.step(epoch + 1)
            answers = {epoch: {v.name: mirror.answer(v.name) for v in views}}
            compare(views, outputs, range(epoch, epoch + 1), rows, errors, answers)
    full = sum(1 for r in rows.values() if r)
    assert full > len(views) / 2, "too few of the random views have rows to compare"
