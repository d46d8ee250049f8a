"""Where the bank plays: the embedded stack, a Postgres of its own for the sink, and a fault proxy on each of three ways.

The ways: sidecar → sink Postgres, sidecar → Kafka (a listener of the broker that advertises the proxy), Connect → source
Postgres. Always: what is started here ends with the scene. Single user: `run`.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import psycopg

from examples.demo.compare import Verdict, json_row, read_sink, with_views
from examples.demo.oracle import answers, snapshot
from headrace.connectors.debezium.connect import register, registered
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, Connection, Tuning, connector_config
from headrace.sidecar.config.config import load
from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.postgres import EmbeddedPostgres
from headrace.sidecar.devstack.spark import EmbeddedSpark
from headrace.sidecar.devstack.stack import Stack
from headrace.sidecar.wiring.project import read_project
from tests.conftest import FAST
from tests.crash.bank import ONE, OTHER, Half, create, tables, tables_yaml, views, views_yaml
from tests.crash.proxy import Proxy
from tests.crash.watch import BusWatch
from tests.sidecar.support.nursery import Nursery

PATIENCE = 300.0


class Scene:
    """`to_sink`, `to_kafka`, `to_source`: the proxies. `log`: the sidecars' one log. `sources` 2: a second bank, on a Postgres
    of its own. `history_mib`: the changes that each view keeps for `tail`. `host` spark: two workers on a Spark of the scene;
    `intake` shards: two workers, there or here, read the topics."""

    def __init__(
        self, folder: Path, sources: int = 1, history_mib: int = 4, host: str = "local", intake: str = "driver"
    ) -> None:  # fmt: skip
        self.folder = folder
        self.history_mib, self.intake = history_mib, intake
        self.halves = (ONE, OTHER)[:sources]
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "sidecar.log"
        self.config = folder / "headrace.yaml"
        kept = ports.kept(folder / "ports.json", ("postgres", "kafka", "controller", "connect", "proxied"))
        self.to_kafka = Proxy(kept["proxied"])
        client, proxied = (f"{ports.HOST}:{p}" for p in (kept["kafka"], kept["proxied"]))
        self.stack = Stack(folder, postgres=FAST, kafka={
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{ports.HOST}:{kept['controller']},PROXIED://{proxied}",
            "advertised.listeners": f"PLAINTEXT://{client},PROXIED://{ports.HOST}:{self.to_kafka.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        })  # fmt: skip
        self.warehouse = EmbeddedPostgres(folder / "warehouse", settings=FAST)
        self.second = EmbeddedPostgres(folder / "second", settings=FAST)
        self.spark = EmbeddedSpark(folder, ports.pick(1)[0], cores=8, memory_mb=4096) if host == "spark" else None
        self.nursery = Nursery()
        self._logged = 0
        self.http = f"{ports.HOST}:{ports.pick(1)[0]}"

    def start(self, seed: int) -> None:
        """Servers, databases, connector, configuration."""
        if self.spark is not None:
            self.spark.start()
        self.stack.start()
        self.warehouse.start()
        self.to_source = Proxy(self.stack.postgres_address[1])
        self.source_url = self.stack.postgres.url("bank")
        self.sink_url = self.warehouse.url("warehouse")
        self.to_sink = Proxy(self.port_of(self.sink_url))
        self._database(self.warehouse, "warehouse")
        self.source_urls = {ONE.source: self.source_url}
        self._found(self.stack.postgres, ONE, seed, self.to_source.port)
        if len(self.halves) > 1:
            self.second.start()
            self.source_urls[OTHER.source] = self.second.url(OTHER.source)
            self._found(self.second, OTHER, seed + 100, self.second.port)
        self._configure()

    @staticmethod
    def _database(server: Any, name: str) -> None:
        with psycopg.connect(server.url(), autocommit=True) as admin:
            admin.execute(f'create database "{name}"')

    def _found(self, server: Any, half: Half, seed: int, port: int) -> None:
        """A bank and its connector, which reaches it by `port`."""
        self._database(server, half.source)
        with psycopg.connect(server.url(half.source), autocommit=True) as db:
            create(db, random.Random(seed), half)
            for statement in HEARTBEAT_DDL:
                db.execute(statement)
        self._connect(half, port)

    @staticmethod
    def port_of(url: str) -> int:
        return int(str(psycopg.conninfo.conninfo_to_dict(url)["port"]))

    def _connect(self, half: Half, port: int) -> None:
        facts = psycopg.conninfo.conninfo_to_dict(self.source_urls[half.source])
        connection = Connection(ports.HOST, port, str(facts["user"]), half.source, str(facts.get("password", "")))
        quick = {"retriable.restart.connector.wait.ms": "300", "errors.max.retries": "-1"}
        config = connector_config(
            half.source, connection, tables(half), tuning=Tuning(poll_ms=10, heartbeat_ms=300), overrides=quick
        )
        register(self.stack.connect.url, half.source, config)

    def _configure(self) -> None:
        folder = self.folder / "views"
        folder.mkdir(exist_ok=True)
        (folder / "bank.yaml").write_text(views_yaml(self.halves))
        sink_url = self.sink_url.replace(f":{self.to_sink.target}/", f":{self.to_sink.port}/")
        body: dict[str, Any] = {
            "version": 1, "name": "bank",
            "kafka": {"bootstrap.servers": f"{ports.HOST}:{self.to_kafka.port}", "reconnect.backoff.max.ms": 500},
            "sources": [{"name": half.source, "type": "debezium", "topic_prefix": half.source, "tables": tables_yaml(half)}
                        for half in self.halves],
            "sinks": [
                {"name": "warehouse", "type": "postgres", "url": sink_url, "schema": "headrace"},
                {"name": "bus", "type": "kafka", "topic_prefix": "views."},
            ],
            "http": self.http, "checkpoint": {"interval_seconds": 0.25},
            "tail": {"history_mib": self.history_mib},
        }  # fmt: skip
        if self.spark is not None:
            conf = {"spark.executor.memory": "512m", "spark.executor.cores": "2", "spark.driver.memory": "512m",
                    "spark.cores.max": "4"}  # fmt: skip
            body["engine"] = {"host": "spark", "workers": 2, "spark": {"master": self.spark.master, "conf": conf}}
        if self.intake == "shards":
            body["engine"] = {"workers": 2, **body.get("engine", {}), "intake": "shards"}
        self.config.write_text(json.dumps(body))
        self.views = read_project(load(self.config, {})).compile()

    def mark_log(self) -> None:
        """What the log says from now on is of the next sidecar."""
        self._logged = self.log.stat().st_size if self.log.exists() else 0

    def unmark_log(self) -> None:
        """All that the log says is of the sidecar that runs."""
        self._logged = 0

    def says_it_runs(self) -> bool:
        """Whether the newest sidecar has said so in the log."""
        return self.says("event=running")

    def says(self, what: str) -> bool:
        """Whether the log says this, since it was marked."""
        with self.log.open("rb") as log:
            log.seek(self._logged)
            return what.encode() in log.read()

    def ready(self) -> bool:
        """Whether the sidecar says that it has caught up."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self.http}/readyz", timeout=2):
            return True
        return False

    def mend_connector(self) -> None:
        """Restart the connectors' tasks where they have failed, as an operator would."""
        for half in self.halves:
            with contextlib.suppress(Exception):
                if registered(self.stack.connect.url).get(half.source, ("", {}))[0] == "FAILED":
                    again = f"/connectors/{half.source}/restart?includeTasks=true&onlyFailed=true"
                    self.stack.connect.request("POST", again)

    def kill_server(self, name: str, pause: float) -> None:
        """SIGKILL a server, wait, and start it again."""
        part: Any = getattr(self if name in ("warehouse", "second") else self.stack, name)
        part.child.kill()
        time.sleep(pause)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                part.start()
                return
            except Exception:
                # a killed postmaster's children hold its memory for a moment
                assert time.monotonic() < end, f"{name} does not start again"
                time.sleep(0.3)

    def compare(self, bus: BusWatch) -> Verdict:
        """Both sinks against Postgres, once they have passed the source's last commit; nothing is written any more."""
        verdict, found, wanted = Verdict(), {}, {}
        for half in self.halves:
            mine = [v for v in self.views if v.name in views(half)]
            with snapshot(self.source_urls[half.source], f"final_{random.randrange(10**9)}") as (lsn, db):
                found |= answers(db, lsn, with_views(mine), {})
            wanted[half.source] = lsn
        end = time.monotonic() + PATIENCE
        while True:
            with psycopg.connect(self.sink_url) as sink:
                epoch, lsns, rows = read_sink(sink, "headrace", "warehouse", self.views)
            if all(lsns.get(source, 0) >= lsn and bus.lsns[source] >= lsn for source, lsn in wanted.items()):
                break
            self.mend_connector()
            assert time.monotonic() < end, (
                f"the sinks stand at {lsns} (epoch {epoch}) and {bus.lsns}, the sources at {wanted}: {self.tail()}"
            )
            time.sleep(0.1)
        verdict.compare_all("the end, in the Postgres sink", self.views, rows, found)
        bus.stop()
        held = self._bus_rows(bus)
        verdict.compare_all("the end, in the Kafka sink", self.views, held, found)
        if len(self.halves) > 1:
            wanted_rows = joined(found["accounts"].rows, found["club_accounts"].rows)
            for where, of in (("Postgres", rows), ("Kafka", held)):
                if of["together"] != wanted_rows:
                    verdict.differences.append(
                        f"together at the end, in the {where} sink: {of['together'] - wanted_rows}"
                    )
        return verdict

    def _bus_rows(self, bus: BusWatch) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for view in self.views:
            found: dict[Any, int] = {}
            for body in bus.rows[view.name].values():
                row, count = (body, 1) if view.key is not None else (body["row"], body["count"])
                text = json_row(view.schema.columns, row)
                found[text] = found.get(text, 0) + count
            out[view.name] = Counter(found)
        return out

    def leaks(self) -> list[str]:
        """Where the sink's password stands that should not: logs, state, and what HTTP answers while a sidecar runs."""
        secret = str(psycopg.conninfo.conninfo_to_dict(self.sink_url)["password"]).encode()
        found = [p for p in [self.log, *self.folder.glob("state/**/*")] if p.is_file() and secret in p.read_bytes()]
        answers_ = [p for p in ("/status", "/metrics", "/readyz", "/healthz") if secret in self.get(p)]
        return [f"the sink's password stands in {place}" for place in [*found, *answers_]]

    def get(self, path: str) -> bytes:
        """What the sidecar answers over HTTP, nothing where it does not."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
            body: bytes = answer.read()
            return body
        return b""

    def tail(self, size: int = 3000) -> str:
        """The end of the sidecars' log."""
        return self.log.read_text()[-size:] if self.log.exists() else ""

    def close(self) -> None:
        """End everything."""
        with contextlib.suppress(Exception):
            self.nursery.close()
        for name in ("to_sink", "to_kafka", "to_source"):
            if hasattr(self, name):
                getattr(self, name).close()
        self.warehouse.stop()
        self.second.stop()
        self.stack.stop()
        if self.spark is not None:
            self.spark.stop()


def joined(accounts: Counter[Any], others: Counter[Any]) -> Counter[Any]:
    """What the view over both sources has: rows are (id, owner, balance, moves), ids are keys."""
    by_id = {row[0]: row for row in others}
    return Counter((row[0], row[2], row[3], by_id[row[0]][2], by_id[row[0]][3]) for row in accounts if row[0] in by_id)


def tell(line: str, problems: Sequence[str]) -> NoReturn:
    """Say how a play went, its problems first, and end with 1 where there are any."""
    for problem in problems:
        print(problem, file=sys.stderr)
    print(line)
    sys.exit(1 if problems else 0)
