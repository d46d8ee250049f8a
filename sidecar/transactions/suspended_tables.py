"""Suspended tables: a record that cannot be decoded stops its table, while the others of the source go on.

Invariant: nothing of a suspended table is given. It counts what later transactions have of the table (missed events) and
keeps the positions to read it again from. A restart reads from there; once everything that was missed is here, it becomes one
later transaction (decision 23), or the table stays suspended. Debezium's assembler owns it and alone writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headrace.connectors.changes import TableChanges, Undecodable
from headrace.sidecar.transactions.initial_snapshot import Snapshot
from headrace.sidecar.transactions.partial import PartialTransaction, RowRange, first_copies

Holds = dict[tuple[str, int], int]
"""(topic, partition) → the offset to read on from."""


class Backlog:
    """Events of one table that were bound to no epoch while it was suspended, as they are read again."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, RowRange]] = []
        self._seen: dict[int, dict[int, tuple[int, int]]] = {}
        self.snapshot = Snapshot({})

    def add(self, transaction: int, lsn: int, events: RowRange) -> None:
        """Events of one transaction, whose END stands at `lsn`; repetitions change nothing."""
        new = first_copies([events], self._seen.setdefault(transaction, {}))
        self._parts += [(lsn, s) for s in new]

    def add_loose(self, rows: Iterable[RowRange]) -> None:
        """Rows without a transaction."""
        self._parts += [(int(s.changes.lsns[s.start]), s) for s in rows]

    def add_chunk(self, rows: RowRange) -> None:
        """Rows of an incremental snapshot, behind the transaction after which they were sent."""
        self._parts.append((int(rows.changes.transactions[rows.start]) + 1, rows))

    def gap(self, transaction: int, order: int, place: tuple[int, int]) -> None:
        """An event that is passed over: it counts as here."""
        self._seen.setdefault(transaction, {}).setdefault(order, place)

    @property
    def events(self) -> int:
        """Distinct events of transactions."""
        return sum(map(len, self._seen.values()))

    def slices(self) -> tuple[RowRange, ...]:
        """All of it, its orders counted through in the order of commits: it can stand as one transaction."""
        parts = [(-1, RowRange(c, 0, len(c))) for c in self.snapshot.last()] + self._parts
        if not parts:
            return ()
        lengths = [s.stop - s.start for _, s in parts]
        lsns = np.repeat([lsn for lsn, _ in parts], lengths)
        orders = np.concatenate([s.changes.orders[s.start : s.stop] for _, s in parts])
        sort = np.lexsort((orders, lsns))
        one, two = lsns[sort], orders[sort]
        rank = np.empty(len(sort), np.int64)
        rank[sort] = np.cumsum(np.append(False, (one[1:] != one[:-1]) | (two[1:] != two[:-1])))
        out = []
        for (_, s), at in zip(parts, np.cumsum([0, *lengths[:-1]]).tolist(), strict=True):
            count = s.stop - s.start
            rows = s.changes.take(np.arange(s.start, s.stop))
            out.append(RowRange(replace(rows, orders=rank[at : at + count]), 0, count))
        return tuple(out)

    def of_transactions(self) -> Iterable[tuple[int, RowRange]]:
        """Events, each with the LSN of its transaction's END, in the order of these."""
        events = [(lsn, s) for lsn, s in self._parts if not s.changes.snapshot[s.start]]
        return sorted(events, key=lambda part: part[0])

    def by_transaction(self) -> Iterable[list[RowRange]]:
        """The slices of each transaction."""
        found: dict[int, list[RowRange]] = {}
        for _, s in self._parts:
            found.setdefault(int(s.changes.transactions[s.start]), []).append(s)
        return found.values()


