"""Plan, apply, SIGHUP, query and tail of a true sidecar, over Postgres, Kafka and Debezium."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.connectors.debezium.connect import register
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, Connection, Tuning, connector_config
from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.stack import Stack
from tests.containers import ContainerStack

PATIENCE = 120.0
SUMS = """\
version: 1
views:
  - {name: orders_, key: [id], sinks: [w], sql: "select id, buyer, total from orders"}
  - {name: sums, sinks: [w, bus], sql: "select buyer, sum(total) as total from orders group by buyer"}
"""
MORE = '  - {name: biggest, sinks: [w], sql: "select buyer, max(total) as most from orders group by buyer"}\n'


class Running:
    """A sidecar as a process, its source `db`, its sink `w`."""

    def __init__(self, folder: Path, stack: Stack | ContainerStack, name: str) -> None:
        self.folder, self.name = folder, name
        with psycopg.connect(stack.postgres.url(), autocommit=True) as admin:
            admin.execute(f'create database "{name}"')
            admin.execute(f'create database "{name}_w"')
        self.db = psycopg.connect(stack.postgres.url(name), autocommit=True)
        self.w = psycopg.connect(stack.postgres.url(f"{name}_w"), autocommit=True)
        self.db.execute("create table orders (id bigint primary key, buyer bigint not null, total bigint not null)")
        self.db.execute("insert into orders select i, i % 10, i from generate_series(1, 1000) i")
        for statement in HEARTBEAT_DDL:
            self.db.execute(statement)
        facts = psycopg.conninfo.conninfo_to_dict(stack.postgres.url(name))
        host, port = stack.postgres_address
        connection = Connection(host, port, str(facts["user"]), name, str(facts.get("password", "")))
        config = connector_config(name, connection, ["public.orders"], tuning=Tuning(poll_ms=10, heartbeat_ms=300))
        register(stack.connect.url, name, config)
        columns = [{"name": n, "data_type": "bigint", "nullable": False} for n in ("id", "buyer", "total")]
        table = {"name": "public.orders", "key": ["id"], "columns": columns}
        sink = stack.postgres.url(f"{name}_w")
        body = {
            "version": 1, "name": name, "kafka": {"bootstrap.servers": stack.kafka.bootstrap},
            "sources": [{"name": "shop", "type": "debezium", "topic_prefix": name, "tables": [table]}],
            "sinks": [{"name": "w", "type": "postgres", "url": sink},
                      {"name": "bus", "type": "kafka", "topic_prefix": f"{name}.views."}],
            "http": f"127.0.0.1:{ports.pick(1)[0]}", "checkpoint": {"interval_seconds": 0.5},
        }  # fmt: skip
        self.views = folder / "views"
        self.views.mkdir()
        self.declare(SUMS)
        (folder / "headrace.yaml").write_text(json.dumps(body))
        self.log = (folder / "log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None

    def declare(self, views: str) -> None:
        (self.views / "v.yaml").write_text(views)

    def start(self) -> None:
        self.process = subprocess.Popen(self.command("run"), stderr=self.log, cwd=self.folder)
        self.until(lambda: self.run("query", "select count(*) as n from orders", "--json", check=False).returncode == 0)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "headrace.sidecar.cli.app", *words]

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(self.command(*words), cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done

    def json(self, *words: str) -> Any:
        return [json.loads(line) for line in self.run(*words, "--json").stdout.splitlines()][-1]

    def reload(self) -> None:
        """What the views' files say is in force, by SIGHUP; asked for again where a sink was busy, as the log tells one to."""
        assert self.process is not None
        asked = -1
        while self.refusals() != asked:
            asked = self.refusals()
            self.process.send_signal(signal.SIGHUP)
            self.until(partial(self.is_answered, asked))

    def refusals(self) -> int:
        """How often nothing was changed."""
        return (self.folder / "log").read_text().count("event=not_applied")

    def is_answered(self, refusals: int) -> bool:
        """Whether nothing is left to apply, or that was refused once more."""
        done = {v["action"] for v in self.json("plan")["views"]} == {"unchanged"}
        return done or self.refusals() > refusals

    def until(self, good: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not good():
            assert self.process is None or self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.1)

    def sink(self, sql: str) -> list[Any]:
        return self.w.execute(sql).fetchall()

    def equal(self, view: str, sql: str) -> None:
        """The sink's table comes to hold what the source answers."""
        wanted = sorted(self.db.execute(sql).fetchall())
        self.until(lambda: sorted(self.sink(f"select * from headrace.{view}")) == wanted)

    def sums(self) -> dict[int, int]:
        """What the changed view holds by now."""
        return dict(self.db.execute("select buyer, sum(total) + 1 from orders group by buyer").fetchall())

    def followed(self, held: dict[int, int], rows: int, *words: str) -> tuple[dict[int, int], int]:
        """What a follower of it who held `held` holds once at least `rows` changes came, and from where to go on."""
        counts = dict.fromkeys(held.items(), 1)
        seen, resume = 0, 0
        command = self.command("tail", "sums", "--json", *words)
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True) as tail:
            watchdog = threading.Timer(PATIENCE, tail.kill)
            watchdog.start()
            assert tail.stdout is not None
            while seen < rows or not resume:
                line = json.loads(tail.stdout.readline() or "null")
                assert line is not None, "the follower ended"
                if "row" in line:
                    key = (line["row"]["buyer"], int(line["row"]["total"]))
                    counts[key] = counts.get(key, 0) + line["diff"]
                    seen, resume = seen + 1, 0
                resume = line.get("resume", resume)
            watchdog.cancel()
            tail.kill()
        return {k: v for (k, v), n in counts.items() if n}, resume

    def end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self.process = None
        return code


