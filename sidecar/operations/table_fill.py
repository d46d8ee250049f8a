"""A table that a running sidecar begins to read gets its rows from files that a Spark job wrote, as one epoch.

Always: the job hears of every change of the table, from the first on, so that it knows which of them the files have already: what
came later than the files stands. Once nobody waits for the files any more it ends: the sidecar reads the table of a database by
itself, and that of a publisher waits for another load. `headrace load` asks for it over the control channel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.commit_place import CommitPlace, Version
from headrace.connectors.sink import SourceFrontier
from headrace.engine.batch.updates import INSERT, RETRACT, TRUNCATE, UPSERT, Int64s, UInt8s
from headrace.engine.schema import Schema
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.execution.table_traces import table_traces
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.intake.table_upserts import rows_here
from headrace.sidecar.operations.resync import Report, ResyncError, TableJob, text_lines
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.state.batch_places import Batches
from headrace.sidecar.state.batch_store import BatchFile, load_batches
from headrace.sidecar.state.synthetic_transactions import injected
from headrace.sidecar.transactions.model import Resync, Transaction

Rows = Callable[[Schema], pa.RecordBatch]
"""Gives the rows that were read, on another thread. Raises HeadraceError."""


@dataclass(frozen=True)
class Changes:
    """Changes of a table, in their order: the number of its commit's place, the kind, and the row of each, of a table with a key
    only its key's columns. `partial`: a value of one was not sent."""

    lsns: Int64s
    kinds: UInt8s
    rows: pa.RecordBatch
    partial: bool = False


@dataclass(frozen=True)
class Lacked:
    """What a table lacks: `rows` in order, `kinds` one each, `keys` the text of each row's key. `whole`: with them it is as its
    source has it."""

    rows: pa.RecordBatch
    kinds: UInt8s
    keys: pa.LargeStringArray | None = None
    whole: bool = True


def lacked(schema: Schema, loaded: pa.RecordBatch, lsn: int, changes: Sequence[Changes]) -> Lacked:
    """What a table that began empty, and has had these changes since, lacks of the rows `loaded` as of `lsn`."""
    if schema.key is None:
        found = _of_multiset(loaded, [_cut(c, c.lsns <= lsn) for c in changes])
    else:
        keys = text_lines(_keys_of(schema), loaded.select(list(schema.key)))
        found = Lacked(loaded, np.full(loaded.num_rows, UPSERT, np.uint8), keys)
    return without(schema, found, [_cut(c, c.lsns > lsn) for c in changes])


def without(schema: Schema, found: Lacked, later: Sequence[Changes]) -> Lacked:
    """The same without what later changes have set, or taken away."""
    if any((c.kinds == TRUNCATE).any() for c in later):
        return Lacked(found.rows.slice(0, 0), found.kinds[:0])
    later = [c for c in later if len(c.kinds)]
    if found.keys is None or not later:
        return found
    since = [text_lines(_keys_of(schema), c.rows) for c in later]
    stays = pc.invert(pc.is_in(found.keys, value_set=pa.chunked_array(since)))
    kept = found.rows.filter(stays)
    whole = found.whole and not any(c.partial for c in later)
    return Lacked(kept, found.kinds[: kept.num_rows], found.keys.filter(stays), whole)


def _of_multiset(loaded: pa.RecordBatch, before: Sequence[Changes]) -> Lacked:
    """The rows that were loaded, without those that had come by the stream until then."""
    for at in range(len(before) - 1, -1, -1):
        gone = np.flatnonzero(before[at].kinds == TRUNCATE)
        if len(gone):
            before = [_cut(before[at], np.arange(len(before[at].kinds)) > gone[-1]), *before[at + 1 :]]
            break
    rows = pa.Table.from_batches([loaded, *(c.rows for c in before)], loaded.schema).combine_chunks().to_batches()
    flipped = [np.where(c.kinds == INSERT, RETRACT, INSERT).astype(np.uint8) for c in before]
    kinds = np.concatenate([np.full(loaded.num_rows, INSERT, np.uint8), *flipped])
    return Lacked(rows[0] if rows else loaded, kinds)


def _cut(changes: Changes, mask: np.ndarray) -> Changes:
    return Changes(changes.lsns[mask], changes.kinds[mask], changes.rows.filter(pa.array(mask)), changes.partial)


def _keys_of(schema: Schema) -> Schema:
    return Schema(tuple(schema.columns[k] for k in schema.key or ()))


