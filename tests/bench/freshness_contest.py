"""The freshness contest: the same five views over the same topics, kept by Headrace and by its peers, one after the other.

Always: one system runs at a time, beside the same writer; all write to tables of one database. When a transaction is visible is
read off a sixth view, the greatest order number; a checker reads states in one REPEATABLE READ transaction each, and counts
those that no commit ever left (`contest_checker`). What is not built is left out, and said so. Called by bench_freshness.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil
import psycopg
from psycopg import sql

from examples.demo import shop
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.ports import pick
from headrace.sidecar.devstack.processes import Child, spawn
from headrace.sidecar.telemetry.metrics import quantile
from tests.bench.peers import flink, pathway
from tests.bench.peers.records_with_schemas import records_with_schemas, wait_for_snapshot
from tests.bench.report import Row, row

VIEWS: dict[str, tuple[str, dict[str, str], str]] = {
    "revenue_by_city": ("city", {"city": "text", "lines": "bigint", "revenue": "numeric"}, """
        select coalesce(c.city, '(unknown)') as city, count(*) as lines, sum(l.quantity * l.price) as revenue
        from order_lines l join orders o on o.id = l.order_id join customers c on c.id = o.customer_id
        group by coalesce(c.city, '(unknown)')"""),
    "order_totals": ("order_id", {
        "order_id": "bigint", "lines": "bigint", "total": "numeric", "status": "text", "balance": "numeric"}, """
        select o.id as order_id, l.lines, l.total, o.status, l.total - p.amount as balance
        from orders o
        join (select order_id, count(*) as lines, sum(quantity * price) as total from order_lines group by order_id) l
          on l.order_id = o.id
        join payments p on p.order_id = o.id"""),
    "sold_by_product": ("product_id", {"product_id": "integer", "sold": "bigint", "lines": "bigint"}, """
        select product_id, sum(quantity) as sold, count(*) as lines from order_lines group by product_id"""),
    "payment_methods": ("city, method", {"city": "text", "method": "text"}, """
        select distinct coalesce(c.city, '(unknown)') as city, coalesce(p.{q}method{q}, '(none)') as {q}method{q}
        from payments p join orders o on o.id = p.order_id join customers c on c.id = o.customer_id"""),
    "books": ("digit", {"digit": "bigint", "payments": "bigint", "paid": "numeric"}, """
        select order_id % 10 as digit, count(*) as payments, sum(amount) as paid from payments group by order_id % 10"""),
    "newest": ("one", {"one": "integer", "highest": "bigint"}, "select 1 as {q}one{q}, max(id) as highest from orders"),
}  # fmt: skip
"""Of each view its key, its columns and its query; the last one tells what is visible."""

READ = ("customers", "orders", "order_lines", "payments")
"""The tables that the views read."""
PATIENCE = 300.0


class Channel(Protocol):
    """Where the contest takes place: see `bench_freshness.Bench`."""

    name: str
    folder: Path
    source_url: str
    sink_url: str
    stack: Any
    children: dict[str, Child]


@dataclass(frozen=True)
class System:
    """One who takes part. `tables`: the schema that its views lie in; `start`: its command line, and its environment;
    `types`: by what types it keeps ours, where its tables must be made for it; `schemas`: whether it reads records with their
    schemas alone, which a connector of its own gives it, named like its folder."""

    name: str
    tables: str
    start: Callable[[Channel, Path, str], tuple[list[str], dict[str, str]]]
    types: Mapping[str, str] | None = None
    schemas: bool = False


@dataclass
class Outcome:
    """What one turn gave: seconds, bytes, and states read, of which so many never were."""

    load: float = 0.0
    latencies: list[float] = field(default_factory=list)
    lost: int = 0
    cores: float = 0.0
    resident: float = 0.0
    states: int = 0
    off_balance: int = 0
    torn: int = 0


def systems() -> Iterator[System]:
    """Those that are built; what is not is said."""
    yield System("Headrace, one Postgres sink", "contest_one", headrace_of(("warehouse",)))
    yield System("Headrace, Postgres and Kafka", "contest_both", headrace_of(("warehouse", "bus")))
    if flink.jars():
        yield System(flink.NAME, "contest_flink", _flink, {})
    else:
        sys.stdout.write("Flink SQL is not built, and left out: python -m tests.bench.peers.flink\n")
    if pathway.PYTHON.exists():
        types = {"numeric": "bigint", "integer": "bigint"}
        yield System(pathway.NAME, "contest_pathway", _pathway, types, schemas=True)
    else:
        sys.stdout.write("Pathway is not built, and left out: python -m tests.bench.peers.pathway\n")


def headrace_of(
    sinks: tuple[str, ...],
    kept: Mapping[str, tuple[str, dict[str, str], str]] = VIEWS,
    engine: Mapping[str, Any] | None = None,
) -> Callable[[Channel, Path, str], tuple[list[str], dict[str, str]]]:
    """Headrace with its defaults, these sinks and views. `engine`: what the configuration says of it, if anything."""

    def start(bench: Channel, folder: Path, tables: str) -> tuple[list[str], dict[str, str]]:
        (folder / "views").mkdir()
        declared = json.loads(Path(shop.__file__).with_name("tables.json").read_text())["shop"]
        views = [
            {"name": n, "sinks": list(sinks), "key": key.split(", "), "sql": query.format(q="")}
            for n, (key, _, query) in kept.items()
        ]
        (folder / "views" / "contest.yaml").write_text(json.dumps({"version": 1, "views": views}))
        known = {
            "warehouse": {"name": "warehouse", "type": "postgres", "url": bench.sink_url, "schema": tables},
            "bus": {"name": "bus", "type": "kafka", "topic_prefix": f"{tables}."},
        }
        config = {
            "version": 1, "name": tables.replace("_", "-"), "kafka": {"bootstrap.servers": bench.stack.kafka.bootstrap},
            "sources": [{"name": "shop", "type": "debezium", "topic_prefix": bench.name, "tables": declared}],
            "sinks": [known[sink] for sink in sinks], "http": f"127.0.0.1:{pick(1)[0]}", "engine": dict(engine or {}),
        }  # fmt: skip
        (folder / "headrace.yaml").write_text(json.dumps(config))
        program = [sys.executable, "-m", "headrace.sidecar.cli.app", "run", "--config", str(folder / "headrace.yaml")]
        return program, {}

    return start


def _flink(bench: Channel, folder: Path, tables: str) -> tuple[list[str], dict[str, str]]:
    facts = psycopg.conninfo.conninfo_to_dict(bench.sink_url)
    jdbc = (
        f"jdbc:postgresql://{facts['host']}:{facts['port']}/{facts['dbname']}?currentSchema={tables}"
        f"&user={facts['user']}&password={facts.get('password', '')}&reWriteBatchedInserts=true"
    )
    views = {name: (_quoted(key), columns, query.format(q="`")) for name, (key, columns, query) in VIEWS.items()}
    text = flink.script(bench.stack.kafka.bootstrap, bench.name, jdbc, views)
    return flink.command(folder, text)


def _quoted(key: str) -> str:
    return ", ".join(f"`{column}`" for column in key.split(", "))


def _pathway(bench: Channel, folder: Path, tables: str) -> tuple[list[str], dict[str, str]]:
    facts = psycopg.conninfo.conninfo_to_dict(bench.sink_url)
    places = {"PGHOST": "host", "PGPORT": "port", "PGDATABASE": "dbname", "PGUSER": "user", "PGPASSWORD": "password"}
    environment = {name: str(facts.get(fact, "")) for name, fact in places.items()}
    program = [str(pathway.PYTHON.absolute()), "-m", "tests.bench.peers.pathway_views"]
    return [*program, bench.stack.kafka.bootstrap, folder.name, tables], environment


def make_tables(url: str, tables: str, types: Mapping[str, str]) -> None:
    """Tables for the views of a system that makes none itself, and has `types` for some of ours."""
    schema = sql.Identifier(tables)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(sql.SQL("create schema {}").format(schema))
        for name, (key, columns, _) in VIEWS.items():
            told = ", ".join(f'"{column}" {types.get(kind, kind)}' for column, kind in columns.items())
            # Pathway adds columns of its own
            more = ", time bigint, diff bigint"
            db.execute(
                sql.SQL(f"create table {{}}.{{}} ({told}{more}, primary key ({key}))").format(  # type: ignore[arg-type]
                    schema, sql.Identifier(name)
                )
            )


def newest(db: psycopg.Connection[Any], tables: str) -> int:
    """The greatest order number that is visible; -1 where there is none yet."""
    with suppress(psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        found = db.execute(
            sql.SQL("select highest from {}.newest").format(sql.Identifier(tables)), prepare=True
        ).fetchone()
        return -1 if found is None or found[0] is None else int(found[0])
    return -1


def watch(url: str, tables: str, seconds: float, pause: float) -> list[tuple[float, int]]:
    """When which order number was first visible: ascending."""
    found: list[tuple[float, int]] = []
    with psycopg.connect(url, autocommit=True) as db:
        last, end = -1, time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            if (number := newest(db, tables)) > last:
                last = number
                found.append((time.monotonic(), number))
            if (left := pause - (time.monotonic() - now)) > 0:
                time.sleep(left)
    return found


def load(bench: Channel, system: System, child: Child) -> float:
    """Seconds until its views are right about all that there is."""
    began = time.monotonic()
    with psycopg.connect(bench.source_url, autocommit=True) as source:
        told = source.execute("select (select max(id) from orders), (select count(*) from order_lines)").fetchone()
    assert told is not None, "an aggregate gives one row"
    query = sql.SQL("select coalesce(sum(lines), 0) from {}.revenue_by_city").format(sql.Identifier(system.tables))
    with psycopg.connect(bench.sink_url, autocommit=True) as db:
        while time.monotonic() - began < PATIENCE:
            child.check_alive()
            if newest(db, system.tables) >= told[0]:
                lines = db.execute(query).fetchone()
                if lines is not None and int(lines[0]) == told[1]:
                    return time.monotonic() - began
            time.sleep(0.1)
    raise TimeoutError(f"{system.name} has not loaded within {PATIENCE} s: {child.log}")


@contextmanager
def started(bench: Channel, system: System, folder: Path, out: Outcome) -> Iterator[Child]:
    """One system, which has loaded all that there is; it ends with the block."""
    folder.mkdir()
    with psycopg.connect(bench.sink_url, autocommit=True) as db:
        db.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(system.tables)))
    if system.types is not None:
        make_tables(bench.sink_url, system.tables, system.types)
    line, environment = system.start(bench, folder, system.tables)
    child = spawn(system.tables, line, folder / "system.log", environment={**os.environ, **environment})
    try:
        out.load = load(bench, system, child)
        yield child
    finally:
        child.stop(30)


def turn(bench: Channel, system: System, chosen: argparse.Namespace, folder: Path, rate: float, seed: int) -> Outcome:
    """Start one system, let it load, write, watch, and end it again. `rate`: transactions a second."""
    out = Outcome()
    with started(bench, system, folder, out) as child:
        running: list[Child] = []
        try:
            samples = folder / "samples"
            told = str(rate), str(seed), str(samples), str(max(1, round(rate / 40)))
            running.append(child_of(bench, folder, "examples.demo.writer", *told, url=bench.source_url))
            checker = child_of(
                bench, folder, "tests.bench.contest_checker", system.tables, str(chosen.check_ms), url=bench.sink_url
            )
            running.append(checker)
            watch(bench.sink_url, system.tables, chosen.warm_up, 0.1)
            before, began = _busy(child), time.monotonic()
            seen = watch(bench.sink_url, system.tables, chosen.seconds, chosen.watch_ms / 1000)
            ended = time.monotonic()
            out.cores = (_busy(child) - before) / (ended - began)
            out.resident = _resident(child)
            checker.stop(20)
            found = json.loads(checker.log.read_text().splitlines()[-1])
            out.states, out.off_balance, out.torn = found["states"], found["off_balance"], found["torn"]
            noted = [(float(a), int(c)) for a, _, c in (text.split() for text in samples.read_text().splitlines())]
            out.latencies, out.lost = seen_after([s for s in noted if s[1] and began <= s[0] < ended - 1], seen, ended)
        finally:
            for one in reversed(running):
                one.stop(30)
    return out


def seen_after(
    samples: list[tuple[float, int]], seen: list[tuple[float, int]], until: float
) -> tuple[list[float], int]:
    """Seconds from each sample's commit until its order was visible; one that never was counts what it waited.

    >>> seen_after([(1.0, 7), (2.0, 9)], [(1.5, 8)], 4.0)
    ([0.5, 2.0], 1)
    """
    found, lost = [], 0
    for committed, number in samples:
        at = next((when for when, newest_of in seen if newest_of >= number), None)
        lost += at is None
        found.append(max(0.0, (until if at is None else at) - committed))
    return found, lost


def child_of(bench: Channel, folder: Path, module: str, *arguments: str, url: str) -> Child:
    """A Python module as a child, beside the system that is measured; `url`: of its database, by the environment."""
    name = module.rpartition(".")[2]
    log = folder / f"{name}.log"
    return spawn(name, [sys.executable, "-m", module, *arguments], log, environment={**os.environ, shop.URL: url})


def _family(child: Child) -> list[psutil.Process]:
    process = psutil.Process(child.pid)
    return [process, *process.children(recursive=True)]


def _busy(child: Child) -> float:
    return float(sum(sum(p.cpu_times()[:2]) for p in _family(child) if p.is_running()))


def _resident(child: Child) -> float:
    return float(sum(p.memory_info().rss for p in _family(child) if p.is_running()))


def contest(bench: Channel, chosen: argparse.Namespace) -> list[Row]:
    """Every system in turns, `chosen.rounds` times; the medians of the rounds. Then, once, those that read the same records as
    we do at the higher rate. Updates in the topics have the row before: Flink's format refuses those that have not."""
    found: dict[str, list[Outcome]] = {}
    fast: dict[str, list[Outcome]] = {}
    there = list(systems())
    turns = [
        (found, system, chosen.rate, number)
        for number in range(chosen.rounds)
        for system in (there if number % 2 == 0 else reversed(there))
    ]
    turns += [(fast, system, chosen.fast, chosen.rounds) for system in there if not system.schemas and chosen.fast]
    for outcomes, system, rate, number in turns:
        folder = f"{system.tables}_{number}"
        with left_out(system, f"round {number + 1}"):
            with records_with_schemas(bench, folder, chosen, PATIENCE) if system.schemas else nullcontext():
                out = turn(bench, system, chosen, bench.folder / folder, rate, chosen.seed + number)
            outcomes.setdefault(system.name, []).append(out)
    ahead = f"{chosen.fast:.0f} transactions/s, " if chosen.fast else ""
    return [*rows(found, "", {50: 10.0, 95: 18.0, 99: 30.0}), *rows(fast, ahead, {50: 15.0, 95: 35.0})]


