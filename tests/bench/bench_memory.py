"""How much memory of its own a sidecar takes for a table of ten million rows and a transaction of a million.

Real Kafka, real Postgres as the sink, the sidecar a process of its own with a budget of 1 GiB. The records are Debezium's,
written to Kafka by this program: the table as one initial snapshot, which is one epoch, then one transaction that updates
rows all over the table and inserts others. Meanwhile the sidecar's anonymous memory (RssAnon: mapped files apart) is read every
20 ms. The view must answer what the rows give. Run as `python -m tests.bench.bench_memory`; writes build/bench/memory.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.sidecar.devstack import ports
from headrace.sidecar.devstack.processes import Child, spawn
from headrace.sidecar.devstack.stack import Stack
from tests.bench.report import FOLDER, publish, row
from tests.crash.soak import sample

ROWS, CHANGES, BUDGET_MIB, GOAL = 10_000_000, 1_000_000, 1024, 1024.0
PREFIX, TABLE, GROUPS = "big", "public.items", 1000
TOPIC, TRANSACTIONS, NOTIFICATIONS = f"{PREFIX}.{TABLE}", f"{PREFIX}.transaction", f"{PREFIX}.notifications"
SNAPSHOT_LSN, COMMIT_LSN, TXID = 1_000, 9_000, 700
COLUMNS = (("id", "bigint"), ("bucket", "integer"), ("amount", "bigint"), ("note", "text"))
VIEW = "select bucket, count(*) as n, sum(amount) as amount from items group by bucket"
EVERY = 0.02

_ROW = (
    b'{"before":null,"after":{"id":%d,"bucket":%d,"amount":%d,"note":"a note on item %d"},"source":{"version":"3.6.3.Final",'
    b'"connector":"postgresql","name":"big","ts_ms":1795233883419,"snapshot":"%b","db":"big","ts_us":1795233883419450,'
    b'"schema":"public","table":"items","txId":%d,"lsn":%d,"xmin":null},"transaction":%b,"op":"%b","ts_ms":1795233883420}'
)


def amounts(ids: Any) -> Any:
    """Of rows, as they are inserted."""
    return ids * 7919 % 1_000_003


@dataclass
class Written:
    """What the table holds now: amounts by id, which is the position."""

    amount: np.ndarray[Any, np.dtype[np.int64]]

    def answer(self) -> list[tuple[int, int, int]]:
        """What the view says."""
        ids = np.arange(len(self.amount)) % GROUPS
        counts, sums = np.bincount(ids, minlength=GROUPS), np.zeros(GROUPS, np.int64)
        np.add.at(sums, ids, self.amount)
        return [(g, int(counts[g]), int(sums[g])) for g in range(GROUPS) if counts[g]]


class Bench:
    """Topics, a producer and the sidecar. `folder`: where all of it lies; `settle_seconds`: watched on after each part."""

    def __init__(self, folder: Path, bootstrap: str, sink_url: str, settle_seconds: float = 15.0) -> None:
        self.folder, self.bootstrap, self.sink_url = folder, bootstrap, sink_url
        self._settle_seconds = settle_seconds
        self.http = f"{ports.HOST}:{ports.pick(1)[0]}"
        self.child: Child | None = None
        self.peak = self.since = 0.0
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(t, 1, 1) for t in (TOPIC, TRANSACTIONS, NOTIFICATIONS)]).values():
            made.result(60)
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 50, "batch.size": 1 << 20,
            "queue.buffering.max.messages": 400_000, "enable.idempotence": True,
        })  # fmt: skip

    def write(self, topic: str, records: Iterable[tuple[bytes | None, bytes]]) -> None:
        """Write (key, value) records, in order."""
        produce, poll = self._producer.produce, self._producer.poll
        for number, (key, value) in enumerate(records):
            while True:
                try:
                    produce(topic, value, key, partition=0)
                    break
                except BufferError:
                    poll(0.1)
            if not number & 1023:
                poll(0)
        self._producer.flush()

    def snapshot(self, rows: int) -> Written:
        """The table, as an initial snapshot."""
        notes: list[dict[str, Any]] = [{"type": "STARTED"}, {"type": "TABLE_SCAN_COMPLETED", "additional_data": {
            "scanned_collection": TABLE, "total_rows_scanned": str(rows), "status": "SUCCEEDED",
        }}, {"type": "COMPLETED"}]  # fmt: skip
        bodies = [  # rows are read after the first and before the others
            json.dumps({"aggregate_type": "Initial Snapshot", "timestamp": 1795233883000 + 1000 * k, **n}).encode()
            for k, n in enumerate(notes)
        ]
        self.write(NOTIFICATIONS, [(None, bodies[0])])
        amount = amounts(np.arange(rows, dtype=np.int64))
        self.write(TOPIC, (
            (b'{"id":%d}' % i, _ROW % (i, i % GROUPS, a, i, b"true", 500, SNAPSHOT_LSN, b"null", b"r"))
            for i, a in enumerate(amount.tolist())
        ))  # fmt: skip
        self.write(NOTIFICATIONS, [(None, body) for body in bodies[1:]])
        return Written(amount)

    def transaction(self, before: Written, changes: int) -> Written:
        """One transaction: every second event updates a row, the others insert."""
        rows, updates = len(before.amount), changes // 2
        spread = max(rows // max(updates, 1), 1)
        after = np.concatenate([before.amount, amounts(np.arange(rows, rows + changes - updates, dtype=np.int64))])

        def events() -> Iterable[tuple[bytes, bytes]]:
            for order in range(changes):
                i = order // 2 * spread % rows if order % 2 == 0 and order // 2 < updates else rows + order // 2
                if i < rows:
                    after[i] += 1
                block = b'{"id":"%d:%d","total_order":%d,"data_collection_order":%d}' % (
                    TXID,
                    COMMIT_LSN,
                    order + 1,
                    order + 1,
                )
                op = b"u" if i < rows else b"c"
                yield (
                    b'{"id":%d}' % i,
                    _ROW % (i, i % GROUPS, int(after[i]), i, b"false", TXID, COMMIT_LSN - 10, block, op),
                )

        self.write(TOPIC, events())
        end = {"status": "END", "id": f"{TXID}:{COMMIT_LSN}", "event_count": changes, "ts_ms": 2,
               "data_collections": [{"data_collection": TABLE, "event_count": changes}]}  # fmt: skip
        self.write(TRANSACTIONS, [(None, json.dumps(end).encode())])
        return Written(after)

    def start(self) -> None:
        """The sidecar."""
        table = {"name": TABLE, "key": ["id"], "columns": [{"name": n, "data_type": t} for n, t in COLUMNS]}
        (self.folder / "views").mkdir()
        (self.folder / "views" / "v.yaml").write_text(
            json.dumps({"version": 1, "views": [{"name": "v", "sinks": ["warehouse"], "sql": VIEW}]})
        )
        config = self.folder / "headrace.yaml"
        config.write_text(json.dumps({
            "version": 1, "name": "memory", "kafka": {"bootstrap.servers": self.bootstrap}, "http": self.http,
            "sources": [{"name": "big", "type": "debezium", "topic_prefix": PREFIX, "tables": [table]}],
            "sinks": [{"name": "warehouse", "type": "postgres", "url": self.sink_url, "schema": "headrace"}],
            "checkpoint": {"interval_seconds": 5.0}, "memory": {"budget_mib": BUDGET_MIB},
        }))  # fmt: skip
        command = [sys.executable, "-m", "headrace.sidecar.cli.app", "run", "--config", str(config)]
        self.child = spawn("sidecar", command, self.folder / "sidecar.log", environment=dict(os.environ))

    def watch(self, lsn: int, patience: float) -> None:
        """Sample until the sink is at `lsn`. `peak` is that of this watch."""
        assert self.child is not None
        self.peak, begun, looked = 0.0, time.monotonic(), 0.0
        while True:
            self.peak = max(self.peak, sample(self.child.pid, begun)["memory_mib"])
            now = time.monotonic()
            if now - looked > 0.5:
                looked = now
                self.child.check_alive()
                if self._stands_at() >= lsn:
                    return
                assert now - begun < patience, f"not there in time: {self.status()}"
            time.sleep(EVERY)

    def _stands_at(self) -> int:
        try:
            with psycopg.connect(self.sink_url) as db:
                found = db.execute(
                    "select ((sources -> 'big' ->> 'lsn')::pg_lsn - '0/0')::bigint from headrace.frontier"
                ).fetchone()
        except psycopg.errors.UndefinedTable:
            return -1
        return -1 if found is None or found[0] is None else int(found[0])

    def settle(self) -> float:
        """Sample on for a while, in which checkpoints are written; MiB held at its end."""
        assert self.child is not None
        end = time.monotonic() + self._settle_seconds
        while time.monotonic() < end:
            self.peak = max(self.peak, now := sample(self.child.pid, 0.0)["memory_mib"])
            time.sleep(EVERY)
        return now

    def status(self) -> dict[str, Any]:
        """What the sidecar says of itself."""
        with urllib.request.urlopen(f"http://{self.http}/status", timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def check(self, written: Written) -> None:
        """The view in the sink is what the rows give."""
        with psycopg.connect(self.sink_url) as db:
            found = db.execute("select bucket, n, amount from headrace.v order by 1").fetchall()
        assert [(b, n, int(a)) for b, n, a in found] == written.answer(), "the view is not what the rows give"

    def close(self) -> None:
        """End the sidecar."""
        if self.child is not None:
            self.child.stop(60)


def measure(bench: Bench, rows: int, changes: int, patience: float, say: Callable[[str], object]) -> dict[str, float]:
    """Both, one after the other: peaks in MiB, what is held, what was spilled."""
    out: dict[str, float] = {}
    written = bench.snapshot(rows)
    say(f"{rows:,} rows are in Kafka")
    bench.start()
    bench.watch(SNAPSHOT_LSN, patience)
    out["held"] = bench.settle()
    out["table"] = bench.peak
    bench.check(written)
    out["spilled"] = bench.status()["sources"][0]["spilled_bytes"] / 2**20
    say(f"the table is in: {out}")
    written = bench.transaction(written, changes)
    bench.watch(COMMIT_LSN, patience)
    bench.settle()
    out["transaction"] = bench.peak
    bench.check(written)
    return out


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.bench_memory", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--changes", type=int, default=CHANGES)
    parser.add_argument("--patience", type=float, default=1800.0)
    parser.add_argument("--folder", type=Path, help="kept afterwards; a temporary one where none is named")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-memory-") as fresh:
        folder = asked.folder or Path(fresh)
        stack = Stack(folder)
        stack.kafka.start()
        stack.postgres.start()
        with psycopg.connect(stack.postgres.url(), autocommit=True) as admin:
            admin.execute("create database warehouse")
        bench = Bench(folder, stack.kafka.bootstrap, stack.postgres.url("warehouse"))
        try:
            found = measure(bench, asked.rows, asked.changes, asked.patience, lambda text: print(text, file=sys.stderr))
        finally:
            bench.close()
            stack.stop()
    note = "the sidecar's own memory, mapped files apart"
    rows = [
        row(f"a table of {asked.rows:,} rows, peak", "MiB", found["table"], GOAL, note=note),
        row(f"a table of {asked.rows:,} rows, held afterwards", "MiB", found["held"], note=note),
        row(f"a transaction of {asked.changes:,} rows, peak", "MiB", found["transaction"], GOAL, note=note),
        row("spilled to disk while the snapshot was read", "MiB", found["spilled"]),
    ]
    small = (asked.rows, asked.changes) != (ROWS, CHANGES)
    given = f"--rows {asked.rows} --changes {asked.changes}" if small else ""
    publish("memory", rows, folder=FOLDER / "partial" if small else FOLDER, arguments=given)


if __name__ == "__main__":
    main()
