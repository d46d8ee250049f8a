"""Registration against a double of Connect that misbehaves as the real one does, and against the real one."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from headrace.connectors.debezium.config_rules import refused
from headrace.connectors.debezium.connect import (
    ConnectError,
    check_registered,
    register,
    registered,
    shown_url,
    wait_running,
)
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, Connection, Tuning, connector_config
from tests.sidecar.support import databases

if TYPE_CHECKING:
    from headrace.sidecar.devstack.stack import Stack

CONFIG = connector_config("shop", Connection("db", 5432, "cdc", "shop", "hunter2"), ["public.t"])


class Double(ThreadingHTTPServer):
    """Answers each request with the next of `script`; the last one stays."""

    script: list[tuple[int, str]]
    seen: list[tuple[str, str, Any]]


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server = self.server
        assert isinstance(server, Double)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        server.seen.append((self.command, self.path, body))
        status, text = server.script.pop(0) if len(server.script) > 1 else server.script[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_PUT = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def double() -> Iterator[Double]:
    server = Double(("127.0.0.1", 0), _Handler)
    server.seen = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def url(server: Double) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


HTML = (404, "<html>Not Found</html>")
REBALANCE = (409, '{"error_code":409,"message":"rebalance"}')


def test_register_waits_for_connect_and_for_the_rebalance(double: Double) -> None:
    double.script = [HTML, REBALANCE, (201, "{}")]
    assert register(url(double), "my shop", CONFIG, sleep=lambda _: None)
    assert [s[:2] for s in double.seen] == [("PUT", "/connectors/my%20shop/config")] * 3
    assert double.seen[0][2] == CONFIG
    double.script = [(200, "{}")]
    assert not register(url(double), "shop", CONFIG)


def test_register_gives_up_at_its_deadline(double: Double) -> None:
    double.script = [REBALANCE]
    times = iter(range(100))
    with pytest.raises(ConnectError, match="rebalance"):
        register(url(double), "shop", CONFIG, timeout=3, clock=lambda: next(times), sleep=lambda _: None)
    assert len(double.seen) == 3


def test_a_refused_configuration_is_told_at_once_without_the_password(double: Double) -> None:
    double.script = [(400, '{"error_code":400,"message":"cannot log in with hunter2"}')]
    with pytest.raises(ConnectError, match=r"cannot log in with \*\*\*"):
        register(url(double), "shop", CONFIG)
    assert len(double.seen) == 1


def test_a_missing_connector_is_told_apart_from_a_connect_that_is_not_there(double: Double) -> None:
    other = {"a": {"info": {"config": {"topic.prefix": "other"}}, "status": {}}}
    double.script = [(200, json.dumps(other))]
    with pytest.raises(ConnectError, match="no connector writes the prefix shop") as caught:
        check_registered(url(double), "shop")
    assert caught.value.where["prefixes"] == "other"
    with pytest.raises(ConnectError, match="does not answer") as caught:
        check_registered("http://user:hunter2@127.0.0.1:1", "shop")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConnectError, match="not an address"):
        registered("127.0.0.1:8083")


def test_the_connector_is_found_by_its_prefix_and_checked(double: Double) -> None:
    status = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}
    wrong = CONFIG | {"skipped.operations": "t"}
    double.script = [(200, json.dumps({"x": {"info": {"config": wrong}, "status": status}}))]
    checked = check_registered(url(double), "shop")
    assert (checked.name, checked.state) == ("x", "RUNNING")
    assert [(f.setting, f.wanted) for f in checked.findings] == [("skipped.operations", "none")]
    two = {n: {"info": {"config": CONFIG}, "status": status} for n in "xy"}
    double.script = [(200, json.dumps(two))]
    with pytest.raises(ConnectError, match="2 connectors write the prefix"):
        check_registered(url(double), "shop")


def test_a_failed_task_gives_its_cause(double: Double) -> None:
    trace = "org.ConnectException: failed\n\tat x\nCaused by: org.PSQLException: no such database"
    failed = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "FAILED", "trace": trace}]}
    double.script = [(404, "{}"), (200, json.dumps(failed))]
    with pytest.raises(ConnectError, match=r"Caused by: .*no such database"):
        wait_running(url(double), "shop", sleep=lambda _: None)


def test_addresses_are_shown_without_secrets() -> None:
    assert shown_url("http://u:p@h:8083/x") == "http://h:8083/x"


class Read:
    """What Connect wrote into the topics of one connector, by a consumer of its own. Every wait ends with `until`."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        from confluent_kafka import Consumer

        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": prefix, "enable.auto.commit": False})
        self.prefix = prefix
        self.until = time.monotonic() + 60

    def partitions(self, *names: str) -> dict[str, int]:
        """How many each topic has, once all are there."""
        while True:
            topics = self.consumer.list_topics(timeout=10).topics
            if all(f"{self.prefix}.{name}" in topics for name in names):
                return {name: len(topics[f"{self.prefix}.{name}"].partitions) for name in names}
            assert time.monotonic() < self.until
            time.sleep(0.2)

    def values(self, name: str, partitions: int) -> Iterator[Any]:
        """A topic's values from its beginning on, for as long as they are asked for."""
        from confluent_kafka import TopicPartition

        self.consumer.assign([TopicPartition(f"{self.prefix}.{name}", p, 0) for p in range(partitions)])
        while True:
            assert time.monotonic() < self.until
            yield from (json.loads(m.value()) for m in self.consumer.consume(100, 0.5))


