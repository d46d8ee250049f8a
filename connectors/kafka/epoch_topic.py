"""A topic of one partition as a run of bytes that one run of the sidecar at a time adds to, fenced by the broker.

Always: when `append` returns, what it wrote is committed and visible to readers as a whole. The newest owner writes its
claim before anything else, so that an older owner finds it even where the broker never refused its producer. Single
user: the epoch log.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic, TopicPartition

from headrace.connectors.kafka import transactional_producer
from headrace.connectors.kafka.client import Reasons, admin, merged
from headrace.connectors.kafka.readback import Readback
from headrace.connectors.kafka.records import Record
from headrace.connectors.kafka.transactional_producer import Ambiguous, TooLarge, Transactions
from headrace.connectors.sink import Fenced
from headrace.connectors.source import SourceError
from headrace.connectors.step_hooks import Reached, unwatched

FOREVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Nothing goes but what we delete ourselves."""
PIECE = 512 << 10
"""Bytes of a record, at most; the broker's default allows twice as many."""
_PAUSE = 0.05
_ANEW = b"anew"


class KafkaEpochTopic:
    """`topic`: made with its first owner. `sidecar`: names the transactional id, which all owners share.

    `patience`: seconds within which the broker must answer.
    """

    def __init__(
        self, config: Mapping[str, Any], topic: str, *, sidecar: str, patience: float = 30.0, replication: int = -1,
        reached: Reached = unwatched, now: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._topic, self._patience, self._replication, self._now = topic, patience, replication, now
        self._reasons, self._reached = Reasons(), reached
        name = f"headrace-{sidecar}-epochs"
        self._config = {"client.id": name, **config}
        owned = {**transactional_producer.OWNED, "transactional.id": name}
        defaults = {**transactional_producer.DEFAULTS, "linger.ms": 0}
        self._settings = merged(self._config, owned, defaults, self._error)
        self._transaction_seconds = float(self._settings["transaction.timeout.ms"]) / 1000
        self._admin: AdminClient | None = None
        self._producer: Transactions | None = None
        self._claim = self._end = self._number = 0
        self.size = 0

    def _error(self, what: str, *, hint: str = "", **where: object) -> SourceError:
        return SourceError(what, hint=hint, topic=where.pop("topic", self._topic), **where)

    def open(self) -> tuple[bytes, int]:
        """See `EpochTopic.open`."""
        self._admin = admin(self._config, self._error, self._reasons)
        try:
            self._ensure()
            claimed = self._scan(committed=False).claim
            self._producer = self._fenced()
            found = self._scan()
            self._claim = max(claimed, found.claim) + 1
            self._commit([])
        except KafkaException as failure:
            self.close()
            raise self._refused(failure) from failure
        except BaseException:
            self.close()
            raise
        self.size = len(found.data)
        return found.data, found.before

    def look(self) -> bytes:
        """All that it holds, without taking it over; nothing where there is no such topic."""
        self._admin = self._admin or admin(self._config, self._error, self._reasons)
        try:
            there = self._topic in self._admin.list_topics(timeout=self._patience).topics
        except KafkaException as failure:
            raise self._refused(failure) from failure
        return self.read() if there else b""

    def read(self) -> bytes:
        """See `EpochTopic.read`."""
        try:
            return self._scan().data
        except KafkaException as failure:
            raise self._refused(failure) from failure

    def append(self, data: bytes) -> None:
        """See `EpochTopic.append`."""
        self._guarded(_pieces(data))
        self.size += len(data)

    def replace(self, data: bytes, before: int) -> None:
        """See `EpochTopic.replace`. What lies before is deleted afterwards: until then nobody reads it any more."""
        begin = self._guarded([b"", *_pieces(data)], b" %s %d" % (_ANEW, before))
        self.size = len(data)
        assert self._admin is not None
        with contextlib.suppress(KafkaException):  # the next trimming deletes it with its own
            [deleted] = self._admin.delete_records(
                [TopicPartition(self._topic, 0, begin)], request_timeout=self._patience
            ).values()
            deleted.result()

    def close(self) -> None:
        """See `EpochTopic.close`."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaException):
                producer.close()

    def _ensure(self) -> None:
        """The topic is there, with one partition, and keeps what it holds. Raises SourceError, KafkaException."""
        assert self._admin is not None
        if self._topic not in self._admin.list_topics(timeout=self._patience).topics:
            fresh = NewTopic(self._topic, num_partitions=1, replication_factor=self._replication, config=dict(FOREVER))
            [made] = self._admin.create_topics(
                [fresh], operation_timeout=self._patience, request_timeout=self._patience
            ).values()
            try:
                made.result()
            except KafkaException as failure:
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._error(f"the topic of epochs cannot be made: {failure.args[0].str()}",
                                      hint="grant CREATE on it, or make it with retention.ms=-1") from failure  # fmt: skip
        asked = ConfigResource(ResourceType.TOPIC, self._topic)
        [answer] = self._admin.describe_configs([asked], request_timeout=self._patience).values()
        there = {name: entry.value for name, entry in answer.result().items()}
        wrong = {name: there[name] for name, value in FOREVER.items() if there[name] != value}
        if wrong:
            raise self._error("the topic of epochs would lose some of them", **wrong,
                              hint="set cleanup.policy=delete, retention.ms=-1 and retention.bytes=-1")  # fmt: skip

    def _fenced(self) -> Transactions:
        """A producer that has fenced all before it, and aborted what they left open."""
        producer = Transactions(
            {**self._settings, "error_cb": self._reasons}, self._error, self._patience, self._reached
        )
        producer.fence()
        deadline = self._now() + self._patience
        while found := self._reader().left_open({self._topic: 1}):
            if self._now() > deadline:
                raise self._error("what the broker has ended stands open", hint="is Kafka in order?")
            producer.clear(found)
        return producer

    def _reader(self) -> Readback:
        assert self._admin is not None
        return Readback(self._config, self._admin, self._error, self._patience)

    def _scan(self, start: int = 0, *, committed: bool = True) -> _Found:
        """What the topic holds since it was last begun anew, of the records from `start` on."""
        pieces: list[bytes] = []
        claim = before = 0
        at: dict[bytes, int] = {}
        for message in self._reader().records(self._topic, start, committed=committed):
            by, number, *mark = (message.key() or b"").split(b" ")
            if mark and mark[0] == _ANEW:
                pieces, before = [], int(mark[1])
            claim = max(claim, int(by))
            at.setdefault(by + b" " + number, message.offset())
            pieces.append(message.value() or b"")
        return _Found(b"".join(pieces), before, claim, at)

    def _guarded(self, pieces: list[bytes], mark: bytes = b"") -> int:
        try:
            return self._commit(pieces, mark)
        except KafkaException as failure:
            raise self._refused(failure) from failure

    def _commit(self, pieces: list[bytes], mark: bytes = b"") -> int:
        """Write pieces in one transaction, until it is committed; the offset of the first. Raises Fenced, SourceError."""
        self._number += 1
        key = b"%d %d" % (self._claim, self._number)
        *others, last = pieces or [b""]
        keys = [key + mark, *[key] * len(others)]
        sent = [(self._topic, 0, Record(0, k, piece, [])) for k, piece in zip(keys, others, strict=False)]
        deadline = self._now() + self._patience
        while True:
            begun = self._now()
            try:
                if self._producer is None:
                    self._producer = self._settled()
                    found = self._scan(self._end).at.get(key)
                    if found is not None:
                        self._end = found + len(keys)
                        return found
                self._end = self._producer.commit(sent, lambda _: (self._topic, keys[-1], last))
                if not self._reader().is_shown(self._topic, self._end):
                    raise Ambiguous("a commit does not become visible")
                return self._end - len(keys)
            except Fenced as failure:
                if self._now() - begun < self._transaction_seconds:
                    raise self._lost() from failure
                reason: Exception = failure  # frozen so long that the broker itself ended it: whose it is is read
            except TooLarge as failure:
                raise self._error("a record of the topic of epochs is larger than the broker takes", bytes=failure.bytes,
                                  hint="raise max.message.bytes of the topic to 1048576") from failure  # fmt: skip
            except (Ambiguous, KafkaException) as failure:
                reason = failure
            self.close()
            if self._now() > deadline:
                raise self._error(f"the broker does not take the log of epochs: {reason}",
                                  hint="is Kafka in order? nothing of it was published") from reason  # fmt: skip
            time.sleep(_PAUSE)

    def _settled(self) -> Transactions:
        """A new producer after an end that nobody knows; whoever took over has written a claim first."""
        if self._scan(self._end, committed=False).claim > self._claim:
            raise self._lost()
        producer = self._fenced()
        if self._scan(self._end).claim > self._claim:
            raise self._lost()
        return producer

    def _lost(self) -> Fenced:
        return Fenced("another run has taken over the log of epochs", topic=self._topic,
                      hint="only one may run: this one has written nothing since")  # fmt: skip

    def _refused(self, failure: KafkaException) -> SourceError:
        reason = self._reasons.describe() or f": {failure.args[0].str()}"
        return self._error(f"Kafka does not take the log of epochs{reason}", brokers=self._config.get("bootstrap.servers", ""),
                           hint="start Kafka, or correct bootstrap.servers and the security settings")  # fmt: skip


@dataclass(frozen=True)
class _Found:
    """`at`: where the first record of each write lies, by its key."""

    data: bytes
    before: int
    claim: int
    at: Mapping[bytes, int]


def _pieces(data: bytes) -> list[bytes]:
    return [data[k : k + PIECE] for k in range(0, len(data), PIECE)]
