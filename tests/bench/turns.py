"""Turns of the sidecar's loop, made up: what Kafka's client hands over for transactions of seven events over five tables.

Always: one partition a topic, as in the demo; every transaction places one order of the shop (an order, three lines, a
payment, the customer's credit, a product's price), with its BEGIN and END. Nothing is random. Called by `bench_intake`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Message, TopicPartition

from examples.demo import __file__ as demo
from headrace.connectors.formats.debezium import DebeziumFormat
from headrace.connectors.formats.table_specs import TableSpec
from headrace.connectors.kafka.source import KafkaSource
from headrace.engine.schema import Column, DataType, Schema
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.transactions.debezium import TransactionAssembler

PREFIX = "shop"
MARKS = f"{PREFIX}.transaction"


def shop() -> dict[str, TableSpec]:
    """The demo's five tables, as `headrace init` declares them."""
    declared = json.loads(Path(demo).with_name("tables.json").read_text())["shop"]
    out = {}
    for table in declared:
        columns = [Column(c["name"], DataType.parse(c["data_type"]), c.get("nullable", True)) for c in table["columns"]]
        out[table["name"]] = TableSpec(table["name"], Schema.of(columns, table["key"]))
    return out


def order(i: int) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """The events of one transaction: (table, operation, key, row)."""
    lines = [
        {"order_id": i, "line": n, "product_id": (i * 7 + n) % 200, "quantity": n + 1, "price": f"{i * n % 9999}.25"}
        for n in (1, 2, 3)
    ]
    paid = {"id": i, "order_id": i, "amount": f"{i % 9999}.50", "method": ("card", None)[i % 2], "paid_at": _zoned(i)}
    customer = {
        "id": i % 1000, "name": f"customer {i % 1000}", "city": ("Zürich", "Bern", None)[i % 3], "credit": f"-{i}.75",
        "vip": i % 10 == 0, "joined": 17000 + i % 900, "notes": None if i % 2 else f"note {i % 1000}",
    }  # fmt: skip
    product = {
        "id": i % 200, "name": f"product {i % 200}", "category": "tea", "price": f"{i % 99}.10", "weight": 0.125 * (i % 40),
        "description": "__debezium_unavailable_value" if i % 5 == 0 else f"product {i % 200}", "updated_at": _zoned(i),
    }  # fmt: skip
    placed = {
        "id": i, "customer_id": i % 1000, "status": "paid", "placed_at": 1_767_225_600_000_000 + i * 60_000_000,
        "shipped_at": None,
    }  # fmt: skip
    return [
        ("public.orders", "c", {"id": i}, placed),
        *(("public.order_lines", "c", {"order_id": i, "line": n + 1}, row) for n, row in enumerate(lines)),
        ("public.payments", "c", {"id": i}, paid),
        ("public.customers", "u", {"id": i % 1000}, customer),
        ("public.products", "u", {"id": i % 200}, product),
    ]


def _zoned(i: int) -> str:
    return f"2026-11-21T10:11:{i % 60:02d}.{i % 10**6:06d}Z"


