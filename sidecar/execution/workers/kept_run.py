"""One run of a table's changes that a worker keeps, and its form on the way to another worker.

Invariant: what `Run.mapped` gives is what `file` was made of: rows under the same columns, kinds, masks and hashes. It lies in a
file without a name, so that taking many runs over needs no memory. Called by `kept_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.gather_rows import without_columns
from headrace.engine.batch.redeclared_rows import redeclared, redeclared_masks
from headrace.engine.batch.updates import Bools, Int64s, UInt8s
from headrace.engine.schema import Schema
from headrace.sidecar.state.spill import SpillError, nameless

_LANE = "\x00"
"""How the names of lanes begin in a file: no table of Postgres has such columns."""
_KINDS, _HASHES = "kinds", "hashes"


class Run(NamedTuple):
    """Rows in the columns that their table had when they were decoded. `hashes`: of their keys; `unchanged`: see `Upserts`."""

    rows: pa.RecordBatch
    kinds: UInt8s
    unchanged: Mapping[int, Bools]
    hashes: Int64s

    def under(self, schema: Schema) -> Run:
        """The same under other columns; the key is the same."""
        unchanged = redeclared_masks(self.unchanged, self.rows.schema, schema)
        return Run(redeclared(self.rows, schema), self.kinds, unchanged, self.hashes)

    def file(self) -> pa.Buffer:
        """As an Arrow file."""
        masks = {str(at): mask.view(np.uint8) for at, mask in self.unchanged.items()}
        lanes = {_KINDS: self.kinds, _HASHES: self.hashes, **masks}
        arrays = [pa.array(np.ascontiguousarray(lane)) for lane in lanes.values()]
        fields = [pa.field(_LANE + name, array.type) for name, array in zip(lanes, arrays, strict=True)]
        whole = pa.RecordBatch.from_arrays(
            [*self.rows.columns, *arrays], schema=pa.schema([*self.rows.schema, *fields])
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, whole.schema) as writer:
            writer.write_batch(whole)
        return sink.getvalue()

    @classmethod
    def mapped(cls, file: Any, path: Path) -> Run:
        """The run of an Arrow file, whose bytes go to `path`, which has no name afterwards. Raises SpillError."""
        batch = pa.ipc.open_file(put_aside(file, path)).get_batch(0)
        names = batch.schema.names
        lanes = {
            n.removeprefix(_LANE): batch.column(at).to_numpy() for at, n in enumerate(names) if n.startswith(_LANE)
        }
        columns = [n for n in names if not n.startswith(_LANE)]
        rows = batch.select(columns) if columns else without_columns(pa.schema([]), batch.num_rows)
        kinds, hashes = lanes.pop(_KINDS), lanes.pop(_HASHES)
        return cls(rows, kinds, {int(at): mask.view(np.bool_) for at, mask in lanes.items()}, hashes)


def put_aside(data: Any, path: Path) -> pa.Buffer:
    """Bytes, mapped from a file whose name is already removed. Raises SpillError."""

    def fill(file: pa.OSFile) -> None:
        file.write(data)

    try:
        return nameless(path, fill)
    except OSError as error:
        raise SpillError(
            f"rows on their way to other workers cannot be put on disk: {error.strerror or error}", folder=path.parent,
            hint="free disk space, and ask again: nothing was changed",
        ) from error  # fmt: skip
