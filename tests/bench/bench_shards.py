"""What the driver's process costs an event, with its own intake and with the workers' (`engine.intake: shards`).

A broker holds transactions of 1, 7 or 100 inserts of 800 bytes, in a topic of four partitions. A sidecar with two workers and
a view of three sums takes them in, once with either intake, in turns; its sink is in memory and has the same rows in the end.
Processor time is that of this process, which is the driver: its threads and Kafka's client are in it, the workers are not. What
one driver can carry follows from it: the events a second that a core of its own is enough for.
Run as `python -m tests.bench.bench_shards`; writes build/bench/shards.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headrace.sidecar.process.bootstrap  # noqa: F401 (first: numba reads it)
from headrace.connectors.commands import MemoryCommands
from headrace.engine.kernels import warm
from headrace.sidecar.config.config import load
from headrace.sidecar.devstack.stack import Stack
from headrace.sidecar.wiring import build as wiring
from headrace.sidecar.wiring.build import build
from headrace.sidecar.wiring.project import read_project
from tests.bench.bench_intake import COLUMNS, event
from tests.bench.report import FOLDER, Row, publish, row
from tests.doubles.memory import MemorySink, MemoryStore

EVENTS, SIZES, ROUNDS, PARTITIONS = 200_000, (1, 7, 100), 3, 4
GOAL = 0.25
SQL = "select status, count(*) as n, sum(total) as total, sum(reference) as reference from orders group by status"


def records(prefix: str, events: int, size: int) -> Iterator[tuple[str, int, bytes | None, bytes]]:
    """Topic, partition, key and value of all that the connector has sent: an empty snapshot, and transactions."""
    for kind in ("STARTED", "COMPLETED"):
        told = {"aggregate_type": "Initial Snapshot", "type": kind, "timestamp": 1}
        yield f"{prefix}.notifications", 0, None, orjson.dumps(told)
    for i in range(events):
        txid, lsn = 1000 + i // size, 1 << 20
        body = event(i)
        body["source"] |= {"txId": txid, "lsn": lsn + 2 * i}
        body["transaction"] |= {"id": f"{txid}:{lsn}", "total_order": i % size + 1}
        yield f"{prefix}.public.orders", i * 7919 % PARTITIONS, orjson.dumps({"id": i}), orjson.dumps(body)
        if i % size == size - 1 or i == events - 1:
            count = i % size + 1
            for status in ("BEGIN", "END"):
                mark = {"status": status, "id": f"{txid}:{lsn + 2 * i + 1}", "event_count": count, "ts_ms": 2,
                        "data_collections": [{"data_collection": "public.orders", "event_count": count}]}  # fmt: skip
                yield f"{prefix}.transaction", 0, None, orjson.dumps(mark)


def fill(bootstrap: str, prefix: str, events: int, size: int) -> None:
    """Have the broker hold it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = [
        NewTopic(f"{prefix}.{n}", p, 1)
        for n, p in (("public.orders", PARTITIONS), ("transaction", 1), ("notifications", 1))
    ]
    for future in admin.create_topics(made).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for topic, partition, key, value in records(prefix, events, size):
        producer.produce(topic, value, key, partition)
        producer.poll(0)
    producer.flush(60)


def configure(folder: Path, bootstrap: str, prefix: str, intake: str) -> None:
    """What a user writes."""
    columns = [{"name": name, "data_type": kind} for name, (kind, _) in COLUMNS.items()]
    table = {"name": "public.orders", "key": ["id"], "columns": columns}
    (folder / "headrace.yaml").write_text(json.dumps({
        "version": 1, "name": "bench", "kafka": {"bootstrap.servers": bootstrap}, "http": None,
        "sources": [{"name": "shop", "type": "debezium", "topic_prefix": prefix, "tables": [table],
                     "decimal_handling_mode": "string"}],
        "sinks": [{"name": "s", "type": "postgres", "url": "postgresql://nobody@127.0.0.1:9/x"}],
        "engine": {"workers": 2, "intake": intake}, "checkpoint": {"interval_seconds": 1e6},
    }))  # fmt: skip
    (folder / "views").mkdir()
    (folder / "views" / "v.yaml").write_text(
        json.dumps({"version": 1, "views": [{"name": "v", "sinks": ["s"], "sql": SQL}]})
    )


