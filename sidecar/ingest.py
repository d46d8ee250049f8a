"""From messages to transactions: one `Intake` a source polls, decodes and assembles.

Always: a record becomes part of a transaction, or a dead letter, or stops its table, or is an error. Nothing here looks at
a row one by one. The runtime calls it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from connectors.changes import (
    LATER,
    Beat,
    Decoded,
    Event,
    Format,
    Messages,
    TableChanges,
    TransactionMark,
    Undecodable,
    VersionMark,
)
from connectors.letters import Letter, Letters
from connectors.sink import SourceFrontier
from connectors.source import Positions, Source, SourceError
from engine.batch.updates import TRUNCATE, Bools
from engine.errors import HeadraceError
from engine.schema import Schema
from sidecar.beats import Beats
from sidecar.leaves import is_of_leaf
from sidecar.lost import Lost, unlike, without
from sidecar.lulls import Lulls
from sidecar.pending import Place, Slice
from sidecar.portions import ROWS, portions
from sidecar.spill import Spill
from sidecar.stops import Stop
from sidecar.transactions import Assembler, ContinuityError, Transaction
from sidecar.unread import Unread

HELD_SECONDS = 0.001
"""How long a poll waits while transactions that are here wait for nothing but an answer."""
REMEDY = "then start again, or name the record under `skip:` of the source to go on without it"


class UndecodableError(HeadraceError):
    """A record could not become a change; its table stops there, or all of its source where no table is known (P5)."""

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

    `tables_at`: topic → the declared tables whose records stand in it. `skip`: records to be passed over if they cannot be
    decoded, or are a leaf's TRUNCATE; `skipped`: those that were. `known`: what was passed over in transactions that the log has,
    and is again, whether it can be decoded by now or not; `passed`: what was, and is not told to the log yet, or would be read
    again. `schemas`: of the tables that are subscribed; `lost`: their columns that records no longer have. `beats`: the source's
    heartbeats. `letters`: where records of the tables `lettered` go that cannot be decoded, `put`: how many did.
    `spill`: what waits beyond its limit lies on disk; transactions are given in portions of `portion_rows`. `injected`:
    transactions of our own, to be given next, before any other. `lulls`: those of the assembler. `furthest`: the greatest LSN
    (version for Spark) that a record told, whatever became of it; -1 for none.
    """

    name: str
    kind: str
    source: Source
    format: Format
    assembler: Assembler
    subscribed: frozenset[str]
    clock: Callable[[], float] = time.perf_counter
    counts: IntakeCounts = field(default_factory=IntakeCounts)
    unread: Callable[[], Sequence[Unread]] = tuple
    tables_at: Mapping[str, frozenset[str]] = field(default_factory=dict)
    skip: frozenset[Place] = frozenset()
    skipped: list[Place] = field(default_factory=list)
    known: frozenset[Place] = frozenset()
    passed: set[Place] = field(default_factory=set)
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    lost: Lost = field(default_factory=lambda: Lost(""))
    beats: Beats = field(default_factory=lambda: Beats(""))
    injected: list[Transaction] = field(default_factory=list)
    letters: Letters | None = None
    lettered: frozenset[str] = frozenset()
    put: Counter[str] = field(default_factory=Counter)
    lulls: Lulls | None = None
    wall: Callable[[], float] = time.time
    spill: Spill | None = None
    portion_rows: int = ROWS
    furthest: int = -1
    _quiet: frozenset[str] = frozenset()

    def poll(self, timeout: float) -> bool:
        """Take in what arrived within `timeout` seconds; whether anything did.

        Raises UndecodableError for a record that cannot be decoded and that no one table can stop for, and SourceError
        for what is not of one table's topic.
        """
        try:
            polled = self.source.poll(min(timeout, HELD_SECONDS) if self.lulls else timeout)
        except SourceError as error:
            self._meet_break(error)
            return True
        for messages in polled:
            self.take(messages)
        return bool(polled)

    def take(self, messages: Messages) -> None:
        """Decode one run of messages and hand it to the assembler."""
        self.counts.runs += 1
        self.counts.events += len(messages)
        if len(messages):
            self.counts.newest_message_ms = max(self.counts.newest_message_ms, int(messages.timestamps[-1]))
        if messages.topic in self._quiet:
            return
        started = self.clock()
        decoded = self.format.decode(messages).timed(messages)
        self.counts.decode_seconds += self.clock() - started
        for bad in self._set_aside(self._unknown(decoded.undecodable), messages):
            self._meet(bad)
        for mark in decoded.marks:
            if isinstance(mark, Beat):
                self.beats.met(mark)
            elif isinstance(mark, TransactionMark | VersionMark):
                self.furthest = max(self.furthest, mark.lsn if isinstance(mark, TransactionMark) else mark.version)
        self.furthest = max([self.furthest, *(int(c.lsns.max()) for c in decoded.changes if len(c))])
        if self.skip or self.known:
            decoded = replace(decoded, changes=[self._passed_over(c) for c in decoded.changes])
        decoded = self.as_declared(decoded)
        if self.spill is not None:
            decoded = replace(decoded, changes=[self.spill.take(c) for c in decoded.changes])
        self.assembler.accept(decoded)

    def _unknown(self, undecodable: Sequence[Undecodable]) -> Sequence[Undecodable]:
        """Pass over the records that the log knows; the others."""
        if not self.known:
            return undecodable
        known = [b for b in undecodable if (b.topic, b.partition, b.offset) in self.known]
        for bad in known:
            self._pass_over(bad)
        return [b for b in undecodable if b not in known]

    def _pass_over(self, record: Undecodable) -> None:
        place = (record.topic, record.partition, record.offset)
        self.passed.add(place)
        self.assembler.skip(record, known=place in self.known)

    def _set_aside(self, undecodable: Sequence[Undecodable], messages: Messages) -> Sequence[Undecodable]:
        """Make dead letters of the records that may be, durably; the others. Raises LettersError.

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
            Letter(
                self.name, b.table or "", b.topic, b.partition, b.offset, b.reason, b.hint,
                -1 if b.event is None else b.event.lsn, now, messages.keys[at[b.offset]], messages.values[at[b.offset]],
            )
            for b in taken
        ])  # fmt: skip
        for bad in taken:
            self.put[bad.table or ""] += 1
            self._pass_over(bad)
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
            if schema is None or changes.rows.schema.equals(schema.arrow):
                continue
            unfit = unlike(changes, schema)
            key = {schema.names[k] for k in schema.key or range(len(schema.names))}
            broken = next((lost for lost in unfit if lost.column in key), None)
            changed[at] = replace(changes, rows=without(changes.rows, schema, [c.column for c in unfit]))
            if broken is not None:
                place = (changes.topic, changes.partition, broken.offset)
                self._meet(Undecodable(changes.table, *place, broken.reason, broken.hint))
                changed[at] = changes.take(np.empty(0, np.int64))
                continue
            for lost in unfit:
                self.lost.met(lost)
        if not changed:
            return decoded
        return replace(decoded, changes=[changed.get(at, c) for at, c in enumerate(decoded.changes)])

    def complete(self) -> list[Transaction]:
        """The transactions that became whole; tables with a bad record stop here. Raises ContinuityError where the log has one
        that never will be: it was bound while a table stood still, and its connector sent no more of it."""
        here = self.source.positions() if self.assembler.stops else {}
        for stop in self.assembler.stops:
            bad = stop.record
            stop.reached |= here.get(bad.topic, {}).get(bad.partition, 0) > bad.offset
        if self.spill is not None and self.spill.full and not self.assembler.pending_positions():
            self.spill.nothing_waits()
        if self.lulls is not None:
            self.lulls.attend()
        given, self.injected = self.injected, []
        out = [*given, *(p for t in self.assembler.complete() for p in portions(t, self.portion_rows))]
        if not self.lulls and (overdue := self.assembler.overdue) >= 0 and self.source.at_end():
            what = "a transaction that the log has lacks events, and a later snapshot has come"
            raise ContinuityError(what, source=self.name, upto=overdue, hint="start with an empty state folder")
        self.passed.difference_update(*(t.supplied for t in out))
        self._quiet = frozenset()
        if self.assembler.stops:
            self._settle()
        return out

    def _settle(self) -> None:
        """Note whence stopped tables must be read again, and which topics nobody reads meanwhile."""
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

    def _topics_of(self, stop: Stop) -> set[str]:
        return {stop.record.topic} | {topic for topic, tables in self.tables_at.items() if stop.table in tables}

    def resume_holds(self, positions: Positions) -> None:
        """The tables that stood still are read again from `positions`."""
        for stop in self.assembler.stops:
            stop.settled = True
            for topic in self._topics_of(stop):
                stop.holds |= {(topic, partition): offset for partition, offset in positions.get(topic, {}).items()}

    def held(self, positions: Positions) -> Positions:
        """`positions`, but those of stopped tables where they must be read again: a sink does not reflect more."""
        out = {topic: dict(partitions) for topic, partitions in positions.items()}
        for stop in self.assembler.stops:
            for topic in self._topics_of(stop) & out.keys():
                held = {p: stop.holds.get((topic, p)) for p in out[topic]}
                out[topic] = {p: min(o, h) for p, o in out[topic].items() if (h := held[p]) is not None}
        return out

    def told(self, positions: Positions) -> tuple[Positions, Callable[[Slice, int], Sequence[Slice]], frozenset[Place]]:
        """What a binding says beside `positions`, and what it must know: see `Reclock.bind`."""
        held, passed = self.held(positions), frozenset(self.passed)
        self.passed = {(t, p, o) for t, p, o in passed if o >= held.get(t, {}).get(p, 0)}
        return held, self.assembler.standing, passed

    def lags(self) -> dict[tuple[str, int], int]:
        """Messages that are there and not read yet, by topic and partition, as far as the source knows."""
        here, ends = self.source.positions(), self.source.high_watermarks()
        return {(t, p): max(0, end - here.get(t, {}).get(p, 0)) for t, ps in ends.items() for p, end in ps.items()}

    def lag(self) -> int:
        """Messages that are there and not read yet."""
        return sum(self.lags().values())

    def _passed_over(self, changes: TableChanges) -> TableChanges:
        """A run without the TRUNCATEs that the user names under `skip:` (of one partition: they can be read, and do not tell
        whose rows go), and without what the log's transactions are without, which can be read by now.

        Any other record at such a place is taken: it was mended, or the topic was made anew and has another there.
        """

        def named(places: frozenset[Place]) -> Bools:
            at = [offset for *place, offset in places if place == [changes.topic, changes.partition]]
            return np.isin(changes.offsets, at)

        found = named(self.known)
        if is_of_leaf(changes.topic, changes.table):
            found |= named(self.skip) & (changes.kinds == TRUNCATE)
        for at in np.flatnonzero(found).tolist():
            place = (changes.topic, changes.partition, int(changes.offsets[at]))
            if place in self.skip:
                self.skipped.append(place)
            order = int(changes.orders[at]) if changes.metadata[at] else -1
            event = Event(int(changes.transactions[at]), order, int(changes.lsns[at]), bool(changes.snapshot[at] == 1))
            sent = LATER if changes.sent_ms is None else int(changes.sent_ms[at])
            self._pass_over(Undecodable(changes.table, *place, "", event=event, sent_ms=sent))
        return changes.take(np.flatnonzero(~found)) if found.any() else changes

    def _meet(self, bad: Undecodable) -> None:
        """Stop the tables that a record may be of; raise where that is not enough."""
        tables = self.tables_at.get(bad.topic) if bad.table is None else frozenset((bad.table,))
        if tables is not None and not tables & self.subscribed:
            return
        place = (bad.topic, bad.partition, bad.offset)
        if place in self.skip:
            self.skipped.append(place)
            self._pass_over(bad)
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
    tables stood still that stand no more."""
    here = {i.name: i.held(i.positions()) for i in intakes}
    return {name: replace(at, positions=here.get(name, at.positions)) for name, at in sources.items()}
