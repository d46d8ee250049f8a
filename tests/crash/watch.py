"""Readers of both sinks, all the time: at every frontier that they meet, the bank's invariants must hold.

Always: the Postgres reader sees frontier and rows in one snapshot; the Kafka reader is `read_committed` and stops at the ends
that the frontier record names, as docs/sinks.md tells readers to. Threads of the harness; each counts into its own `Faults`.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import psycopg
from confluent_kafka import Consumer, TopicPartition

from headrace.connectors.commit_place import place_of
from tests.crash.bank import ONE, Faults, Half, Sums, views_of

_SUMS = """
select (select coalesce(sum(balance), 0) from headrace.{0}accounts), (select coalesce(sum(moves), 0) from headrace.{0}accounts),
       (select row(total, moves, accounts)::text from headrace.{0}total),
       (select coalesce(sum(balance), 0) from headrace.{0}wealth),
       (select row(entries, coalesce(oldest, 1), coalesce(last, 0))::text from headrace.{0}entries)
"""
_TOGETHER = "select coalesce(sum({0}balance), 0), coalesce(sum({0}moves), 0) from headrace.together"
_AT = "select epoch, sources from headrace.frontier where sink = 'warehouse'"


class Watch(threading.Thread):
    """A reader. `frontiers`: how many it checked; `epoch`, and `lsns` by source: of the last one."""

    def __init__(self, halves: Sequence[Half] = (ONE,)) -> None:
        super().__init__(daemon=True)
        self.halves = halves
        self.faults = Faults()
        self.frontiers = self.epoch = 0
        self.lsns = dict.fromkeys((half.source for half in halves), 0)
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

    def moved(self, epoch: int, lsns: Mapping[str, int], where: str) -> bool:
        """Whether this is a frontier not met before; one that went back, for any source, is torn."""
        if epoch < self.epoch or any(lsns.get(source, 0) < lsn for source, lsn in self.lsns.items()):
            self.faults.torn += 1
            self.faults.told.append(f"{where}: went back from epoch {self.epoch} ({self.lsns}) to {epoch} ({lsns})")
        new = epoch != self.epoch
        self.epoch, self.lsns = epoch, self.lsns | {s: lsn for s, lsn in lsns.items() if s in self.lsns}
        if new:
            self._at = time.monotonic()
        return new

    def _joined(self) -> bool:
        """Whether all sources have their snapshot in, so that what joins them has rows."""
        return len(self.halves) > 1 and all(lsn > 0 for lsn in self.lsns.values())

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

    def __init__(self, url: str, halves: Sequence[Half] = (ONE,)) -> None:
        super().__init__(halves)
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
            lsns = {source: place_of(standing).order for source, standing in at[1].items()}
            if not self.moved(at[0], lsns, "the Postgres sink"):
                return
            found = [(half, self._sums(db, half)) for half in self.halves if lsns.get(half.source, -1) > 0]
        self.frontiers += 1
        for half, sums in found:
            self.faults.check(f"the Postgres sink at epoch {at[0]}, {half.source}", sums)

    def _sums(self, db: psycopg.Connection[Any], half: Half) -> Sums:
        row = db.execute(_SUMS.format(half.prefix)).fetchone()
        assert row is not None, "aggregates have a row"
        total, entries = (tuple(row[i].strip("()").split(",")) if row[i] else (0, 0, 0) for i in (2, 4))
        both = db.execute(_TOGETHER.format(half.prefix)).fetchone() if self._joined() else None
        together = None if both is None else (int(both[0]), int(both[1]))
        return Sums(int(row[0]), int(row[1]), total, int(row[3]), entries, together)


class BusWatch(Watch):
    """The reader of the Kafka sink."""

    def __init__(self, bootstrap: str, prefix: str, halves: Sequence[Half] = (ONE,)) -> None:
        super().__init__(halves)
        self.prefix = prefix
        self.topics = {f"{prefix}{name}": name for name in views_of(halves)}
        self.rows: dict[str, dict[bytes, Any]] = {name: {} for name in views_of(halves)}
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
            lsns = {source: place_of(at).order for source, at in frontier["sources"].items()}
            if self.moved(frontier["epoch"], lsns, "the Kafka sink"):
                self.frontiers += 1
                for half in self.halves:
                    if lsns.get(half.source, -1) > 0:
                        self.faults.check(
                            f"the Kafka sink at epoch {frontier['epoch']}, {half.source}", self._sums(half)
                        )

    def _apply(self, topic: str, end: int) -> None:
        waiting, rows = self._waiting[topic], self.rows[self.topics[topic]]
        while waiting and waiting[0][0] < end:
            _, key, value = waiting.popleft()
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = orjson.loads(value)

    def _sums(self, half: Half) -> Sums:
        def one(view: str, *columns: str) -> tuple[int, ...]:
            found = [r.get("row", r) for r in self.rows[half.prefix + view].values()]
            return tuple(int(found[0][c] or 0) for c in columns) if found else (0,) * len(columns)

        accounts = self.rows[f"{half.prefix}accounts"].values()
        wealth = sum(int(r["balance"]) for r in (r.get("row", r) for r in self.rows[f"{half.prefix}wealth"].values()))
        accounts_of = [r.get("row", r) for r in accounts for _ in range(int(r.get("count", 1)))]
        return Sums(
            sum(int(r["balance"]) for r in accounts_of), sum(int(r["moves"]) for r in accounts_of),
            one("total", "total", "moves", "accounts"), wealth, one("entries", "entries", "oldest", "last"), self._of_both(half),
        )  # fmt: skip

    def _of_both(self, half: Half) -> tuple[int, int] | None:
        if not self._joined():
            return None
        rows = [(r.get("row", r), int(r.get("count", 1))) for r in self.rows["together"].values()]
        balance, moves = (sum(int(r[half.prefix + c]) * n for r, n in rows) for c in ("balance", "moves"))
        return balance, moves
