"""Loose updates, as they come through the doors and run between operators: an Arrow payload and flat lanes beside it.

Always: every lane has one entry a row of the payload. Times are epochs (depth 0). Nothing is sorted or consolidated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.batch.exported import Exported

Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

UPSERT, DELETE, TRUNCATE, INSERT, RETRACT = range(5)
"""What one change of a table asks for. Keyed tables: UPSERT, DELETE, TRUNCATE. Keyless: INSERT, RETRACT, TRUNCATE."""


@dataclass(frozen=True)
class Updates:
    """(row, time, diff) triples: `rows` by position, `times` epochs, `diffs` changes of multiplicity."""

    rows: pa.RecordBatch
    times: Int64s
    diffs: Int64s

    def __post_init__(self) -> None:
        assert self.rows.num_rows == len(self.times) == len(self.diffs), "one time and one diff a row"

    def __len__(self) -> int:
        return len(self.times)

    def at(self, times: Int64s) -> Updates:
        """The same updates at other times."""
        made = Updates(self.rows, times, self.diffs)
        made.__dict__.update({k: v for k, v in self.__dict__.items() if k in ("struct", "identities")})
        return made

    @cached_property
    def struct(self) -> Exported:
        """The rows as kernels see them, made once."""
        return Exported(self.rows)

    @cached_property
    def identities(self) -> dict[Any, Any]:
        """What `engine.batch.keys` already worked out of these rows, by its plans."""
        return {}


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
