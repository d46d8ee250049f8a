"""What a load's tasks do: rows become sorted runs, one a task and shard, each of which is a batch of its table.

Always: a run is bounded, and sealed by the engine itself, so that a state which was loaded is one that a run could have
written; its name tells its content alone, whichever task wrote it. No row passes from task to task: a row's shard is told by
the hash of its key. Called by Spark's tasks; `load` starts them and reads what they tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch import Batch, Layout
from headrace.engine.batch.description import Description
from headrace.engine.batch.partitioning import shard_positions
from headrace.engine.batch.updates import Updates
from headrace.engine.errors import HeadraceError
from headrace.engine.operators.expressions.core.text_io import from_text
from headrace.engine.schema import Column, Kind, Schema
from headrace.sidecar.state.batch_places import Batches
from headrace.sidecar.state.batch_store import BatchFile, BatchStore, load_batches

EPOCH = 1
"""The epoch whose rows are loaded."""
RUN_ROWS = 2_000_000
RUN_BYTES = 512 << 20
"""Rows, or bytes of them, from which on a task seals its runs: what it holds in memory."""
CHECKED_ROWS = 8_000_000
"""Keys that are compared at once."""
SHOWN = 10
"""How many offending keys an error shows."""

_AS_THEY_ARE = frozenset(
    {Kind.BOOLEAN, Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.REAL, Kind.DOUBLE, Kind.BYTEA, Kind.DATE,
     Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TEXT, Kind.VARCHAR, Kind.BPCHAR}
)  # fmt: skip
_NAME = "rows"
_TWICE = "a key stands in several rows"
_RUN = Description.epochs(0, 0, EPOCH)
"""Of every run: batches of no width may be any number, and any of them the same; what closes the epoch comes after."""
_END = Description.epochs(0, EPOCH + 1, EPOCH)


class LoadError(HeadraceError):
    """A table that cannot be filled: nothing of it stays in the state."""

    code = "load"


@dataclass(frozen=True)
class Filled:
    """What one task made, or found. `keys`: offending ones, which `why` names; then no file counts."""

    files: tuple[BatchFile, ...] = ()
    rows: int = 0
    why: str = ""
    keys: tuple[str, ...] = ()


class _Refused(Exception):
    """Keys that identify no row."""

    def __init__(self, why: str, keys: Sequence[str]) -> None:
        super().__init__(why)
        self.found = Filled(why=why, keys=tuple(keys))


@dataclass
class Runs:
    """One task's rows of one table, which go to `place`. `write`: the number of the write that all tasks share."""

    table: str
    schema: Schema
    layout: Layout
    place: Batches
    shards: int
    write: int
    _held: list[pa.RecordBatch] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0

    def fresh(self) -> Runs:
        """Of the same table and place, without rows."""
        return Runs(self.table, self.schema, self.layout, self.place, self.shards, self.write)

    def fill(self, batches: Iterable[pa.RecordBatch]) -> Filled:
        """Seal all of them; what was made, or the keys that are NULL or stand in several rows of a run."""
        files, total = [], 0
        try:
            for batch in batches:
                null = null_keys(self.schema, batch)
                if null:
                    raise _Refused("a key is NULL", null)
                self._held.append(batch)
                self._rows += batch.num_rows
                self._bytes += batch.nbytes
                total += batch.num_rows
                if self._rows >= RUN_ROWS or self._bytes >= RUN_BYTES:
                    files += self._seal()
            return Filled(tuple(files + self._seal()), total)
        except _Refused as refused:
            return refused.found

    def _seal(self) -> list[BatchFile]:
        if not self._rows:
            return []
        rows = pa.Table.from_batches(self._held, self.schema.arrow).combine_chunks().to_batches()[0]
        self._held, self._rows, self._bytes = [], 0, 0
        made: list[BatchFile] = []
        for shard, mine in enumerate(shard_positions(self.layout.keys(rows).hash, self.shards)):
            if len(mine):
                part = rows if len(mine) == len(rows) else rows.take(pa.array(mine))
                ones = np.ones(len(part), np.int64)
                batch = Batch.seal(self.layout, Updates(part, ones * EPOCH, ones), _RUN)
                twice = repeated_keys(batch, self.schema)
                if twice:
                    raise _Refused(_TWICE, twice)
                made += BatchStore(self.place, shard).write({_NAME: [batch]}, self.write)[_NAME]
        return made


def null_keys(schema: Schema, rows: pa.RecordBatch) -> list[str]:
    """The first rows whose key is NULL, by their key's columns."""
    keys = schema.key or ()
    names = schema.names
    bad = [rows.column(k).is_null() for k in keys if rows.column(k).null_count]
    if not bad:
        return []
    mask = bad[0]
    for other in bad[1:]:
        mask = pc.or_(mask, other)
    found = rows.filter(mask).slice(0, SHOWN).select(list(keys)).to_pylist()
    return [", ".join(f"{names[k]}={v}" for k, v in zip(keys, row.values(), strict=True)) for row in found]


def ended(layout: Layout, place: Batches, shard: int, write: int) -> BatchFile:
    """The file of the batch that comes after all runs of a shard, and says that nothing else happened in the epoch."""
    return BatchStore(place, shard).write({_NAME: [Batch.empty(layout, _END)]}, write)[_NAME][0]