@pytest.fixture
def sidecar(tmp_path: Path, stack: Stack | ContainerStack, unique: str) -> Iterator[Running]:
    running = Running(tmp_path, stack, unique)
    try:
        running.start()
        yield running
    finally:
        if running.process is not None:
            running.process.kill()
            running.process.wait()
        stack.connect.request("DELETE", f"/connectors/{unique}")
        running.db.close()
        running.w.close()
        running.log.close()


SQL_SUMS = "select buyer, sum(total) from orders group by buyer"
SQL_BIGGEST = "select buyer, max(total) from orders group by buyer"


@pytest.mark.timeout(600)
def test_views_change_while_a_true_sidecar_runs(sidecar: Running) -> None:
    sidecar.equal("sums", SQL_SUMS)
    oid = sidecar.sink("select 'headrace.sums'::regclass::oid")
    sidecar.declare(SUMS + MORE)
    plan = sidecar.json("plan")
    assert {v["view"]: v["action"] for v in plan["views"]} == {
        "orders_": "unchanged",
        "sums": "unchanged",
        "biggest": "added",
    }
    applied = sidecar.json("apply")
    assert applied["event"] == "applied"
    sidecar.db.execute("update orders set total = total + 5 where id % 7 = 0")
    sidecar.equal("biggest", SQL_BIGGEST)

    sidecar.declare(SUMS.replace("sum(total) as", "sum(total) + 1 as") + MORE)  # SIGHUP does what apply does
    sidecar.reload()
    sidecar.equal("sums", "select buyer, sum(total) + 1 from orders group by buyer")
    assert sidecar.sink("select 'headrace.sums'::regclass::oid") == oid  # the same table, changed by what differs

    held, _ = sidecar.followed({}, 10)
    assert held == sidecar.sums()


def runs(most: int) -> str:
    """A recursion of so many rounds, once there is an order 0."""
    begin, on = "select id from orders where id = 0", f"select n + 1 from t where n < {most}"
    return f"with recursive t(n) as ({begin} union {on}) select n from t"


def declared(most: int) -> str:
    return f'  - {{name: runs, key: [n], sinks: [w], limits: {{rounds: {1 << 20}}}, sql: "{runs(most)}"}}\n'


LONGEST = '  - {name: longest, sinks: [w, bus], sql: "select max(n) as n from runs"}\n'


@pytest.mark.timeout(600)
def test_a_recursion_that_runs_away_is_replaced_while_it_does(sidecar: Running) -> None:
    sidecar.declare(SUMS + declared(10**12))
    sidecar.json("apply")
    sidecar.db.execute("insert into orders values (0, 3, 100)")

    def late() -> set[str]:
        return {v["name"] for v in sidecar.json("status")["views"] if v["late"]}

    sidecar.until(lambda: late() == {"runs"})
    sidecar.declare(SUMS + declared(10**12) + LONGEST)
    assert sidecar.json("apply")["event"] == "applied"
    assert late() == {"runs", "longest"}, "what reads it is late with it"
    sidecar.db.execute("update orders set total = total + 1 where id % 5 = 0")
    sidecar.equal("sums", SQL_SUMS)
    assert sidecar.sink("select view, error like 'late: %' from headrace.freshness where error is not null order by view") == [
        ("longest", True), ("runs", True),
    ]  # fmt: skip
    sidecar.declare(SUMS + declared(50))
    assert sidecar.json("apply", "--drop")["event"] == "applied"
    assert not late()
    sidecar.equal("runs", runs(50))
    assert sidecar.sink("select to_regclass('headrace.longest')") == [(None,)]
    sidecar.equal("sums", SQL_SUMS)
