"""`python -m examples.demo`: starts everything, watches, compares, ends, and says how it went in its last line.

Always: whatever happens, no process is left behind; exit code 0 only if every comparison agreed. The parts are children
of this process, spawned from its main thread, and die with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from rich.console import Console
from rich.live import Live

from examples.demo import lake, screen, shop
from examples.demo.compare import DemoFailed, Mirror
from examples.demo.judge import Judge
from headrace.connectors.debezium.connect import register
from headrace.connectors.debezium.settings import HEARTBEAT_DDL, Connection, Tuning, connector_config
from headrace.engine.errors import HeadraceError
from headrace.sidecar.config.config import load
from headrace.sidecar.devstack.ports import pick
from headrace.sidecar.devstack.postgres import binaries
from headrace.sidecar.devstack.processes import Child, spawn
from headrace.sidecar.devstack.stack import Stack
from headrace.sidecar.telemetry.metrics import STAGES
from headrace.sidecar.wiring.project import read_project

HERE = Path(__file__).parent
CUSTOMERS, PRODUCTS, ORDERS = 2_000, 200, 1_000
STARTING = 180.0
"""Seconds that the sidecar may take until its views are fresh: a Spark session and its executors start with it."""
SPARK_CONF = {"spark.executor.memory": "512m", "spark.executor.cores": "2", "spark.driver.memory": "512m"}
TOP = "select city, lines, revenue from {} order by revenue desc limit 6"


@dataclass
class Stage:
    """Where the demo plays: the stack, addresses, children."""

    stack: Stack
    folder: Path
    http: str
    began: float
    children: dict[str, Child] = field(default_factory=dict)
    source_url: str = ""
    sink_url: str = ""

    def spawn(self, name: str, *command: str, environment: Mapping[str, str] | None = None) -> Child:
        """Start a child of ours; its output goes to a log in the folder."""
        log = self.folder / f"{name}.log"
        env = {**os.environ, **(environment or {})}
        child = self.children[name] = spawn(name, [sys.executable, *command], log, environment=env)
        return child

    def stop_all(self) -> None:
        """End every child, the sidecar last."""
        for name in ("writer", "lake", "sidecar"):
            if name in self.children:
                self.children[name].stop(20)


def prepare(stage: Stage, workers: int, host: str) -> None:
    """Databases, first rows, connector, configuration."""
    postgres = stage.stack.postgres
    stage.source_url, stage.sink_url = postgres.url("shop"), postgres.url("warehouse")
    with psycopg.connect(postgres.url("postgres"), autocommit=True) as db:
        known = {r[0] for r in db.execute("select datname from pg_database").fetchall()}
        for name in {"shop", "warehouse"} - known:
            db.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    with psycopg.connect(stage.source_url) as db:
        if db.execute("select to_regclass('public.orders')").fetchone() == (None,):
            shop.create(db, customers=CUSTOMERS, products=PRODUCTS, orders=ORDERS)
        for statement in HEARTBEAT_DDL:
            db.execute(statement)
        db.execute(lake.DDL)
    address, port = stage.stack.postgres_address
    parts = psycopg.conninfo.conninfo_to_dict(stage.source_url)
    connection = Connection(address, port, str(parts["user"]), "shop", str(parts.get("password", "")))
    config = connector_config("shop", connection, shop.TABLES, tuning=Tuning(poll_ms=5))
    register(stage.stack.connect.url, "shop", config)
    write_configuration(stage, workers, host)


def write_configuration(stage: Stage, workers: int, host: str) -> None:
    """headrace.yaml and the views, in the folder."""
    views = stage.folder / "views"
    shutil.copytree(HERE / "views", views, dirs_exist_ok=True)
    tables = json.loads((HERE / "tables.json").read_text())
    body: dict[str, Any] = {
        "version": 1,
        "name": "demo",
        "state": "./state",
        "kafka": {"bootstrap.servers": stage.stack.kafka.bootstrap},
        "sources": [
            {"name": "shop", "type": "debezium", "topic_prefix": "shop", "connect": stage.stack.connect.url,
             "tables": tables["shop"]},
            {"name": "lake", "type": "spark", "topic_prefix": "lake", "tables": tables["lake"]},
        ],
        "sinks": [
            {"name": "warehouse", "type": "postgres", "url": "${env:WAREHOUSE_URL}", "schema": "headrace"},
            {"name": "bus", "type": "kafka", "granularity": "transaction", "topic_prefix": "views.", "format": "json"},
        ],
        "views": "./views",
        "http": stage.http,
        "engine": {"workers": workers, "host": host},
    }  # fmt: skip
    if stage.stack.spark is not None:
        body["engine"]["spark"] = {"master": stage.stack.spark.master, "conf": SPARK_CONF}
    (stage.folder / "headrace.yaml").write_text(json.dumps(body, indent=1))  # YAML holds JSON


def start_sidecar(stage: Stage, stopping: Callable[[], bool], *, wrong_diff: bool) -> None:
    """Start the sidecar and wait until its views are fresh. Raises DemoFailed when told to stop before that."""
    module = "examples.demo.faulty" if wrong_diff else "headrace.sidecar.cli.app"
    child = stage.spawn("sidecar", "-m", module, "run", "--config", str(stage.folder / "headrace.yaml"),
                        environment={"WAREHOUSE_URL": stage.sink_url})  # fmt: skip
    child.wait_until(lambda: stopping() or _get(stage, "/readyz") is not None, STARTING)
    if stopping():
        raise DemoFailed("stopped before its views were fresh")


def _get(stage: Stage, path: str) -> Any | None:
    with (
        contextlib.suppress(OSError, ValueError),
        urllib.request.urlopen(f"http://{stage.http}{path}", timeout=5) as answer,
    ):
        text = answer.read()
        return json.loads(text) if path == "/status" else text
    return None


def play(stage: Stage, arguments: argparse.Namespace, stopping: Callable[[], bool], console: Console) -> Judge:
    """The main part: traffic, Spark, pictures, comparisons."""
    settings = load(stage.folder / "headrace.yaml", {"WAREHOUSE_URL": stage.sink_url})
    views = read_project(settings).compile()
    bus = [v for v in views if "bus" in v.spec.sinks]
    judge = Judge(stage.source_url, stage.sink_url, views, Mirror(stage.stack.kafka.bootstrap, "views.", bus))
    url = {shop.URL: stage.source_url}
    stage.spawn("writer", "-m", "examples.demo.writer", str(arguments.rate), str(arguments.seed), environment=url)
    first = _next_version(stage)
    duration = arguments.duration or math.inf
    pause = min(12.0, max(2.0, duration / 4))
    if not arguments.no_spark:
        stage.spawn("lake", "-m", "examples.demo.lake", str(stage.folder), stage.stack.kafka.bootstrap, str(first),
                    str(pause), environment=url)  # fmt: skip
    facts = screen.Facts(duration=arguments.duration, top_view="revenue_by_city", connect=how_to_connect(stage))
    end = time.monotonic() + duration
    draw = random.Random(arguments.seed)  # noqa: S311
    ask_at, draw_at = time.monotonic() + 1, 0.0
    with (
        Live(screen.picture(facts), console=console, refresh_per_second=4, transient=False) as live,
        psycopg.connect(stage.sink_url, autocommit=True) as sink,
    ):
        while time.monotonic() < end and not stopping():
            for child in ("sidecar", "writer"):
                stage.children[child].check_alive()
            if time.monotonic() >= ask_at and len(judge.pending) < 3:
                judge.ask()
                ask_at = time.monotonic() + draw.uniform(0.2, min(3.0, duration / 25))
            judge.settle()
            if time.monotonic() >= draw_at:
                draw_at = time.monotonic() + 0.5
                _update(facts, stage, judge, sink)
                live.update(screen.picture(facts))
            time.sleep(0.05)
    return judge


def _next_version(stage: Stage) -> int:
    with psycopg.connect(stage.source_url) as db:
        found = db.execute("select coalesce(max(version), 0) from lake.versions").fetchone()
    return (found[0] if found else 0) + 1


def _update(facts: screen.Facts, stage: Stage, judge: Judge, sink: psycopg.Connection) -> None:
    status = _get(stage, "/status")
    now = time.monotonic() - stage.began
    if isinstance(status, dict):
        before, seconds = facts.status, max(now - facts.elapsed, 0.001)
        if before:
            events = sum(s["events"] for s in status["sources"]) - sum(s["events"] for s in before["sources"])
            facts.events_per_second = 0.8 * facts.events_per_second + 0.2 * events / seconds
            facts.epochs_per_second = (
                0.8 * facts.epochs_per_second + 0.2 * (status["epoch"] - before["epoch"]) / seconds
            )
        facts.status = status
    facts.elapsed = now
    view = sql.Identifier("headrace", facts.top_view)
    with contextlib.suppress(psycopg.errors.UndefinedTable):
        cursor = sink.execute(sql.SQL(TOP).format(view))
        facts.top_columns = [c.name for c in cursor.description or ()]
        facts.top_rows = cursor.fetchall()
    version = judge.mirror.places.get("lake", 0)
    facts.lake = f"version {version} published" if version else "starting"
    facts.comparisons, facts.frontiers = judge.verdict.comparisons, judge.verdict.frontiers
    facts.mismatches = len(judge.verdict.differences)


def how_to_connect(stage: Stage) -> list[str]:
    """Commands for a second terminal."""
    psql = binaries() / "psql"
    return [
        f"psql:   {psql} '{stage.sink_url}' -c 'table headrace.revenue_by_city'",
        f"source: {psql} '{stage.source_url}'",
        f"kafka:  python -m examples.demo.consume {stage.stack.kafka.bootstrap} views.revenue_by_city",
        f"status: headrace status --url http://{stage.http}",
    ]


@contextlib.contextmanager
def signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM end the demo in order; a second one at once."""
    seen: list[int] = []

    def stop(number: int, _frame: object) -> None:
        seen.append(number)
        signal.signal(number, signal.SIG_DFL)

    before = [signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


def run(arguments: argparse.Namespace, console: Console) -> str:
    """The demo; returns its last line, or raises."""
    began = time.monotonic()
    folder = Path(arguments.folder).resolve()
    if arguments.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    with signals() as stopping, Stack(folder, spark=arguments.host == "spark") as stack:
        console.print(
            f"stack up in {time.monotonic() - began:.1f} s: "
            + ", ".join(f"{k} {v:.1f} s" for k, v in stack.timings.items())
        )
        stage = Stage(stack, folder, f"127.0.0.1:{pick(1)[0]}", began)
        try:
            prepare(stage, arguments.workers, arguments.host)
            start_sidecar(stage, stopping, wrong_diff=arguments.wrong_diff)
            console.print(f"first view fresh {time.monotonic() - began:.1f} s after the command")
            judge = play(stage, arguments, stopping, console)
            stage.children["writer"].stop(20)
            if "lake" in stage.children:
                stage.children["lake"].stop(20)
            judge.settle()
            judge.final()
            return conclude(stage, judge, arguments, console)
        finally:
            stage.stop_all()


def conclude(stage: Stage, judge: Judge, arguments: argparse.Namespace, console: Console) -> str:
    """Print rates and memory; the last line. Raises DemoFailed for a difference."""
    status = _get(stage, "/status")
    if not isinstance(status, dict):
        raise DemoFailed("the sidecar does not answer", http=stage.http)
    stages = status["stages_ms"].get("warehouse", {})
    for name in STAGES:
        if name in stages:
            console.print(f"{name:>14}: p50 {stages[name]['p50']:8.1f} ms   p99 {stages[name]['p99']:8.1f} ms")
    for difference in judge.verdict.differences:
        console.print(difference, style="red")
    rss = status["memory"].get("VmHWM", 0) / 2**20
    facts = (
        f"views={len(judge.views)} transactions={status['transactions']} frontiers={judge.verdict.frontiers} "
        f"comparisons={judge.verdict.comparisons} mismatches={len(judge.verdict.differences)}"
    )
    if judge.verdict.differences:
        raise DemoFailed(facts)
    wanted = 20 if arguments.duration >= 60 else 2
    if judge.verdict.frontiers < wanted:
        raise DemoFailed(f"only {judge.verdict.frontiers} frontiers were compared, {wanted} are wanted")
    total = stages.get("total", {"p50": 0.0, "p99": 0.0})
    return f"demo: ok {facts} p50_ms={total['p50']:.0f} p99_ms={total['p99']:.0f} rss_mb={rss:.0f}"


def parse(arguments: list[str]) -> argparse.Namespace:
    """The demo's options."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--duration", type=float, default=60.0, help="seconds; 0 until Ctrl-C")
    parser.add_argument("--rate", type=float, default=100.0, help="transactions a second")
    parser.add_argument("--folder", default=".headrace/demo", help="data folder, kept for a warm second run")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=1, help="processes that share the sidecar's work")
    parser.add_argument("--host", choices=("local", "spark"), default="local", help="where those processes run")
    parser.add_argument("--fresh", action="store_true", help="forget an earlier run")
    parser.add_argument("--no-spark", action="store_true", help="leave the Spark job out")
    parser.add_argument("--wrong-diff", action="store_true", help="break one change on purpose: the demo must fail")
    return parser.parse_args(arguments)


def main() -> None:
    """Entry point."""
    arguments = parse(sys.argv[1:])
    console = Console(highlight=False)
    try:
        line = run(arguments, console)
    except HeadraceError as error:
        sys.stdout.write(f"demo: failed {error}\n")
        sys.exit(1)
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