@dataclass
class SuspendedTable:
    """A suspended table. `text`: its error, as its views show it; `told`: the one that was given with a transaction,
    "" for none. `lsn`: of the last END that it has. `names`: those under which the source counts its events.

    `owed`: events of transactions given without it. `snapshot`: rows of the initial snapshot that it owes too, None where
    it has that. `holds`: from where it must be read again, `settled` once all of its partitions are there. `backlog`: what was
    read again, None in a run in which the table stands; `reached`: the record itself was read again; `bad`: one that cannot
    be decoded among what is owed; `beyond`: one after it.
    """

    table: str
    record: Undecodable
    text: str
    lsn: int
    names: tuple[str, ...] = ()
    owed: int = 0
    snapshot: int | None = None
    told: str = ""
    holds: Holds = field(default_factory=dict)
    settled: bool = False
    backlog: Backlog | None = None
    reached: bool = False
    bad: tuple[Undecodable, str] | None = None
    beyond: tuple[Undecodable, str] | None = None

    def late(self, transaction: int, lsn: int, events: RowRange) -> None:
        """Events of a transaction given already, read again; those from before the stop are repetitions."""
        if self.backlog is not None and lsn > self.lsn:
            self.backlog.add(transaction, lsn, events)

    def late_gap(self, transaction: int, lsn: int, order: int, place: tuple[int, int]) -> None:
        """The same for an event that is passed over."""
        if self.backlog is not None and lsn > self.lsn:
            self.backlog.gap(transaction, order, place)

    @property
    def missing(self) -> int:
        """Events and rows owed that were not read again yet."""
        if self.backlog is None:
            return self.owed + (self.snapshot or 0)
        rows = 0 if self.snapshot is None else self.snapshot - self.backlog.snapshot.counted()[self.table]
        return max(0, self.owed - self.backlog.events) + max(0, rows)

    def json(self) -> dict[str, Any]:
        """As a manifest keeps it. The positions from which it is read again are kept beside it, as the source's own."""
        bad = self.record
        return {
            "table": self.table, "topic": bad.topic, "partition": bad.partition, "offset": bad.offset,
            "reason": bad.reason, "hint": bad.hint, "text": self.told, "lsn": self.lsn, "owed": self.owed,
            "snapshot": self.snapshot,
        }  # fmt: skip

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> SuspendedTable:
        """Of a manifest, to be read again. Raises KeyError."""
        table = body["table"]
        bad = Undecodable(table, body["topic"], body["partition"], body["offset"], body["reason"], body["hint"])
        return cls(
            table, bad, body["text"], body["lsn"], owed=body["owed"], snapshot=body["snapshot"], told=body["text"],
            backlog=Backlog(),
        )  # fmt: skip


