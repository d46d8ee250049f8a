"""From messages to upserts: one `Intake` a source (poll, decode, assemble), and `upserts`, which lays the rows of bound
transactions out table by table, epoch by epoch, as the engine takes them.

Always: rows of a table go in (epoch, order in the transaction) order; a truncate stands where its transaction put it.
Nothing here looks at a row one by one. The runtime calls it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from connectors.changes import Decoded, Format, Messages, TableChanges, Undecodable
from connectors.letters import Letter, Letters
from connectors.source import Positions, Source, SourceError
from engine.batch.payload import take_rows
from engine.batch.updates import DELETE, Int64s, Upserts
from engine.errors import HeadraceError
from engine.schema import Schema
from sidecar.lost import Lost, unlike, without
from sidecar.pending import Slice
from sidecar.portions import ROWS, portions
from sidecar.spill import Spill
from sidecar.stops import Stop
from sidecar.transactions import Assembler, Transaction
from sidecar.unread import Unread

REMEDY = "then start again, or name the record under `skip:` of the source to go on without it"

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""
TableErrors = Mapping[int, Mapping[str, Mapping[str, int]]]
"""Epoch → table → message → change of multiplicity."""


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
    decoded; `skipped`: those that were. `schemas`: of the tables that are subscribed; `lost`: their columns that records
    no longer have. `letters`: where records of the tables `lettered` go that cannot be decoded, `put`: how many did.
    `spill`: what waits beyond its limit lies on disk; transactions are given in portions of `portion_rows`. `injected`:
    transactions of our own, to be given next, before any other.
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
    schemas: Mapping[str, Schema] = field(default_factory=dict)
    lost: Lost = field(default_factory=lambda: Lost(""))
    injected: list[Transaction] = field(default_factory=list)
    letters: Letters | None = None
    lettered: frozenset[str] = frozenset()
    put: Counter[str] = field(default_factory=Counter)
    wall: Callable[[], float] = time.time
    spill: Spill | None = None
    portion_rows: int = ROWS
    _quiet: frozenset[str] = frozenset()

    def poll(self, timeout: float) -> bool:
        """Take in what arrived within `timeout` seconds; whether anything did.

        Raises UndecodableError for a record that cannot be decoded and that no one table can stop for, and SourceError
        for what is not of one table's topic.
        """
        try:
            polled = self.source.poll(timeout)
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
        decoded = self.format.decode(messages)
        self.counts.decode_seconds += self.clock() - started
        for bad in self._set_aside(decoded.undecodable, messages):
            self._meet(bad)
        decoded = self.as_declared(decoded)
        if self.spill is not None:
            decoded = replace(decoded, changes=[self.spill.take(c) for c in decoded.changes])
        self.assembler.accept(decoded)

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
            self.assembler.skip(bad)
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
        """The transactions that became whole; tables with a bad record stop here."""
        here = self.source.positions() if self.assembler.stops else {}
        for stop in self.assembler.stops:
            bad = stop.record
            stop.reached |= here.get(bad.topic, {}).get(bad.partition, 0) > bad.offset
        if self.spill is not None and self.spill.full and not self.assembler.pending_positions():
            self.spill.nothing_waits()
        given, self.injected = self.injected, []
        out = [*given, *(p for t in self.assembler.complete() for p in portions(t, self.portion_rows))]
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

    def lag(self) -> int:
        """Messages that are there and not read yet, as far as the source knows."""
        here = self.source.positions()
        ends = self.source.high_watermarks()
        return sum(max(0, end - here.get(t, {}).get(p, 0)) for t, ps in ends.items() for p, end in ps.items())

    def _meet(self, bad: Undecodable) -> None:
        """Stop the tables that a record may be of; raise where that is not enough."""
        tables = self.tables_at.get(bad.topic) if bad.table is None else frozenset((bad.table,))
        if tables is not None and not tables & self.subscribed:
            return
        place = (bad.topic, bad.partition, bad.offset)
        if place in self.skip:
            self.skipped.append(place)
            self.assembler.skip(bad)
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


def upserts(bound: Iterable[tuple[int, Transaction]], schemas: Mapping[str, Schema]) -> dict[str, Upserts]:
    """The upserts of each table in `schemas` that the bound (epoch, transaction) pairs change."""
    by_table: dict[str, list[tuple[int, Slice]]] = {}
    for epoch, transaction in bound:
        for s in transaction.slices:
            table = s.changes.table
            parts = by_table.get(table)
            if parts is None:
                by_table[table] = [(epoch, s)]
            else:
                parts.append((epoch, s))
    return {t: _table_upserts(parts, schemas[t]) for t, parts in by_table.items() if t in schemas}


class Feedable(Protocol):
    """What takes changes in: a `Flow`, or a dataflow that follows it."""

    def push(self, table: str, upserts: Upserts) -> None:
        """Changes of a table, of epochs that are not complete, in their order."""

    def push_errors(self, table: str, errors: Mapping[str, int], epoch: int) -> None:
        """Changes of a table's own errors at `epoch`: message → change of multiplicity."""


