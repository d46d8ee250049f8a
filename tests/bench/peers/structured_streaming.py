"""Structured Streaming's own join of two streams, and its own aggregation of one, fed through sockets and read in the driver.

Always: two queries run side by side with the default trigger, as they cannot be one: Spark refuses an aggregation after a join
in update mode. They keep their state in two partitions, and write it to a folder of this machine. What they put out is in
tables of the driver's memory. When a micro-batch has put its rows out is Spark's own account. Called by
`bench_spark_streaming`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

_PROVIDER = "org.apache.spark.sql.execution.streaming.state.{}StateStoreProvider"
STORES = {"default state store": "HDFSBacked", "RocksDB": "RocksDB"}
HOST = "127.0.0.1"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
FEEDS = ("joined orders", "joined payments", "summed orders")


class Batch(NamedTuple):
    """A micro-batch: when its rows were out, in seconds since 1970, and how many rows of each stream were in by then."""

    ended: float
    rows: int


class Feed:
    """A server for one source of Spark, which dials it and reads lines."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self._listener.settimeout(60)
        self._end: socket.socket | None = None
        self.port = int(self._listener.getsockname()[1])

    def accept(self) -> None:
        """Wait until Spark has dialled."""
        self._end, _ = self._listener.accept()
        self._end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, text: bytes) -> None:
        """Some whole lines."""
        assert self._end is not None, "it was accepted"
        self._end.sendall(text)

    def close(self) -> None:
        """No more lines."""
        for end in (self._end, self._listener):
            if end is not None:
                end.close()


class Queries:
    """Both queries, from their start to `close`."""

    def __init__(self, session: Any, folder: Path, store: str) -> None:
        from pyspark.sql import functions

        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        session.conf.set("spark.sql.streaming.stateStore.providerClass", _PROVIDER.format(STORES[store]))
        self._session = session
        self.feeds = {name: Feed() for name in FEEDS}
        self._queries: dict[str, Any] = {}
        orders = self._lines("joined orders", "id", "customer", "amount")
        payments = self._lines("joined payments", "payment", "order_id", "paid")
        joined = orders.join(payments, orders.id == payments.order_id).select("id", "customer", "amount", "paid")
        self._start("joined", joined, "append", folder)
        groups = self._lines("summed orders", "id", "customer", "amount").groupBy("customer")
        summed = groups.agg(functions.expr("count(*) as n"), functions.expr("sum(amount) as total"))
        self._start("summed", summed, "update", folder)
        for feed in self.feeds.values():
            feed.accept()

    def _lines(self, feed: str, *names: str) -> Any:
        """A stream of whole numbers, separated by commas."""
        lines = self._session.readStream.format("socket").option("host", HOST).option("port", self.feeds[feed].port)
        columns = [f"cast(split(value, ',')[{k}] as bigint) as {name}" for k, name in enumerate(names)]
        return lines.load().selectExpr(*columns)

    def _start(self, name: str, rows: Any, mode: str, folder: Path) -> None:
        writer = rows.writeStream.format("memory").queryName(name).outputMode(mode)
        self._queries[name] = writer.option("checkpointLocation", str(folder / name)).start()

    def send(self, orders: bytes, payments: bytes) -> None:
        """Lines for all sources."""
        for name, feed in self.feeds.items():
            feed.send(payments if name == "joined payments" else orders)

    def settle(self, rows: int, seconds: float = 300.0) -> None:
        """Wait until so many rows of each stream are out. Raises Spark's error where a query has failed, TimeoutError."""
        until = time.monotonic() + seconds
        while any(not found or found[-1].rows < rows for found in self.batches().values()):
            if time.monotonic() > until:
                raise TimeoutError(f"Structured Streaming has not taken in all rows within {seconds:g} s")
            time.sleep(0.1)
            for query in self._queries.values():
                query.processAllAvailable()

    def batches(self) -> Mapping[str, list[Batch]]:
        """By query: its micro-batches that had rows."""
        return {name: _batches(query.recentProgress) for name, query in self._queries.items()}

    def answers(self) -> Mapping[str, tuple[int, ...]]:
        """Count and sums of what the queries have put out: of the last figures of each group, where there are groups."""
        joined = self._session.sql("select count(*), sum(id), sum(customer), sum(amount), sum(paid) from joined")
        last = "(select customer, max(n) as n, max(total) as total from summed group by customer)"
        summed = self._session.sql(f"select count(*), sum(customer), sum(n), sum(total) from {last}")
        return {name: tuple(map(int, rows.collect()[0])) for name, rows in (("joined", joined), ("summed", summed))}

    def close(self) -> None:
        """End both, and forget their tables."""
        for name, query in self._queries.items():
            query.stop()
            with suppress(Exception):
                self._session.catalog.dropTempView(name)
        for feed in self.feeds.values():
            feed.close()


def _batches(progress: list[Any]) -> list[Batch]:
    """The end of a micro-batch is before its commit in Spark's log: its rows are out by then.

    >>> told = {"timestamp": "1970-01-01T00:00:01.500Z", "numInputRows": 6, "sources": [{"numInputRows": 2}, {"numInputRows": 4}],
    ...         "durationMs": {"triggerExecution": 300, "commitOffsets": 100}}
    >>> _batches([told, told | {"numInputRows": 0}, told])
    [Batch(ended=1.7, rows=2), Batch(ended=1.7, rows=4)]
    """
    found, rows = [], [0] * max((len(told["sources"]) for told in progress), default=0)
    for told in progress:
        if told["numInputRows"]:
            rows = [so_far + source["numInputRows"] for so_far, source in zip(rows, told["sources"], strict=True)]
            begun = datetime.fromisoformat(told["timestamp"]).timestamp()
            spent = told["durationMs"]["triggerExecution"] - told["durationMs"].get("commitOffsets", 0)
            found.append(Batch(begun + spent / 1000, min(rows)))
    return found
