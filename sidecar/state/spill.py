"""Rows of transactions that are not whole yet, once there are more of them than memory should hold: they lie in files and are
mapped from there.

Always: what comes back is what was given, row for row; a file has no name any more once it is mapped, so that nothing is
left behind, however the process ends. Called by the intake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.connectors.changes import TableChanges
from headrace.engine.errors import HeadraceError

DEFAULT_BYTES = 256 << 20
"""How much may wait in memory where there is no budget."""
SHARE = 8
"""Of a budget, the part that may wait in memory: one in so many."""
_NO_LANES = ("table", "topic", "partition", "rows", "unchanged", "moved", "kept")
_LANES = tuple(f.name for f in fields(TableChanges) if f.name not in _NO_LANES)


class SpillError(HeadraceError):
    """Rows cannot be put on disk."""

    code = "state"


class Spill:
    """`limit`: bytes of rows that may wait in memory; `name`: of a file on its way, of no other process in the folder.
    `spilled`: bytes that were put on disk. Single writer: who decodes."""

    def __init__(self, folder: Path, limit: int = DEFAULT_BYTES, name: str = "spilling") -> None:
        self._folder, self._limit, self._name = folder, limit, name
        self._held = 0
        self.spilled = 0

    def take(self, changes: TableChanges) -> TableChanges:
        """Changes that are about to wait: as they are, or mapped from disk. Raises SpillError."""
        size = changes.rows.nbytes + sum(lane.nbytes for lane in _lanes(changes).values())
        if self._held + size <= self._limit:
            self._held += size
            return changes
        self.spilled += size
        return self._put(changes)

    @property
    def full(self) -> bool:
        """Whether more would go to disk."""
        return self._held >= self._limit // 2

    def nothing_waits(self) -> None:
        """All that was taken is given."""
        self._held = 0

    def _put(self, changes: TableChanges) -> TableChanges:
        masks = {str(at): mask for at, mask in changes.unchanged.items()}
        if changes.moved is not None:
            masks["moved"] = changes.moved
        lanes = {**_lanes(changes), **masks}
        arrays = [pa.array(lane.view(np.uint8) if lane.dtype == np.bool_ else lane) for lane in lanes.values()]
        width = changes.rows.num_columns
        names = [*(str(i) for i in range(width)), *(f"lane {name}" for name in lanes)]
        whole = pa.RecordBatch.from_arrays([*changes.rows.columns, *arrays], names=names)
        back = self._mapped(whole)
        found = dict(zip(lanes, back.columns[width:], strict=True))
        rows = pa.RecordBatch.from_arrays(back.columns[:width], schema=changes.rows.schema)
        unchanged = {at: _mask(found[str(at)]) for at in changes.unchanged}
        moved = None if changes.moved is None else _mask(found["moved"])
        taken = {name: found[name].to_numpy() for name in _lanes(changes)}
        taken["metadata"] = _mask(found["metadata"])
        return replace(changes, rows=rows, unchanged=unchanged, moved=moved, **taken)

    def _mapped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        def fill(file: pa.OSFile) -> None:
            with pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)

        try:
            found = pa.ipc.open_file(nameless(self._folder / self._name, fill)).get_batch(0)
        except OSError as error:
            raise SpillError(
                f"a transaction larger than memory cannot be put on disk: {error.strerror or error}", folder=self._folder,
                hint="free disk space, or raise memory.budget_mib, and start again: nothing of it was bound",
            ) from error  # fmt: skip
        return found


def _lanes(changes: TableChanges) -> dict[str, np.ndarray]:
    """The lanes that these changes have, by name."""
    return {name: lane for name in _LANES if (lane := getattr(changes, name)) is not None}


def nameless(path: Path, fill: Callable[[pa.OSFile], None]) -> pa.Buffer:
    """Map what `fill` writes, from a file whose name is already removed. Raises OSError; no file is left then either.

    Meanwhile its name begins with a dot, by which manifests, which remove all that they do not name, know that it is not theirs.
    """
    path = path.with_name(f".{path.name}")
    try:
        with pa.OSFile(str(path), "wb") as file:
            fill(file)
        with pa.memory_map(str(path)) as mapped:
            return mapped.read_buffer()
    finally:
        path.unlink(missing_ok=True)


def _mask(lane: pa.Array) -> np.ndarray:
    mask: np.ndarray = lane.to_numpy().view(np.bool_)
    return mask
