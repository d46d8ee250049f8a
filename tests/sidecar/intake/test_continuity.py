"""On the real parts: columns that go away, changes that never reached a topic, and what brings the views back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.sidecar.support.channel import Channel, Traffic, channel

OVER_METHOD = {"payment_methods"}


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Channel]:
    with channel(stack, tmp_path, unique) as made:
        yield made


def soon(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.timeout(400)
def test_a_dropped_column_and_changes_that_were_lost(shop: Channel) -> None:
    shop.start()
    traffic = Traffic(shop.source_url, 7)
    traffic.transact(10)
    with psycopg.connect(shop.source_url, autocommit=True) as db:
        db.execute(
            "insert into customers select i, 'guest', null, 1, true, now(), null from generate_series(6000, 6005) i"
        )
    assert shop.compare_final().differences == []

    slot = f"headrace_{shop.name}"
    with psycopg.connect(shop.source_url, autocommit=True) as db:
        db.execute(f'alter publication "{slot}" drop table public.customers')
        db.execute("update customers set credit = 77, city = 'Bern' where id % 3 = 0")
        db.execute("delete from customers where id between 6001 and 6003")
        db.execute("insert into customers values (5000, E'a\\tb', null, 1, true, now(), repeat('long', 3000))")
        db.execute(f'alter publication "{slot}" add table public.customers')
    traffic.transact(5)
    assert shop.compare_final().differences != [], "what no topic holds is not there"
    told = shop.command_json("resync", "public.customers", "--from", shop.source_url)
    assert told["code"] == 0, told
    assert (told["added"], told["removed"]) == (1, 3)
    assert told["changed"] > 0
    assert shop.compare_final().differences == []
    again = shop.command_json("resync", "public.customers", "--from", shop.source_url)
    assert [again[k] for k in ("added", "changed", "removed")] == [0, 0, 0]
    shop.kill()
    shop.start()
    traffic.transact(5)
    assert shop.compare_final().differences == []
    assert shop.command_json("resync", "public.nothing", "--from", shop.source_url)["code"] == 5

    with psycopg.connect(shop.source_url, autocommit=True) as db:
        db.execute("alter table payments add column note text default 'new'")
        db.execute("update payments set amount = amount where id % 2 = 0")
    assert shop.compare_final().differences == []
    traffic.close()
    with psycopg.connect(shop.source_url, autocommit=True) as db:
        db.execute("alter table payments rename column method to way")
        db.execute("update payments set amount = amount + 1")
        db.execute("update customers set city = 'Basel' where id = 1")
    soon(lambda: shop.in_error() == OVER_METHOD)
    [lost] = shop.status()["sources"][0]["lost"]
    assert (lost["table"], lost["column"], lost["pauses"]) == ("public.payments", "method", True)
    with psycopg.connect(shop.source_url) as db, psycopg.connect(shop.sink_url) as sink:
        asked = "select sum(amount) from payments p join orders o on o.id = p.order_id"
        wanted = db.execute(asked.replace("amount", "-amount")).fetchone()
        kept = "select sum(balance - total) from headrace.order_totals"
        soon(lambda: sink.execute(kept).fetchone() == wanted and not sink.rollback())
    with psycopg.connect(shop.source_url, autocommit=True) as db:
        db.execute("alter table payments rename column way to method")
        db.execute("update payments set amount = amount - 1")
    told = shop.command_json("resync", "public.payments", "--from", shop.source_url)
    assert told["code"] == 0, told
    soon(lambda: shop.in_error() == set())
    assert shop.compare_final().differences == []
    assert shop.stop() == 0
