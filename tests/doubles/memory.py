"""A source and a sink in memory, for tests and replay: the same contracts as the real ones, with failures on demand.

A `MemoryLog` stands for a broker and a `MemoryStore` for a database: both outlive the source or sink opened on them, so
that a restart, a second instance or a lost answer can be played. Always: the store changes as a whole or not at all. The file
is long because what may befall the one is mostly what may befall the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.connectors.changes import MessageBatch
from headrace.connectors.sink import (
    EpochStamp,
    Fenced,
    Frontier,
    SinkError,
    SinkState,
    SinkView,
    ViewChanges,
    last_epoch,
)
from headrace.connectors.source import Positions, SourceError
from headrace.engine.schema import Kind, Schema

Row = tuple[object, ...]


@dataclass(frozen=True)
class _Record:
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass
class _Partition:
    records: list[_Record] = field(default_factory=list)
    low: int = 0
    end: int = 0
    opened: int | None = None

    @property
    def stable(self) -> int:
        """Where what may be read ends."""
        return self.end if self.opened is None else self.opened


class MemoryLog:
    """Topics with partitions. Single writer: the test. `reachable` False plays a broker that is not there."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], _Partition] = {}
        self.reachable = True

    def create(self, topic: str, partitions: int = 1) -> None:
        """Make a topic, or widen it to `partitions`; what is there stays."""
        for p in range(partitions):
            self.partitions.setdefault((topic, p), _Partition())

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp: int = 0,
    ) -> int:
        """Append one message and return its offset; the topic is made when it is not there."""
        self.create(topic, partition + 1)
        log = self.partitions[topic, partition]
        log.records.append(_Record(log.end, key, value, timestamp))
        log.end += 1
        return log.end - 1

    def extend(self, messages: MessageBatch) -> None:
        """Append scripted messages at their own offsets (gaps stay gaps). Raises ValueError for offsets going back."""
        self.create(messages.topic, messages.partition + 1)
        log = self.partitions[messages.topic, messages.partition]
        for i, offset in enumerate(messages.offsets.tolist()):
            if offset < log.end:
                raise ValueError(f"offset {offset} of {messages.topic}[{messages.partition}] is below {log.end}")
            record = _Record(offset, messages.keys[i], messages.values[i], int(messages.timestamps[i]))
            log.records.append(record)
            log.end = offset + 1

    def skip(self, topic: str, partition: int = 0, count: int = 1) -> None:
        """Leave a gap of `count` offsets, as a transaction marker or an aborted transaction does."""
        self.partitions[topic, partition].end += count

    def hold(self, topic: str, partition: int = 0) -> None:
        """A transaction is open: what is appended from now on may not be read before `release`."""
        self.create(topic, partition + 1)
        self.partitions[topic, partition].opened = self.partitions[topic, partition].end

    def release(self, topic: str, partition: int = 0) -> None:
        """The transaction is committed; its marker takes an offset."""
        self.skip(topic, partition)
        self.partitions[topic, partition].opened = None

    def truncate(self, topic: str, partition: int, low: int) -> None:
        """Forget the records below `low`, as retention does."""
        log = self.partitions[topic, partition]
        log.records = [r for r in log.records if r.offset >= low]
        log.low = low


