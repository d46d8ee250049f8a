"""TRUNCATE on real Debezium: of a table whose topic has several partitions, and of a partitioned table, whole and in part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.connectors.debezium.settings import Tuning
from tests.sidecar.support.real import Real, Source, real

VIEWS = {
    "wide_sums": "select v % 3 as rest, count(*) as n, sum(v) as v from wide group by v % 3",
    "wide_rows": "select id, v from wide",
    "crowd_rows": "select v, count(*) as n from crowd group by v",
    "leaf_sums": "select count(*) as n, sum(v) as v from split",
    "joined": "select w.id, s.v from wide w join split s on s.id = w.id",
}
OVER_SPLIT = {"leaf_sums", "joined"}
DDL = (
    "create table wide (id int primary key, v int not null)",
    "create table crowd (v int)",
    "alter table crowd replica identity full",
    "create table split (id int primary key, v int not null) partition by range (id)",
    "create table split_low partition of split for values from (0) to (100)",
    "create table split_high partition of split for values from (100) to (1000)",
    "insert into wide select i, i from generate_series(1, 200) i",
    "insert into crowd select i % 5 from generate_series(1, 50) i",
    "insert into split select i, i from generate_series(1, 200) i",
)


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Real]:
    with real(stack, tmp_path, unique) as made:
        yield made


def partitions(shop: Real, source: Source, table: str) -> list[int]:
    """How many records each partition of a table's topic holds."""
    consumer = Consumer({"bootstrap.servers": shop.stack.kafka.bootstrap, "group.id": "none"})
    topic = f"{source.name}.public.{table}"
    try:
        numbers = sorted(consumer.list_topics(topic, 30).topics[topic].partitions)
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), 30) for p in numbers]
    finally:
        consumer.close()
    return [high - low for low, high in ends]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [1, 4])
def test_a_truncate_empties_what_postgres_empties(shop: Real, count: int) -> None:
    source = shop.source(shop.name, DDL, tuning=Tuning(partitions=count))
    shop.configure(VIEWS)
    shop.start()
    shop.equal(source, VIEWS)
    assert [n > 0 for n in partitions(shop, source, "wide")] == [True] * count
    for again in range(3):
        first = 1000 * again
        source.run("update wide set v = v + 1 where id % 2 = 0", "insert into crowd values (1), (2)")
        source.together(  # rows before and after it in one transaction
            f"insert into wide select i, i from generate_series({first + 300}, {first + 320}) i", "truncate wide, crowd",
            f"insert into wide select i, i * 2 from generate_series({first + 1}, {first + 150}) i",
            f"update wide set id = id + 5000 where id = {first + 7}", "insert into crowd select 3 from generate_series(1, 4)",
        )  # fmt: skip
        source.run("truncate crowd", "insert into crowd values (9)", "delete from wide where v % 5 = 0")
    shop.equal(source, VIEWS)
    source.together("truncate split", "insert into split select i, i * 3 from generate_series(50, 150) i")
    shop.equal(source, VIEWS)

    source.run("truncate split_low")  # one leaf: which rows were its own is not known
    shop.until(lambda: shop.in_error() == OVER_SPLIT, "the views of the table stand")
    source.run(
        "insert into split values (1, 1), (500, 500)", "truncate wide", "insert into wide values (1, 1), (500, 2)"
    )
    others = {name: text for name, text in VIEWS.items() if name not in OVER_SPLIT}
    shop.equal(source, others)
    (stands,) = shop.status()["sources"][0]["stopped"]
    assert stands["table"] == "public.split"
    assert stands["topic"] == f"{source.name}.public.split_low"
    assert "one partition of a table was truncated" in stands["error"]

    assert shop.stop() == 0
    place = {k: stands[k] for k in ("topic", "partition", "offset")}
    shop.configure(VIEWS, of_source={"skip": [place]})
    shop.start()
    shop.until(lambda: not shop.in_error(), "the views have come back")
    told = shop.command_json("resync", "public.split", "--from", source.url)
    assert (told["code"], told["added"], told["changed"]) == (0, 0, 0), told
    assert told["removed"] == 50
    shop.equal(source, VIEWS)
    assert shop.stop() == 0
