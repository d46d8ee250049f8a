"""End to end on the real parts: what Postgres commits is what both sinks show, at random positions during the run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.sidecar.support.channel import Channel, Traffic, channel


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Channel]:
    with channel(stack, tmp_path, unique) as made:
        yield made


@pytest.mark.timeout(400)
def test_both_sinks_show_postgres_answers_at_positions_during_the_run(shop: Channel) -> None:
    admin = AdminClient({"bootstrap.servers": shop.stack.kafka.bootstrap})
    undeclared = f"{shop.name}.public.undeclared"
    admin.create_topics([NewTopic(undeclared, 1, 1)])[undeclared].result()
    shop.start()
    judge, traffic = shop.judge(), Traffic(shop.source_url, 3)
    for step in range(12):
        traffic.transact(8)
        judge.ask()
        traffic.transact(4)
        if step == 5:
            traffic.drastic()
        end = time.monotonic() + 60
        while judge.pending:
            traffic.transact(1)
            judge.settle()
            assert time.monotonic() < end, f"the sinks did not pass step {step}'s position: {shop.status()['sources']}"
    traffic.close()
    judge.mirror.close()
    assert judge.verdict.differences == []
    assert judge.verdict.frontiers == 12
    final = shop.compare_final()
    assert final.differences == []
    assert final.comparisons == len(shop.views) + len(shop.bus)

    status = shop.status()
    assert [u["what"] for s in status["sources"] for u in s["unread"]] == ["public.undeclared"]
    shared = [a for a in status["arrangements"] if len(a["views"]) > 1]
    assert shared, "two views read one arrangement"
    assert all(a["bytes"] > 0 for a in shared)
    metrics = (shop.get("/metrics") or b"").decode()
    for name in (
        "headrace_events_total",
        "headrace_view_freshness_seconds_bucket",
        "headrace_sink_write_seconds_count",
    ):
        assert name in metrics
    told = subprocess.run(
        [sys.executable, "-m", "headrace.sidecar.cli.app", "status", "--url", f"http://{shop.http}", "--json"],
        capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(told.stdout)["name"] == shop.name

    with psycopg.connect(shop.source_url) as source:
        source.execute("update customers set vip = true, credit = 5 where id = 1")
        source.commit()
        lsn = source.execute("select pg_current_wal_lsn()").fetchone()
    with psycopg.connect(shop.sink_url, autocommit=True) as sink:
        sink.execute("select headrace.wait_for('shop', %s, interval '20 s')", lsn)
        assert sink.execute("select credit from headrace.vip_customers where id = 1").fetchone() is not None

    assert shop.stop() == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_kills_under_load_lose_nothing_and_double_nothing(shop: Channel) -> None:
    traffic = Traffic(shop.source_url, 11)
    epochs = []
    for round_ in range(10):
        shop.start(wait=round_ % 4 != 3)  # some die while they recover
        until = time.monotonic() + traffic.draw.uniform(0.5, 3.0)
        while time.monotonic() < until:
            traffic.transact(1)
        if round_ % 4 != 3:
            epochs.append(shop.status()["epoch"])
        shop.kill()
        traffic.transact(5)
    assert epochs[0] < epochs[-1]
    shop.start()
    traffic.transact(10)
    traffic.close()
    final = shop.compare_final()
    assert final.differences == []
    assert shop.status()["generation"] > len(epochs)
    assert shop.stop() == 0


@pytest.mark.timeout(300)
def test_a_lost_state_folder_costs_a_reading_and_no_wrong_row(shop: Channel) -> None:
    shop.start()
    traffic = Traffic(shop.source_url, 5)
    traffic.transact(20)
    assert shop.compare_final().differences == []
    assert shop.stop() == 0
    (shop.folder / "state").rename(shop.folder / "lost")
    traffic.transact(20)
    traffic.close()
    shop.start()
    assert shop.compare_final().differences == []


@pytest.mark.timeout(300)
def test_a_wrong_diff_is_noticed(shop: Channel) -> None:
    shop.module = "examples.demo.faulty"
    shop.start()
    traffic = Traffic(shop.source_url, 7)
    for _ in range(60):
        traffic.transact(2)
        time.sleep(0.02)
    traffic.close()
    try:
        noticed = bool(shop.compare_final().differences)
    except AssertionError as ended:  # the Postgres sink itself misses a row that it is told to take away
        noticed = "must go" in str(ended)
    assert noticed


@pytest.mark.timeout(300)
def test_a_second_sidecar_fences_the_first(shop: Channel, tmp_path: Path) -> None:
    first = shop.start()
    traffic = Traffic(shop.source_url, 9)
    traffic.transact(10)
    shop.configure(http=None)
    second = shop.start(wait=False)

    def is_fenced() -> bool:
        traffic.transact(1)
        return first.poll() is not None

    shop.until(is_fenced, "the first one noticed")
    assert first.returncode == 7, shop.log()[-2000:]
    assert second.poll() is None
    traffic.transact(5)
    traffic.close()
    assert shop.compare_final().differences == []
    assert shop.stop() == 0


@pytest.mark.timeout(400)
def test_a_record_that_cannot_be_decoded_stops_its_table_alone_and_skipping_it_goes_on(shop: Channel) -> None:
    over = {"revenue_by_city", "vip_customers", "payment_methods", "city_revenue_share"}
    shop.start()
    traffic = Traffic(shop.source_url, 21)
    traffic.transact(10)
    assert shop.compare_final().differences == []
    topic = f"{shop.name}.public.customers"
    producer = Producer({"bootstrap.servers": shop.stack.kafka.bootstrap})
    told: list[Any] = []
    producer.produce(topic, value=b'{"op":"c","after":', key=b"{}", on_delivery=lambda _, message: told.append(message))
    producer.flush(10)
    with psycopg.connect(shop.sink_url) as sink:
        last_good = sink.execute("select * from headrace.vip_customers order by id").fetchall()
    with psycopg.connect(shop.source_url) as source:
        source.execute("update customers set credit = coalesce(credit, 0) + 1, vip = true where id in (1, 2, 3)")

    def marked() -> bool:
        return {v["name"] for v in shop.status()["views"] if v["errors"]} == over

    for restart in (False, True):
        if restart:
            shop.kill()
            shop.start()
        shop.until(marked, "the views of the table are marked")
        traffic.transact(20)
        whole = shop.views
        shop.views = [v for v in whole if v.name not in over]
        shop.bus = [v for v in shop.views if "bus" in v.spec.sinks]
        assert shop.compare_final().differences == [], "the other views go on"
        shop.views, shop.bus = whole, [v for v in whole if "bus" in v.spec.sinks]
        (stopped,) = shop.status()["sources"][0]["stopped"]
        assert (stopped["table"], stopped["topic"]) == ("public.customers", topic)
        assert stopped["offset"] == told[0].offset()
        assert b"stopped shop: not JSON" in (shop.get("/readyz") or b"")
        with psycopg.connect(shop.sink_url) as sink:
            assert sink.execute("select * from headrace.vip_customers order by id").fetchall() == last_good
            found = sink.execute("select error from headrace.freshness where view = 'vip_customers'").fetchone()
            assert found is not None
            assert f"topic={topic}" in found[0]
    assert shop.stop() == 0

    tables = json.loads((shop.folder / "headrace.yaml").read_text())["sources"]
    tables[0]["skip"] = [{"topic": topic, "partition": told[0].partition(), "offset": told[0].offset()}]
    shop.configure(sources=tables)
    traffic.transact(5)
    traffic.close()
    shop.start()
    shop.until(lambda: not any(v["errors"] for v in shop.status()["views"]), "the views have come back")
    assert shop.compare_final().differences == []
    assert shop.status()["sources"][0]["stopped"] == []
    assert shop.stop() == 0


@pytest.mark.timeout(300)
def test_a_record_of_no_one_table_stops_it_by_name(shop: Channel) -> None:
    shop.start()
    topic = f"{shop.name}.transaction"
    producer = Producer({"bootstrap.servers": shop.stack.kafka.bootstrap})
    producer.produce(topic, value=b'{"status":', key=b"{}")
    producer.flush(10)
    assert shop.process is not None
    assert shop.process.wait(60) == 8
    log = shop.log()
    for place in (f"topic={topic}", "partition=0", "offset=", "source=shop", "not JSON"):
        assert place in log
    told = subprocess.run(
        [sys.executable, "-m", "headrace.sidecar.cli.app", "status", "--config", str(shop.folder / "headrace.yaml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 5
    assert "it stopped" in told.stderr
    assert f"topic={topic}" in told.stderr


@pytest.mark.timeout(300)
def test_a_topic_made_anew_while_the_sidecar_is_down_is_noticed(shop: Channel) -> None:
    shop.start()
    traffic = Traffic(shop.source_url, 13)
    traffic.transact(5)
    traffic.close()
    assert shop.compare_final().differences == []
    assert shop.stop() == 0
    topic = f"{shop.name}.notifications"  # the connector no longer writes to it
    admin = AdminClient({"bootstrap.servers": shop.stack.kafka.bootstrap})
    admin.delete_topics([topic])[topic].result()
    producer = Producer({"bootstrap.servers": shop.stack.kafka.bootstrap})
    end = time.monotonic() + 30
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < end
        time.sleep(0.05)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    for _ in range(200):  # so many that the old positions fit
        producer.produce(topic, b"{}")
    producer.flush(10)
    assert shop.start(wait=False).wait(60) == 5
    assert f"topic={topic}" in shop.log()
    assert "made anew" in shop.log()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"kafka": {"bootstrap.servers": "127.0.0.1:9"}}, 5, "127.0.0.1:9"),
        ({"sinks": [{"name": "warehouse", "type": "postgres", "url": "postgresql://nobody:hush@127.0.0.1:9/x"},
                    {"name": "bus", "type": "kafka"}]}, 5, "127.0.0.1"),
        ({"state": "headrace.yaml/state"}, 6, "state folder"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named(shop: Channel, change: dict[str, Any], code: int, words: str) -> None:
    shop.configure(**change)
    process = shop.start(wait=False)
    assert process.wait(90) == code, shop.log()
    assert words in shop.log()
    assert "hush" not in shop.log()
