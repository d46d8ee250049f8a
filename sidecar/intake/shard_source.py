"""A source that the workers read, each its share of the partitions: what the driver hears of it.

Invariant: what is told here (positions, ends, whether all is read) is as of what `poll` has handed out, and never ahead of it.
The driver's intake calls it as any source; once a worker cannot be heard any more, that ends all of them.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count as numbers
from typing import Any

from headrace.connectors.changes import Decoded, Format, MessageBatch
from headrace.connectors.source import Positions, SourceError
from headrace.engine.batch.exchange_codec import Message
from headrace.engine.schema import Schema
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed, moved
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.failure import failure
from headrace.sidecar.execution.workers.pool import WorkerPool
from headrace.sidecar.execution.workers.protocol import Head, message, opened, packed
from headrace.sidecar.execution.workers.worker import Reads
from headrace.sidecar.intake.shard_answers import DecodedRun, Places, Standing, answered


class ShardSource:
    """The source `name` of `workers`; `reads`: what each of them is told to do. Single user: the sidecar's intake."""

    def __init__(self, name: str, workers: Workers, reads: Reads) -> None:
        self.name = name
        self._workers, self._reads = workers, reads
        self._guests: WorkerPool | None = None
        self._channels: Sequence[Channel] = ()
        self._asked: list[bool] = []
        self._failures: deque[SourceError] = deque()
        self._looks: dict[int, set[int]] = {}
        self._numbers = numbers()
        self._positions: Places = {}
        self._ends: Places = {}
        self._ids: dict[str, str] = {}
        self._others: list[frozenset[str]] = []
        self._at_end: list[bool] = []
        self._silent: list[tuple[float, float]] = []
        self.left_out: dict[str, dict[str, str]] = {}

    def open(self, positions: Positions) -> None:
        """See `Source.open`."""
        self.close()
        self._guests = self._workers.begin_intake(f"intake {self.name}", self._reads)
        self._channels = self._guests.channels
        count = len(self._channels)
        self._asked = [True] * count
        self._others, self._at_end = [frozenset()] * count, [False] * count
        self._silent = [(0.0, time.monotonic())] * count
        self._tell({"do": "open", "positions": positions})
        self._hear(None)
        found = [self._answer(shard) for shard in range(count)]
        failed = next((told for told in found if isinstance(told, SourceError)), None)
        if failed is not None:
            self.close()
            raise failed

    def poll(self, timeout: float) -> Sequence[MessageBatch]:
        """See `Source.poll`; the runs are decoded."""
        if self._failures:
            raise self._failures.popleft()
        for shard, channel in enumerate(self._channels):
            if not self._asked[shard]:
                self._asked[shard] = True
                channel.put(message({"do": "poll"}))
        self._hear(timeout)
        out: list[DecodedRun] = []
        for shard, channel in enumerate(self._channels):
            if channel.arrived:
                told = self._answer(shard)
                if isinstance(told, SourceError):
                    self._failures.append(told)
                else:
                    out += told
        if self._failures and not out:
            raise self._failures.popleft()
        return out

    def _hear(self, seconds: float | None) -> None:
        """Write what is to be written; wait for an answer of any worker at most so long, or without end for one of each."""
        try:
            if seconds is None:
                moved(self._channels, lambda: not all(channel.arrived for channel in self._channels), lambda: None)
                return
            until = time.monotonic() + seconds
            while True:
                poll = select.poll()
                for channel in self._channels:
                    if channel.is_writing:
                        channel.write()
                    poll.register(channel.fileno(), select.POLLIN | (select.POLLOUT if channel.is_writing else 0))
                ready = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
                for channel in self._channels:
                    if ready.get(channel.fileno(), 0) & ~select.POLLOUT:
                        channel.read()
                if any(channel.arrived for channel in self._channels) or time.monotonic() >= until:
                    return
        except ChannelClosed as closed:
            for shard, channel in enumerate(self._channels):
                self._check(shard, channel)
            self._workers.give_up(closed)

    def _check(self, shard: int, channel: Channel) -> None:
        """Raise what a worker failed with, where it said so."""
        for found in channel.arrived:
            head, _ = opened(found)
            if "error" in head and head["error"]["code"] != ChannelClosed.code:
                raise failure(shard, head["error"])

    def _answer(self, shard: int) -> list[DecodedRun] | SourceError:
        """The next answer of a worker: its runs, or what its source failed with."""
        self._asked[shard] = False
        head, parts = opened(self._channels[shard].arrived.popleft())
        if "error" in head:
            raise failure(shard, head["error"])
        runs, standing = answered(parts, self._workers.forgotten)
        self._stand(shard, standing)
        if standing.failed is None:
            return runs
        told: Mapping[str, Any] = standing.failed
        where = {name: value for name, value in told["where"].items() if name not in ("what", "hint")}
        return SourceError(told["what"], hint=told["hint"], **where)

    def _stand(self, shard: int, told: Standing) -> None:
        for mine, theirs in ((self._positions, told.positions), (self._ends, told.ends)):
            for topic, partitions in theirs.items():
                mine.setdefault(topic, {}).update(partitions)
        self._ids |= told.ids
        if told.others is not None:
            self._others[shard] = frozenset(told.others)
        if told.left_out is not None:
            self.left_out |= told.left_out
        self._at_end[shard] = told.at_end
        self._silent[shard] = told.silent, time.monotonic()
        for number in told.looked:
            self._looks[number].discard(shard)

    def _tell(self, head: Head, parts: Sequence[Message] = ()) -> None:
        for channel in self._channels:
            channel.put(message(head, parts))

    def positions(self) -> Positions:
        """See `Source.positions`."""
        return self._positions

    def high_watermarks(self) -> Positions:
        """See `Source.high_watermarks`."""
        return self._ends

    def at_end(self) -> bool:
        """See `Source.at_end`."""
        return all(self._at_end) and not self._failures

    def look(self, topic: str) -> Callable[[], bool]:
        """See `Source.look`: each worker sees how far its own partitions of the topic go."""
        number = next(self._numbers)
        waiting = self._looks[number] = set(range(len(self._channels)))
        self._tell({"do": "look", "number": number, "topic": topic})

        def passed() -> bool:
            if not waiting:
                self._looks.pop(number, None)
            return not waiting

        return passed

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source.topic_ids`."""
        return dict(self._ids)

    def others(self) -> frozenset[str]:
        """See `Source.others`."""
        return frozenset().union(*self._others)

    def silent_for(self) -> float:
        """See `Source.silent_for`: of the worker whose broker is away the longest."""
        now = time.monotonic()
        return max((s + now - at for s, at in self._silent if s > 0), default=0.0)

    def commit(self, positions: Positions) -> None:
        """See `Source.commit`."""
        self._tell({"do": "commit", "positions": positions})
        for channel in self._channels:
            with suppress(ChannelClosed):  # which `poll` finds too
                channel.write()

    def close(self) -> None:
        """See `Source.close`."""
        guests, self._guests = self._guests, None
        if guests is not None:
            guests.close()
        self._channels = ()
        for kept in (self._positions, self._ends, self._ids, self._looks):
            kept.clear()
        self._failures.clear()

    def add_table(self, name: str, schema: Schema, partitions: Sequence[str], precisions: Mapping[str, int]) -> None:
        """See `Format.add_table`: the workers decode it from now on."""
        self._tell({"do": "add_table"}, [packed((name, schema, tuple(partitions), dict(precisions)))])

    def add_partition(self, partition: str, table: str) -> None:
        """See `Format.add_partition`."""
        self._tell({"do": "add_partition", "partition": partition, "table": table})


class ShardFormat:
    """The format of a source that workers read: what is added to it here is added to theirs."""

    def __init__(self, here: Format, source: ShardSource) -> None:
        self._here, self._source = here, source
        self.topics, self.wants = here.topics, here.wants

    def decode(self, messages: MessageBatch) -> Decoded:
        """See `Format.decode`: of what the driver itself reads again."""
        return self._here.decode(messages)

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """See `Format.left_out`."""
        return {**self._source.left_out, **self._here.left_out}

    def add_table(self, name: str, schema: Schema, partitions: Sequence[str], precisions: Mapping[str, int]) -> None:
        """See `Format.add_table`."""
        self._here.add_table(name, schema, partitions, precisions)
        self._source.add_table(name, schema, partitions, precisions)

    def add_partition(self, partition: str, table: str) -> None:
        """See `Format.add_partition`."""
        self._here.add_partition(partition, table)
        self._source.add_partition(partition, table)