class SuspendedTables:
    """The stopped tables of one source. `names`: name by which events are counted → table, of the tables that go on:
    the assembler's own, from which stopped tables are taken.

    `ailing`: tables with a bad record that are not stopped yet. `bad_at`: of those, and of tables that are read again,
    the first bad record of each partition: a table may have several, and is read again from all of them. `after`: END's
    LSN before which no table is mended; `exactly`: nor may anything be given beyond it before, because the log has it so.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._untold: dict[str, dict[str, int]] = {}
        self.known: dict[str, SuspendedTable] = {}
        self.ailing: dict[str, tuple[Undecodable, str]] = {}
        self.bad_at: dict[str, Holds] = {}
        self.after = -1
        self.exactly = False

    def idle(self, table: str) -> bool:
        """Whether nothing of a table is wanted in this run."""
        return table in self.known and self.known[table].backlog is None

    def collecting(self, table: str) -> SuspendedTable | None:
        """The stop of a table that is being read again."""
        found = self.known.get(table)
        return None if found is None or found.backlog is None else found

    def resume(self, stops: Iterable[SuspendedTable], after: int, *, exactly: bool) -> None:
        """Read these again; see `after` and `exactly`."""
        self.after, self.exactly = after, exactly
        for stop in stops:
            stop.names = self._take_names(stop.table)
            self.known[stop.table] = stop
        self.exactly &= bool(self.known)

    def add_name(self, name: str, table: str) -> None:
        """Events are counted under one name more of a table."""
        if table in self.known:
            self.known[table].names += (name,)
        else:
            self._names[name] = table

    def _take_names(self, table: str) -> tuple[str, ...]:
        names = tuple(n for n, t in self._names.items() if t == table)
        for name in names:
            del self._names[name]
        return names

    def met(self, table: str, record: Undecodable, text: str, bound: int | None) -> None:
        """A bad record of a table; `bound`: the LSN of its transaction's END if that was given, -1 for a row of the
        snapshot that was, None where it was not or nobody can tell."""
        stop = self.known.get(table)
        if stop is None:
            self._bad(table, record)
            self.ailing.setdefault(table, (record, text))
        elif stop.backlog is not None:
            owed = bound is not None and (bound > stop.lsn if bound >= 0 else stop.snapshot is not None)
            if owed or (bound is None and record.event is None):
                self._bad(table, record)
                stop.bad = stop.bad or (record, text)
            elif bound is None:
                self._bad(table, record)
                stop.beyond = stop.beyond or (record, text)

    def _bad(self, table: str, record: Undecodable) -> None:
        places, place = self.bad_at.setdefault(table, {}), (record.topic, record.partition)
        places[place] = min(record.offset, places.get(place, record.offset))

    def stop(self, table: str, lsn: int, holds: Holds, snapshot: int | None) -> None:
        """From now on nothing of a table is given."""
        record, text = self.ailing.pop(table)
        for place, offset in self.bad_at.pop(table).items():
            holds[place] = min(offset, holds.get(place, offset))
        self.known[table] = SuspendedTable(table, record, text, lsn, self._take_names(table), 0, snapshot, holds=holds)
        self._tell(table, text, 1)

    def _tell(self, table: str, text: str, diff: int) -> None:
        texts = self._untold.setdefault(table, {})
        texts[text] = texts.get(text, 0) + diff

    def take_errors(self) -> Mapping[str, Mapping[str, int]]:
        """What changed of the tables' errors, for the transaction given next: table → message → change."""
        if not self._untold:
            return {}
        told, self._untold = self._untold, {}
        for table in told:
            if table in self.known:
                self.known[table].told = self.known[table].text
        return told

    def passed(self, transaction: int, lsn: int, counts: Mapping[str, int], pending: PartialTransaction | None) -> None:
        """A transaction is given: what it has of stopped tables is owed."""
        for stop in self.known.values():
            stop.owed += sum(counts.get(name, 0) for name in stop.names)
            if pending is None:
                continue
            events, gaps = pending.slices.pop(stop.table, ()), pending.gaps.pop(stop.table, {})
            if stop.backlog is not None:
                for events_of_run in events:
                    stop.backlog.add(transaction, lsn, events_of_run)
                for order, (_, partition, offset) in gaps.items():
                    stop.backlog.gap(transaction, order, (partition, offset))

    def here(self) -> list[SuspendedTable]:
        """The tables of which everything that they are owed was read again."""
        return [s for s in self.known.values() if s.backlog is not None and s.reached and not s.missing]

    def failed(self) -> list[SuspendedTable]:
        """The tables in whose backlog a record cannot be decoded: they stay suspended, perhaps for that record.

        Not where the log says that they were mended: that is then waited for.
        """
        found = [s for s in self.known.values() if s.backlog is not None and s.bad is not None and not self.exactly]
        for stop in found:
            assert stop.bad is not None, "a record is at fault"
            del self.bad_at[stop.table]  # it is read again from where it was, which is before all of them
            (stop.record, text), stop.backlog, stop.bad = stop.bad, None, None
            if text != stop.text:
                self._tell(stop.table, stop.text, -1)
                self._tell(stop.table, text, 1)
                stop.text = text
        return found

    def mended(self) -> list[SuspendedTable] | None:
        """The tables that have all that they are owed, which go on from now; None while another still waits for some."""
        reading = [s for s in self.known.values() if s.backlog is not None]
        if any(s.missing or not s.reached for s in reading):
            return None
        for stop in reading:
            del self.known[stop.table]
            self._names.update(dict.fromkeys(stop.names, stop.table))
            self._tell(stop.table, stop.told, -1)
            later = stop.bad or stop.beyond
            if later is None:
                self.bad_at.pop(stop.table, None)
            else:
                self.ailing[stop.table] = later
        self.exactly = False
        return reading


def earliest(holds: Holds, runs: Iterable[TableChanges | RowRange]) -> None:
    """Lower `holds` to the first offset of each run."""
    for run in runs:
        changes, start = (run.changes, run.start) if isinstance(run, RowRange) else (run, 0)
        place, offset = (changes.topic, changes.partition), int(changes.offsets[start])
        holds[place] = min(offset, holds.get(place, offset))
