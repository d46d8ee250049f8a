"""TRUNCATE of partitions of a table: decides whether the whole table is empty after it.

Invariant: a TRUNCATE of some partitions suspends the table (guarantee P5), since nobody knows which rows were theirs. Only
when all partitions are emptied is the table empty. The assembler calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from headrace.connectors.changes import Event, Undecodable
from headrace.engine.batch.updates import TRUNCATE
from headrace.sidecar.transactions.model import ContinuityError
from headrace.sidecar.transactions.partial import RowRange


def is_of_leaf(topic: str, table: str) -> bool:
    """Whether a topic is that of a leaf of a table, and not the table's own."""
    return not topic.endswith(f".{table}")


class PartitionLeaves:
    """`tables`: by name as END spells it, each to the table it belongs to. False where no table has leaves."""

    def __init__(self, tables: Mapping[str, str]) -> None:
        self._counts = Counter(table for name, table in tables.items() if name != table)

    def add(self, table: str) -> None:
        """A table has one leaf more."""
        self._counts[table] += 1

    def __bool__(self) -> bool:
        return bool(self._counts)

    def partly_emptied(self, slices: Iterable[RowRange]) -> Iterator[tuple[str, Undecodable, str]]:
        """The tables of which a transaction truncates some leaves and not all, each with the first such record and what its
        views show."""
        emptied: dict[str, list[RowRange]] = {}
        for s in slices if self._counts else ():
            if s.changes.table in self._counts and (s.changes.kinds[s.start : s.stop] == TRUNCATE).any():
                emptied.setdefault(s.changes.table, []).append(s)
        for table, found in emptied.items():
            topics = {s.changes.topic for s in found}
            if len(topics) < self._counts[table] and all(is_of_leaf(t, table) for t in topics):
                first, _, _ = found[0]
                at = found[0].start + int(np.argmax(first.kinds[found[0].start : found[0].stop] == TRUNCATE))
                event = Event(int(first.transactions[at]), int(first.orders[at]), int(first.lsns[at]), snapshot=False)
                place = (first.topic, first.partition, int(first.offsets[at]))
                where = dict(zip(("topic", "partition", "offset"), place, strict=True))
                text = str(ContinuityError(WHAT, table=table, **where, hint=HINT))
                yield table, Undecodable(table, *place, WHAT, HINT, event), text


WHAT = "one partition of a table was truncated, and which of its rows were there is not known"
HINT = "name the record under `skip:` of its source, start again, and `headrace resync` the table"
