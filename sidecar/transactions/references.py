"""References to rows that a worker has decoded and keeps, while the driver decides which transactions they belong to.

Invariant: a reference names one row of one run of one worker, for as long as anything here refers to the run. Whoever needs
no values works with references as with any rows: takes, cuts, orders and binds them. Workers make them, the driver gives them
back to be exchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch import key_lanes
from headrace.engine.batch.keys import UInt64s
from headrace.engine.batch.updates import Int64s, Upserts
from headrace.engine.schema import BIGINT, Column, DataType, Schema

ROW_BITS = 20
"""A run has fewer rows than 2 to this power; what is above them in a reference numbers the run."""

# no table of Postgres has such columns
REFERENCES = Schema.of([Column("\x00row", BIGINT), Column("\x00hash", BIGINT), Column("\x00check", BIGINT)], None)
"""What stands for a row: its reference, and the two lanes that identify its key."""


class KeptRun:
    """A run that a worker keeps. With the last reference to it its number goes to `gone`, for the worker to let go of it."""

    __slots__ = ("_gone", "number")

    def __init__(self, number: int, gone: deque[int]) -> None:
        self.number, self._gone = number, gone

    def __del__(self) -> None:
        self._gone.append(self.number)


class KeptRuns:
    """The runs that the driver refers to, whichever workers keep them. `last`: the greatest number that was ever told.

    Single user: the loop; the last reference to a run may go on any thread.
    """

    def __init__(self) -> None:
        self.last = -1
        self._gone: deque[int] = deque()
        self._numbers: set[int] = set()

    def refer(self, number: int) -> KeptRun:
        """A worker has told of this run, and is to keep it for as long as what this gives is here."""
        self.last = max(self.last, number)
        self._numbers.add(number)
        return KeptRun(number, self._gone)

    def take_gone(self) -> list[int]:
        """The runs that nobody refers to any more, each told once."""
        found = []
        while self._gone:
            found.append(self._gone.popleft())
        self._numbers.difference_update(found)
        return found

    @property
    def numbers(self) -> list[int]:
        """Those that are referred to, and those that are to be told as gone next."""
        return sorted(self._numbers)


class HandedRuns(NamedTuple):
    """Runs on their way from workers to those that take their place: each as an Arrow file, by its number, which stays."""

    kept: KeptRuns
    files: Mapping[int, pa.Buffer]


def referring(number: int, size: int, hashes: Int64s, checks: Int64s) -> pa.RecordBatch:
    """What stands for the rows of a run, in their order."""
    rows = np.arange(number << ROW_BITS, (number << ROW_BITS) + size)
    return pa.RecordBatch.from_arrays([pa.array(lane) for lane in (rows, hashes, checks)], schema=REFERENCES.arrow)


def are_references(upserts: Upserts) -> bool:
    """Whether a worker keeps the rows of these changes."""
    return bool(upserts.rows.schema.equals(REFERENCES.arrow))


def references_in(rows: pa.RecordBatch) -> Int64s:
    """The references; anything where none stands for a row."""
    column = rows.column(0)
    return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)


def shards_of(references: Int64s, count: int) -> Int64s:
    """Which of `count` workers keeps each row."""
    found: Int64s = (references >> ROW_BITS) % count
    return found


def key_identities(
    rows: pa.RecordBatch, columns: Sequence[int], types: Sequence[DataType] | None = None
) -> tuple[UInt64s, UInt64s]:
    """The two lanes that identify the key of each row, wherever it is kept."""
    if rows.schema.equals(REFERENCES.arrow):
        one, two = (rows.column(at).to_numpy().view(np.uint64) for at in (1, 2))
        return one, two
    lanes = key_lanes(rows, columns, types)
    return lanes.hash, lanes.check