@dataclass
class Log:
    """What Kafka holds: the next offset of each topic, and the messages made since the last turn was taken."""

    ends: dict[str, int] = field(default_factory=dict)
    made: list[Message] = field(default_factory=list)

    def append(self, topic: str, key: Mapping[str, Any], value: Mapping[str, Any], stamp_ms: int) -> None:
        """One more message, at its topic's end."""
        offset = self.ends.get(topic, 0)
        self.ends[topic] = offset + 1
        keys, values = orjson.dumps(key), orjson.dumps(value)
        self.made.append(
            Message(topic=topic, partition=0, offset=offset, key=keys, value=values, timestamp=(1, stamp_ms))
        )

    def transaction(self, i: int) -> None:
        """One order, with its marks."""
        begin, stamp = 63_407_168 + i * 1000, 1_795_233_883_419_450 + i * 500
        ids, txid = f"{1739 + i}:{begin}", 1739 + i
        events = order(i)
        mark = {"status": "BEGIN", "id": ids, "event_count": None, "data_collections": None, "ts_ms": stamp // 1000}
        self.append(MARKS, {"id": ids}, mark, stamp // 1000)
        counts: dict[str, int] = {}
        for number, (table, op, key, row) in enumerate(events, 1):
            counts[table] = counts.get(table, 0) + 1
            value = {
                "before": None, "after": row,
                "source": {
                    "version": "3.6.3.Final", "connector": "postgresql", "name": PREFIX, "ts_ms": stamp // 1000,
                    "snapshot": None, "db": "shop", "sequence": f'["{begin - 900}","{begin}"]', "ts_us": stamp,
                    "ts_ns": stamp * 1000, "schema": "public", "table": table.partition(".")[2], "txId": txid,
                    "lsn": begin + number, "xmin": None, "origin": None, "origin_lsn": None,
                },
                "transaction": {"id": ids, "total_order": number, "data_collection_order": counts[table]},
                "op": op, "ts_ms": stamp // 1000 + 1, "ts_us": stamp + 1234, "ts_ns": stamp * 1000 + 1_234_000,
            }  # fmt: skip
            self.append(f"{PREFIX}.{table}", key, value, stamp // 1000)
        mark = {
            "status": "END", "id": f"{txid}:{begin + 99}", "event_count": len(events),
            "data_collections": [{"data_collection": t, "event_count": n} for t, n in counts.items()],
            "ts_ms": stamp // 1000,
        }  # fmt: skip
        self.append(MARKS, {"id": ids}, mark, stamp // 1000)

    def take(self) -> list[Message]:
        """What was made since the last call, topic by topic, as a fetch brings it."""
        made, self.made = self.made, []
        return sorted(made, key=lambda message: message.topic() or "")


def turns(count: int, transactions: int) -> Iterator[list[Message]]:
    """The messages of `count` turns of `transactions` each."""
    log = Log()
    for turn in range(count):
        for i in range(turn * transactions, (turn + 1) * transactions):
            log.transaction(i)
        yield log.take()


class Client:
    """Stands for Kafka's client: hands out one turn a call, and knows the positions after it."""

    def __init__(self, waiting: Sequence[list[Message]]) -> None:
        self._waiting = list(reversed(waiting))
        self._rest: list[Message] = []
        self._next: dict[str, int] = {}

    def consume(self, most: int, timeout: float) -> list[Message]:
        """As confluent_kafka's: the first message alone, and then what is there with it."""
        if most == 1:
            self._rest = self._waiting.pop() if self._waiting else []
            # a turn is sorted by topic and then by offset: the last of each topic is what counts
            self._next |= zip(map(Message.topic, self._rest), map(Message.offset, self._rest), strict=True)
        out, self._rest = self._rest[:most], self._rest[most:]
        return out

    def position(self, asked: Sequence[TopicPartition]) -> list[TopicPartition]:
        """As confluent_kafka's."""
        return [TopicPartition(a.topic, a.partition, self._next.get(a.topic, -1002) + 1) for a in asked]


class _Watcher:
    """Nothing new is found."""

    silent_for = 0.0

    def take(self) -> None:
        """See `discovery.Watcher`."""


def intake(waiting: Sequence[list[Message]]) -> Intake:
    """The shop's door before a client that hands out `waiting`, its snapshot behind it."""
    tables = shop()
    form = DebeziumFormat("shop", PREFIX, tables)
    source = KafkaSource({"bootstrap.servers": "none:1"}, wants=form.wants, name="shop")
    source._consumer, source._watcher = Client(waiting), _Watcher()  # type: ignore[assignment]
    topics = [f"{PREFIX}.{table}" for table in tables]
    source._next = {(topic, 0): 0 for topic in [*topics, MARKS, f"__debezium-heartbeat.{PREFIX}", "shop.notifications"]}
    source._given = dict(source._next)
    assembler = TransactionAssembler({table: table for table in tables})
    assembler.resume([])
    return Intake("shop", "debezium", source, form, assembler, frozenset(tables))
