"""A Kafka sink as its frontier records alone tell it, and Postgres's answers as of every commit of one writer.

Always: a reader stops at the ends that a frontier record names and looks at nothing else: no epoch of a record counts. The
writer is the only one who changes tables that views read, and holds heartbeats off between its last look and its commit.
"""

from __future__ import annotations

import random
import uuid
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import psycopg
from confluent_kafka import Consumer, TopicPartition

from examples.demo import shop
from examples.demo.compare import json_row
from headrace.connectors.debezium.settings import HEARTBEAT_TABLE
from headrace.connectors.kafka.frontier_record import FrontierRecord, decode
from headrace.connectors.lsn import lsn_number
from headrace.sidecar.operations.postgres_at_lsn import Answer, Row, answers, with_views
from headrace.views.compile import CompiledView


class FrontierReader:
    """`headers`: of every record that was read, by its offset's order."""

    def __init__(self, bootstrap: str, prefix: str, views: Sequence[CompiledView]) -> None:
        self._views = {f"{prefix}{v.name}": v for v in views}
        self._frontier = f"{prefix}frontier"
        self._ahead: deque[FrontierRecord] = deque()
        self._waiting: dict[str, deque[Any]] = {topic: deque() for topic in self._views}
        self._held: dict[str, dict[bytes, tuple[Row, int]]] = {topic: {} for topic in self._views}
        self.headers: list[dict[str, bytes]] = []
        group = f"steps-{uuid.uuid4().hex[:8]}"
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
        })  # fmt: skip
        self._consumer.assign([TopicPartition(t, 0, 0) for t in (*self._views, self._frontier)])

    def frontiers(self, timeout: float) -> Iterator[tuple[FrontierRecord, dict[str, Counter[Row]]]]:
        """Each frontier record that is whole now, in order, with every view's rows there."""
        for message in self._consumer.consume(5000, timeout):
            assert message.error() is None, message.error()
            if message.topic() == self._frontier:
                self._ahead.append(decode(orjson.loads(message.value() or b"")))
            else:
                self._waiting[message.topic() or ""].append(message)
        here = {p.topic: p.offset for p in self._consumer.position([TopicPartition(t, 0) for t in self._views])}
        while self._ahead and all(here[t] >= ends.get(0, 0) for t, ends in self._ahead[0].ends.items()):
            standing = self._ahead.popleft()
            if standing.frontier is not None:
                yield standing, {v.name: self._rows(t, standing) for t, v in self._views.items()}

    def _rows(self, topic: str, standing: FrontierRecord) -> Counter[Row]:
        view, held, waiting = self._views[topic], self._held[topic], self._waiting[topic]
        end = standing.ends.get(topic, {}).get(0, 0)
        while waiting and waiting[0].offset() < end:
            message = waiting.popleft()
            self.headers.append(dict(message.headers()))
            value = message.value()
            if value is None:
                held.pop(message.key(), None)
                continue
            body, count = orjson.loads(value), 1
            if view.key is None:
                body, count = body["row"], body["count"]
            held[message.key()] = (json_row(view.schema.columns, body), count)
        found: Counter[Row] = Counter()
        for row, count in held.values():
            found[row] += count
        return found

    def close(self) -> None:
        """Let go."""
        self._consumer.close()


class AnsweringWriter:
    """Random transactions of the shop, one after the other; of each, what Postgres answers to every view as of its commit."""

    def __init__(self, url: str, seed: int, views: Sequence[CompiledView]) -> None:
        self.db = psycopg.connect(url, autocommit=True)
        self._queries = with_views(views)
        counts = [self._one(f"select coalesce(max(id), 0) from {t}") for t in ("customers", "products", "orders")]
        self._book = shop.Book(random.Random(seed), counts[0], counts[1], counts[2] + 1)
        self._book.settled = [
            r[0] for r in self.db.execute("select id from orders where status = 'paid' order by id").fetchall()
        ]
        self._at: list[int] = []
        self._answers: list[dict[str, Answer]] = []
        with self.db.transaction():
            self._note()

    def _one(self, query: str) -> Any:
        found = self.db.execute(query).fetchone()  # type: ignore[call-overload]  # our own
        assert found is not None
        return found[0]

    def transact(self) -> None:
        """One transaction."""
        with self.db.transaction(), self.db.cursor() as cursor:
            cursor.execute(f"lock table {HEARTBEAT_TABLE} in share mode")
            self._book.transact(cursor)
            self._note()

    def _note(self) -> None:
        """Answers as of the commit that comes next: its LSN is not before this one, and no other commit comes between."""
        found = answers(self.db, 0, self._queries, {})
        self._at.append(lsn_number(self._one("select pg_current_wal_insert_lsn()::text")))
        self._answers.append(found)

    def answers_at(self, lsn: int) -> dict[str, Answer]:
        """Every view's answer as of the last commit up to an LSN."""
        return self._answers[max(bisect_right(self._at, lsn) - 1, 0)]

    def commits_between(self, low: int, high: int) -> int:
        """How many of our commits lie behind LSN `low`, up to `high`."""
        return bisect_right(self._at, high) - bisect_right(self._at, low)

    @property
    def last(self) -> int:
        """An LSN that the last commit is not before."""
        return self._at[-1]

    def close(self) -> None:
        """Let go."""
        self.db.close()
