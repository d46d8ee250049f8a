"""Nexmark's queries as views over an auction site that is drawn at random, against a Postgres with the same rows: equal at the
end of every step.

Always: windows of time are said in Postgres's SQL (`date_trunc`), and so is the last or first of something (DISTINCT ON,
row_number); where Nexmark asks for processing time or a side input, event time and a table stand for it. q6 (an average over
the last ten rows) is a window frame.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import psycopg
import pyarrow as pa

from headrace.engine.batch.updates import DELETE, UPSERT, Upserts
from headrace.engine.dataflow import Dataflow
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_views
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from tests.oracle.test_tpch import answer
from tests.oracle.test_views import Rows, add, connect

TABLES = {
    "person": {"id": "bigint", "name": "text", "email": "text", "city": "text", "state": "text", "at": "timestamp"},
    "auction": {
        "id": "bigint", "item": "text", "initial": "bigint", "reserve": "bigint", "at": "timestamp", "expires": "timestamp",
        "seller": "bigint", "category": "bigint",
    },
    "bid": {
        "id": "bigint", "auction": "bigint", "bidder": "bigint", "price": "bigint", "channel": "text", "url": "text",
        "at": "timestamp",
    },
    "side": {"id": "bigint", "value": "text"},
}  # fmt: skip
"""Columns with their types, all NOT NULL; `id` is the primary key."""

WINNING = (
    "select a.id, a.category, a.seller, b.price, b.at, b.bidder, row_number() over (partition by a.id order by b.price desc, "
    "b.at, b.id) as n from auction a join bid b on b.auction = a.id where b.at between a.at and a.expires"
)
MINUTE = "date_trunc('minute', at)"

QUERIES = {
    0: "select auction, bidder, price, at from bid",
    1: "select auction, bidder, 0.908 * price as price, at from bid",
    2: "select auction, price from bid where auction % 3 = 0",
    3: "select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id where a.category = 1 and "
    "p.state in ('OR', 'ID', 'CA')",
    4: "select category, avg(final) as final from (select a.id, a.category, max(b.price) as final from auction a join bid b "
    "on a.id = b.auction where b.at between a.at and a.expires group by a.id, a.category) q group by category",
    5: f"with n as (select {MINUTE} as w, auction, count(*) as num from bid group by 1, 2) select w, auction, num from n "
    "where num >= (select max(m.num) from n m where m.w = n.w)",
    6: f"select seller, at, avg(price) over (partition by seller order by at, id rows 10 preceding) as price from ({WINNING}) "
    "q where n = 1",
    7: f"select b.auction, b.price, b.bidder, b.at from bid b join (select {MINUTE} as w, max(price) as price from bid group "
    "by 1) m on m.price = b.price and m.w = date_trunc('minute', b.at)",
    8: f"select p.id, p.name, p.w from (select id, name, {MINUTE} as w from person group by 1, 2, 3) p join (select seller, "
    f"{MINUTE} as w from auction group by 1, 2) a on p.id = a.seller and p.w = a.w",
    9: f"select id, category, seller, price, at, bidder from ({WINNING}) q where n = 1",
    10: "select auction, bidder, price, at, at::date::text as day, extract(minute from at) as minute from bid",
    11: "select bidder, session, count(*) as bids, min(at) as begun, max(at) as ended from (select bidder, at, sum(fresh) "
    "over (partition by bidder order by at, id) as session from (select id, bidder, at, case when at <= lag(at) over "
    "(partition by bidder order by at, id) + interval '10 seconds' then 0 else 1 end as fresh from bid) x) y group by "
    "bidder, session",
    12: f"select bidder, {MINUTE} as w, count(*) as bids from bid group by 1, 2",
    13: "select b.auction, b.bidder, b.price, b.at, s.value from bid b join side s on b.auction % 4 = s.id",
    14: "select auction, bidder, 0.908 * price as price, case when extract(hour from at) between 8 and 18 then 'dayTime' when "
    "extract(hour from at) <= 6 or extract(hour from at) >= 20 then 'nightTime' else 'otherTime' end as kind, length(url) "
    "- length(replace(url, 'c', '')) as c_counts from bid where 0.908 * price > 50",
    15: "select at::date as day, count(*) as total, count(*) filter (where price < 50) as low, count(distinct bidder) as "
    "bidders, count(distinct bidder) filter (where price < 50) as low_bidders, count(distinct auction) as auctions from "
    "bid group by 1",
    16: "select channel, at::date as day, max(date_trunc('minute', at)) as minute, count(*) as total, count(distinct bidder) "
    "filter (where price >= 50 and price < 100) as middle from bid group by 1, 2",
    17: "select auction, at::date as day, count(*) as total, count(*) filter (where price < 50) as low, min(price), "
    "max(price), avg(price), sum(price) from bid group by 1, 2",
    18: "select distinct on (bidder, auction) auction, bidder, price, channel, at from bid order by bidder, auction, at desc, "
    "id",
    19: "select id, auction, bidder, price, n from (select *, row_number() over (partition by auction order by price desc, "
    "id) as n from bid) q where n <= 10",
    20: "select b.auction, b.bidder, b.price, b.channel, a.item, a.initial, a.seller from bid b join auction a on b.auction = "
    "a.id where a.category = 1",
    21: "select auction, bidder, price, channel, case when lower(channel) = 'apple' then '0' when lower(channel) = 'google' "
    "then '1' else split_part(split_part(url, 'channel_id=', 2), '&', 1) end as channel_id from bid where url like "
    "'%channel_id=%' or lower(channel) in ('apple', 'google')",
    22: "select auction, bidder, price, channel, split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2 from bid",
}  # fmt: skip


def schema_of(table: str) -> Schema:
    return Schema.of([Column(n, DataType.parse(t), nullable=False) for n, t in TABLES[table].items()], ["id"])


def drawn(chance: random.Random, table: str, key: int) -> tuple[str, ...]:
    """A row of a table."""
    at = f"2026-01-0{chance.randint(1, 2)} {chance.choice((5, 12, 19)):02}:0{chance.randint(0, 2)}:{chance.randint(0, 59):02}"
    choices = {
        "id": str(key), "name": chance.choice(("Ann", "Bob")), "email": f"p{key}@example.com", "city": "Boise",
        "state": chance.choice(("OR", "ID", "NY")), "at": at, "item": f"item {key}", "initial": "10", "reserve": "20",
        "expires": f"2026-01-0{chance.randint(1, 3)} 12:01:30", "seller": str(chance.randrange(8)),
        "category": str(chance.randrange(3)), "auction": str(chance.randrange(12)), "bidder": str(chance.randrange(8)),
        "price": str(chance.randrange(1, 140)), "channel": chance.choice(("Apple", "Google", "x")), "value": f"side {key}",
        "url": chance.choice(("https://a.b/cc/dd/item.htm", f"https://a.b/e?channel_id={key}&c=1", "")),
    }  # fmt: skip
    return tuple(choices[c] for c in TABLES[table])


def test_equal_at_every_step(postgres: EmbeddedPostgres) -> None:
    chance = random.Random(7)
    views = compile_views(
        [ViewSpec(f"q{n}", sql) for n, sql in QUERIES.items()],
        Catalog({f"public.{t}": schema_of(t) for t in TABLES}),
    )
    flow = Dataflow()
    for table in TABLES:
        flow.table(f"public.{table}", schema_of(table))
    outputs = {v.name: render(v, flow, {}).output(v.name) for v in views}
    rows: dict[str, Rows] = {v.name: Counter() for v in views}
    stored: dict[str, set[int]] = {t: set() for t in TABLES}
    with connect(postgres, "nexmark") as connection:
        for table, columns in TABLES.items():
            spelled = ", ".join(f"{n} {t} not null" for n, t in columns.items())
            connection.execute(f"create table {table} ({spelled}, primary key (id))")
        for view in views:
            connection.execute(f"create view {view.name} as {view.spec.sql}")
        for epoch in range(5):
            for table, count in {"person": 6, "auction": 10, "bid": 60, "side": 3}.items():
                keys = [chance.randrange(4 * count) for _ in range(count)]
                _change(chance, connection, flow, table, dict.fromkeys(keys), stored[table], epoch)
            flow.step(epoch + 1)
            for view in views:
                errors: Rows = Counter()
                add(rows[view.name], errors, outputs[view.name].take(), view.schema)
                assert not +errors, f"{view.name}: {errors}"
                ours = Counter({row: n for row, n in rows[view.name].items() if n})
                assert ours == answer(connection, view.name), f"{view.name} at {epoch}"
    assert [name for name, found in rows.items() if not found] == []


def _change(
    chance: random.Random, connection: psycopg.Connection, flow: Dataflow, table: str, keys: dict[int, None],
    stored: set[int], epoch: int,
) -> None:  # fmt: skip
    """Rows of these keys are put, and of a fifth of those that are there deleted, in Postgres and for the next step."""
    made, kinds = [], []
    with connection.transaction():
        for key in keys:
            row = drawn(chance, table, key)
            connection.execute(f"delete from {table} where id = %s", (key,))
            gone = key in stored and chance.random() < 0.5
            if not gone:
                connection.execute(f"insert into {table} values ({', '.join(['%s'] * len(row))})", row)
            (stored.discard if gone else stored.add)(key)
            made.append(row)
            kinds.append(DELETE if gone else UPSERT)
    schema = schema_of(table)
    arrays = [
        from_text(pa.array(texts, pa.large_string()), c.type).values
        for texts, c in zip(zip(*made, strict=True), schema.columns, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
    flow.push(f"public.{table}", Upserts(batch, np.full(len(made), epoch), np.array(kinds, np.uint8)))