def checked(layout: Layout, schema: Schema, place: Batches, files: Sequence[BatchFile]) -> Filled:
    """The keys that stand in several runs of one shard, if there are any. Only hashes are read, a range of them at a time."""
    batches = load_batches({_NAME: list(files)}, place, {_NAME: layout})[_NAME]
    largest = max(batches, key=len).ids[0]
    step = max(1, CHECKED_ROWS * len(largest) // sum(map(len, batches)))
    cuts = np.unique(largest[step::step])
    bounds = [[0, *np.searchsorted(b.ids[0], cuts).tolist(), len(b)] for b in batches]
    keys: list[str] = []
    for k in range(len(cuts) + 1):
        hashes = np.concatenate([b.ids[0][at[k] : at[k + 1]] for b, at in zip(batches, bounds, strict=True)])
        hashes.sort()
        again = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
        if len(again):  # what only hashes alike is no key that stands twice
            keys += _shared(schema, batches, again)
        if len(keys) >= SHOWN:
            break
    return Filled(why=_TWICE, keys=tuple(keys[:SHOWN])) if keys else Filled()


def _shared(schema: Schema, batches: Sequence[Batch], hashes: np.ndarray) -> list[str]:
    """The first keys of these hashes that several batches have."""
    seen: dict[tuple[int, int], int] = {}
    found: list[str] = []
    for number, batch in enumerate(batches):
        starts, stops = (np.searchsorted(batch.ids[0], hashes, side) for side in ("left", "right"))
        for at in (i for pair in zip(starts.tolist(), stops.tolist(), strict=True) for i in range(*pair)):
            identity = int(batch.ids[0][at]), int(batch.ids[1][at])
            if seen.setdefault(identity, number) != number:
                found += _listed(schema, batch, np.array([at]))
            if len(found) >= SHOWN:
                return found
    return found


def repeated_keys(batch: Batch, schema: Schema) -> list[str]:
    """The first keys that stand in several rows, or in one row several times."""
    if schema.key is None or len(batch) == 0:
        return []
    hashes, checks = batch.ids[0], batch.ids[1]
    same = (hashes[1:] == hashes[:-1]) & (checks[1:] == checks[:-1])
    places = np.flatnonzero(np.append(same, False) | (batch.diffs > 1))
    if not len(places):
        return []
    return _listed(schema, batch, places[: 4 * SHOWN])


def _listed(schema: Schema, batch: Batch, places: np.ndarray) -> list[str]:
    """The keys at these places of a batch, each once."""
    names, keys = schema.names, list(schema.key or ())
    rows = batch.payload.take(pa.array(batch.positions[places])).select(keys).to_pylist()
    listed = [", ".join(f"{names[k]}={v}" for k, v in zip(keys, row.values(), strict=True)) for row in rows]
    return list(dict.fromkeys(listed))[:SHOWN]


def lanes(table: str, schema: Schema, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows by column name, of whatever Arrow types, in the engine's lanes. Raises LoadError for what does not fit exactly."""
    made = []
    for column in schema.columns:
        at = rows.schema.get_field_index(column.name)
        if at < 0:
            raise LoadError("the data have no such column", table=table, column=column.name,
                            columns=", ".join(rows.schema.names))  # fmt: skip
        made.append(_lane(table, column, rows.column(at)))
    return pa.RecordBatch.from_arrays(made, schema=schema.arrow)


def _lane(table: str, column: Column, values: pa.Array) -> pa.Array:
    try:
        kept = column.type.kind in _AS_THEY_ARE or (column.type.kind is Kind.NUMERIC and column.type.fixed_scale)
        if kept and (not _is_text(values.type) or _is_text(column.type.arrow)):
            return values.cast(column.type.arrow)
        return _by_text(table, column, values)
    except pa.ArrowInvalid as error:
        raise _misfit(table, column, values.type, str(error).splitlines()[0]) from error
    except pa.ArrowNotImplementedError as error:
        raise _misfit(table, column, values.type, "no such conversion") from error


def _by_text(table: str, column: Column, values: pa.Array) -> pa.Array:
    if pa.types.is_decimal(values.type):
        values = pa.array([None if v is None else format(v, "f") for v in values.to_pylist()], pa.large_string())
    read = from_text(values.cast(pa.large_string()), column.type)
    if read.errors is not None and read.errors.null_count < len(read.errors):
        raise _misfit(table, column, values.type, next(e for e in read.errors.to_pylist() if e is not None))
    lane: Any = read.values
    return lane.combine_chunks() if isinstance(lane, pa.ChunkedArray) else lane


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _misfit(table: str, column: Column, found: pa.DataType, why: str) -> LoadError:
    return LoadError(f"a value does not fit its column: {why}", table=table, column=column.name, declared=column.type.sql(),
                     found=str(found), hint="declare the column as the data have it")  # fmt: skip


def conformed(table: str, schema: Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All batches in the engine's lanes."""
    for batch in batches:
        if batch.num_rows:
            yield lanes(table, schema, batch)
