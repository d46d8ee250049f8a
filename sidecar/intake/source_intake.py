"""Source intake: polls one source, decodes its messages, and assembles transactions.

Invariant: each record becomes part of a transaction or a dead letter, or suspends its table, or is an error. Nothing here
looks at rows one by one. The runtime calls it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headrace.connectors.changes import (
    Decoded,
    Format,
    HeartbeatRow,
    MessageBatch,
    TransactionMark,
    Undecodable,
    VersionEnd,
)
from headrace.connectors.commit_place import CommitPlace, Lsn, Version
from headrace.connectors.dead_letters import DeadLetter, DeadLetterQueue
from headrace.connectors.formats.topic_names import table_topic
from headrace.connectors.sink import SourceFrontier
from headrace.connectors.source import Positions, Source, SourceError
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema
from headrace.sidecar.epochs.source_batch import SourceBatch
from headrace.sidecar.intake.enum_labels import undeclared
from headrace.sidecar.intake.heartbeats import HeartbeatChain
from headrace.sidecar.intake.passed_records import PassedRecords
from headrace.sidecar.intake.schema_drift import SchemaDrift, fitted
from headrace.sidecar.intake.shard_answers import DecodedRun
from headrace.sidecar.intake.unused_data import Unread
from headrace.sidecar.state.spill import Spill
from headrace.sidecar.transactions.model import Assembler, ContinuityError, SourceTransaction, Transaction
from headrace.sidecar.transactions.pg_snapshot import Loaded
from headrace.sidecar.transactions.snapshot_barrier import SnapshotBarrier
from headrace.sidecar.transactions.splitting import ROWS, portions
from headrace.sidecar.transactions.suspended_tables import SuspendedTable

HELD_SECONDS = 0.001
"""How long a poll waits while transactions that are here wait for nothing but an answer."""
REMEDY = "then start again, or name the record under `skip:` of the source to go on without it"


class UndecodableError(HeadraceError):
    """A record could not become a change; its table stops there, or all of its source where no table is known (guarantee P5)."""

    code = "undecodable"


@dataclass
class IntakeCounts:
    """What went through an intake since it was opened. Times in seconds."""

    events: int = 0
    bytes: int = 0
    runs: int = 0
    decode_seconds: float = 0.0
    newest_message_ms: int = 0


@dataclass
class Intake:
    """One source's door: its transport, its format, its assembler. Single writer: the runtime.

    `tables_at`: topic → the declared tables whose records stand in it. `over`: the records that are passed over. `schemas`:
    of the tables that are subscribed; `lost`: their columns that records no longer have. `beats`: the source's heartbeats.
    `letters`: where records of the tables `lettered` go that cannot be decoded, `put`: how many did. `spill`: what waits
    beyond its limit lies on disk; transactions are given in portions of `portion_rows`. `injected`: transactions of our own,
    to be given next, before any other. `barrier`: that of the assembler. `furthest`: the greatest LSN (version for Spark)
    that a record told, whatever became of it; -1 for none. `loaded`: the snapshot that the tables were filled from, of which
    nothing is to be taken in again.
    """

    name: str
    kind: str
    source: Source
    format: Format
    assembler: Assembler
    subscribed: frozenset[str]
    clock: Callable[[], float] = time.perf_counter
    counts: IntakeCounts = field(default_factory=IntakeCounts)
    unread: Callable[[Intake], Sequence[Unread]] = lambda _: ()
    tables_at: Mapping[str, frozenset[str]] = field(default_factory=dict)
    over: PassedRecords = field(default_factory=lambda: PassedRecords(""))
    prefix: str = ""
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    lost: SchemaDrift = field(default_factory=lambda: SchemaDrift(""))
    beats: HeartbeatChain = field(default_factory=lambda: HeartbeatChain(""))
    injected: list[Transaction] = field(default_factory=list)
    letters: DeadLetterQueue | None = None
    lettered: frozenset[str] = frozenset()
    put: Counter[str] = field(default_factory=Counter)
    barrier: SnapshotBarrier | None = None
    wall: Callable[[], float] = time.time
    spill: Spill | None = None
    portion_rows: int = ROWS
    furthest: int = -1
    loaded: Loaded | None = None
    _quiet: frozenset[str] = frozenset()
    _failed: HeadraceError | None = None

    @property
    def places(self) -> type[CommitPlace]:
        """What tells where a commit of this source stands."""
        return Version if self.kind == "spark" else Lsn

    def poll(self, timeout: float) -> bool:
        """Take in what arrived within `timeout` seconds; whether anything did.

        Raises UndecodableError for a record that cannot be decoded and that no one table can stop for, and SourceError
        for what is not of one table's topic.
        """
        if self._failed is not None:
            raise self._failed
        try:
            polled = self.source.poll(min(timeout, HELD_SECONDS) if self.barrier else timeout)
        except SourceError as error:
            self._meet_break(error)
            return True
        for messages in polled:
            self.take(messages)
        return bool(polled)

    def settle(self) -> None:
        """Take in what was read ahead of `poll`, as tables are about to be declared otherwise. Raises as `poll` does, and has the
        loop's next `poll` raise it too."""
        try:
            for messages in self.source.rest():
                self.take(messages)
        except HeadraceError as error:
            self._failed = error
            raise

    def take(self, messages: MessageBatch) -> None:
        """Decode one run of messages, unless a worker has, and hand it to the assembler."""
        away = messages if isinstance(messages, DecodedRun) else None
        self.counts.runs += 1
        self.counts.events += len(messages) if away is None else away.events
        newest = away.newest_ms if away is not None else int(messages.timestamps[-1]) if len(messages) else 0
        self.counts.newest_message_ms = max(self.counts.newest_message_ms, newest)
        if messages.topic in self._quiet:
            return
        if away is None:
            started = self.clock()
            decoded = self.format.decode(messages).timed(messages)
            self.counts.decode_seconds += self.clock() - started
        else:
            decoded = away.decoded
            self.counts.decode_seconds += away.seconds
        for bad in self._set_aside(self.over.unknown(decoded.undecodable, self.assembler), messages):
            self._meet(bad)
        for bad in self.over.unknown(away.unfit, self.assembler) if away is not None else ():
            self._meet(bad)
        for mark in decoded.marks:
            if isinstance(mark, HeartbeatRow):
                self.beats.met(mark)
            elif isinstance(mark, TransactionMark | VersionEnd):
                self.furthest = max(self.furthest, mark.lsn if isinstance(mark, TransactionMark) else mark.version)
        self.furthest = max([self.furthest, *(int(c.lsns.max()) for c in decoded.changes if len(c))])
        if self.over:
            rest = [self.over.without(c, self.assembler, self._place_of) for c in decoded.changes]
            decoded = replace(decoded, changes=rest)
        decoded = self._of_labels(self.as_declared(decoded))
        if self.spill is not None:
            decoded = replace(decoded, changes=[self.spill.take(c) for c in decoded.changes])
        self.assembler.accept(decoded)

    def _set_aside(self, undecodable: Sequence[Undecodable], messages: MessageBatch) -> Sequence[Undecodable]:
        """Make dead letters of the records that may be, durably; the others. Raises DeadLetterError.

        A record whose envelope cannot be read is none: its transaction would wait for it forever.
        """
        if self.letters is None or not undecodable:
            return undecodable
        taken = [b for b in undecodable if b.event is not None and b.table in self.lettered & self.subscribed]
        if not taken:
            return undecodable
        at = {offset: i for i, offset in enumerate(messages.offsets.tolist())}
        now = int(self.wall() * 1000)
        self.letters.keep([
            DeadLetter(
                self.name, b.table or "", b.topic, b.partition, b.offset, b.reason, b.hint,
                -1 if b.event is None else b.event.lsn, now, messages.keys[at[b.offset]], messages.values[at[b.offset]],
            )
            for b in taken
        ])  # fmt: skip
        for bad in taken:
            self.put[bad.table or ""] += 1
            self.over.pass_over(bad, self.assembler)
        return [b for b in undecodable if b not in taken]

    def as_declared(self, decoded: Decoded) -> Decoded:
        """`decoded` without what no longer fits the tables; notes columns that are lost, stops tables whose key is.

        Raises SchemaChanged where a table's policy is to fail.
        """
        for lost in decoded.lost:
            if lost.table in self.subscribed:
                self.lost.met(lost)
        changed = {}
        for at, changes in enumerate(decoded.changes):
            schema = self.schemas.get(changes.table)
            if schema is None or changes.kept is not None:  # a worker has seen to it
                continue
            changed[at], unfit, broken = fitted(changes, schema)
            if broken is not None:
                self._meet(broken)
            for lost in unfit:
                self.lost.met(lost)
        if not changed:
            return decoded
        return replace(decoded, changes=[changed.get(at, c) for at, c in enumerate(decoded.changes)])

    def _of_labels(self, decoded: Decoded) -> Decoded:
        """`decoded` without rows whose enum has a value that is not declared: their tables stop."""
        changed = {}
        for at, changes in enumerate(decoded.changes):
            schema = self.schemas.get(changes.table)
            if schema is None or changes.kept is not None or not any(c.type.labels for c in schema.columns):
                continue
            if found := list(undeclared(changes, schema)):
                for _, bad in found:
                    self._meet(bad)
                changed[at] = changes.take(np.setdiff1d(np.arange(len(changes)), [row for row, _ in found]))
        if not changed:
            return decoded
        return replace(decoded, changes=[changed.get(at, c) for at, c in enumerate(decoded.changes)])

    def add_table(self, table: str, schema: Schema, partitions: Sequence[str], precisions: Mapping[str, int]) -> None:
        """Take a table in, which was not read before. Called by the loop."""
        at = {topic: set(tables) for topic, tables in self.tables_at.items()}
        for name in (table, *partitions):
            at.setdefault(table_topic(self.prefix, name), set()).add(table)
        self.tables_at = {topic: frozenset(tables) for topic, tables in at.items()}
        self.schemas, self.subscribed = {**self.schemas, table: schema}, self.subscribed | {table}
        self.assembler.add_table(table, partitions, schema)
        self.format.add_table(table, schema, partitions, precisions)

    def redeclare(self, table: str, schema: Schema, precisions: Mapping[str, int], added: Sequence[str]) -> None:
        """A table that is read has other columns from now on; views that name one of `added` wait until it is read anew. Called
        by the loop."""
        self.schemas = {**self.schemas, table: schema}
        self.format.add_table(table, schema, (), precisions)
        self.lost.redeclared(table, schema, added, self.furthest)

    def add_partition(self, partition: str, topic: str, table: str) -> None:
        """Take a partition in: its records, in `topic`, are those of a table that is read. Called by the loop."""
        self.tables_at = {**self.tables_at, topic: self.tables_at.get(topic, frozenset()) | {table}}
        self.assembler.add_partition(partition, table)
        self.format.add_partition(partition, table)

    def complete(self) -> list[Transaction]:
        """The transactions that became whole; tables with a bad record stop here. Raises ContinuityError where the log has one
        that never will be: it was bound while a table was suspended, and its connector sent no more of it."""
        here = self.source.positions() if self.assembler.stops else {}
        for stop in self.assembler.stops:
            bad = stop.record
            stop.reached |= here.get(bad.topic, {}).get(bad.partition, 0) > bad.offset
        if self.spill is not None and self.spill.full and not self.assembler.pending_positions():
            self.spill.nothing_waits()
        if self.barrier is not None:
            self.barrier.advance()
        given, self.injected = self.injected, []
        out = [*given, *(p for t in self.assembler.complete() for p in portions(t, self.portion_rows))]
        if self.loaded is not None:
            out = [self.loaded.rest(t) for t in out]
        if not self.barrier and (overdue := self.assembler.overdue) >= 0 and self.source.at_end():
            what = "a transaction that the log has lacks events, and a later snapshot has come"
            raise ContinuityError(what, source=self.name, upto=overdue, hint="start with an empty state folder")
        self.over.passed.difference_update(*(t.supplied for t in out if isinstance(t, SourceTransaction)))
        self._quiet = frozenset()
        if self.assembler.stops:
            self._settle()
        return out

    def _settle(self) -> None:
        """Note from where stopped tables must be read again, and which topics nobody reads meanwhile."""
        here, idle = self.source.positions(), set()
        for stop in self.assembler.stops:
            idle |= {stop.table} if stop.backlog is None else set()
            if not stop.settled:
                stop.settled = True
                for topic in self._topics_of(stop):
                    for partition, offset in here.get(topic, {}).items():
                        stop.holds.setdefault((topic, partition), offset)
        self._quiet = frozenset(
            t for t, tables in self.tables_at.items() if tables & idle == tables & self.subscribed != set()
        )

    def _topics_of(self, stop: SuspendedTable) -> set[str]:
        return {stop.record.topic} | {topic for topic, tables in self.tables_at.items() if stop.table in tables}

    def resume_holds(self, positions: Positions) -> None:
        """The tables that were suspended are read again from `positions`."""
        for stop in self.assembler.stops:
            stop.settled = True
            for topic in self._topics_of(stop):
                stop.holds |= {(topic, partition): offset for partition, offset in positions.get(topic, {}).items()}

    def resume_positions(self, positions: Positions) -> Positions:
        """`positions`, but those of stopped tables where they must be read again: a sink does not reflect more."""
        out = {topic: dict(partitions) for topic, partitions in positions.items()}
        for stop in self.assembler.stops:
            for topic in self._topics_of(stop) & out.keys():
                held = {p: stop.holds.get((topic, p)) for p in out[topic]}
                out[topic] = {p: min(o, h) for p, o in out[topic].items() if (h := held[p]) is not None}
        return out

    def batch(self, transactions: Sequence[Transaction]) -> SourceBatch:
        """These transactions, just completed, with what their binding must say."""
        positions = self.positions()
        resumed, passed = self.resume_positions(positions), frozenset(self.over.passed)
        self.over.passed = {(t, p, o) for t, p, o in passed if o >= resumed.get(t, {}).get(p, 0)}
        return SourceBatch(
            source=self.name, transactions=transactions, positions=positions, resume_positions=resumed, passed=passed
        )

    def lags(self) -> dict[tuple[str, int], int]:
        """Messages that are there and not read yet, by topic and partition, as far as the source knows."""
        here, ends = self.source.positions(), self.source.high_watermarks()
        return {(t, p): max(0, end - here.get(t, {}).get(p, 0)) for t, ps in ends.items() for p, end in ps.items()}

    def lag(self) -> int:
        """Messages that are there and not read yet."""
        return sum(self.lags().values())

    def _meet(self, bad: Undecodable) -> None:
        """Stop the tables that a record may be of; raise where that is not enough."""
        tables = self.tables_at.get(bad.topic) if bad.table is None else frozenset((bad.table,))
        if tables is not None and not tables & self.subscribed:
            return
        place = (bad.topic, bad.partition, bad.offset)
        if place in self.over.wanted():
            here = self.subscribed if tables is None else tables & self.subscribed
            self.over.note(place, sorted(here), self._place_of(-1 if bad.event is None else bad.event.lsn))
            self.over.pass_over(bad, self.assembler)
            return
        named = ", ".join(sorted(tables or ())) or None
        hint = bad.hint or "mend the record's producer, or leave the table out of the source"
        error = UndecodableError(
            bad.reason, source=self.name, table=named, topic=bad.topic, partition=bad.partition, offset=bad.offset,
            hint=hint if tables is None else f"{hint}; {REMEDY}",
        )  # fmt: skip
        stopped = [self.assembler.stop(t, bad, str(error)) for t in sorted((tables or frozenset()) & self.subscribed)]
        if tables is None or not all(stopped):
            raise error

    def _place_of(self, lsn: int) -> CommitPlace:
        """The place of a record's commit; where it tells none (-1), the furthest that was told."""
        return self.places(lsn if lsn >= 0 else self.furthest)

    def _meet_break(self, error: SourceError) -> None:
        """A table's topic cannot be read on (gone, made anew, records lost): the tables in it stop, the others go on."""
        topic = error.where.get("topic")
        tables = self.tables_at.get(topic) if isinstance(topic, str) else None
        if tables is None or not isinstance(topic, str):
            raise error
        partition, offset = error.where.get("partition", 0), error.where.get("offset", 0)
        assert isinstance(partition, int)
        assert isinstance(offset, int)
        bad = Undecodable(None, topic, partition, offset, error.what, error.hint)
        stopped = [self.assembler.stop(t, bad, str(error)) for t in sorted(tables & self.subscribed)]
        if not all(stopped):
            raise error

    def positions(self) -> Positions:
        """Where to read on from, once everything that the assembler gave so far is in."""
        held = self.assembler.pending_positions()
        return {
            topic: {p: min(offset, held.get((topic, p), offset)) for p, offset in partitions.items()}
            for topic, partitions in self.source.positions().items()
        }


def as_read(sources: Mapping[str, SourceFrontier], intakes: Sequence[Intake]) -> dict[str, SourceFrontier]:
    """`sources` once the log was followed to its end and all that was given is in: its positions may be behind that, as
    tables were suspended that are so no more."""
    here = {i.name: i.resume_positions(i.positions()) for i in intakes}
    return {name: replace(at, positions=here.get(name, at.positions)) for name, at in sources.items()}
