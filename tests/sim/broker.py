"""A broker in memory with the real one's semantics: offsets, transactions with their markers, last stable offset, fencing by
producer epoch. It outlives its clients (tests/sim/clients.py), and runs the same contracts as the real one.

Always: what is `read_committed` ends before the first open transaction and skips aborted ones; a commit is decided at once
and its markers are written later, partition by partition; a producer whose epoch is over is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Headers = Sequence[tuple[str, bytes | None]] | None
Place = tuple[str, int]


class FencedProducer(Exception):
    """The producer's epoch is over."""


class NoTransaction(Exception):
    """There is no transaction of this producer to end."""


@dataclass(frozen=True)
class Record:
    """`writer`: the transaction that it belongs to, None for none; a marker has no value and is never given."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = None
    writer: int | None = None
    marker: bool = False


@dataclass
class Partition:
    """`open`: transaction → its first offset here. `aborted`: transactions whose records nobody may see."""

    records: list[Record] = field(default_factory=list)
    low: int = 0
    open: dict[int, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else self.low

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self.open.values(), default=self.end)

    def read(self, offset: int, count: int, committed: bool) -> tuple[list[Record], int]:
        """At most `count` records from `offset` on, and the offset to go on from."""
        limit, found = self.stable if committed else self.end, []
        start = max(0, len(self.records) - (self.end - offset))
        at = offset
        for record in self.records[start:]:
            if record.offset >= limit or len(found) == count:
                break
            at = record.offset + 1
            if not record.marker and not (committed and record.writer in self.aborted):
                found.append(record)
        return found, max(at, offset)


@dataclass
class Topic:
    id: str
    partitions: list[Partition]
    config: Mapping[str, str]


@dataclass
class Producer:
    """What the coordinator knows of one transactional id. `transaction`: the one under way. `ending`: the markers to be written
    of the one that was decided, which has `decided` of them. `lost`: those whose markers were never written, by partition:
    the next marker there ends them too.
    """

    epoch: int = -1
    transaction: int | None = None
    places: set[Place] = field(default_factory=set)
    ending: list[tuple[Place, int, bool]] = field(default_factory=list)
    decided: int = 0
    lost: dict[Place, list[int]] = field(default_factory=dict)


class Broker:
    """Topics and producers. `late`: how often the ends of partitions are asked for before they are told. Single writer: whoever
    the scheduler lets run."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.producers: dict[str, Producer] = {}
        self.committed: dict[Place, int] = {}
        self.up = True
        self.late: Callable[[], int] = lambda: 0
        self._made = self._transactions = 0

    def create(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic, or widen it."""
        topic = self.topics.get(name)
        if topic is None:
            self._made += 1
            topic = self.topics[name] = Topic(f"id-{self._made}", [], dict(config or {}))
        while len(topic.partitions) < partitions:
            topic.partitions.append(Partition())

    def partition(self, place: Place) -> Partition:
        return self.topics[place[0]].partitions[place[1]]

    def append(
        self, place: Place, key: bytes | None, value: bytes | None, *, at: int = 0, headers: Headers = None
    ) -> int:
        """Append outside any transaction; the offset."""
        partition = self.partition(place)
        partition.records.append(Record(partition.end, key, value, at, headers))
        return partition.end - 1

    def truncate(self, place: Place, low: int) -> None:
        """Forget the records below `low`."""
        partition = self.partition(place)
        end = partition.end
        partition.records = [r for r in partition.records if r.offset >= low]
        partition.low = low if partition.records else end

    # transactions

    def init(self, name: str) -> int:
        """Take a transactional id over: what was open is aborted, who had it is fenced; the epoch."""
        producer = self.producers.setdefault(name, Producer())
        self.settle(producer)
        if producer.transaction is not None:
            self._end(producer, commit=False)
            self.settle(producer)
        producer.epoch += 1
        return producer.epoch

    def _owned(self, name: str, epoch: int) -> Producer:
        producer = self.producers[name]
        if producer.epoch != epoch:
            raise FencedProducer(name)
        return producer

    def send(
        self, name: str, epoch: int, place: Place, key: bytes | None, value: bytes | None, headers: Headers,
        *, at: int = 0,
    ) -> int:  # fmt: skip
        """Append within the producer's transaction, which begins with it; the offset. Raises FencedProducer."""
        producer = self._owned(name, epoch)
        self.settle(producer)
        if producer.transaction is None:
            self._transactions += 1
            producer.transaction = self._transactions
        partition = self.partition(place)
        offset = partition.end
        partition.open.setdefault(producer.transaction, offset)
        producer.places.add(place)
        partition.records.append(Record(offset, key, value, at, headers, producer.transaction))
        return offset

    def end(self, name: str, epoch: int, commit: bool) -> None:
        """Decide the producer's transaction; its markers follow. Raises FencedProducer, NoTransaction."""
        producer = self._owned(name, epoch)
        if producer.transaction is None:
            raise NoTransaction(name)
        self._end(producer, commit)

    def _end(self, producer: Producer, commit: bool) -> None:
        assert producer.transaction is not None, "only a transaction that is under way ends"
        self.settle(producer)
        producer.ending = [(place, producer.transaction, commit) for place in sorted(producer.places)]
        producer.decided = len(producer.ending)
        producer.transaction, producer.places = None, set()

    def settle(self, producer: Producer, count: int | None = None) -> None:
        """Write the markers of what was decided, or the first `count` of them."""
        for place, transaction, commit in producer.ending[:count]:
            partition = self.partition(place)
            for one in (transaction, *producer.lost.pop(place, ())):
                if not commit:
                    partition.aborted.add(one)
                del partition.open[one]
            partition.records.append(Record(partition.end, None, None, 0, None, transaction, marker=True))
        producer.ending = [] if count is None else producer.ending[count:]

    def unmarked(self, name: str) -> bool:
        """Whether a transaction of this producer is decided and none of its markers written."""
        producer = self.producers[name]
        return 0 < producer.decided == len(producer.ending)

    def lose_markers(self, name: str, *, but: str = "") -> None:
        """The broker is killed once it has decided, and takes the transaction for complete when it is back (Kafka 4.3.0); `but`:
        a topic where they stand.
        """
        producer = self.producers[name]
        for place, transaction, _ in producer.ending:
            if place[0] != but:
                producer.lost.setdefault(place, []).append(transaction)
        producer.ending = [end for end in producer.ending if end[0][0] == but]
