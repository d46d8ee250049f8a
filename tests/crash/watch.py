"""Readers of both sinks, all the time: at every frontier that they meet, the bank's invariants must hold.

Always: the Postgres reader sees frontier and rows in one snapshot; the Kafka reader is `read_committed` and stops at the ends
that the frontier record names, as docs/sinks.md tells readers to. Threads of the harness; each counts into its own `Faults`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from typing import Any

import orjson
import psycopg
from confluent_kafka import Consumer, TopicPartition

from connectors.postgres.registry import lsn_number
from tests.crash.bank import VIEWS, Faults, Sums

_SUMS = """
select (select coalesce(sum(balance), 0) from headrace.accounts), (select coalesce(sum(moves), 0) from headrace.accounts),
       (select row(total, moves, accounts)::text from headrace.total), (select coalesce(sum(balance), 0) from headrace.wealth),
       (select row(entries, coalesce(last, 0))::text from headrace.entries)
"""
_AT = "select epoch, sources -> 'bank' ->> 'lsn' from headrace.frontier where sink = 'warehouse'"


class Watch(threading.Thread):
    """A reader. `frontiers`: how many it checked; `epoch`: of the last one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.faults = Faults()
        self.frontiers = self.epoch = self.lsn = 0
        self._at = time.monotonic()
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Until told to stop."""
        try:
            self.watch()
        except BaseException as failure:
            self.failure = failure

    def watch(self) -> None:
        """Read until `stopping`."""
        raise NotImplementedError

    def moved(self, epoch: int, lsn: int, where: str) -> bool:
        """Whether this is a frontier not met before; one that went back is torn."""
        if epoch < self.epoch or lsn < self.lsn:
            self.faults.torn += 1
            self.faults.told.append(f"{where}: went back from epoch {self.epoch} ({self.lsn}) to {epoch} ({lsn})")
        new = epoch != self.epoch
        self.epoch, self.lsn = epoch, lsn
        if new:
            self._at = time.monotonic()
        return new

    @property
    def still_for(self) -> float:
        """Seconds since the last frontier."""
        return time.monotonic() - self._at

    def stop(self) -> None:
        """End. Raises what it met."""
        self.stopping.set()
        self.join(30)
        if self.failure is not None:
            raise self.failure


class WarehouseWatch(Watch):
    """The reader of the Postgres sink; a server that is away is waited for."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def watch(self) -> None:
        """See `Watch.watch`."""
        while not self.stopping.is_set():
            try:
                with psycopg.connect(self.url, connect_timeout=2) as db:
                    db.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                    db.read_only = True
                    while not self.stopping.wait(0.01):
                        self._look(db)
            except (psycopg.OperationalError, psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                self.stopping.wait(0.1)

    def _look(self, db: psycopg.Connection[Any]) -> None:
        with db.transaction():
            at = db.execute(_AT).fetchone()
            if at is None or at[0] is None:
                return
            if not self.moved(at[0], lsn_number(at[1]), "the Postgres sink"):
                return
            row = db.execute(_SUMS).fetchone()
        assert row is not None, "aggregates have a row"
        total, entries = (tuple(row[i].strip("()").split(",")) if row[i] else (0, 0, 0) for i in (2, 4))
        self.frontiers += 1
        self.faults.check(
            f"the Postgres sink at epoch {at[0]}", Sums(int(row[0]), int(row[1]), total, int(row[3]), entries)
        )


class BusWatch(Watch):
    """The reader of the Kafka sink."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix
        self.topics = {f"{prefix}{name}": name for name in VIEWS}
        self.rows: dict[str, dict[bytes, Any]] = {name: {} for name in VIEWS}
        self._waiting: dict[str, deque[tuple[int, bytes, bytes | None]]] = {t: deque() for t in self.topics}
        self._here = dict.fromkeys(self.topics, 0)
        self._frontiers: deque[dict[str, Any]] = deque()
        self._settings = {
            "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }  # fmt: skip

    def watch(self) -> None:
        """See `Watch.watch`."""
        consumer = Consumer(self._settings)
        try:
            consumer.assign([TopicPartition(t, 0, 0) for t in (*self.topics, f"{self.prefix}frontier")])
            while not self.stopping.is_set():
                for message in consumer.consume(1000, 0.1):
                    if message.error() is None:
                        self._take(message)
                self._advance()
        finally:
            consumer.close()

    def _take(self, message: Any) -> None:
        topic = message.topic()
        if topic not in self.topics:
            self._frontiers.append(orjson.loads(message.value()))
            return
        self._here[topic] = message.offset() + 1
        self._waiting[topic].append((message.offset(), message.key(), message.value()))

    def _advance(self) -> None:
        while self._frontiers:
            ends = {t: e["0"] for t, e in self._frontiers[0].get("ends", {}).items() if t in self.topics}
            if any(self._here[t] < end for t, end in ends.items()):
                return
            frontier = self._frontiers.popleft()
            for topic, end in ends.items():
                self._apply(topic, end)
            if frontier.get("epoch") is None:
                continue
            if self.moved(frontier["epoch"], int(frontier["sources"]["bank"]["lsn"]), "the Kafka sink"):
                self.frontiers += 1
                self.faults.check(f"the Kafka sink at epoch {frontier['epoch']}", self._sums())

    def _apply(self, topic: str, end: int) -> None:
        waiting, rows = self._waiting[topic], self.rows[self.topics[topic]]
        while waiting and waiting[0][0] < end:
            _, key, value = waiting.popleft()
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = orjson.loads(value)

    def _sums(self) -> Sums:
        def one(view: str, *columns: str) -> tuple[int, ...]:
            found = [r.get("row", r) for r in self.rows[view].values()]
            return tuple(int(found[0][c] or 0) for c in columns) if found else (0,) * len(columns)

        accounts = self.rows["accounts"].values()
        wealth = sum(int(r["balance"]) for r in (r.get("row", r) for r in self.rows["wealth"].values()))
        accounts_of = [r.get("row", r) for r in accounts for _ in range(int(r.get("count", 1)))]
        return Sums(
            sum(int(r["balance"]) for r in accounts_of), sum(int(r["moves"]) for r in accounts_of),
            one("total", "total", "moves", "accounts"), wealth, one("entries", "entries", "last"),
        )  # fmt: skip
