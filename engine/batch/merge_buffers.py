"""Room that a merge writes into: lanes, and the payload's columns.

Always: room is reserved for the most that may come and touched only as it is written; what remains is given back when
the result is taken. A lane begins without room and gets some when it has held a second value; what it held until then is
filled in under fuel. Single writer: the merger that owns it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.batch.batch import Batch, Facts
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.gather_rows import without_columns
from headrace.engine.batch.keys import UInt64s, hash_rows
from headrace.engine.batch.lanes import few_ties
from headrace.engine.batch.sort_layout import Ids, Layout, shortened, stretched
from headrace.engine.batch.updates import Int64s
from headrace.engine.kernels import gather
from headrace.engine.kernels import merge_output as kernels

_FILLED_A_FUEL = 16
"""Entries of a lane filled with what it held that count as one update."""

_HIGH, _LOW, _TIME, _DIFF, _POSITION = 3, 4, 5, 6, 7


class Lanes:
    """The eight lanes of a merge of two batches; `table` is what the kernel sees of them."""

    def __init__(self, earlier: Batch, later: Batch) -> None:
        self._size = len(earlier) + len(later)
        self._lanes: dict[int, Int64s] = {}
        self._filled: dict[int, int] = {}
        """Lane → how much of what it held before it had room is there; and up to where that goes."""
        self._owed: dict[int, int] = {}
        self.table = np.zeros((8, 2), np.int64)
        for lane in range(3):
            # Lanes of small batches are written out though they be of one value: what counts is what they hold.
            ends = {int(batch.ids[lane][k]) for batch in (earlier, later) if len(batch) for k in (0, -1)}
            if len(ends) > 1:
                self._give(lane)
        self.fingerprints = all(len(batch.ids[_HIGH]) == len(batch) for batch in (earlier, later))
        """Whether fingerprints are written."""
        if self.fingerprints:
            self._give(_HIGH)
            self._give(_LOW)

    def _give(self, lane: int) -> None:
        self._lanes[lane] = room = np.empty(self._size, np.int64)
        self.table[lane, kernels.AT] = room.ctypes.data

    def widen(self, lane: int, written: int) -> None:
        """Give `lane` room, of which the first `written` entries are to be filled in by `catch_up`."""
        self._give(lane)
        self._filled[lane] = 0
        self._owed[lane] = written

    @property
    def behind(self) -> bool:
        """True while a lane is being filled in."""
        return bool(self._owed)

    def widen_fingerprints(self, written: int) -> None:
        """Likewise for the fingerprints, once many rows share key and order."""
        self.fingerprints = True
        self.widen(_LOW, written)
        self._give(_HIGH)

    def catch_up(self, rows: Growing, fuel: int) -> int:
        """Fill in for about `fuel` updates; returns the fuel left. `rows`: the payload, where fingerprints come from."""
        for lane in list(self._owed):
            begin, owed = self._filled[lane], self._owed[lane]
            cheap = 1 if lane == _LOW else _FILLED_A_FUEL
            end = min(owed, begin + max(fuel, 0) * cheap)
            if lane == _POSITION:
                self._lanes[lane][begin:end] = np.arange(begin, end)
            elif lane == _LOW:
                self._fill_fingerprints(rows, begin, end)
            else:
                self._lanes[lane][begin:end] = self.table[lane, kernels.VALUE]
            self._filled[lane] = end
            fuel -= -(-(end - begin) // cheap)
            if end == owed:
                del self._owed[lane], self._filled[lane]
        return fuel

    def _fill_fingerprints(self, rows: Growing, begin: int, end: int) -> None:
        if begin == end:
            return
        positions = self._lanes[_POSITION][begin:end] if _POSITION in self._lanes else np.arange(begin, end)
        first = int(positions[0])
        high, low = rows.images(first, int(positions[-1]) + 1)
        self._lanes[_HIGH][begin:end] = high.view(np.int64)[positions - first]
        self._lanes[_LOW][begin:end] = low.view(np.int64)[positions - first]

    def taken(self, size: int, ties: int) -> tuple[Ids, Facts]:
        """The lanes, of `size` entries, `ties` of which call for fingerprints; nothing more may be written."""
        if few_ties(ties, size):
            self._lanes.pop(_HIGH, None)
            self._lanes.pop(_LOW, None)
        h, c, o, high, low = (self._take(lane, size).view(np.uint64) for lane in range(5))
        return (h, c, o, high, low), (self._take(_TIME, size), self._take(_DIFF, size), self._take(_POSITION, size))

    def _take(self, lane: int, size: int) -> Int64s:
        room = self._lanes.pop(lane, None)
        if room is not None:
            return shortened(room, size)
        if lane in (_HIGH, _LOW, _POSITION):
            return np.empty(0, np.int64)
        return stretched(self.table[lane, kernels.VALUE :].copy(), size)


class Growing:
    """Columns of a payload of `layout` that take rows of `parts`; `table`, `steps` are what the kernel sees of them."""

    def __init__(self, layout: Layout, parts: tuple[pa.RecordBatch, ...]) -> None:
        assembly = layout.assembly()
        self.steps = assembly.steps
        self._schema = layout.arrow
        self._plan = layout.image_plan
        self._buffers: list[tuple[npt.NDArray[np.uint8] | None, npt.NDArray[np.uint8], npt.NDArray[np.uint8] | None]]
        self._buffers = []
        self.table = np.zeros((len(self.steps), 5), np.int64)
        rows = sum(part.num_rows for part in parts)
        for column, place in zip(self.steps.tolist(), self.table, strict=True):
            self._reserve(column[1], [part.column(column[0]) for part in parts], rows, place)

    def _reserve(self, width: int, columns: list[pa.Array], rows: int, place: Int64s) -> None:
        bits = (rows + 7) >> 3
        validity = np.zeros(bits, np.uint8) if any(column.null_count for column in columns) else None
        data = None
        if width == gather.BITS:
            values = np.zeros(bits, np.uint8)
        elif width == gather.OFFSETS64:
            values = np.empty((rows + 1) * 8, np.uint8)
            values[:8] = 0
            data = np.empty(sum(_bytes(column) for column in columns), np.uint8)
            place[kernels.DATA] = data.ctypes.data
        else:
            values = np.empty(rows * width, np.uint8)
        place[kernels.VALIDITY] = 0 if validity is None else validity.ctypes.data
        place[kernels.VALUES] = values.ctypes.data
        self._buffers.append((validity, values, data))

    def images(self, begin: int, end: int) -> tuple[UInt64s, UInt64s]:
        """The fingerprints of rows begin … end - 1, which were written."""
        columns: list[pa.Array] = []
        for k, parts in enumerate(self._buffers):
            buffers = [None if part is None else pa.py_buffer(part) for part in parts]
            kind = self._schema.field(k).type
            shown = buffers if parts[2] is not None else buffers[:2]
            columns.append(pa.Array.from_buffers(kind, end - begin, shown, -1 if parts[0] is not None else 0, begin))
        found = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        high, low, _ = hash_rows(Exported(found), end - begin, self._plan)
        return high, low

    def taken(self, rows: int) -> pa.RecordBatch:
        """The first `rows` rows; nothing more may be written."""
        if not len(self.steps):
            return without_columns(self._schema, rows)
        columns: list[pa.Array] = []
        bits = (rows + 7) >> 3
        while self._buffers:
            validity, values, data = self._buffers.pop(0)
            k = len(columns)
            width, (nulls, filled) = int(self.steps[k, 1]), self.table[k, [kernels.NULLS, kernels.FILLED]].tolist()
            size = bits if width == gather.BITS else (rows + 1) * 8 if data is not None else rows * width
            buffers = [None if validity is None or not nulls else _buffer(validity, bits), _buffer(values, size)]
            if data is not None:
                buffers.append(_buffer(data, filled))
            columns.append(pa.Array.from_buffers(self._schema.field(k).type, rows, buffers, nulls))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _buffer(room: npt.NDArray[np.uint8], size: int) -> pa.Buffer:
    room.resize(size, refcheck=False)
    return pa.py_buffer(room)


def _bytes(column: pa.Array) -> int:
    """Bytes of the values of varying length in `column`."""
    if not len(column):
        return 0
    offsets = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, column.offset * 8)
    return int(offsets[-1] - offsets[0])
