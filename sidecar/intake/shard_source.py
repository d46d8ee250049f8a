"""A source that the workers read, each its share of the partitions: what the driver hears of it.

Invariant: what is told here (positions, ends, whether all is read) is as of what `poll` has handed out, and never ahead of it.
The driver's intake calls it as any source; once a worker cannot be heard any more, that ends all of them. Other workers may
take over between two polls.
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
from headrace.connectors.source import Positions, SourceError, check_topic_ids
from headrace.engine.batch.exchange_codec import Message
from headrace.engine.schema import Schema
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed, moved
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.failure import failure
from headrace.sidecar.execution.workers.pool import WorkerPool
from headrace.sidecar.execution.workers.protocol import Head, message, opened, packed
from headrace.sidecar.execution.workers.worker import Reads
from headrace.sidecar.intake.shard_answers import DecodedRun, Places, Standing, answered

Begin = Callable[[Callable[[], WorkerPool]], WorkerPool]
"""Does what only the loop may: at once where the loop itself asks, or on it where another thread does."""


def at_once(begin: Callable[[], WorkerPool]) -> WorkerPool:
    """As the loop itself asks."""
    return begin()


class _Reading:
    """Workers that read, and what they have told so far; without `workers` nobody does. Single user: the source."""

    def __init__(self, workers: Workers | None = None, pool: WorkerPool | None = None) -> None:
        self.workers, self.pool = workers, pool
        self.channels: Sequence[Channel] = () if pool is None else pool.channels
        count = len(self.channels)
        self.asked = [False] * count
        self.failures: deque[SourceError] = deque()
        self.positions: Places = {}
        self.ends: Places = {}
        self.ids: dict[str, str] = {}
        self.others: list[frozenset[str]] = [frozenset()] * count
        self.at_end = [False] * count
        self.silent = [(0.0, time.monotonic())] * count
        self.left_out: dict[str, dict[str, str]] = {}
        self.looked: list[tuple[int, int]] = []

    def tell(self, body: Message) -> None:
        """Leave it to be written to all."""
        for channel in self.channels:
            channel.put(body)

    def ask(self) -> None:
        """Have each worker answer that is not asked yet."""
        for shard, channel in enumerate(self.channels):
            if not self.asked[shard]:
                self.asked[shard] = True
                channel.put(message({"do": "poll"}))

    def hear(self, seconds: float | None) -> None:
        """Write what is to be written; wait for an answer of any worker at most so long, or without end for one of each that is
        asked."""
        try:
            if seconds is None:
                moved(self.channels, self._misses, lambda: None)
                return
            until = time.monotonic() + seconds
            while True:
                poll = select.poll()
                for channel in self.channels:
                    if channel.is_writing:
                        channel.write()
                    poll.register(channel.fileno(), select.POLLIN | (select.POLLOUT if channel.is_writing else 0))
                ready = dict(poll.poll(max(0.0, until - time.monotonic()) * 1000))
                for channel in self.channels:
                    if ready.get(channel.fileno(), 0) & ~select.POLLOUT:
                        channel.read()
                if any(channel.arrived for channel in self.channels) or time.monotonic() >= until:
                    return
        except ChannelClosed as closed:
            for shard, channel in enumerate(self.channels):
                self._check(shard, channel)
            assert self.workers is not None, "somebody reads"
            self.workers.give_up(closed)

    def _misses(self) -> bool:
        return any(asked and not c.arrived for asked, c in zip(self.asked, self.channels, strict=True))

    def _check(self, shard: int, channel: Channel) -> None:
        """Raise what a worker failed with, where it said so."""
        for found in channel.arrived:
            head, _ = opened(found)
            if "error" in head and head["error"]["code"] != ChannelClosed.code:
                raise failure(shard, head["error"])

    def taken(self) -> list[DecodedRun]:
        """The runs of the answers that are there. What a worker's source failed with is told once nothing else is."""
        out: list[DecodedRun] = []
        for shard, channel in enumerate(self.channels):
            if channel.arrived:
                out += self._answer(shard)
        return out

    def _answer(self, shard: int) -> list[DecodedRun]:
        """The runs of the next answer of a worker."""
        self.asked[shard] = False
        head, parts = opened(self.channels[shard].arrived.popleft())
        if "error" in head:
            raise failure(shard, head["error"])
        assert self.workers is not None, "it has answered"
        runs, standing = answered(parts, self.workers.rows.kept)
        self._stand(shard, standing)
        if standing.failed is not None:
            told: Mapping[str, Any] = standing.failed
            where = {name: value for name, value in told["where"].items() if name not in ("what", "hint")}
            self.failures.append(SourceError(told["what"], hint=told["hint"], **where))
        return runs

    def _stand(self, shard: int, told: Standing) -> None:
        for mine, theirs in ((self.positions, told.positions), (self.ends, told.ends)):
            for topic, partitions in theirs.items():
                mine.setdefault(topic, {}).update(partitions)
        self.ids |= told.ids
        if told.others is not None:
            self.others[shard] = frozenset(told.others)
        if told.left_out is not None:
            self.left_out |= told.left_out
        self.at_end[shard] = told.at_end
        self.silent[shard] = told.silent, time.monotonic()
        self.looked += [(number, shard) for number in told.looked]

    def close(self) -> None:
        """Let the threads that read end."""
        if self.pool is not None:
            self.pool.close()


