"""Debezium's own records, read in whatever order their partitions allow, some of them twice: always the same transactions.

The twin reads the recording's JSON: what END says in the order of the transaction topic, and the events that name it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.changes import MessageBatch
from headrace.connectors.formats.recording import Record, as_messages, read_records
from headrace.sidecar.config.config import Settings, load_for_replay
from headrace.sidecar.transactions.model import Transaction
from headrace.sidecar.wiring.factories import make_assembler, make_format, table_specs
from tests.crash.record import COLUMNS, FILE, KEYS

Streams = dict[str, list[Record]]
Content = tuple[str, int, Counter[tuple[str, int, str]]]
"""Kind, id, and (table, order in the transaction, its row's first column) of every event."""


def streams(prefix: str) -> Streams:
    """The recording's topics of one connector."""
    out: Streams = {}
    for record in read_records(FILE):
        if record.topic.split(".")[0] == prefix:
            out.setdefault(record.topic, []).append(record)
    return out


def settings(folder: Path, prefix: str) -> Settings:
    tables = [{"name": name, "columns": [{"name": c, "data_type": t} for c, t in columns]}
              | ({"key": KEYS[name]} if name in KEYS else {}) for name, columns in COLUMNS.items()]  # fmt: skip
    source = {
        "name": prefix,
        "type": "debezium",
        "topic_prefix": prefix,
        "time_precision_mode": "microseconds",
        "tables": tables,
    }
    (folder / "views").mkdir()
    body = {
        "version": 1,
        "name": "orders",
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "http": None,
        "sources": [source],
    }
    (folder / "headrace.yaml").write_text(json.dumps(body))
    return load_for_replay(folder / "headrace.yaml")


def payload(record: Record) -> dict[str, Any]:
    """What a value says, with or without its schema."""
    found: dict[str, Any] = json.loads(record.value or b"{}")
    return found.get("payload", found) or {}


def expected(recorded: Streams, prefix: str) -> list[Content]:
    """The twin."""
    events: dict[int, Counter[tuple[str, int, str]]] = {}
    snapshot: Counter[tuple[str, int, str]] = Counter()
    for topic, records in recorded.items():
        for body in map(payload, records):
            source = body.get("source") or {}
            table = f"{source.get('schema')}.{source.get('table')}"
            if table not in COLUMNS or topic.endswith((".transaction", ".notifications")):
                continue
            first = COLUMNS[table][0][0]
            row = body["after"] if body["after"] is not None else body["before"]
            if body["transaction"] is None:
                snapshot[table, -1, str((row or {}).get(first))] += 1
                continue
            order = body["transaction"]["total_order"]
            of = events.setdefault(int(body["transaction"]["id"].split(":")[0]), Counter())
            if table not in KEYS and body["op"] == "u":  # a row of a table without a key goes and another comes
                of[table, order, str(body["before"][first])] += 1
            of[table, order, "None" if row is None else str(row[first])] += 1
    marks = [body for body in map(payload, recorded[f"{prefix}.transaction"]) if body["status"] == "END"]
    ids = [int(mark["id"].split(":")[0]) for mark in marks]
    return [("snapshot", -1, snapshot), *(("transaction", i, events.get(i, Counter())) for i in ids)]


def content(transaction: Transaction) -> Content:
    """What an assembler gave, likewise."""
    out: Counter[tuple[str, int, str]] = Counter()
    for changes, start, stop in transaction.slices:
        values = changes.rows.column(0).to_pylist()
        for i in range(start, stop):
            out[changes.table, int(changes.orders[i]), str(values[i])] += 1
    return transaction.kind, transaction.id, out


def again(draw: random.Random, records: list[Record]) -> list[Record]:
    """A topic as a connector leaves it that is killed now and then and repeats the last it had sent; of a snapshot it sends
    none twice (its producer is idempotent, and a later try has another id)."""
    out: list[Record] = []
    read = sum((payload(r).get("source") or {}).get("snapshot", "false") != "false" for r in records)
    for at, record in enumerate(records, 1):
        out.append(record)
        if at > read and draw.random() < 0.05:
            out += records[max(read, at - draw.randrange(1, 12)) : at]
    return [replace(record, offset=offset) for offset, record in enumerate(out)]


def read(given: Settings, topics: dict[str, list[MessageBatch]], draw: random.Random) -> list[Transaction]:
    """Take records of the topics in a random order, in runs of random length, and what is whole after each."""
    [source] = given.config.sources
    format_ = make_format(source, given.path)
    specs = table_specs(source)
    assert specs is not None
    assembler = make_assembler(source, {name: spec.schema for name, spec in specs.items()})
    left = {topic: list(runs) for topic, runs in topics.items() if format_.wants(topic)}
    out: list[Transaction] = []
    greedy = draw.random() < 0.3  # now and then one topic wholly before another
    while left:
        topic = draw.choice(sorted(left))
        for _ in range(len(left[topic]) if greedy else draw.randrange(1, 30)):
            decoded = format_.decode(left[topic].pop(0))
            assert not decoded.undecodable
            assembler.accept(decoded)
            if not left[topic]:
                del left[topic]
                break
        out += assembler.complete()
    assert assembler.waiting() is None
    return out


@pytest.mark.parametrize("prefix", ["plain", "typed"])
def test_any_order_gives_the_same_transactions(tmp_path: Path, prefix: str) -> None:
    recorded, given = streams(prefix), settings(tmp_path, prefix)
    wanted = expected(recorded, prefix)
    assert len(wanted) > 80
    for seed in range(25):
        draw = random.Random(seed)
        repeats = seed % 2 == 1
        topics = {}
        for topic, records in recorded.items():
            once = not repeats or topic.endswith(".notifications")
            topics[topic] = list(as_messages(records if once else again(draw, records), run=draw.choice([1, 3])))
        found = [content(t) for t in read(given, topics, draw)]
        assert [f[:2] for f in found] == [w[:2] for w in wanted], f"seed {seed}"
        for here, there in zip(found, wanted, strict=True):
            assert here[2] == there[2], f"seed {seed}: {here[0]} {here[1]}"