class MemorySource:
    """Reads a MemoryLog, at most `batch` messages of a partition a poll, of the partitions that are `mine`. `committed` is what
    `commit` was told."""

    def __init__(
        self,
        log: MemoryLog | Sequence[MessageBatch],
        *,
        wants: Callable[[str], bool] | None = None,
        topics: Sequence[str] | None = None,
        name: str = "memory",
        batch: int = 1 << 16,
        mine: Callable[[str, int], bool] | None = None,
    ) -> None:
        self._mine = mine or (lambda _topic, _partition: True)
        if isinstance(log, MemoryLog):
            self.log = log
        else:
            self.log = MemoryLog()
            for messages in log:
                self.log.extend(messages)
        self.name = name
        self.batch = batch
        self.committed: dict[str, dict[int, int]] = {}
        self._topics = topics
        self._wants = wants or ((lambda topic: topic in topics) if topics is not None else (lambda _: True))
        self._next: dict[tuple[str, int], int] = {}
        self._broken: set[tuple[str, int]] = set()

    def open(self, positions: Positions) -> None:
        """See `Source.open`."""
        self._check_reachable()
        names = {topic for topic, _ in self.log.partitions}
        for topic in (*(self._topics or ()), *positions):
            if topic not in names:
                raise SourceError(
                    "the topic is not there", hint="create it, or resync this source", source=self.name, topic=topic
                )
        self._next.clear()
        self._broken.clear()
        for topic, by_partition in positions.items():
            for partition, offset in by_partition.items():
                log = self.log.partitions[topic, partition]
                if not log.low <= offset <= log.end:
                    raise _out_of_range(self.name, topic, partition, offset, log)
                if self._wants(topic):
                    self._next[topic, partition] = offset
        self._discover()

    def _discover(self) -> None:
        for (topic, partition), log in list(self.log.partitions.items()):
            if self._wants(topic) and self._mine(topic, partition):
                self._next.setdefault((topic, partition), log.low)

    def poll(self, timeout: float) -> Sequence[MessageBatch]:
        """See `Source.poll`; never waits, as nothing can arrive meanwhile. A partition out of range is told once."""
        del timeout
        self._check_reachable()
        self._discover()
        for (topic, partition), start in self._next.items():
            log = self.log.partitions[topic, partition]
            if start < log.low and (topic, partition) not in self._broken:
                self._broken.add((topic, partition))
                raise _out_of_range(self.name, topic, partition, start, log)
        found = []
        for (topic, partition), start in self._next.items():
            log = self.log.partitions[topic, partition]
            if (topic, partition) in self._broken:
                continue
            stable = log.stable  # which grows meanwhile where a thread reads
            there = [r for r in log.records if start <= r.offset < stable]
            run = there[: self.batch]
            self._next[topic, partition] = stable if len(run) == len(there) else run[-1].offset + 1
            if run:
                found.append(_messages(topic, partition, run))
        return found

    def rest(self) -> Sequence[MessageBatch]:
        """See `Source.rest`: nothing is decoded before it is polled."""
        return ()

    def positions(self) -> Positions:
        """See `Source.positions`."""
        return _nested(self._next)

    def high_watermarks(self) -> Positions:
        """See `Source.high_watermarks`."""
        return _nested({tp: self.log.partitions[tp].end for tp in self._next})

    def at_end(self) -> bool:
        """See `Source.at_end`."""
        return all(at >= self.log.partitions[tp].stable for tp, at in self._next.items())

    def look(self, topic: str) -> Callable[[], bool]:
        """See `Source.look`."""
        ends = {place: self.log.partitions[place].end for place in self._next if place[0] == topic}
        return lambda: all(self._next.get(place, 0) >= end for place, end in ends.items())

    def topic_ids(self) -> Mapping[str, str]:
        """See `Source.topic_ids`: none."""
        return {}

    def others(self) -> frozenset[str]:
        """See `Source.others`."""
        return frozenset(topic for topic, _ in self.log.partitions if not self._wants(topic))

    def silent_for(self) -> float:
        """See `Source.silent_for`."""
        return 0.0

    def commit(self, positions: Positions) -> None:
        """See `Source.commit`."""
        for topic, by_partition in positions.items():
            self.committed.setdefault(topic, {}).update(by_partition)

    def close(self) -> None:
        """See `Source.close`."""
        self._next.clear()

    def _check_reachable(self) -> None:
        if not self.log.reachable:
            raise SourceError("the source cannot be reached", hint="start it", source=self.name)


def _messages(topic: str, partition: int, run: Sequence[_Record]) -> MessageBatch:
    return MessageBatch(
        topic,
        partition,
        np.array([r.offset for r in run], np.int64),
        [r.key for r in run],
        [r.value for r in run],
        np.array([r.timestamp for r in run], np.int64),
    )


def _nested(flat: Mapping[tuple[str, int], int]) -> Positions:
    nested: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in flat.items():
        nested.setdefault(topic, {})[partition] = offset
    return nested


def _out_of_range(source: str, topic: str, partition: int, offset: int, log: _Partition) -> SourceError:
    return SourceError(
        "the next offset is no longer there",
        hint="messages were lost to retention or the topic was recreated: resync the tables of this topic",
        source=source,
        topic=topic,
        partition=partition,
        offset=offset,
        low=log.low,
        high=log.end,
    )


@dataclass
class MemoryStore:
    """What a database would hold: the content of each view, the frontier, and who may write.

    `errors`: of the views in error, the message and the epoch of their rows (None: never written). `history`: a copy of
    every view's content after each write, for checkers of whole transactions. `writes`: how many there were, by which a
    sink finds out that the store went back. `run`: whose it is; a generation may be taken twice where the store goes back.
    """

    generation: int = 0
    run: object = None
    writes: int = 0
    frontier: Frontier | None = None
    views: dict[str, SinkView] = field(default_factory=dict)
    rows: dict[str, Counter[Row]] = field(default_factory=dict)
    filled: set[str] = field(default_factory=set)
    errors: dict[str, tuple[str, int | None]] = field(default_factory=dict)
    history: list[tuple[Frontier, dict[str, Counter[Row]]]] = field(default_factory=list)
    keep_history: bool = False