@dataclass
class TableFill(TableJob):
    """A background job: one table is filled. `give` and `leave` are called by any thread."""

    _bound_since: list[Transaction] = field(default_factory=list)
    _changes: list[Changes] = field(default_factory=list)
    _given: tuple[CommitPlace, Rows] | None = None
    _left: bool = False
    _merging: Future[tuple[int, Lacked]] | None = None
    _done: tuple[CommitPlace, int, Lacked] | None = None
    _mine: Resync | None = None
    _bound: int | None = None
    _intake: Intake | None = None

    def give(self, place: CommitPlace, rows: Rows) -> None:
        """The rows as of `place` are there."""
        self._given = place, rows

    def leave(self) -> None:
        """Nobody waits for it any more."""
        self._left = True

    def on_bound(self, transactions: Iterable[tuple[int, Transaction]]) -> None:
        """These are in now, each at its epoch."""
        for epoch, transaction in transactions:
            if transaction is self._mine:
                self._bound = epoch
            elif self._done is None and any(s.changes.table == self.table for s in transaction.slices):
                self._bound_since.append(transaction)

    def _note(self, flow: Flow, schema: Schema) -> None:
        """Keep of the transactions that were bound since the last turn what they changed in the table."""
        transactions, self._bound_since = self._bound_since, []
        found = rows_here(flow, list(enumerate(transactions)), self.table, schema)
        if found is None:
            return
        lsns = np.array([t.place.order for t in transactions], np.int64)[found.epochs]
        rows = found.rows if schema.key is None else found.rows.select(list(schema.key))
        copied = rows.take(pa.array(np.arange(rows.num_rows)))  # what was decoded beside it is let go
        unsent = any(m.any() for m in found.unchanged.values())
        self._changes.append(Changes(lsns, found.kinds, copied, unsent))

    def _attend(self, runtime: Runtime) -> bool:
        if self._done is not None:
            return self._look(runtime)
        if self._left:
            raise ResyncError("nobody waits for the rows any more", table=self.table,
                              hint="`headrace status` says what becomes of the table")  # fmt: skip
        self._intake = intake = self._intake or next(
            (i for i in runtime.parts.intakes if self.table in i.schemas), None
        )
        if intake is not None:
            self._note(runtime.parts.flow, intake.schemas[self.table])
        if intake is None or self._given is None or runtime.hold or runtime.parts.reclock.replaying is not None:
            return False
        if any(stop.table == self.table for stop in intake.assembler.stops):
            raise ResyncError("the table is suspended", table=self.table,
                              hint="mend what `headrace status` names first")  # fmt: skip
        (place, rows), at = self._given, runtime.sources.get(intake.name)
        here = _stands(place, at)
        if here is None:
            return False
        lsn = place.order
        if self._merging is None:
            schema = intake.schemas[self.table]
            self._merging = self.executor.submit(partial(_merged, schema, lsn, rows), tuple(self._changes))
            self._changes.clear()  # those that come until it is done are later than the rows
        if not self._merging.done():
            return False
        count, found = self._merging.result()
        found = without(intake.schemas[self.table], found, self._changes)
        whole = found.whole and intake.lost.lacking(self.table) <= lsn
        self._done = place, count, found
        now = int(runtime.parts.wall() * 1e6)
        self._mine = injected(self.table, found.rows, found.kinds, here, now, whole=whole)
        intake.injected.append(self._mine)
        return False

    def _look(self, runtime: Runtime) -> bool:
        """Tell it once a sink holds it."""
        assert self._done is not None, "the caller looked"
        if self._bound is None or not runtime.published(self._bound):
            return False
        place, count, found = self._done
        gone = int((found.kinds == RETRACT).sum())
        self.told(Report(self.table, place, count, len(found.kinds) - gone, 0, gone, self._bound))
        return True


def _stands(place: CommitPlace, at: SourceFrontier | None) -> CommitPlace | None:
    """Where the source stands once it has the rows as of `place`; None where it must come there first. A version that files hold
    is not published."""
    if isinstance(place, Version):
        return place if at is None else max(at.place, place)
    return None if at is None or at.place < place else at.place


def _merged(schema: Schema, lsn: int, rows: Rows, changes: Sequence[Changes]) -> tuple[int, Lacked]:
    """How many rows were read, and what of them the table lacks."""
    loaded = rows(schema)
    return loaded.num_rows, lacked(schema, loaded, lsn, changes)


def loaded_rows(place: Batches, table: str, files: Sequence[BatchFile], schema: Schema) -> pa.RecordBatch:
    """All rows of a load's batches. Raises CheckpointError for one that is missing or altered."""
    (name, layout), _ = table_traces(table, schema)
    batches = load_batches({name: files}, place, {name: layout})[name]
    rows = [b.payload.take(pa.array(np.repeat(b.positions, b.diffs))) for b in batches if len(b)]
    whole = pa.Table.from_batches(rows, schema.arrow).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=schema.arrow)
