"""The freshness contest: the same five views over the same topics, kept by Headrace and by its peers, one after the other.

Always: one system runs at a time, beside the same writer; all write to tables of one database. When a transaction is visible is
read off a sixth view, the greatest order number; a checker reads states in one REPEATABLE READ transaction each, and counts
those that no commit ever left. What is not built is left out, and said so. Called by bench_freshness; as a program it is the
checker: `python -m tests.bench.freshness_contest SCHEMA PAUSE_MS`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
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
from tests.bench.peers.records_with_schemas import records_with_schemas
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

STATE = """
select (select count(*) from {s}.order_totals where balance <> 0) as off_balance,
       (select coalesce(sum(lines), 0) from {s}.order_totals) as order_lines,
       (select coalesce(sum(lines), 0) from {s}.revenue_by_city) as city_lines,
       (select coalesce(sum(lines), 0) from {s}.sold_by_product) as product_lines,
       (select coalesce(sum(total), 0) from {s}.order_totals) as totals,
       (select coalesce(sum(revenue), 0) from {s}.revenue_by_city) as revenue,
       (select coalesce(sum(paid), 0) from {s}.books) as paid
"""
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


def turn(bench: Channel, system: System, chosen: argparse.Namespace, number: int) -> Outcome:
    """Start one system, let it load, write, watch, and end it again."""
    out, folder = Outcome(), bench.folder / f"{system.tables}_{number}"
    folder.mkdir()
    with psycopg.connect(bench.sink_url, autocommit=True) as db:
        db.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(system.tables)))
    if system.types is not None:
        make_tables(bench.sink_url, system.tables, system.types)
    line, environment = system.start(bench, folder, system.tables)
    child = spawn(system.tables, line, folder / "system.log", environment={**os.environ, **environment})
    running = [child]
    try:
        out.load = load(bench, system, child)
        samples = folder / "samples"
        every = max(1, round(chosen.rate / 40))
        running.append(
            child_of(bench, folder, "examples.demo.writer", str(chosen.rate), str(chosen.seed + number), str(samples), str(every),
                   url=bench.source_url)
        )  # fmt: skip
        checker = child_of(
            bench, folder, "tests.bench.freshness_contest", system.tables, str(chosen.check_ms), url=bench.sink_url
        )
        running.append(checker)
        watch(bench.sink_url, system.tables, chosen.warm_up, 0.1)
        before, began = _busy(child), time.monotonic()
        seen = watch(bench.sink_url, system.tables, chosen.seconds, chosen.watch_ms / 1000)
        ended = time.monotonic()
        out.cores = (_busy(child) - before) / (ended - began)
        out.resident = _resident(child)
        checker.stop(20)
        told = json.loads(checker.log.read_text().splitlines()[-1])
        out.states, out.off_balance, out.torn = told["states"], told["off_balance"], told["torn"]
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
    """Every system in turns, `chosen.rounds` times; the medians of the rounds. Updates in the topics have the row before: Flink's
    format refuses those that have not."""
    outcomes: dict[str, list[Outcome]] = {}
    there = list(systems())
    for number in range(chosen.rounds):
        for system in there if number % 2 == 0 else reversed(there):
            folder = f"{system.tables}_{number}"
            try:
                with records_with_schemas(bench, folder, chosen, PATIENCE) if system.schemas else nullcontext():
                    outcomes.setdefault(system.name, []).append(turn(bench, system, chosen, number))
            except (TimeoutError, RuntimeError, AssertionError, DevstackError) as why:
                sys.stdout.write(f"{system.name} is left out of round {number + 1}: {str(why)[-2000:]}\n")
    return list(rows({name: some for name, some in outcomes.items() if some}))


def rows(outcomes: Mapping[str, list[Outcome]]) -> Iterator[Row]:
    """The report: ours with one sink beside each of the others."""
    ours, *others = outcomes
    for name, some in ((n, outcomes[n]) for n in (ours, *others)):
        latencies = sorted(one for out in some for one in out.latencies)
        states = sum(out.states for out in some)
        for q in (50, 95, 99):
            yield row(f"{name}: commit → visible, p{q}", "ms", 1000 * quantile(latencies, q / 100),
                      {50: 10.0, 95: 18.0, 99: 30.0}[q] if name == ours else None)  # fmt: skip
        yield row(
            f"{name}: processor", "cores", sum(out.cores for out in some) / len(some), 0.25 if name == ours else None
        )
        yield row(f"{name}: resident", "MB", max(out.resident for out in some) / 1e6, 350.0 if name == ours else None)
        yield row(f"{name}: load until the views are right", "s", min(out.load for out in some))
        yield row(f"{name}: sampled commits not visible at the end", "commits", sum(out.lost for out in some))
        yield row(f"{name}: states that never were, one view", "states", sum(out.off_balance for out in some),
                  0.0 if name.startswith("Headrace") else None, note=f"of {states} states read")  # fmt: skip
        yield row(f"{name}: states that never were, views side by side", "states", sum(out.torn for out in some),
                  0.0 if name.startswith("Headrace") else None, note=f"of {states} states read")  # fmt: skip


def check(url: str, tables: str, pause: float) -> None:
    """Read states until SIGTERM, then print how many, and how many of them never were."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
    told = {"states": 0, "off_balance": 0, "torn": 0}
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as db:
        db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        db.read_only = True
        query = sql.SQL(STATE).format(s=sql.Identifier(tables))
        while not stopping:
            with db.transaction():
                state = db.execute(query).fetchone()
            assert state is not None, "an aggregate gives one row"
            off, torn = wrong(state)
            told = {"states": told["states"] + 1, "off_balance": told["off_balance"] + off, "torn": told["torn"] + torn}
            time.sleep(pause)
    sys.stdout.write(json.dumps(told) + "\n")


def wrong(state: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether no commit left a state: a view by itself, and the views side by side.

    >>> wrong({"off_balance": 0, "order_lines": 3, "city_lines": 3, "product_lines": 2, "totals": 5, "revenue": 5, "paid": 5})
    (False, True)
    """
    lines = {int(state[n]) for n in ("order_lines", "city_lines", "product_lines")}
    sums = {state[n] for n in ("totals", "revenue", "paid")}
    return bool(state["off_balance"]), len(lines) > 1 or len(sums) > 1


if __name__ == "__main__":
    check(os.environ[shop.URL], sys.argv[1], float(sys.argv[2]) / 1000)
