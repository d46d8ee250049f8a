"""What the workers of `bench_workers` do: collections of which each has a share of the rows, whatever their keys.

Always: a lap holds everything from Arrow rows in memory to the last node, the exchange of rows among the workers included;
making rows and adding up checksums is outside. The same with one worker, where nothing is exchanged.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.dataflow.shard import Shard
from headrace.engine.operators.delta import Delta
from headrace.engine.schema import Schema
from headrace.sidecar.execution.workers.channel import ChannelClosed, moved
from headrace.sidecar.execution.workers.protocol import message, opened
from headrace.sidecar.execution.workers.shard_port import SocketPort
from headrace.sidecar.execution.workers.worker import Ends
from tests.bench.peers.columns import checksum, mixed
from tests.bench.peers.feeding import Given
from tests.bench.peers.sessions import COUNT_ROWS, COUNTS, KEYS, PAIRS, words_of


class Work:
    """One worker's part of a session. `size`: rows of the whole."""

    def __init__(self, shard: Shard, session: str) -> None:
        self.shard = shard
        self.flow = Dataflow(shard)
        self._session = session
        given = {"arrange": PAIRS, "count": KEYS, "join": KEYS}[session]
        self.given = self._given("given", given)
        self.rows = self._given("rows", PAIRS)
        if session == "arrange":
            self.arranged = self.flow.arrange(self.flow.by_key(self.given.node, (0,)), (0,))
            self.flow.retain(self.arranged)
        elif session == "count":
            self.output = self.given.reduce([0], [COUNT_ROWS], COUNTS).output("out")
        else:
            self.output = self.given.join(self.rows, [0], [0], columns=(0, 2)).output("out")

    def _given(self, name: str, schema: Schema) -> Collection:
        return Collection(self.flow, self.flow.intern(name, lambda: Given(name, schema)), schema)

    def load(self, size: int) -> None:
        """The rows that keys are joined with: not timed."""
        if self._session == "join":
            mine = self._mine(size)
            self._put(self.rows, [mixed(mine.astype(np.uint64)).view(np.int64), mine])
            self.flow.step(self.flow.frontier + 1)
            self.output.take()

    def prepare(self, size: int, seed: int, whole: int) -> None:
        """This worker's share of the next lap's rows: not timed."""
        mine = self._mine(size)
        if self._session == "join":
            asked = (mine + seed * size) * 7919 % whole
            self._put(self.given, [mixed(asked.astype(np.uint64)).view(np.int64)])
        elif self._session == "count":
            self._put(
                self.given, [(mixed(mine.astype(np.uint64) + np.uint64(seed << 40)) % np.uint64(whole)).view(np.int64)]
            )
        else:
            self._put(self.given, [mixed(mine.astype(np.uint64)).view(np.int64), mine])

    def _mine(self, size: int) -> Any:
        cuts = [size * k // self.shard.count for k in (self.shard.index, self.shard.index + 1)]
        return np.arange(*cuts)

    def _put(self, collection: Collection, lanes: list[Any]) -> None:
        schema = collection.schema.arrow
        rows = pa.RecordBatch.from_arrays([pa.array(lane) for lane in lanes], schema=schema)
        at = np.full(len(rows), self.flow.frontier)
        node = collection.node
        assert isinstance(node, Given)
        node.next = Delta(Updates(rows, at, np.ones(len(rows), np.int64)), None)

    def lap(self) -> None:
        """The step."""
        self.flow.step(self.flow.frontier + 1)

    def answer(self) -> tuple[int, int]:
        """Checksum and count of what came out in the lap, or stands in the arrangement."""
        if self._session == "arrange":
            found = self.arranged.trace.snapshot(self.flow.frontier - 1)
        else:
            found, errors = self.output.take()
            assert not len(errors)
        return checksum(words_of(found.rows), found.diffs), len(found)


def work(ends: Ends, index: int, session: str) -> None:
    """A worker's loop: as `headrace.sidecar.execution.workers.worker.serve`, with commands of the bench."""
    driver, others = ends.driver, ends.others
    port = SocketPort(len(others) + 1, others, lambda _: None) if others else None
    shard = Shard(index, len(others) + 1, port)
    mine: Work | None = None
    try:
        while True:
            moved([driver], lambda: not driver.arrived, lambda: None)
            head, _ = opened(driver.arrived.popleft())
            answer: dict[str, Any] = {}
            if head["do"] == "begin":
                mine = Work(shard, session)
                mine.load(head["whole"])
            assert mine is not None
            if head["do"] == "prepare":
                mine.prepare(head["size"], head["seed"], head["whole"])
            elif head["do"] == "lap":
                wall, cpu = time.perf_counter(), time.process_time()
                mine.lap()
                answer = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            elif head["do"] == "answer":
                found = mine.answer()
                answer = {"checksum": found[0], "rows": found[1]}
            driver.put(message(answer))
            moved([driver], lambda: False, lambda: None)
    except ChannelClosed:
        return
    finally:
        for end in (driver, *others.values(), ends.aside, ends.door):
            end.close()