def push(flow: Feedable, changes: Mapping[str, Upserts], errors: TableErrors) -> None:
    """Give a dataflow what its next step takes in."""
    for table, rows in changes.items():
        flow.push(table, rows)
    for epoch, tables in errors.items():
        for table, told in tables.items():
            flow.push_errors(table, told, epoch)


def _table_upserts(parts: Sequence[tuple[int, Slice]], schema: Schema) -> Upserts:
    """The slices of one table, which are of one run and already in their order, or of several, to be put in it."""
    run, low, _ = parts[0][1]
    high, lane = low, []
    for epoch, (changes, start, stop) in parts:
        if changes is not run or start != high:
            return _sorted_upserts(parts, schema)
        lane += [epoch] * (stop - start)
        high = stop
    epochs = np.array(lane, np.int64)
    orders = run.orders[low:high]
    if not ((orders[1:] >= orders[:-1]) | (epochs[1:] != epochs[:-1])).all():
        return _sorted_upserts(parts, schema)
    rows, kinds = _conform(run.rows, schema), run.kinds[low:high]
    if high - low < len(run):
        # a small part of a large run is copied, and the run let go of
        most = 2 * (high - low) >= len(run)
        rows = rows.slice(low, high - low) if most else take_rows(rows, np.arange(low, high))
    unchanged = _unchanged([run], schema)
    moved = None if run.moved is None else _fill_from(kinds, epochs, run.moved[low:high])
    return Upserts(rows, epochs, kinds, {c: m[low:high] for c, m in unchanged.items()}, moved)


def _sorted_upserts(parts: Sequence[tuple[int, Slice]], schema: Schema) -> Upserts:
    chunks: dict[int, tuple[TableChanges, int]] = {}
    base = 0
    for _, s in parts:
        if id(s.changes) not in chunks:
            chunks[id(s.changes)] = (s.changes, base)
            base += len(s.changes)
    lengths = np.fromiter((s.stop - s.start for _, s in parts), np.int64, len(parts))
    starts = np.fromiter((chunks[id(s.changes)][1] + s.start for _, s in parts), np.int64, len(parts))
    epochs = np.repeat(np.fromiter((e for e, _ in parts), np.int64, len(parts)), lengths)
    positions = np.arange(len(epochs)) + np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    changes = [c for c, _ in chunks.values()]
    orders = _lane(changes, "orders")[positions]
    sort = np.lexsort((orders, epochs))
    positions, epochs, orders = positions[sort], epochs[sort], orders[sort]
    rows = _rows(changes, schema)
    if len(positions) != rows.num_rows or not (positions[1:] == positions[:-1] + 1).all():
        rows = take_rows(rows, positions)
    kinds = _lane(changes, "kinds")[positions]
    unchanged = {c: m[positions] for c, m in _unchanged(changes, schema).items()}
    if all(c.moved is None for c in changes):
        return Upserts(rows, epochs, kinds, unchanged)
    moved = np.concatenate([c.moved if c.moved is not None else np.zeros(len(c), np.bool_) for c in changes])[positions]
    return Upserts(rows, epochs, kinds, unchanged, _fill_from(kinds, epochs, moved))


def _fill_from(kinds: np.ndarray, epochs: Int64s, moved: np.ndarray) -> Int64s | None:
    """For each moved row, the delete just before it in its epoch; None where no row moved."""
    if not moved.any():
        return None
    deletes = np.where(kinds == DELETE, np.arange(len(kinds)), -1)
    last = np.maximum.accumulate(deletes)
    same = (last >= 0) & (epochs[np.maximum(last, 0)] == epochs)
    return np.where(moved & same, last, -1).astype(np.int64)


def _lane(changes: Sequence[TableChanges], name: str) -> np.ndarray:
    return np.concatenate([getattr(c, name) for c in changes]) if len(changes) > 1 else getattr(changes[0], name)


def _rows(changes: Sequence[TableChanges], schema: Schema) -> pa.RecordBatch:
    """The rows of all runs in the table's lanes: columns by name; added ones are left out, missing ones are null."""
    batches = [_conform(c.rows, schema) for c in changes]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _conform(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    if rows.schema.equals(schema.arrow):
        return rows
    columns = []
    for column in schema.columns:
        at = rows.schema.get_field_index(column.name)
        columns.append(
            rows.column(at).cast(column.type.arrow) if at >= 0 else pa.nulls(rows.num_rows, column.type.arrow)
        )
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _unchanged(changes: Sequence[TableChanges], schema: Schema) -> dict[int, np.ndarray]:
    """Masks by column position of the table's schema, one entry a row of all runs."""
    if not any(c.unchanged for c in changes):
        return {}
    columns = {c.rows.schema.field(i).name for c in changes for i in c.unchanged}
    out = {}
    for name in columns & set(schema.names):
        lanes = []
        for c in changes:
            at = c.rows.schema.get_field_index(name)
            lanes.append(c.unchanged.get(at, np.zeros(len(c), np.bool_)))
        out[schema.position(name)] = np.concatenate(lanes)
    return out