class MemorySink:
    """Keeps views as multisets of Python tuples, in `store`. Single writer: the newest instance opened on it.

    `fail_next`: "before" makes the next write fail without any effect; "after" makes it fail once it is durable, and
    the sink reads its frontier back as a real one must, so that the caller sees success.
    """

    def __init__(self, name: str = "memory", store: MemoryStore | None = None) -> None:
        self.name = name
        self.store = store if store is not None else MemoryStore()
        self.fail_next: str | None = None
        self.warnings: tuple[str, ...] = ()
        self.writes = 0
        self._generation = -1
        self._run: object = None
        self._runs: list[object] = []  # by which it claimed the store, also where it does not know what became of it
        self._stands_at = 0
        self._views: dict[str, SinkView] = {}

    def open(self, views: Sequence[SinkView], held: int | None = None) -> SinkState:
        """See `Sink.open`."""
        store = self.store
        if held is not None and store.generation >= held and store.run not in self._runs:
            raise Fenced(
                "another generation writes to this sink", sink=self.name, generation=held, now=store.generation
            )
        store.generation = max(store.generation, held or 0) + 1
        self._run = store.run = object()
        self._runs.append(self._run)
        self._generation, self._stands_at = store.generation, store.writes
        self._views = {view.name: view for view in views}
        for gone in set(store.views) - set(self._views):
            del store.views[gone], store.rows[gone]
            store.filled.discard(gone)
            store.errors.pop(gone, None)
        for view in views:
            known = store.views.get(view.name)
            if known is None or known.fingerprint != view.fingerprint:
                store.filled.discard(view.name)
                store.rows.setdefault(view.name, Counter())
            store.views[view.name] = view
        marked = {name: error for name, (error, _) in store.errors.items()}
        return SinkState(self._generation, store.frontier, frozenset(set(self._views) - store.filled), marked)

    def write(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        """See `Sink.write`."""
        del stamps
        self._check_owner()
        at = self.store.frontier
        if at is not None and frontier.epoch < at.epoch:
            raise SinkError("a frontier cannot go back", sink=self.name, epoch=frontier.epoch, stands_at=at.epoch)
        after = {name: self._applied(name, change) for name, change in changes.items()}
        marked = self._marked(errors or {}, changes)
        failure, self.fail_next = self.fail_next, None
        if failure == "before":
            raise SinkError("the sink cannot be reached", hint="injected by the test", sink=self.name)
        self.store.rows.update(after)
        self.store.filled |= {name for name, change in changes.items() if change.whole}
        self.store.frontier = frontier
        self.store.errors = marked
        self.writes += 1
        self.store.writes += 1
        self._stands_at = self.store.writes
        if self.store.keep_history:
            self.store.history.append((frontier, {n: Counter(c) for n, c in self.store.rows.items()}))
        if failure == "after":
            self._check_owner()  # what a real sink does after a lost answer: its frontier is there, so it is confirmed

    def _check_owner(self) -> None:
        if self._run is not self.store.run and self._generation <= self.store.generation:
            raise Fenced(
                "another generation writes to this sink", sink=self.name, generation=self._generation,
                now=self.store.generation,
            )  # fmt: skip
        if self._run is not self.store.run or self._stands_at != self.store.writes:
            raise SinkError("the frontier was changed by something else than this sink", sink=self.name)

    def _marked(
        self, errors: Mapping[str, str], changes: Mapping[str, ViewChanges]
    ) -> dict[str, tuple[str, int | None]]:
        """The views in error after this write; rows that come with the mark are the last that are good."""
        marked = dict(self.store.errors)
        stands_at = None if self.store.frontier is None else self.store.frontier.epoch
        for name, error in errors.items():
            if name not in self._views:
                raise SinkError("the sink was not opened with this view", sink=self.name, view=name)
            _, epoch = marked.pop(name, ("", stands_at))
            if error:
                marked[name] = (error, last_epoch(changes.get(name), epoch))
        return marked

    def _applied(self, name: str, change: ViewChanges) -> Counter[Row]:
        view = self._views.get(name)
        if view is None:
            raise SinkError("the sink was not opened with this view", sink=self.name, view=name)
        content: Counter[Row] = Counter() if change.whole else Counter(self.store.rows[name])
        for row, diff in zip(python_rows(view.schema, change.rows), change.diffs.tolist(), strict=True):
            content[row] += diff
        content = Counter({row: n for row, n in content.items() if n})
        if any(n < 0 for n in content.values()):
            raise SinkError("a row would be there less than zero times", sink=self.name, view=name)
        if view.key is not None:
            keys = Counter([tuple(row[k] for k in view.key) for row in content.elements()])
            if any(n > 1 for n in keys.values()):
                raise SinkError("two rows for one key", hint="the view's key does not hold", sink=self.name, view=name)
        return content

    def close(self) -> None:
        """See `Sink.close`."""


_IMAGED = {Kind.REAL, Kind.DOUBLE}


def python_rows(schema: Schema, rows: pa.RecordBatch) -> list[Row]:
    """Rows as tuples of Python values; floats as their text, so that NaN and minus zero are compared as images."""
    columns = []
    for column, values in zip(schema.columns, rows.columns, strict=True):
        lane = values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
        listed = lane.to_pylist()
        columns.append([None if v is None else repr(v) for v in listed] if column.type.kind in _IMAGED else listed)
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows
