"""Loose updates, as they come through the doors and run between operators: an Arrow payload and flat lanes beside it.

Always: every lane has one entry a row of the payload. Times are epochs (depth 0). Nothing is sorted or consolidated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.batch.c_data import Exported

Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

UPSERT, DELETE, TRUNCATE, INSERT, RETRACT = range(5)
"""What one change of a table asks for. Keyed tables: UPSERT, DELETE, TRUNCATE. Keyless: INSERT, RETRACT, TRUNCATE."""


class Updates:
    """(row, time, diff) triples: `rows` by position, `times` epochs, `diffs` changes of multiplicity.

    `struct`: the rows in both of their forms. `before`: of a table's own updates, one a row and time, how many copies of its
    row the table had before each, where that is known. Never written after it is made.
    """

    __slots__ = ("_identities", "before", "diffs", "struct", "times")

    def __init__(
        self, rows: pa.RecordBatch | Exported, times: Int64s, diffs: Int64s, before: Int64s | None = None
    ) -> None:
        self.struct: Exported = rows if isinstance(rows, Exported) else Exported(rows)
        self.times = times
        self.diffs = diffs
        self.before = before
        self._identities: dict[Any, Any] | None = None
        assert self.struct.num_rows == len(times) == len(diffs), "one time and one diff a row"

    def __len__(self) -> int:
        return len(self.times)

    def at(self, times: Int64s, diffs: Int64s | None = None) -> Updates:
        """The same rows at other times, or with other diffs too."""
        made = Updates(self.struct, times, self.diffs if diffs is None else diffs)
        made._identities = self.identities
        return made

    @property
    def rows(self) -> pa.RecordBatch:
        """The rows as Arrow has them."""
        return self.struct.rows

    @property
    def identities(self) -> dict[Any, Any]:
        """What `headrace.engine.batch.keys` already worked out of these rows, by its plans."""
        if self._identities is None:
            self._identities = {}
        return self._identities


@dataclass(frozen=True)
class Upserts:
    """Changes of one table in the order in which they apply.

    `rows`: the table's columns; of a DELETE only the key is read, of a TRUNCATE nothing. `epochs`: never decreasing.
    `kinds`: UPSERT … RETRACT. `unchanged`: column position → mask of the rows whose value there was not sent
    (an unchanged TOASTed value) and stands in the table's own old row. `fill_from`: for each row the position in these
    Upserts of an earlier DELETE whose old row fills its unchanged columns (a primary-key change), or -1 for its own key.
    """

    rows: pa.RecordBatch
    epochs: Int64s
    kinds: UInt8s
    unchanged: Mapping[int, Bools] = field(default_factory=dict)
    fill_from: Int64s | None = None

    def __post_init__(self) -> None:
        assert self.rows.num_rows == len(self.epochs) == len(self.kinds), "one epoch and one kind a row"

    def __len__(self) -> int:
        return len(self.epochs)
