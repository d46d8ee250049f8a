"""What was committed while the sidecar was down, over Kafka: from its start to the last commit in the sink's tables.

Transactions of seven events over five tables wait in the topics, all of them in Kafka before the clock starts. The sidecar had
been killed (kill -9) and has its state. In the end every view is compared with Postgres. Run as `python -m
tests.bench.bench_catchup`; writes build/bench/catchup.json.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from confluent_kafka import Consumer, TopicPartition

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from examples.demo.writer import open_book
from headrace.connectors.debezium.settings import Tuning
from headrace.sidecar.devstack.stack import Stack
from tests.bench.bench_freshness import FRONTIER, Bench
from tests.bench.report import Row, publish, row

PATIENCE = 600.0


def write(url: str, count: int, seed: int) -> int:
    """`count` transactions of the shop, without waiting for the disk; the LSN that the sink must pass."""
    with psycopg.connect(url) as db:
        db.execute("set synchronous_commit = off")
        db.commit()
        book = open_book(db, seed)
        for begin in range(0, count, 100):
            with db.pipeline():
                for _ in range(min(100, count - begin)):
                    with db.transaction(), db.cursor() as cursor:
                        book.transact(cursor)
        found = db.execute("select (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchone()
    assert found is not None, "a function gives one row"
    return int(found[0])


def marks(bench: Bench) -> int:
    """How many BEGIN and END Connect has sent so far."""
    consumer = Consumer({"bootstrap.servers": bench.stack.kafka.bootstrap, "group.id": "catchup"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(f"{bench.name}.transaction", 0), timeout=10)[1])
    finally:
        consumer.close()


def measure(bench: Bench, count: int, seed: int) -> list[Row]:
    """One queue of `count` transactions."""
    sidecar = bench.children["sidecar"]
    time.sleep(12.0)  # a checkpoint
    os.kill(sidecar.pid, signal.SIGKILL)
    before, lsn = marks(bench), write(bench.source_url, count, seed)
    begin = time.monotonic()
    while marks(bench) < before + 2 * count:
        assert time.monotonic() < begin + PATIENCE, "Debezium does not come to an end"
        time.sleep(0.5)
    time.sleep(1.0)
    begin, ready = time.monotonic(), 0.0
    child = bench.child("sidecar", "headrace.sidecar.cli.app", "run", "--config", str(bench.folder / "headrace.yaml"))
    with psycopg.connect(bench.sink_url, autocommit=True) as db:
        first: int | None = None
        while True:
            found = db.execute(FRONTIER, prepare=True).fetchone()
            at, now = int(found[0]) if found is not None and found[0] is not None else -1, time.monotonic()
            first = at if first is None else first
            if not ready and at > first:
                ready = now
            if at >= lsn:
                break
            assert now < begin + PATIENCE, "it does not come to an end"
            child.check_alive()
            time.sleep(0.01)
    whole = now - begin
    differences = bench.compare_final().differences
    peak = bench.status()["memory"].get("VmHWM", 0) / 2**20
    shape = f"{count:,} transactions of seven events"
    return [
        row(f"{shape}, kill -9 until right", "s", whole, 4.0 if count == 30_000 else None),
        row(f"{shape}, until the first of them shows", "s", ready - begin),
        row(f"{shape}, start included", "transactions/s", count / whole),
        row(f"{shape}, from the first that shows", "transactions/s", count / max(0.001, now - ready),
            15_000.0 if count >= 100_000 else None),
        row(f"{shape}, peak memory", "MiB", peak),
        row(f"{shape}, differences from Postgres", "views", len(differences), 0.0),
    ]  # fmt: skip


def main() -> int:
    """Measure, print, write; 1 where a view was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_catchup", description=__doc__)
    parser.add_argument("--transactions", type=int, nargs="*", default=[30_000, 100_000])
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-") as scratch, Stack(Path(scratch)) as stack:
        bench = Bench(stack, stack.folder, "bench")
        bench.children = {}
        try:
            bench.make_all(Tuning(poll_ms=20))
            bench.run_sidecar()
            found: list[Row] = []
            written = 0
            for count in chosen.transactions:
                written += count
                found += measure(bench, count, chosen.seed + written)
        finally:
            for child in bench.children.values():
                child.stop(20)
    publish("catchup", found, arguments=" ".join(sys.argv[1:]))
    return 1 if any(r["met"] is False for r in found if r["unit"] == "views") else 0


if __name__ == "__main__":
    raise SystemExit(main())
