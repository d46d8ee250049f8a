"""Kafka as a sink: one compacted topic a view, written in transactions that carry the frontier, fenced by the broker.

Always: what a `read_committed` reader finds before the ends that a frontier record names is exactly that frontier's
epochs. A write is done once readers see it; whatever else becomes of one is settled by a new producer, which aborts what stands
open and reads the frontier back. Single writer: the sidecar's loop.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from connectors.durable import Reached, unwatched
from connectors.kafka import features, topics, transaction
from connectors.kafka import records as to_records
from connectors.kafka.client import Reasons, admin, merged
from connectors.kafka.readback import Readback
from connectors.kafka.records import Counts, Record
from connectors.kafka.standing import Ends, InError, Standing, decode, encode
from connectors.kafka.transaction import Ambiguous, TooLarge, Transactions
from connectors.sink import (
    EpochStamp,
    Fenced,
    Frontier,
    SinkAway,
    SinkError,
    SinkState,
    SinkView,
    ViewChanges,
    last_epoch,
)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
OLD_TRANSACTIONS = (
    "the cluster's transaction.version is below 2: its brokers do not guard against a late end of a transaction themselves; "
    "raise it with kafka-features.sh upgrade --feature transaction.version=2",
)


class KafkaSink:
    """Writes views to `<topic_prefix><view>` and frontiers to `<topic_prefix>frontier`, keyed by the sink's name.

    `config`: librdkafka's settings, untouched. `sidecar`: with `name` it makes the transactional.id, so it must be the
    same after a restart and different between deployments. `partitions`, `replication`: of topics made here (-1: the
    broker's default). `patience`: seconds within which the broker must answer.
    """

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        topic_prefix: str = "",
        *,
        sidecar: str = "headrace",
        format: str = "json",
        partitions: int = 1,
        replication: int = -1,
        patience: float = 30.0,
        program: str = "",
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
        reached: Reached = unwatched,
    ) -> None:
        self.name = name
        if format != "json":
            raise self._error("this format is not known", hint="write json", format=format)
        owned = {**transaction.OWNED, "transactional.id": f"headrace-{sidecar}-{name}"}
        self._config = {"client.id": f"headrace-{sidecar}-{name}", **config}
        self._settings = merged(self._config, owned, transaction.DEFAULTS, self._error)
        self._transaction_seconds = float(self._settings["transaction.timeout.ms"]) / 1000
        self._prefix, self._partitions, self._replication = topic_prefix, partitions, replication
        self._patience, self._program, self._sleep, self._now = patience, program, sleep, now
        self._reached = reached
        self._frontier_topic = f"{topic_prefix}frontier"
        self._reasons = Reasons()
        self._views: dict[str, SinkView] = {}
        self._counts: dict[str, Counts] = {}
        self._sizes: dict[str, int] = {}
        self._standing = Standing()
        self._admin: AdminClient | None = None
        self._producer: Transactions | None = None
        self.warnings: tuple[str, ...] = ()

    def _error(self, what: str, *, hint: str = "", **where: object) -> SinkError:
        return SinkError(what, hint=hint, sink=self.name, **where)

    def _topic(self, view: str) -> str:
        return f"{self._prefix}{view}"

    def open(self, views: Sequence[SinkView], held: int | None = None) -> SinkState:
        """See `Sink.open`. Also refuses a topic that holds records not written by this sink, or is not compacted."""
        self.close()
        names = [self._topic(v.name) for v in views]
        topics.check_names([*names, self._frontier_topic], self._error)
        if self._frontier_topic in names:
            raise self._error("this name is used by the sink itself", hint="rename the view", view="frontier")
        self._views = {v.name: v for v in views}
        self._admin = admin(self._config, self._error, self._reasons)
        wanted: dict[str, Mapping[str, str]] = dict.fromkeys(names, topics.COMPACT)
        wanted[self._frontier_topic] = topics.FRONTIER
        partitions = {**dict.fromkeys(names, self._partitions), self._frontier_topic: 1}
        try:
            self._sizes = topics.ensure(
                self._admin, wanted, partitions, self._replication, self._error, self._patience
            )  # fmt: skip
            if held is not None:
                self._check_owner(self._read_standing(committed=False), held)
            self._producer = self._fenced()
            before = self._read_standing() or Standing()
            if held is not None:
                self._check_owner(before, held)
            before, missing = self._missing(before)
            self._load_counts(before, missing)
            self._claim(before, held or 0)
        except KafkaException as failure:
            self._admin.poll(
                0
            )  # what its threads met (a refused password, a wrong certificate) is told only when asked
            self.close()
            raise self._unreachable(failure) from failure
        except SinkError:
            self.close()
            raise
        version = features.transaction_version(self._config)
        self.warnings = OLD_TRANSACTIONS if version is not None and version < 2 else ()
        errors = {name: e.error for name in self._views if (e := self._standing.errors.get(self._topic(name)))}
        return SinkState(self._standing.generation, self._standing.frontier, frozenset(missing), errors)

    def _fenced(self) -> Transactions:
        producer = Transactions(
            {**self._settings, "error_cb": self._reasons}, self._error, self._patience, self._reached
        )
        producer.fence()
        self._clear(producer)
        return producer

    def _clear(self, producer: Transactions) -> None:
        """No transaction of ours is open now. A broker that is killed between an end and its markers may take it for complete
        and never write them (seen of Kafka 4.3.0): our next end would be its too, after what follows it. No reader has seen
        it: it is aborted, and what the sink has is what it had before. Raises SinkError.
        """
        deadline = self._now() + self._patience
        while found := self._reader().left_open(self._sizes):
            ends = (self._read_standing() or Standing()).ends
            for (topic, partition), at in found.items():
                if at < ends.get(topic, {}).get(partition, 0):
                    raise self._error(
                        "the broker has lost the end of a transaction in one topic and not in another",
                        hint="delete the topics of this sink: they are written anew",
                        topic=topic, partition=partition, offset=at,
                    )  # fmt: skip
            if self._now() > deadline:
                raise self._refused("what it has ended stands open")
            producer.clear(found)

    def _claim(self, before: Standing, held: int) -> None:
        """Take the next generation, durably, so that an older instance finds out even before our first write. Where nobody knows
        whether it was taken it is not known by whom, and the next one is."""
        ours = {self._topic(v.name): before.views.get(self._topic(v.name)) for v in self._views.values()}
        retired = {topic: None for topic in before.views if topic not in ours}
        errors = {topic: error for topic, error in before.errors.items() if topic in ours}
        generation, deadline = max(before.generation, held) + 1, self._now() + self._patience
        while True:
            claimed = before.moved(generation=generation, views={**retired, **ours}, errors=errors)
            try:
                self._send_alone(claimed)
                break
            except (Ambiguous, TooLarge) as failure:
                self._drop()
                if isinstance(failure, TooLarge):
                    raise self._too_large(failure, None) from failure
                if self._now() > deadline:
                    raise self._refused(failure) from failure
            self._sleep(_FIRST_PAUSE)
            self._check_owner(self._read_standing(committed=False), generation)
            self._producer = self._fenced()
            found = self._read_standing() or Standing()
            if (found.generation, found.writes) not in [(s.generation, s.writes) for s in (before, claimed)]:
                raise Fenced("another generation writes to this sink", sink=self.name, now=found.generation)
            before, generation = replace(before, generation=found.generation, writes=found.writes), generation + 1
        self._standing = claimed
        self._reached("kafka claimed")

    def _send_alone(self, standing: Standing) -> None:
        assert self._producer is not None
        self._show(self._producer.commit([], lambda _: self._record(standing)))

    def _show(self, end: int) -> None:
        """Wait until readers see a commit, by where its frontier record ended. Raises Ambiguous."""
        try:
            seen = self._reader().is_shown(self._frontier_topic, end)
        except (KafkaException, SinkError) as failure:
            raise Ambiguous(str(failure)) from failure
        if not seen:
            raise Ambiguous("a commit does not become visible")

    def _record(self, standing: Standing) -> tuple[str, bytes, bytes]:
        return self._frontier_topic, self.name.encode(), encode(self.name, standing, self._program)

    def _read_standing(self, committed: bool = True) -> Standing | None:
        found = self._reader().last(self._frontier_topic, self.name.encode(), committed)
        return None if found is None else decode(found)

    def _reader(self) -> Readback:
        assert self._admin is not None
        return Readback(self._config, self._admin, self._error, self._patience)

    def _missing(self, before: Standing) -> tuple[Standing, set[str]]:
        """The views to be given whole; the standing forgets what it says of a topic that was cut or made anew."""
        missing, ends = set(), dict(before.ends)
        for view in self._views.values():
            topic = self._topic(view.name)
            if topic in ends and self._reader().went_back(topic, self._sizes[topic], ends[topic]):
                missing.add(view.name)
                del ends[topic]
            if topic not in before.views and self._reader().any_record(topic, self._sizes[topic]):
                raise self._error(
                    "the topic holds records that this sink did not write",
                    hint="choose another topic_prefix, or delete the topic", topic=topic, view=view.name,
                )  # fmt: skip
            if before.views.get(topic) != view.fingerprint:
                missing.add(view.name)
        return replace(before, ends=ends), missing

    def _load_counts(self, before: Standing, missing: set[str]) -> None:
        """How often each row of the keyless views is there, as their topics say; the rest are given whole."""
        self._counts = {name: Counts() for name in self._views}
        for view in self._views.values():
            if view.key is None and view.name not in missing:
                counts, topic = self._counts[view.name], self._topic(view.name)
                held = self._reader().live(topic, self._sizes[topic], before.ends.get(topic, {}), to_records.count_in)
                for key, count in held.items():
                    counts.add(to_records.digest(key), count)
                counts.keep()

    def write(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        """See `Sink.write`. Every epoch's own records are sent, in order of epochs."""
        if self._admin is None:
            raise self._error("the sink is not open")
        at = self._standing.frontier
        if at is not None and frontier.epoch < at.epoch:
            raise self._error("a frontier cannot go back", epoch=frontier.epoch, stands_at=at.epoch)
        counts = {
            name: Counts() if change.whole else self._counts.get(name, Counts()) for name, change in changes.items()
        }
        done = False
        try:
            sent = self._records(changes, frontier, stamps or {}, counts)
            filled = {self._topic(n): self._views[n].fingerprint for n, c in changes.items() if c.whole}
            marked = self._marked(errors or {}, changes)
            after = self._standing.moved(
                frontier=frontier, views={**self._standing.views, **filled}, errors=marked
            )  # fmt: skip
            self._commit(sent, after)
            done = True
        except KafkaException as failure:
            raise self._unreachable(failure) from failure
        finally:
            if not done:
                for count in counts.values():
                    count.forget()
        for name, count in counts.items():
            count.keep()
            self._counts[name] = count

    def _marked(self, errors: Mapping[str, str], changes: Mapping[str, ViewChanges]) -> dict[str, InError]:
        """The views in error after this write, by topic."""
        marked = dict(self._standing.errors)
        at = self._standing.frontier
        for name, error in errors.items():
            if name not in self._views:
                raise self._error("the sink was not opened with this view", view=name)
            was = marked.pop(self._topic(name), InError("", None if at is None else at.epoch))
            if error:
                marked[self._topic(name)] = InError(error, last_epoch(changes.get(name), was.epoch))
        return marked

    def _records(
        self, changes: Mapping[str, ViewChanges], frontier: Frontier, stamps: Mapping[int, EpochStamp],
        counts: Mapping[str, Counts],
    ) -> list[tuple[str, int, Record]]:  # fmt: skip
        sent = []
        for name in sorted(changes):
            view = self._views.get(name)
            if view is None:
                raise self._error("the sink was not opened with this view", view=name)
            change, topic = changes[name], self._topic(name)
            if change.whole:
                change = replace(change, epochs=change.epochs * 0 + frontier.epoch)
            made = list(to_records.records(self.name, view, change, stamps, counts[name]))
            if change.whole:
                held = self._reader().live(
                    topic, self._sizes[topic], self._standing.ends.get(topic, {}), to_records.digest
                )
                made = to_records.replacing(made, held, frontier.epoch, stamps.get(frontier.epoch))
            partition = 0 if self._sizes[topic] == 1 else -1
            sent += [(topic, partition, record) for record in made]
        return sent

    def _commit(self, sent: Sequence[tuple[str, int, Record]], after: Standing) -> None:
        """Commit until it is done: what became of an attempt that failed is settled before it is repeated."""
        deadline = self._now() + self._patience
        pause = _FIRST_PAUSE
        while True:
            producer = self._producer or self._settled()
            self._producer, begun = producer, self._now()
            if self._standing.writes == after.writes:
                return
            ended = after

            def last(ends: Ends) -> tuple[str, bytes, bytes]:
                nonlocal ended
                known = self._standing.ends
                ended = replace(after, ends={**known, **{t: {**known.get(t, {}), **e} for t, e in ends.items()}})
                return self._record(ended)

            try:
                self._show(producer.commit(sent, last))
                self._standing = ended
                return
            except Fenced as failure:
                if self._now() - begun < self._transaction_seconds:
                    raise Fenced(failure.what, hint=failure.hint, sink=self.name) from failure
                reason: Exception = failure  # frozen so long that the broker itself ended it: whose the sink is is read
                self._drop()
            except TooLarge as failure:
                self._drop()
                raise self._too_large(failure, after.frontier) from failure
            except Ambiguous as failure:
                reason = failure
                self._drop()
            if self._now() > deadline:
                raise self._refused(reason) from reason
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _settled(self) -> Transactions:
        """A new producer after an ambiguous end; our standing is what the topic says, which may be one write on.

        An instance that took over has written its generation first: it is looked for before we fence anybody.
        """
        self._check_owner(self._read_standing(committed=False), self._standing.generation)
        producer = self._fenced()
        found = self._read_standing()
        self._check_owner(found, self._standing.generation)
        if found is None or found.writes not in (self._standing.writes, self._standing.writes + 1):
            raise self._error(
                "the frontier topic was changed by something else than this sink: it went back, or is gone",
                hint="the views are compared and mended by themselves", topic=self._frontier_topic,
            )  # fmt: skip
        self._standing = found
        return producer

    def _check_owner(self, found: Standing | None, held: int) -> None:
        if found is not None and found.generation > held:
            raise Fenced(
                "another generation writes to this sink", sink=self.name, generation=held, now=found.generation
            )

    def _unreachable(self, failure: KafkaException) -> SinkAway:
        reason = self._reasons.describe() or f": {failure.args[0].str()}"
        return SinkAway(
            f"Kafka does not take it{reason}",
            hint="start Kafka, or correct bootstrap.servers and the security settings; nothing is lost meanwhile",
            sink=self.name,
            brokers=self._config.get("bootstrap.servers", ""),
        )

    def _refused(self, reason: object) -> SinkAway:
        return SinkAway(f"the broker does not take the write: {reason}", hint="is Kafka in order?", sink=self.name)

    def _too_large(self, failure: TooLarge, at: Frontier | None) -> SinkError:
        return self._error(
            "a row is larger than a message may be",
            hint="raise max.message.bytes of the topic and message.max.bytes of the sink's `kafka:`",
            topic=failure.topic, bytes=failure.bytes, epoch=None if at is None else at.epoch,
        )  # fmt: skip

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaException):
                producer.close()

    def close(self) -> None:
        """See `Sink.close`."""
        self._drop()
        self._admin = None