def lap(bootstrap: str, prefix: str, intake: str, events: int, size: int) -> tuple[dict[str, float], Counter[Any]]:
    """One sidecar from its start to the last transaction: seconds an event, and what its view held."""
    store = MemoryStore()
    wiring.make_sink = lambda _s, c, *_: MemorySink(c.name, store)  # type: ignore[assignment,misc]
    wiring.make_commands = lambda _: MemoryCommands()  # type: ignore[assignment,return-value]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        configure(folder, bootstrap, prefix, intake)
        running = build(read_project(load(folder / "headrace.yaml", {})))
        try:
            runtime, wanted = running.runtime, -(-events // size)
            pids = [psutil.Process(w.pid) for w in runtime.parts.flow.workers()]
            begun, cpu = time.perf_counter(), time.process_time()
            theirs = [sum(p.cpu_times()[:2]) for p in pids]
            deadline = begun + 600
            while runtime.epoch < wanted:
                runtime.turn(0.005)
                assert time.perf_counter() < deadline, f"it stands at epoch {runtime.epoch} of {wanted}"
            for group in runtime.parts.writers:
                assert group.drain(60)
            found = {"driver": time.process_time() - cpu, "clock": time.perf_counter() - begun}
            found["busiest"] = max(sum(p.cpu_times()[:2]) - t for p, t in zip(pids, theirs, strict=True))
            return {name: seconds / events for name, seconds in found.items()}, store.rows["v"]
        finally:
            running.close()


def contest(bootstrap: str, events: int, size: int, rounds: int) -> list[Row]:
    """Both intakes, in turns."""
    prefix = f"shop{size}"
    fill(bootstrap, prefix, events, size)
    seen: dict[str, list[dict[str, float]]] = {"driver": [], "shards": []}
    for turn in range(rounds):
        held = []
        for intake in ("driver", "shards") if turn % 2 else ("shards", "driver"):
            found, rows = lap(bootstrap, prefix, intake, events, size)
            seen[intake].append(found)
            held.append(rows)
        assert held[0] == held[1], "the two intakes differ"
        assert sum(int(r[1]) for r in held[0]) == events, "every event is in"
    middle = {i: {n: statistics.median(f[n] for f in some) * 1e6 for n in some[0]} for i, some in seen.items()}
    name, here, there = f"transactions of {size}", middle["driver"], middle["shards"]
    words = {
        "driver": "processor time of the driver",
        "busiest": "processor time of the busiest worker",
        "clock": "by the clock",
    }
    rows = [
        row(f"{name}, intake on the shards: {what}", "µs/event", there[key], GOAL * here[key] if key == "driver" else None,
            peer="intake in the driver", peer_value=here[key])
        for key, what in words.items()
    ]  # fmt: skip
    carried = row(f"{name}, intake on the shards: events that one driver can carry, on a core of its own", "events/s",
                  1e6 / there["driver"], peer="intake in the driver", peer_value=1e6 / here["driver"])  # fmt: skip
    return [*rows, carried]


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    warm()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="headrace-") as scratch:
        stack = Stack(Path(scratch))
        try:
            stack.kafka.start()
            for size in chosen.sizes:
                rows += contest(stack.kafka.bootstrap, chosen.events, size, chosen.rounds)
        finally:
            stack.stop()
    given = [f"--{n} {' '.join(map(str, v)) if isinstance(v, list) else v}" for n, v, d in (
        ("events", chosen.events, EVENTS), ("sizes", chosen.sizes, list(SIZES)), ("rounds", chosen.rounds, ROUNDS),
    ) if v != d]  # fmt: skip
    publish("shards", rows, folder=FOLDER / "partial" if given else FOLDER, arguments=" ".join(given))


if __name__ == "__main__":
    main()
