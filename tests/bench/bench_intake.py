"""Intake: events a second from bytes to columns, and the cost of a turn of the sidecar's loop from poll to upserts, against
a bare `orjson.loads` of the same messages.

Rounds alternate between ours and the peer and their medians are reported, so that a busy machine slows both alike. One
core: nothing here starts a thread. Run as `python -m tests.bench.bench_intake`; writes build/bench/intake.json.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from headrace.connectors.changes import MessageBatch
from headrace.connectors.formats.debezium import DebeziumFormat
from headrace.connectors.formats.table_specs import TableSpec
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.epochs.reclock import Reclock, ReclockLog
from headrace.sidecar.intake.table_upserts import upserts
from tests.bench import turns
from tests.bench.report import publish, row
from tests.sidecar.support.batches import source_batch

EVENTS = 20_000
ROUNDS = 9
TOPIC = "shop.public.orders"

COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "id": ("bigint", {"type": "int64"}),
    "customer_id": ("integer", {"type": "int32"}),
    "status": ("text", {"type": "string"}),
    "total": ("numeric(12,2)", {"type": "string"}),
    "currency": ("character(3)", {"type": "string"}),
    "placed_at": ("timestamp", {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
    "updated_at": ("timestamptz", {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}),
    "due": ("date", {"type": "int32", "name": "io.debezium.time.Date"}),
    "note": ("text", {"type": "string"}),
    "reference": ("bigint", {"type": "int64"}),
    "address": ("text", {"type": "string"}),
    "weight": ("double precision", {"type": "double"}),
    "express": ("boolean", {"type": "boolean"}),
}


def spec() -> TableSpec:
    """The orders table, declared."""
    columns = [Column(name, DataType.parse(kind)) for name, (kind, _) in COLUMNS.items()]
    return TableSpec("public.orders", Schema.of(columns, ["id"]))


def event(i: int) -> dict[str, Any]:
    """One insert of about 800 bytes."""
    stamp = 1_795_233_883_419_450 + i
    return {
        "before": None,
        "after": {
            "id": i, "customer_id": i * 7919 % 100_003, "status": ("new", "paid", "shipped")[i % 3],
            "total": f"{i * 31 % 10**7 / 100:.2f}", "currency": "EUR", "placed_at": stamp,
            "updated_at": f"2026-11-21T10:11:{i % 60:02d}.{i % 10**6:06d}Z", "due": 20213 + i % 100,
            "note": f"some free text that describes the order {i}", "reference": i * 104_729,
            "address": f"Street {i}, 1010 City", "weight": i * 0.25, "express": i % 2 == 0,
        },
        "source": {
            "version": "3.6.3.Final", "connector": "postgresql", "name": "shop", "ts_ms": stamp // 1000,
            "snapshot": None, "db": "shop", "sequence": f'["{stamp}","{stamp}"]', "ts_us": stamp,
            "ts_ns": stamp * 1000, "schema": "public", "table": "orders", "txId": 1739 + i // 7, "lsn": 63407168 + i,
            "xmin": None, "origin": None, "origin_lsn": None,
        },
        "transaction": {"id": f"{1739 + i // 7}:63407168", "total_order": i % 7 + 1, "data_collection_order": 1},
        "op": "c", "ts_ms": stamp // 1000, "ts_us": stamp, "ts_ns": stamp * 1000,
    }  # fmt: skip


def connect_schema() -> dict[str, Any]:
    """The Connect schema that the JSON converter would put before each event."""

    def struct(name: str, fields: list[dict[str, Any]], field: str) -> dict[str, Any]:
        return {"type": "struct", "fields": fields, "optional": True, "name": name, "field": field}

    row = [{**described, "optional": True, "field": name} for name, (_, described) in COLUMNS.items()]
    texts = ("version", "connector", "name", "snapshot", "db", "sequence", "schema", "table", "origin")
    numbers = ("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "xmin", "origin_lsn")
    source = [{"type": "string", "optional": True, "field": name} for name in texts]
    source += [{"type": "int64", "optional": True, "field": name} for name in numbers]
    fields = [
        struct("shop.public.orders.Value", row, "before"),
        struct("shop.public.orders.Value", row, "after"),
        struct("io.debezium.connector.postgresql.Source", source, "source"),
        {"type": "string", "optional": False, "field": "op"},
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.orders.Envelope"}


def messages(count: int, with_schema: bool) -> MessageBatch:
    """`count` inserts as one run of one partition."""
    schema = connect_schema()
    key_schema = {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}]}
    values, keys = [], []
    for i in range(count):
        key, value = {"id": i}, event(i)
        values.append(orjson.dumps({"schema": schema, "payload": value} if with_schema else value))
        keys.append(orjson.dumps({"schema": key_schema, "payload": key} if with_schema else key))
    return MessageBatch(TOPIC, 0, np.arange(count, dtype=np.int64), keys, values, np.zeros(count, np.int64))


def alternate(ours: Callable[[], object], peer: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median CPU seconds of each, in alternating rounds after one to warm up."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for run, times in zip((ours, peer), taken, strict=True):
            start = time.process_time()
            run()
            if number:
                times.append(time.process_time() - start)
    return statistics.median(taken[0]), statistics.median(taken[1])


def rate(name: str, batch: MessageBatch, form: DebeziumFormat, goal: float | None) -> dict[str, Any]:
    """Events a second of one run of messages."""

    def ours() -> None:
        decoded = form.decode(batch)
        assert sum(map(len, decoded.changes)) == len(batch)
        assert not decoded.undecodable

    def peer() -> None:
        for value in batch.values:
            orjson.loads(value)  # type: ignore[arg-type]

    mine, theirs = alternate(ours, peer, ROUNDS)
    return row(name, "events/s", len(batch) / mine, goal, peer="orjson.loads", peer_value=len(batch) / theirs)


def latency(batch: MessageBatch, form: DebeziumFormat, goal: float) -> dict[str, Any]:
    """Microseconds for a run of a few messages."""
    repeats = 400

    def ours() -> None:
        for _ in range(repeats):
            form.decode(batch)

    def peer() -> None:
        for _ in range(repeats):
            for value in batch.values:
                orjson.loads(value)  # type: ignore[arg-type]

    mine, theirs = alternate(ours, peer, ROUNDS)
    name = f"a run of {len(batch)} messages"
    return row(name, "µs", mine / repeats * 1e6, goal, peer="orjson.loads", peer_value=theirs / repeats * 1e6)


def turn(transactions: int, count: int = 300) -> dict[str, Any]:
    """Microseconds an event of a whole turn's intake: poll, decode, assemble, bind (on disk), upserts.

    The median of `count` turns, after a third as many to warm up. Made-up messages stand for Kafka's client.
    """
    waiting = list(turns.turns(count + count // 3, transactions))
    door, tables = turns.intake(waiting), {name: table.schema for name, table in turns.shop().items()}
    events = transactions * len(turns.order(0))
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        reclock = Reclock(ReclockLog(Path(folder) / "log"))
        for messages_ in waiting:
            start = time.thread_time()
            door.poll(0.0)
            bound = reclock.bind(source_batch(door.name, door.assembler.complete(), door.positions()))
            made = upserts([(b.first + i, t) for b, ts in bound for i, t in enumerate(ts)], tables)
            ours.append(time.thread_time() - start)
            assert sum(map(len, made.values())) == events
            start = time.thread_time()
            for message in messages_:
                orjson.loads(message.value() or b"null")
            theirs.append(time.thread_time() - start)
    mine, peer = (statistics.median(times[count // 3 :]) / events * 1e6 for times in (ours, theirs))
    name = f"turn of {transactions} transactions of seven events: poll to upserts"
    return row(name, "µs/event", mine, peer="orjson.loads", peer_value=peer)


def main() -> int:
    """Measure, print, write."""
    declared = {"public.orders": spec()}
    plain, carrying = messages(EVENTS, False), messages(EVENTS // 4, True)
    report = [
        rate(f"{len(plain.values[0] or b'')}-byte envelope, no schema", plain, fresh(declared), 100_000.0),
        rate(f"{len(carrying.values[0] or b'')}-byte envelope, with schema", carrying, fresh(None), None),
        latency(messages(2, False), fresh(declared), 150.0),
        turn(16),
        turn(1),
    ]
    publish("intake", report)
    return 0


def fresh(tables: dict[str, TableSpec] | None) -> DebeziumFormat:
    """A format that has seen nothing yet."""
    return DebeziumFormat("shop", "shop", tables)


if __name__ == "__main__":
    raise SystemExit(main())
