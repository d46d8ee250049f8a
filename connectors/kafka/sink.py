"""Kafka as a sink: one compacted topic a view, written in transactions that carry the frontier, fenced by the broker.

Always: what a `read_committed` reader finds before the ends that a frontier record names is exactly that frontier's
epochs. A write is done once readers see it; whatever else becomes of one is settled by a new producer, which aborts what stands
open and reads the frontier back. Single writer: the sidecar's loop.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.connectors.kafka import features, topics, transactional_producer
from headrace.connectors.kafka import records as to_records
from headrace.connectors.kafka.client import Reasons, admin, merged
from headrace.connectors.kafka.frontier_record import Ends, FrontierRecord, InError, decode, encode
from headrace.connectors.kafka.readback import Readback
from headrace.connectors.kafka.records import Counts, Record
from headrace.connectors.kafka.sink_errors import not_taken, too_large, unreachable
from headrace.connectors.kafka.transactional_producer import Ambiguous, TooLarge, Transactions
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
from headrace.connectors.step_hooks import Reached, unwatched

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
OLD_TRANSACTIONS = (
    "the cluster's transaction.version is below 2: its brokers do not guard against a late end of a transaction themselves; "
    "raise it with kafka-features.sh upgrade --feature transaction.version=2",
)


class KafkaSink:
    """Writes views to `<topic_prefix><view>` and frontiers to `<topic_prefix>frontier`, keyed by the sink's name.

    `config`: librdkafka's settings, untouched. `sidecar` and `name` make the transactional.id: the same after a restart,
    different between deployments. `partitions`, `replication`: of topics made here (-1: the broker's default). `patience`:
    seconds within which the broker must answer. `each`: each epoch has records of its own; otherwise all epochs of a write are
    one range, and its records have the last epoch.
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
        each: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
        reached: Reached = unwatched,
    ) -> None:
        self.name = name
        if format != "json":
            raise self._error("this format is not known", hint="write json", format=format)
        owned = {**transactional_producer.OWNED, "transactional.id": f"headrace-{sidecar}-{name}"}
        self._config = {"client.id": f"headrace-{sidecar}-{name}", **config}
        self._settings = merged(self._config, owned, transactional_producer.DEFAULTS, self._error)
        self._transaction_seconds = float(self._settings["transaction.timeout.ms"]) / 1000
        self._prefix, self._partitions, self._replication = topic_prefix, partitions, replication
        self._patience, self._program, self._sleep, self._now = patience, program, sleep, now
        self._reached, self._each = reached, each
        self._frontier_topic = f"{topic_prefix}frontier"
        self._reasons = Reasons()
        self._views: dict[str, SinkView] = {}
        self._counts: dict[str, Counts] = {}
        self._sizes: dict[str, int] = {}
        self._standing = FrontierRecord()
        self._run = uuid.uuid4().hex
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
            before = self._read_standing() or FrontierRecord()
            if held is not None:
                self._check_owner(before, held)
            before, missing = self._missing(before)
            self._load_counts(before, missing)
            self._claim(before, held or 0)
        except KafkaException as failure:
            # what its threads met (a refused password, a wrong certificate) is told only when asked
            self._admin.poll(0)
            self.close()
            raise unreachable(failure, self._reasons, self.name, self._config) from failure
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
            ends = (self._read_standing() or FrontierRecord()).ends
            for (topic, partition), at in found.items():
                if at < ends.get(topic, {}).get(partition, 0):
                    raise self._error(
                        "the broker has lost the end of a transaction in one topic and not in another",
                        hint="delete the topics of this sink: they are written anew",
                        topic=topic, partition=partition, offset=at,
                    )  # fmt: skip
            if self._now() > deadline:
                raise not_taken("what it has ended stands open", self.name)
            producer.clear(found)

    def _claim(self, before: FrontierRecord, held: int) -> None:
        """Take the next generation, durably, so that an older instance finds out even before our first write. What became of
        a claim whose end is unknown is read back: the record names our run."""
        ours = {self._topic(v.name): before.views.get(self._topic(v.name)) for v in self._views.values()}
        retired = {topic: None for topic in before.views if topic not in ours}
        errors = {topic: error for topic, error in before.errors.items() if topic in ours}
        generation, deadline = max(before.generation, held) + 1, self._now() + self._patience
        claimed = before.moved(generation=generation, run=self._run, views={**retired, **ours}, errors=errors)
        while True:
            try:
                self._send_alone(claimed)
                break
            except (Ambiguous, TooLarge) as failure:
                self._drop()
                if isinstance(failure, TooLarge):
                    raise too_large(failure, self.name, None) from failure
                if self._now() > deadline:
                    raise not_taken(failure, self.name) from failure
            self._sleep(_FIRST_PAUSE)
            self._check_owner(self._read_standing(committed=False), generation + 1)
            self._is_taken(claimed, before)  # whoever has claimed since is not fenced by us
            self._producer = self._fenced()
            if self._is_taken(claimed, before):
                break
        self._standing = claimed
        self._reached("kafka claimed")

    def _is_taken(self, claimed: FrontierRecord, before: FrontierRecord) -> bool:
        """Whether our claim stands; if not, what was there `before` does. Raises Fenced where neither does."""
        found = self._read_standing() or FrontierRecord()
        if found.place not in (claimed.place, before.place):
            raise self._fenced_by(found, claimed.generation)
        return found.place == claimed.place

    def _send_alone(self, standing: FrontierRecord) -> None:
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

    def _record(self, standing: FrontierRecord) -> tuple[str, bytes, bytes]:
        return self._frontier_topic, self.name.encode(), encode(self.name, standing, self._program)

    def _read_standing(self, committed: bool = True) -> FrontierRecord | None:
        found = self._reader().last(self._frontier_topic, self.name.encode(), committed)
        return None if found is None else decode(found)

    def _reader(self) -> Readback:
        assert self._admin is not None
        return Readback(self._config, self._admin, self._error, self._patience)

    def _missing(self, before: FrontierRecord) -> tuple[FrontierRecord, set[str]]:
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

    def _load_counts(self, before: FrontierRecord, missing: set[str]) -> None:
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
        """See `Sink.write`. Records are sent in order of epochs."""
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
            first = min(1 if at is None else at.epoch + 1, frontier.epoch)
            sent = self._records(changes, range(first, frontier.epoch + 1), stamps or {}, errors or {}, counts)
            filled = {self._topic(n): self._views[n].fingerprint for n, c in changes.items() if c.whole}
            marked = self._marked(errors or {}, changes)
            after = self._standing.moved(
                frontier=frontier, first=first, views={**self._standing.views, **filled}, errors=marked
            )  # fmt: skip
            self._commit(sent, after)
            done = True
        except KafkaException as failure:
            raise unreachable(failure, self._reasons, self.name, self._config) from failure
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
        self, changes: Mapping[str, ViewChanges], write: range, stamps: Mapping[int, EpochStamp],
        errors: Mapping[str, str], counts: Mapping[str, Counts],
    ) -> list[tuple[str, int, Record]]:  # fmt: skip
        """The records of a write of these epochs, each to its topic and partition."""
        sent = []
        for name in sorted(changes):
            view = self._views.get(name)
            if view is None:
                raise self._error("the sink was not opened with this view", view=name)
            change, topic = changes[name], self._topic(name)
            at, firsts = write[-1], {e: s.first for e, s in stamps.items() if s.first is not None} if self._each else {}
            as_one = change.whole or not self._each
            consolidated = not as_one or not len(change.epochs) or bool(change.epochs[0] == change.epochs[-1])
            if as_one:
                if errors.get(name) and not change.whole:
                    at = last_epoch(change, at) or at  # it stands there from now on
                change, firsts = replace(change, epochs=change.epochs * 0 + at), {at: write[0]}
                stamps = {**stamps, at: stamps.get(at) or stamps[max(stamps)]} if stamps else {}
            made = list(to_records.records(
                self.name, view, change, stamps, firsts, counts[name], consolidated=consolidated
            ))  # fmt: skip
            if change.whole:
                held = self._reader().live(
                    topic, self._sizes[topic], self._standing.ends.get(topic, {}), to_records.digest
                )
                made = to_records.replacing(made, held, write[0], at, stamps.get(at))
            partition = 0 if self._sizes[topic] == 1 else -1
            sent += [(topic, partition, record) for record in made]
        return sent

    def _commit(self, sent: Sequence[tuple[str, int, Record]], after: FrontierRecord) -> None:
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
                raise too_large(failure, self.name, after.frontier) from failure
            except Ambiguous as failure:
                reason = failure
                self._drop()
            if self._now() > deadline:
                raise not_taken(reason, self.name) from reason
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _settled(self) -> Transactions:
        """A new producer after a write whose end is unknown; what we stand at is read from the topic, which may be one write
        ahead.

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

    def _check_owner(self, found: FrontierRecord | None, held: int) -> None:
        """Raise Fenced where another run has claimed the generation that we held, or a later one. A later claim of our own is one
        whose answer was lost."""
        if found is not None and found.generation >= held and found.run != self._run:
            raise self._fenced_by(found, held)

    def _fenced_by(self, found: FrontierRecord, held: int) -> Fenced:
        return Fenced("another generation writes to this sink", sink=self.name, generation=held, now=found.generation)

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaException):
                producer.close()

    def close(self) -> None:
        """See `Sink.close`."""
        self._drop()
        self._admin = None