def test_on_the_real_stack(stack: Stack, unique: str) -> None:
    """Registered, running, found and without a finding; NULL stays NULL; the notifications tell the snapshot's rows."""
    source = stack.postgres.url(unique)
    with psycopg.connect(stack.postgres.url(), autocommit=True) as admin:
        admin.execute(f"create database {unique}")
    with psycopg.connect(source, autocommit=True) as db:
        for statement in HEARTBEAT_DDL:
            db.execute(statement)
        db.execute("create table t (id int primary key, v int default 5, at timestamp(3))")
        db.execute("create table nothing (id int primary key)")
        db.execute("insert into t values (1, null, '2024-01-02 03:04:05.678'), (2, 7, null)")
    parts = psycopg.conninfo.conninfo_to_dict(source)
    host, port = stack.postgres_address
    config = connector_config(
        unique, Connection(host, int(port), str(parts["user"]), unique, str(parts["password"])),
        ["public.t", "public.nothing"], tuning=Tuning(partitions=2, heartbeat_ms=500),
    )  # fmt: skip
    read = Read(stack.kafka.bootstrap, unique)
    try:
        assert register(stack.connect.url, unique, config)
        wait_running(stack.connect.url, unique)
        checked = check_registered(stack.connect.url, unique, {"public.t": (), "public.nothing": ()})
        assert (checked.name, checked.state) == (unique, "RUNNING")
        assert refused(checked.findings) == []
        sizes = {"notifications": 1, "transaction": 1, "public.t": 2}
        assert read.partitions(*sizes) == sizes
        told = list(takewhile(lambda said: said["type"] != "COMPLETED", read.values("notifications", 1)))
        scans = [said["additional_data"] for said in told if said["type"] == "TABLE_SCAN_COMPLETED"]
        scanned = {scan["scanned_collection"]: scan["total_rows_scanned"] for scan in scans}
        assert scanned.pop("headrace.heartbeat") in ("0", "1")
        assert scanned == {"public.t": "2", "public.nothing": "0"}
        rows = [value["after"] for value in islice(read.values("public.t", 2), 2)]
        assert sorted(rows, key=lambda r: r["id"]) == [
            {"id": 1, "v": None, "at": 1704164645678000}, {"id": 2, "v": 7, "at": None},
        ]  # fmt: skip
    finally:
        read.consumer.close()
        stack.connect.delete(unique)
        with psycopg.connect(stack.postgres.url(), autocommit=True) as admin:
            databases.drop(admin, unique)
