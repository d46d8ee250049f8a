"""Batches as bytes: one Arrow IPC file of two record batches' worth of columns, readable where it lies.

Always: `decode(encode(batch))` equals the batch, whatever its position in memory; nothing is copied, so
that a mapped file stays on disk until it is read; bytes of another format version or layout are refused. Checksums are
the caller's. Called by the host's checkpoint.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import Batch, Facts
from headrace.engine.batch.description import Description
from headrace.engine.batch.gather_rows import conformed, without_columns
from headrace.engine.batch.sort_layout import Ids, Layout, stretched
from headrace.engine.errors import HeadraceError
from headrace.engine.lattice import Frontier, Time

FORMAT = 2
"""Raised by every change of what the bytes mean."""

_LANES = ("hash", "check", "order", "high", "low", "time", "diff", "position")
_META = b"headrace.batch"


class UnreadableBatch(HeadraceError):
    """The bytes are not a batch, or a batch of another format or layout."""

    code = "batch"


def encode(batch: Batch) -> list[pa.Buffer]:
    """The batch as an Arrow IPC file; the buffers are to be written one after the other, and are the batch's own.

    Lanes of one value are written as one value, lanes left out by their name. Lanes and payload are columns of one record
    batch, told apart by name.
    """
    lanes = dict(zip(_LANES, (*batch.ids, *batch.facts), strict=True))
    constant = {name: int(lane[0]) for name, lane in lanes.items() if len(lane) and lane.strides[0] == 0}
    absent = [name for name, lane in lanes.items() if len(lane) < len(batch)]
    meta = {
        "format": FORMAT,
        "layout": batch.layout.fingerprint,
        "updates": len(batch),
        "rows": batch.payload.num_rows,
        "distinct": batch.distinct,
        "constant": constant,
        "absent": absent,
        "description": [_frontier_out(f) for f in _frontiers(batch.description)],
    }
    written = {name: lane for name, lane in lanes.items() if name not in constant and name not in absent}
    lists = [_as_list(pa.array(np.ascontiguousarray(lane))) for lane in written.values()]
    lists += [_as_list(column) for column in batch.payload.columns]
    names = [*written, *(str(k) for k in range(batch.payload.num_columns))]
    schema = pa.schema(
        [pa.field(name, column.type) for name, column in zip(names, lists, strict=True)],
        metadata={_META: json.dumps(meta, sort_keys=True).encode()},
    )
    parts = _Parts()
    with pa.PythonFile(parts, mode="w") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(lists, schema=schema))
    return parts.written


class _Parts:
    """A file that keeps what is written to it as the pieces that it is given, none of them copied."""

    closed = False

    def __init__(self) -> None:
        self.written: list[pa.Buffer] = []

    def write(self, part: pa.Buffer | bytes) -> int:
        self.written.append(part if isinstance(part, pa.Buffer) else pa.py_buffer(part))
        return len(self.written[-1])

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""


def decode(buffer: pa.Buffer | bytes | memoryview, layout: Layout) -> Batch:
    """The batch in `buffer`, which stays alive as long as the batch does. Raises UnreadableBatch."""
    try:
        reader = pa.ipc.open_file(pa.py_buffer(buffer) if not isinstance(buffer, pa.Buffer) else buffer)
        meta = json.loads((reader.schema.metadata or {})[_META])
        whole = reader.get_batch(0)
    except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
        raise UnreadableBatch("not a batch", hint="the file is damaged or of something else", cause=error) from error
    if meta["format"] != FORMAT:
        raise UnreadableBatch("a batch of another format", found=meta["format"], known=FORMAT)
    if meta["layout"] != layout.fingerprint:
        raise UnreadableBatch("a batch of another layout", found=meta["layout"], wanted=layout.fingerprint)
    columns = {name: whole.column(k).values for k, name in enumerate(whole.schema.names)}
    h, c, o, high, low = (_lane(name, columns, meta, np.uint64) for name in _LANES[:5])
    time, diff, position = (_lane(name, columns, meta, np.int64) for name in _LANES[5:])
    ids: Ids = (h, c, o, high, low)
    facts: Facts = (time, diff, position)
    lower, upper, since = (_frontier_in(f) for f in meta["description"])
    if layout.schema.columns:
        payload = pa.RecordBatch.from_arrays(
            [columns[str(k)] for k in range(len(layout.schema.columns))], schema=layout.arrow
        )
    else:
        payload = without_columns(layout.arrow, int(meta["rows"]))
    payload = conformed(payload, layout.arrow)
    return Batch(layout, Description(lower, upper, since), ids, facts, payload, int(meta["distinct"]))


def _as_list(column: pa.Array) -> pa.Array:
    """`column` as one list: lanes and payload differ in length, and the columns of an IPC record batch may not."""
    offsets = pa.array([0, len(column)], pa.int64())
    return pa.LargeListArray.from_arrays(offsets, column)


def _lane(name: str, columns: dict[str, pa.Array], meta: dict[str, Any], kind: type):  # type: ignore[no-untyped-def]
    size = int(meta["updates"])
    if name in meta["constant"]:
        return stretched(np.array([meta["constant"][name]], kind), size)
    return columns[name].to_numpy(zero_copy_only=True) if size and name not in meta["absent"] else np.empty(0, kind)


def _frontiers(description: Description) -> tuple[Frontier, Frontier, Frontier]:
    return description.lower, description.upper, description.since


def _frontier_out(frontier: Frontier) -> list[list[int]]:
    return [list(time.coordinates) for time in frontier]


def _frontier_in(coordinates: list[list[int]]) -> Frontier:
    return Frontier.of(Time.at(tuple(c)) for c in coordinates)