def loads(bench: Channel, chosen: argparse.Namespace) -> list[Row]:
    """Every system once, over many rows that all are in Kafka: until its views are right, and what it holds then."""
    made: list[Row] = []
    with psycopg.connect(bench.source_url) as source:
        tables = sql.SQL(" + ").join(sql.SQL("(select count(*) from {})").format(sql.Identifier(t)) for t in READ)
        counted = source.execute(sql.SQL("select {}").format(tables)).fetchone()
    assert counted is not None, "a sum gives one row"
    wait_for_snapshot(bench, bench.name, PATIENCE)
    for system in systems():
        out, folder = Outcome(), f"{system.tables}_loads"
        with left_out(system, "loading"):
            records = records_with_schemas(bench, folder, chosen, PATIENCE) if system.schemas else nullcontext()
            with records, started(bench, system, bench.folder / folder, out) as child:
                out.resident = _resident(child)
            ours = not made
            title = f"{system.name}: {counted[0]:,} rows"
            made += [
                row(f"{title}, until the views are right", "s", out.load, 4.0 if ours else None),
                row(f"{title}, resident then", "MB", out.resident / 1e6, 350.0 if ours else None),
            ]
    return made


@contextmanager
def left_out(system: System, where: str) -> Iterator[None]:
    """One that fails is left out, and said so."""
    try:
        yield
    except (TimeoutError, RuntimeError, AssertionError, DevstackError) as why:
        sys.stdout.write(f"{system.name} is left out of {where}: {str(why)[-2000:]}\n")


