"""One transactional producer: what it sends becomes visible as a whole or not at all.

Invariant: there is one transactional.id, so that the newest producer fences every older one. A producer is not used again
after an abort, or after a transaction whose end nobody knows. The sink is its only user.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.connectors.kafka.client import Raise, client
from headrace.connectors.kafka.frontier_record import Ends
from headrace.connectors.kafka.readback import is_fenced
from headrace.connectors.kafka.records import Record
from headrace.connectors.sink import Fenced
from headrace.connectors.step_hooks import Reached, unwatched

OWNED = {"enable.idempotence": True, "acks": "all"}
DEFAULTS = {
    "linger.ms": 5,  # a flush does not wait for it
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 65_536,
    "transaction.timeout.ms": 600_000,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}


class Ambiguous(Exception):
    """The transaction may or may not have been committed, or was aborted: what stands tells."""


class TooLarge(Exception):
    """A message is larger than the client or the broker takes; nothing was committed. `topic`, `bytes`: of it."""

    def __init__(self, topic: str, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.topic, self.bytes = topic, size


class Transactions:
    """A producer and its transactions. Raises Fenced wherever the broker says that another one has taken over."""

    def __init__(
        self, settings: Mapping[str, Any], error: Raise, patience: float, reached: Reached = unwatched
    ) -> None:
        self._reached = reached
        self._producer: Any = client(Producer, settings, error)
        self._patience = patience
        self._ends: dict[str, dict[int, int]] = {}
        self._failed: KafkaError | None = None
        self._large: tuple[str, int] | None = None
        self._next: dict[tuple[str, int], int] = {}
        self._all_told = True

    def fence(self) -> None:
        """Take over: older producers are refused from now on, what they left open is settled. Raises KafkaException."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._producer.init_transactions(max(deadline - time.monotonic(), 0.1))
                self._reached("kafka fenced")
                return
            except KafkaException as failure:
                if is_fenced(failure.args[0]):
                    raise Fenced("another instance took over at this moment", hint="only one may run") from failure
                if not failure.args[0].retriable() or time.monotonic() > deadline:
                    raise

    def clear(self, places: Iterable[tuple[str, int]]) -> None:
        """Abort what stands open in these partitions of transactions that the broker takes for ended: the end of one of ours
        covers all since the first record that has none. Raises Fenced, KafkaException.
        """
        try:
            self._producer.begin_transaction()
            for topic, partition in places:
                self._send(topic, partition, b"", None, [])
            self._flush()
            self._producer.abort_transaction(self._patience)
        except KafkaException as failure:
            if is_fenced(failure.args[0]):
                raise Fenced("another instance took over at this moment", hint="only one may run") from failure
            raise

    def commit(
        self, records: Sequence[tuple[str, int, Record]], last: Callable[[Ends], tuple[str, bytes, bytes]]
    ) -> int:  # fmt: skip
        """Send `records` (topic, partition or -1 for the key's own, record), then what `last` makes of where they
        ended (topic, key, value), and commit; where that one ended. Raises Fenced, TooLarge, Ambiguous.

        Where our last transaction ended is known, and nobody else writes: so where this one ends is told beforehand,
        the last record goes out with the others, and of each partition the last delivery alone is reported, as records
        stay in order. Where it ended elsewhere it is aborted, and repeated the slow way.
        """
        self._ends, self._failed, self._large = {}, None, None
        foreseen = self._foreseen(records)
        self._all_told = foreseen is None
        lasts = None if foreseen is None else {(topic, partition): i for i, (topic, partition, _) in enumerate(records)}
        try:
            self._producer.begin_transaction()
            self._reached("kafka begun")
            for i, (topic, partition, record) in enumerate(records):
                told = lasts is None or lasts[topic, partition] == i
                self._send(topic, partition, record.key, record.value, record.headers, told=told)
            if foreseen is None:
                self._flush()
            topic, key, value = last(self._ends if foreseen is None else foreseen)
            self._send(topic, 0, key, value, [])
            self._reached("kafka sent")
            if foreseen:
                self._flush()
                self._check_ends(foreseen)
        except (KafkaException, SystemError) as failure:
            # the binding turns a fatal error into SystemError where a delivery callback runs at the same time
            self._abort(failure)
        self._next, known = {}, self._next
        self._reached("kafka flushed")
        self._end()
        self._reached("kafka committed")
        reached = {(topic, partition): end + 1 for topic, ends in self._ends.items() for partition, end in ends.items()}
        self._next = {**known, **reached}  # a commit leaves one marker in each partition
        return self._ends[topic][0]

    def _foreseen(self, records: Sequence[tuple[str, int, Record]]) -> dict[str, dict[int, int]] | None:
        """Where `records` will end by topic and partition; None where a partition is not known or has not been met."""
        ends: dict[str, dict[int, int]] = {}
        for topic, partition, _ in records:
            begin = self._next.get((topic, partition))
            if begin is None:
                return None
            of_topic = ends.setdefault(topic, {})
            of_topic[partition] = of_topic.get(partition, begin) + 1
        return ends

    def _check_ends(self, foreseen: Ends) -> None:
        if any(self._ends.get(topic) != ends for topic, ends in foreseen.items()):
            raise KafkaException(KafkaError(KafkaError._STATE, "the records did not end where they were to"))

    def _send(
        self, topic: str, partition: int, key: bytes, value: bytes | None, headers: list[tuple[str, bytes]],
        *, told: bool = True,
    ) -> None:  # fmt: skip
        """`told`: whether its delivery is reported; that it fails ends the transaction in any case."""
        reported = self._delivered if told else None
        while True:
            try:
                self._producer.produce(topic, value, key, partition=partition, headers=headers, on_delivery=reported)
                return
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as failure:
                self._note_large(failure.args[0], topic, key, value)
                raise

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            if self._all_told:  # else another of the records that were sent together may be the large one
                self._note_large(error, message.topic(), message.key(), message.value())
            self._failed = self._failed or error
            return
        ends = self._ends.setdefault(message.topic(), {})
        ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)

    def _note_large(self, error: KafkaError, topic: str, key: bytes | None, value: bytes | None) -> None:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._large = self._large or (topic, len(key or b"") + len(value or b""))

    def _flush(self) -> None:
        left = self._producer.flush(self._patience)
        if self._failed is not None:
            raise KafkaException(self._failed)
        if left:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} messages were not acknowledged in time"))

    def _abort(self, failure: KafkaException | SystemError) -> None:
        """Nothing was committed: leave nothing behind."""
        if isinstance(failure, KafkaException) and is_fenced(failure.args[0]):
            raise Fenced("another generation writes to this sink") from failure
        try:
            self._producer.abort_transaction(self._patience)
        except KafkaException as second:
            if is_fenced(second.args[0]):
                raise Fenced("another generation writes to this sink") from second
            raise Ambiguous(second.args[0].str()) from second
        if self._large is not None:
            raise TooLarge(*self._large) from failure
        raise Ambiguous(str(failure)) from failure

    def _end(self) -> None:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self._producer.commit_transaction(max(deadline - time.monotonic(), 0.1))
                return
            except SystemError as failure:
                raise Ambiguous(str(failure)) from failure
            except KafkaException as failure:
                error = failure.args[0]
                if is_fenced(error):
                    raise Fenced("another generation writes to this sink") from failure
                if error.txn_requires_abort():
                    self._abort(failure)
                if not error.retriable() or time.monotonic() > deadline:
                    raise Ambiguous(error.str()) from failure

    def close(self) -> None:
        """Let go; what was not committed never becomes visible."""
        self._producer.purge()
        self._producer.poll(0)
