"""Debezium's incremental snapshots by signal, beside a stream of transactions, on real servers: a row that comes late is as
the transactions around it have it, in every state that a reader of the sink sees, also where sidecars are killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.connectors.debezium.settings import Tuning
from tests.sidecar.support.real import Real, Source, real

ROWS = 160
DDL = (
    "create schema headrace",
    "create table headrace.signal (id varchar(64) primary key, type varchar(32) not null, data varchar(2048))",
    "create table item (id int primary key, v int not null)",
    "create table late (id int primary key, v int not null)",
    # docs/debezium.md: what is committed before a window is opened is seen by those who read the chunk
    "create function headrace.settle() returns trigger language plpgsql as $$ begin "
    "if new.type = 'snapshot-window-open' then lock table late, item in share mode; end if; return new; end $$",
    "create trigger settle before insert on headrace.signal for each row execute function headrace.settle()",
    f"insert into item select i, 0 from generate_series(1, {ROWS}) i",
    f"insert into late select i, 0 from generate_series(1, {ROWS}) i",
)
VIEWS = {
    "torn": "select count(*) as n from item i join late l on l.id = i.id where l.v <> i.v",
    "sums": "select count(*) as n, sum(v) as v from late",
    "late_rows": "select id, v from late",
    "item_rows": "select id, v from item",
}
SIGNALLED = {
    "signal.data.collection": "headrace.signal",
    "table.include.list": "public.item,public.late,headrace.heartbeat,headrace.signal",
    "incremental.snapshot.chunk.size": "32",
}
UNSEEN = {"snapshot.include.collection.list": "public.item,headrace.heartbeat"}
"""The initial snapshot lacks `late`, as if it was captured later."""


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def signal(source: Source, name: str, *tables: str) -> None:
    """Ask for an incremental snapshot of tables."""
    listed = ", ".join(f'"public.{table}"' for table in tables)
    data = f'{{"data-collections": [{listed}], "type": "incremental"}}'
    source.run(f"insert into headrace.signal values ('{name}', 'execute-snapshot', '{data}')")


def windows(source: Source) -> int:
    """How many windows of chunks were closed."""
    with psycopg.connect(source.url, autocommit=True) as db:
        found = db.execute("select count(*) from headrace.signal where type = 'snapshot-window-close'").fetchone()
    assert found is not None, "an aggregate has a row"
    return int(found[0])


def enough(source: Source, count: int) -> bool:
    return windows(source) > count


@contextmanager
def busy(source: Source) -> Iterator[None]:
    """Two clients change both tables together, the same rows in each transaction, until it ends; each has rows of its own."""
    over = threading.Event()
    failed: list[Exception] = []

    def write(seed: int) -> None:
        draw = random.Random(seed)
        try:
            with psycopg.connect(source.url) as db:
                while not over.is_set():
                    first = draw.randrange(1, ROWS)
                    of = (first, first + draw.choice([0, 5]))
                    for table in ("late", "item"):
                        db.execute(
                            f"update {table} set v = v + 1 where id between %s and %s and id %% 2 = %s", (*of, seed)
                        )
                    db.commit()
                    over.wait(0.005)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert failed == []


@contextmanager
def watched(shop: Real) -> Iterator[set[int]]:
    """How many rows were torn in each state that a reader of the sink sees."""
    over = threading.Event()
    seen: set[int] = set()

    def look() -> None:
        with psycopg.connect(shop.sink_url, autocommit=True) as db:
            while not over.is_set():
                seen.update(int(n) for (n,) in db.execute("select n from headrace.torn").fetchall())
                over.wait(0.001)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [1, 3])
def test_rows_read_beside_the_stream_are_never_seen_early_or_late(shop: Real, count: int) -> None:
    source = shop.source(shop.name, DDL, tuning=Tuning(partitions=count), overrides=SIGNALLED | UNSEEN)
    shop.configure(VIEWS)
    shop.start()
    source.run("update item set v = v")
    shop.passed(source)
    with watched(shop) as torn:
        for again in range(2):
            done = windows(source)
            with busy(source):
                signal(source, f"signal-{again}", "late", "item")
                shop.until(partial(enough, source, done + 2), "chunks were read")
                shop.kill()
                shop.start(wait=False)
                shop.until(partial(enough, source, done + 2 * ROWS // 32), "both tables were read")
            shop.equal(source, VIEWS)
            assert shop.in_error() == set()
    assert torn == {0}
    assert shop.stop() == 0