def rows(outcomes: Mapping[str, list[Outcome]], ahead: str, goals: Mapping[int, float]) -> Iterator[Row]:
    """The report: ours with one sink beside each of the others. `ahead`: what names begin with; `goals`: ms at quantiles."""
    for k, (name, some) in enumerate(outcomes.items()):
        latencies = sorted(one for out in some for one in out.latencies)
        states = sum(out.states for out in some)
        title, first = f"{ahead}{name}", k == 0
        for q in (50, 95, 99):
            value = 1000 * quantile(latencies, q / 100)
            yield row(f"{title}: commit → visible, p{q}", "ms", value, goals.get(q) if first else None)
        limits = (0.25, 350.0) if first and not ahead else (None, None)
        yield row(f"{title}: processor", "cores", sum(out.cores for out in some) / len(some), limits[0])
        yield row(f"{title}: resident", "MB", max(out.resident for out in some) / 1e6, limits[1])
        if not ahead:
            yield row(f"{title}: load until the views are right", "s", min(out.load for out in some))
        yield row(f"{title}: sampled commits not visible at the end", "commits", sum(out.lost for out in some))
        none = 0.0 if name.startswith("Headrace") else None
        read = f"of {states} states read"
        alone, beside = sum(out.off_balance for out in some), sum(out.torn for out in some)
        yield row(f"{title}: states that never were, one view", "states", alone, none, note=read)
        yield row(f"{title}: states that never were, views side by side", "states", beside, none, note=read)