class ShardSource:
    """The source `name` of `workers`; `reads`: what each of them is told to do; `begin`: who has them begin. Single user: the
    sidecar's intake."""

    def __init__(self, name: str, workers: Workers, reads: Reads, begin: Begin = at_once) -> None:
        self.name = name
        self._workers, self._reads, self._begin = workers, reads, begin
        self._now = _Reading()
        self._declared: list[Message] = []
        self._looks: dict[int, tuple[str, set[int]]] = {}
        self._numbers = numbers()

    def open(self, positions: Positions) -> None:
        """See `Source.open`."""
        self.close()
        self._now = self._begun(self._workers, positions)

    def _begun(self, workers: Workers, positions: Positions) -> _Reading:
        """Workers that read from `positions` on. Raises SourceError; then they do not."""
        name = f"intake {self.name}"
        found = _Reading(workers, self._begin(lambda: workers.begin_intake(name, self._reads)))
        for body in self._declared:
            found.tell(body)
        found.tell(message({"do": "open", "positions": positions}))
        found.asked = [True] * len(found.channels)
        found.hear(None)
        found.taken()
        if found.failures:
            found.close()
            raise found.failures[0]
        return found

    def move_to(self, workers: Workers) -> Callable[[], None]:
        """Have other workers begin to read behind what was handed out: what these have read ahead is read again. What this gives,
        called before the next poll, has them go on in their place. Raises SourceError; then nothing has changed."""
        before = self._now
        found = self._begun(workers, before.positions)
        try:
            check_topic_ids(self.name, before.ids, found.ids)
        except SourceError:
            found.close()
            raise

        def go_on() -> None:
            self._workers, self._now = workers, found
            found.failures += before.failures
            for number, (topic, waiting) in self._looks.items():
                waiting.clear()
                waiting.update(range(len(found.channels)))
                self._tell({"do": "look", "number": number, "topic": topic})
            before.close()

        return go_on

    def poll(self, timeout: float) -> Sequence[MessageBatch]:
        """See `Source.poll`; the runs are decoded."""
        now = self._now
        if now.failures:
            raise now.failures.popleft()
        now.ask()
        now.hear(timeout)
        return self._taken(raises=True)

    def rest(self) -> Sequence[MessageBatch]:
        """See `Source.rest`: each worker answers one poll ahead."""
        self._now.hear(None)
        return self._taken(raises=False)

    def _taken(self, *, raises: bool) -> Sequence[MessageBatch]:
        now = self._now
        out = now.taken()
        for number, shard in now.looked:
            self._looks[number][1].discard(shard)
        now.looked.clear()
        if raises and now.failures and not out:
            raise now.failures.popleft()
        return out

    def _tell(self, head: Head, parts: Sequence[Message] = ()) -> None:
        self._now.tell(message(head, parts))

    def positions(self) -> Positions:
        """See `Source.positions`."""
        return self._now.positions

    def high_watermarks(self) -> Positions:
        """See `Source.high_watermarks`."""
        return self._now.ends

    def at_end(self) -> bool:
        """See `Source.at_end`."""
        return all(self._now.at_end) and not self._now.failures

    def look(self, topic: str) -> Callable[[], bool]:
        """See `Source.look`: each worker sees how far its own partitions of the topic go."""
        number = next(self._numbers)
        waiting = set(range(len(self._now.channels)))
        self._looks[number] = topic, waiting
        self._tell({"do": "look", "number": number, "topic": topic})

        def passed() -> bool:
            if not waiting:
                self._looks.pop(number, None)
            return not waiting

        return passed

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source.topic_ids`."""
        return dict(self._now.ids)

    def others(self) -> frozenset[str]:
        """See `Source.others`."""
        return frozenset().union(*self._now.others)

    def silent_for(self) -> float:
        """See `Source.silent_for`: of the worker whose broker is away the longest."""
        now = time.monotonic()
        return max((s + now - at for s, at in self._now.silent if s > 0), default=0.0)

    def commit(self, positions: Positions) -> None:
        """See `Source.commit`."""
        self._tell({"do": "commit", "positions": positions})
        for channel in self._now.channels:
            with suppress(ChannelClosed):  # which `poll` finds too
                channel.write()

    def close(self) -> None:
        """See `Source.close`."""
        self._now.close()
        self._now = _Reading()
        self._looks.clear()

    @property
    def left_out(self) -> Mapping[str, Mapping[str, str]]:
        """See `Format.left_out`."""
        return self._now.left_out

    def add_table(self, name: str, schema: Schema, partitions: Sequence[str], precisions: Mapping[str, int]) -> None:
        """See `Format.add_table`: the workers decode it from now on, and those that take their place do."""
        self._declare(message({"do": "add_table"}, [packed((name, schema, tuple(partitions), dict(precisions)))]))

    def add_partition(self, partition: str, table: str) -> None:
        """See `Format.add_partition`."""
        self._declare(message({"do": "add_partition", "partition": partition, "table": table}))

    def _declare(self, body: Message) -> None:
        self._declared.append(body)
        self._now.tell(body)


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
