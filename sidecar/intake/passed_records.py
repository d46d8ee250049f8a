"""Records of a source that are passed over: those that the user names under `skip:`, and those that the log's transactions lack.

Invariant: a record is passed over only where it cannot be decoded or is a leaf's TRUNCATE, or where the log has its transaction
without it; any other record at such a place is taken. The command log has a record before its transaction is bound. The source's
intake asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from headrace.connectors.changes import LATER, Event, TableChanges, Undecodable
from headrace.connectors.commands import Skip
from headrace.connectors.commit_place import CommitPlace
from headrace.engine.batch.updates import TRUNCATE, Bools
from headrace.sidecar.state.command_log import CommandLog
from headrace.sidecar.transactions.partial import Place
from headrace.sidecar.transactions.partition_truncates import is_of_leaf


class Skips(Protocol):
    """What is told of a record that is passed over."""

    def skip(self, record: Undecodable, *, known: bool = False) -> None:
        """See `Assembler.skip`."""


@dataclass
class PassedRecords:
    """`skip`: records to be passed over; `skipped`: those that were; `before`: by an earlier run, each with the id of its topic.
    `known`: what was passed over in transactions that the log has, and is again, whether it can be decoded by now or not;
    `passed`: what was, and is not told to the log yet, or would be read again. `topic_ids`: of the topics as they are now."""

    source: str
    topic_ids: Callable[[], Mapping[str, str]] = dict
    commands: CommandLog = field(default_factory=CommandLog)
    skip: frozenset[Place] = frozenset()
    before: Mapping[Place, str] = field(default_factory=dict)
    known: frozenset[Place] = frozenset()
    skipped: list[Place] = field(default_factory=list)
    passed: set[Place] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.skip or self.known or self.before)

    def pass_over(self, record: Undecodable, assembler: Skips) -> None:
        """The record counts as here, and changes nothing."""
        place = (record.topic, record.partition, record.offset)
        self.passed.add(place)
        assembler.skip(record, known=place in self.known)

    def unknown(self, undecodable: Sequence[Undecodable], assembler: Skips) -> Sequence[Undecodable]:
        """Pass over the records that the log's transactions lack; the others."""
        if not self.known:
            return undecodable
        known = [b for b in undecodable if (b.topic, b.partition, b.offset) in self.known]
        for bad in known:
            self.pass_over(bad, assembler)
        return [b for b in undecodable if b not in known]

    def without(self, changes: TableChanges, assembler: Skips, place_of: Callable[[int], CommitPlace]) -> TableChanges:
        """A run without the TRUNCATEs that the user names under `skip:` (of one partition: they can be read, and do not tell
        whose rows go), and without what the log's transactions are without, which can be read by now.

        Any other record at such a place is taken: it was mended, or the topic was made anew and has another there. `place_of`:
        of a record's LSN. Raises CommandsError.
        """

        def named(places: frozenset[Place]) -> Bools:
            at = [offset for *place, offset in places if place == [changes.topic, changes.partition]]
            return np.isin(changes.offsets, at)

        found, wanted = named(self.known), self.wanted()
        if is_of_leaf(changes.topic, changes.table):
            found |= named(wanted) & (changes.kinds == TRUNCATE)
        for at in np.flatnonzero(found).tolist():
            place = (changes.topic, changes.partition, int(changes.offsets[at]))
            if place in wanted:
                self.note(place, (changes.table,), place_of(int(changes.lsns[at])))
            order = int(changes.orders[at]) if changes.metadata[at] else -1
            event = Event(int(changes.transactions[at]), order, int(changes.lsns[at]), bool(changes.snapshot[at] == 1))
            sent = LATER if changes.sent_ms is None else int(changes.sent_ms[at])
            self.pass_over(Undecodable(changes.table, *place, "", event=event, sent_ms=sent), assembler)
        return changes.take(np.flatnonzero(~found)) if found.any() else changes

    def wanted(self) -> frozenset[Place]:
        """Records to be passed over: those of the configuration, and those that an earlier run passed over in these topics."""
        if not self.before:
            return self.skip
        ids = self.topic_ids()
        return self.skip | {place for place, id_ in self.before.items() if ids.get(place[0], "") == id_}

    def note(self, place: Place, tables: Sequence[str], at: CommitPlace) -> None:
        """A record of these tables is passed over at the user's word, `at` the commit that it is of. Raises CommandsError."""
        self.skipped.append(place)
        topic, partition, offset = place
        id_ = self.topic_ids().get(topic, "")
        self.commands.keep(*(
            Skip(source=self.source, table=t, place=at, topic=topic, topic_id=id_, partition=partition, offset=offset)
            for t in tables
        ))  # fmt: skip
