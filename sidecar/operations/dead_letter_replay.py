"""`headrace deadletters replay`: records that were set aside are read again, and what they change is taken in where it is
still the last word on its row.

Always: a record that a later one of its key follows, or a TRUNCATE, or a later snapshot, changes nothing any more; taken in
twice it changes what it changed once. So only records of tables with a key are. Asked for through the host; the runtime
attends to it between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

import numpy as np

from headrace.connectors.changes import MessageBatch, TableChanges
from headrace.connectors.commit_place import CommitPlace
from headrace.connectors.dead_letters import DeadLetter, DeadLetterError, DeadLetterQueue
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.intake.table_upserts import upserts
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.state.synthetic_transactions import injected
from headrace.sidecar.transactions.model import Resync, Transaction
from headrace.sidecar.transactions.partial import RowRange

APPLIED, SUPERSEDED = "applied", "superseded"

ReadTopic = Callable[[str, int, int, int], Sequence[MessageBatch]]
"""(topic, partition, first offset, offset to stop before) → the messages between."""


class ReplayRefused(HeadraceError):
    """A dead letter cannot be taken in."""

    code = "undecodable"


@dataclass
class DeadLetterReplay:
    """A background job: one letter. `told`: called once, with APPLIED as soon as a sink holds what it brought, with
    SUPERSEDED, or with an error."""

    letter: DeadLetter
    intake: Intake
    read: ReadTopic
    executor: Executor
    told: Callable[[str | HeadraceError], None]
    _stop: int = -1
    _reading: Future[Sequence[MessageBatch]] | None = None
    _meanwhile: bool = False
    _bound: int | None = None
    _mine: Resync | None = None

    def on_bound(self, transactions: Iterable[tuple[int, Transaction]]) -> None:
        """These are in now, each at its epoch."""
        for epoch, transaction in transactions:
            if transaction is self._mine:
                self._bound = epoch
            self._meanwhile |= any(s.changes.table == self.letter.table for s in transaction.slices)

    def advance(self, runtime: Runtime) -> bool:
        """Go on as far as it goes now: all that is bound is in; whether that was all."""
        try:
            found = self._attend(runtime)
        except HeadraceError as error:
            self.told(error)
            return True
        if found is not None:
            self.told(found)
        return found is not None

    def _attend(self, runtime: Runtime) -> str | None:
        letter = self.letter
        if self._mine is not None:
            return APPLIED if self._bound is not None and runtime.published(self._bound) else None
        if runtime.parts.reclock.replaying is not None or runtime.hold:
            return None
        if self.intake.schemas[letter.table].key is None:
            raise ReplayRefused("a record of a table without a key could be taken in twice", table=letter.table,
                                hint="`headrace resync` the table, then discard the letter")  # fmt: skip
        if any(stop.table == letter.table for stop in self.intake.assembler.stops):
            raise ReplayRefused(
                "the table is suspended", table=letter.table, hint="mend what `headrace status` names first"
            )
        if self._reading is None:
            here, ends = (
                at.get(letter.topic, {}) for at in (self.intake.positions(), self.intake.source.high_watermarks())
            )
            self._stop = here.get(letter.partition, 0)
            if self._stop <= letter.offset < ends.get(letter.partition, 0):
                return None  # its own transaction is not whole yet
            self._meanwhile = False
            place = (letter.topic, letter.partition, letter.offset, self._stop)
            self._reading = self.executor.submit(self.read, *place)
        if not self._reading.done():
            return None
        messages = self._reading.result()
        if self._meanwhile:
            self._reading = None  # what came meanwhile may be of the same row
            return None
        change = self._change(messages)
        if change is None:
            return SUPERSEDED
        at = runtime.sources[self.intake.name]
        self._mine = self._transaction(change, at.place, int(runtime.parts.wall() * 1e6))
        self.intake.injected.append(self._mine)
        return None

    def _change(self, messages: Sequence[MessageBatch]) -> TableChanges | None:
        """What the letter changes now, None for nothing any more. Raises ReplayRefused."""
        letter = self.letter
        found: list[TableChanges] = []
        for run in messages:
            keep = [i for i, k in enumerate(run.keys) if k is None or k == letter.key]
            decoded = self.intake.as_declared(self.intake.format.decode(run.at(keep)))
            for bad in decoded.undecodable:
                if bad.offset == letter.offset:
                    raise ReplayRefused(f"the record still cannot be decoded: {bad.reason}", table=letter.table,
                                        topic=letter.topic, partition=letter.partition, offset=letter.offset,
                                        hint=bad.hint or "correct the declaration and start again")  # fmt: skip
            found += [c for c in decoded.changes if c.table == letter.table and len(c)]
        own = [c.take(np.flatnonzero(c.offsets == letter.offset)) for c in found]
        own = [c for c in own if len(c)]
        if not own:
            raise ReplayRefused("the record is not in its topic any more", topic=letter.topic, partition=letter.partition,
                                offset=letter.offset, hint="`headrace resync` the table, then discard the letter")  # fmt: skip
        if any(_later(changes, own[-1]).any() for changes in found):
            return None
        outlived = self.intake.assembler.outlived(own[0])
        if outlived:
            return None
        if outlived is None:
            raise ReplayRefused("the record is too old to be told from what a TRUNCATE or a later snapshot took away",
                                table=letter.table, offset=letter.offset,
                                hint="`headrace resync` the table, then discard the letter")  # fmt: skip
        if any(m.any() for m in own[0].unchanged.values()):
            raise ReplayRefused("the record does not bring all of its row", table=letter.table, offset=letter.offset,
                                hint="`headrace resync` the table, then discard the letter")  # fmt: skip
        return own[0]

    def _transaction(self, changes: TableChanges, place: CommitPlace, commit_us: int) -> Resync:
        schema: Schema = self.intake.schemas[changes.table]
        given = Resync(place, commit_us, (RowRange(changes, 0, len(changes)),), table=changes.table, whole=False)
        rows = upserts([(1, given)], {changes.table: schema})[changes.table]
        return injected(changes.table, rows.rows, rows.kinds, place, commit_us, whole=False, letter=self.letter.id)


def _later(changes: TableChanges, own: TableChanges) -> np.ndarray:
    """Which of these events come after a given one. Copies of it, and of earlier events that a connector sends again, do not."""
    lsn, order = own.lsns[-1], own.orders[-1]
    newer = (changes.lsns > lsn) | ((changes.lsns == lsn) & (changes.orders > order))
    later: np.ndarray = (changes.offsets > own.offsets[-1]) & (newer | (changes.snapshot > 1))
    return later


def by_id(letters: DeadLetterQueue, ids: Sequence[str], source: str | None = None) -> list[DeadLetter]:
    """The letters so named, all of them where no name is given. Raises DeadLetterError for one that is not there."""
    there = {letter.id: letter for letter in letters.read() if source is None or letter.source == source}
    missing = sorted(set(ids) - there.keys())
    if missing:
        raise DeadLetterError("no such dead letter", letter=missing[0], hint="`headrace deadletters list` names them")
    return [letter for id_, letter in there.items() if not ids or id_ in ids]
