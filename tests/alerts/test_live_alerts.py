"""Alerts on real parts: each is provoked by its real fault, fires, and clears by what the runbook says to do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.sidecar.devstack.ports import pick
from tests.alerts.prometheus import RULES, Prometheus, scraping
from tests.sidecar.support.channel import Channel, Traffic

TEN_MINUTES = 660.0
FIRES, CLEARS = 60.0, 120.0
"""Seconds until an alert fires after its fault, and clears after its mend: HeadraceViewStale has a minute more."""
MORE_VIEWS = """version: 1
views:
  - name: unit_prices
    sinks: [warehouse]
    sql: select id, price, 100 / nullif(price, 0) / (price - 77777) as share from products
  - name: named_products
    sinks: [warehouse]
    sql: select id, name, category from products
    columns:
      - {name: category, data_tests: [not_null]}
  - name: descriptions
    sinks: [warehouse]
    sql: select id, description from products
"""
MEGABYTES = 48
"""Of changes that wait for a sink: the alert begins at 32."""


class Faults(Channel):
    """A shop with a view that can fail, one that is tested, and what an operator does about it."""

    def configure(self, **changes: Any) -> None:
        (self.folder / "views").mkdir(exist_ok=True)
        (self.folder / "views" / "more.yaml").write_text(MORE_VIEWS)
        super().configure(checkpoint={"interval_seconds": 10}, engine={"workers": 2}, **changes)
        self.change(lambda body: body["sources"][0].update(database=self.source_url, on_undecodable="dead_letter"))

    def change(self, edit: Callable[[dict[str, Any]], object]) -> None:
        """Another `headrace.yaml`, for the next start."""
        body = json.loads(self.config.read_text())
        edit(body)
        self.config.write_text(json.dumps(body))

    def again(self) -> None:
        """The process is restarted, as an operator does it."""
        assert self.stop() == 0
        self.start()

    def command(self, *words: str) -> str:
        """What a command of ours prints."""
        line = [sys.executable, "-m", "headrace.sidecar.cli.app", *words, "--config", str(self.config)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def connector(self, verb: str) -> None:
        asked = urllib.request.Request(f"{self.stack.connect.url}/connectors/{self.name}/{verb}", method="PUT")
        urllib.request.urlopen(asked, timeout=10).close()

    def source(self, statement: str) -> None:
        with psycopg.connect(self.source_url) as db:
            db.execute(statement)

    def admin(self, statement: str) -> None:
        with psycopg.connect(self.stack.postgres.url(), autocommit=True) as db:
            db.execute(statement)


ELSEWHERE = {"HeadraceCheckpointOld", "HeadraceWorkersMissing"}
"""A store that is away for five minutes, and a cluster without slots: the tests of Spark's failures provoke what they look at.
The second may fire here too: on a busy machine new workers take as long."""


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Faults]:
    made = Faults(stack, tmp_path, unique)
    try:
        made.make()
        yield made
    finally:
        made.close()


def fires(prometheus: Prometheus, *names: str, seconds: float = FIRES) -> None:
    """Until all of them fire."""
    began, left = time.monotonic(), set(names)
    while left:
        left -= set(prometheus.alerts())
        assert time.monotonic() < began + seconds, f"not fired after {seconds} s: {sorted(left)}"
        time.sleep(0.5)


def clears(shop: Faults, prometheus: Prometheus, *but: str, seconds: float = CLEARS) -> None:
    """Until none fires, some apart."""
    end = time.monotonic() + seconds
    while found := prometheus.alerts().keys() - set(but):
        assert time.monotonic() < end, f"still firing: {sorted(found)}; {shop.log()[-600:]}"
        time.sleep(0.5)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_each_alert_fires_by_its_fault_and_clears_by_the_runbook(shop: Faults, tmp_path: Path) -> None:
    shop.start()
    audits = f"127.0.0.1:{pick(1)[0]}"
    faults = (_rows, _sink, _backlog, _connector, _incomplete, _audit, _letter, _record, _memory, _down)
    with scraping(shop.http, tmp_path / "prometheus", audits=audits) as prometheus, auditing(shop, audits):
        Traffic(shop.source_url, 7).close()
        shop.source(
            "update products set category = 'tea' where category is null"
        )  # what a data test would tell before its fault
        clears(shop, prometheus)
        lost = _workers(shop, prometheus)
        for fault in faults:
            fault(shop, prometheus)
            clears(shop, prometheus, "HeadraceWorkersLost")
        clears(shop, prometheus, seconds=lost + TEN_MINUTES - time.monotonic())
        named = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
        assert prometheus.fired >= named - ELSEWHERE


@contextmanager
def auditing(shop: Faults, http: str) -> Iterator[None]:
    """An audit that goes on beside."""
    line = [sys.executable, "-m", "headrace.sidecar.cli.app", "audit", "--config", str(shop.config), "--every", "3",
            "--http", http]  # fmt: skip
    with (shop.folder / "audit.log").open("ab") as log, subprocess.Popen(line, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()


def _workers(shop: Faults, prometheus: Prometheus) -> float:
    """Workers are killed twice: nothing is to be done. When the last was; the alert looks ten minutes back."""
    for _ in range(2):
        before = [worker["pid"] for worker in shop.status()["workers"]]
        os.kill(before[-1], signal.SIGKILL)
        shop.until(lambda: _others(shop, before), "other workers run")  # noqa: B023
    at = time.monotonic()
    fires(prometheus, "HeadraceWorkersLost")
    return at


def _others(shop: Faults, before: list[int]) -> bool:
    """Whether workers run, and none of those before."""
    if shop.get("/readyz") is None or (status := shop.get("/status")) is None:
        return False
    here = {worker["pid"] for worker in json.loads(status)["workers"]}
    return bool(here) and not here & set(before)


def _rows(shop: Faults, prometheus: Prometheus) -> None:
    """Rows for which a view fails, and that break a data test: they are corrected in the source."""
    shop.source("update products set price = 77777 where id = 1; update products set category = null where id = 2")
    fires(prometheus, "HeadraceViewInError", "HeadraceViewDown", "HeadraceDataTestFails")
    assert prometheus.alerts()["HeadraceViewInError"]["view"] == "unit_prices"
    shop.source("update products set price = 5 where id = 1; update products set category = 'tea' where id = 2")


def _sink(shop: Faults, prometheus: Prometheus) -> None:
    """The sink's database takes no connection."""
    name = f"{shop.name}_dst"
    shop.admin(f'alter database "{name}" allow_connections false')
    shop.admin(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'")
    shop.source("update products set price = price + 1")
    fires(prometheus, "HeadraceSinkDetached")
    assert prometheus.alerts()["HeadraceSinkDetached"]["sink"] == "warehouse"
    shop.admin(f'alter database "{name}" allow_connections true')


def _backlog(shop: Faults, prometheus: Prometheus) -> None:
    """Somebody holds a lock on a view's table: the session is ended."""
    holder = psycopg.connect(shop.sink_url)
    holder.execute("lock table headrace.descriptions in access exclusive mode")
    text = "(select string_agg(md5(i::text || j::text), '') from generate_series(1, 320) j)"
    many = f"generate_series(1001, {1000 + MEGABYTES * 100}) i"
    shop.source(f"insert into products select i, 'p', 'tea', 1, null, {text} from {many}")
    fires(prometheus, "HeadraceSinkBacklog", seconds=2 * FIRES)
    shop.admin(f"select pg_terminate_backend({holder.info.backend_pid})")
    with suppress(psycopg.Error):
        holder.close()
    shop.source("delete from products where id > 1000")


def _incomplete(shop: Faults, prometheus: Prometheus) -> None:
    """The connector stops between the events of a transaction, whose END is there: it sends the rest."""
    table = f"{shop.name}.public.products"
    shop.source("update products set price = price + 1 where id = 3")
    shop.until(lambda: bool(_last(shop, table)), "the update is in the topic")
    last = _last(shop, table)
    with psycopg.connect(shop.source_url, autocommit=True) as db:
        found = db.execute("select txid_current(), (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchone()
        assert found is not None
    id_ = f"{found[0]}:{found[1]}"
    event = json.loads(last)
    event["source"] |= {"txId": found[0], "lsn": found[1], "sequence": json.dumps([str(found[1]), str(found[1])])}
    event["transaction"] = {"id": id_, "total_order": 1, "data_collection_order": 1}
    event["op"] = "u"
    counted = [{"data_collection": "public.products", "event_count": 1}]
    end = {"status": "END", "id": id_, "event_count": 1, "data_collections": counted, "ts_ms": int(time.time() * 1000)}
    producer = Producer({"bootstrap.servers": shop.stack.kafka.bootstrap})
    producer.produce(f"{shop.name}.transaction", json.dumps(end).encode())
    producer.flush(10)
    shop.source("update products set price = price + 1 where id = 3")
    fires(prometheus, "HeadraceTransactionIncomplete", seconds=2 * FIRES)
    producer.produce(table, json.dumps(event).encode(), json.dumps({"id": event["after"]["id"]}).encode())
    producer.flush(10)


def _last(shop: Faults, topic: str) -> bytes:
    """The last record of a topic of one partition that has a row, if one of the last five does."""
    consumer = Consumer({"bootstrap.servers": shop.stack.kafka.bootstrap, "group.id": "last"})
    try:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
        consumer.assign([TopicPartition(topic, 0, max(0, end - 5))])
        found = b""
        while True:
            message = consumer.poll(10)
            assert message is not None
            value = message.value()
            if value and json.loads(value).get("after"):
                found = value
            if message.offset() == end - 1:
                return found
    finally:
        consumer.close()


def _audit(shop: Faults, prometheus: Prometheus) -> None:
    """Somebody changes a view's table in the sink: the table is dropped, and the restarted sidecar fills it anew."""
    with psycopg.connect(shop.sink_url, autocommit=True) as db:
        db.execute("delete from headrace.named_products where id = 3")
        fires(prometheus, "HeadraceAuditMismatch")
        assert prometheus.alerts()["HeadraceAuditMismatch"]["view"] == "named_products"
        db.execute("drop table headrace.named_products")
    shop.again()


def _letter(shop: Faults, prometheus: Prometheus) -> None:
    """A key is of another type than it is declared: it is declared so, and its table read from its source by the restart."""
    shop.source("alter table payments alter column id type text")
    shop.source("insert into payments select 'abc', order_id, amount, method, paid_at from payments limit 1")
    shop.source("delete from payments where id = 'abc'")
    fires(prometheus, "HeadraceDeadLetters")
    tables = json.loads(shop.config.read_text())["sources"][0]["tables"]
    [payments] = [at for at, table in enumerate(tables) if table["name"] == "public.payments"]
    shop.change(lambda body: body["sources"][0]["tables"][payments]["columns"][0].update(data_type="text"))
    shop.again()
    shop.command("deadletters", "discard", "--all")


def _connector(shop: Faults, prometheus: Prometheus) -> None:
    """The connector is paused: it is resumed."""
    shop.connector("pause")
    fires(prometheus, "HeadraceSourceDown", "HeadraceViewLate")
    fires(prometheus, "HeadraceViewStale", seconds=2 * FIRES)
    shop.connector("resume")


def _record(shop: Faults, prometheus: Prometheus) -> None:
    """A foreign record in a table's topic: it is named under `skip:`."""
    topic, placed = f"{shop.name}.public.products", []
    producer = Producer({"bootstrap.servers": shop.stack.kafka.bootstrap})
    told: Callable[[Any, Any], None] = lambda _, message: placed.append((message.partition(), message.offset()))  # noqa: E731
    producer.produce(topic, b"not JSON", b'{"id": 1}', on_delivery=told)
    producer.flush(10)
    fires(prometheus, "HeadraceTableSuspended")
    skip = [{"topic": topic, "partition": placed[0][0], "offset": placed[0][1]}]
    shop.change(lambda body: body["sources"][0].update(skip=skip))
    shop.again()


def _memory(shop: Faults, prometheus: Prometheus) -> None:
    """A budget that the process cannot keep: it is raised."""
    body = json.loads(shop.config.read_text())
    assert shop.stop() == 0
    shop.config.write_text(json.dumps(body | {"memory": {"budget_mib": 128}}))
    shop.start(wait=False)
    fires(prometheus, "HeadraceMemoryOverBudget", seconds=2 * FIRES)
    shop.stop()
    shop.config.write_text(json.dumps(body))
    shop.start()


def _down(shop: Faults, prometheus: Prometheus) -> None:
    """The process is gone: it is started."""
    shop.kill()
    fires(prometheus, "HeadraceDown")
    shop.start()
