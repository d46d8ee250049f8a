"""Rows that a worker has decoded, kept until the driver says of which epochs they are, and then exchanged by key.

Invariant: a row that is kept is found by its reference until the driver forgets its run, under the columns that its table has
by then; after `exchanged` each shard has the rows of its own keys, in the order that the driver gave them, and every truncate.
The threads that decode keep runs, the dataflow's thread takes rows out, and hands runs over to workers that take its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.connectors.changes import TableChanges
from headrace.engine.batch.exchange_codec import Message, received, sent
from headrace.engine.batch.gather_rows import concat_rows, take_rows
from headrace.engine.batch.partitioning import shard_positions
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import TRUNCATE, Bools, Int64s, Updates, Upserts
from headrace.engine.dataflow.shard import Shard
from headrace.engine.schema import Schema
from headrace.sidecar.execution.workers.kept_run import Run
from headrace.sidecar.execution.workers.protocol import message, opened, upserts_in, upserts_out
from headrace.sidecar.transactions.references import REFERENCES, ROW_BITS, references_in, shards_of

Ordered = tuple[Upserts, Int64s]
"""Changes of a table, and the place of each in the order of all."""


class KeptRows:
    """What one shard of `count` keeps. `emptied`: who is told when nothing is kept any more."""

    def __init__(self, shard: int, count: int) -> None:
        self.shard, self.count = shard, count
        self._runs: dict[int, Run] = {}
        self._lock = threading.Lock()
        self._next = shard
        self.emptied: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._runs)

    def keep(self, changes: TableChanges, hashes: Int64s) -> int:
        """Keep a run; its number."""
        assert len(changes) < 1 << ROW_BITS, "a reference has room for the rows of a run"
        with self._lock:
            number, self._next = self._next, self._next + self.count
            self._runs[number] = Run(changes.rows, changes.kinds, changes.unchanged, hashes)
        return number

    def files_of(self, numbers: Iterable[int]) -> list[Message]:
        """Runs as Arrow files, which stay kept here."""
        return [[self._runs[number].file()] for number in numbers]

    def take_over(self, numbers: Sequence[int], files: Sequence[Message], last: int, folder: Path) -> None:
        """Keep runs of other workers under their numbers, mapped from `folder`; own runs have numbers greater than `last`.
        Raises SpillError."""
        found = [Run.mapped(file[0], folder / f"taking over.{self.shard}") for file in files]
        with self._lock:
            self._runs |= dict(zip(numbers, found, strict=True))
            self._next = max(self._next, (last // self.count + 1) * self.count + self.shard)

    def forget(self, numbers: Iterable[int]) -> None:
        """Let go of runs."""
        with self._lock:
            for number in numbers:
                del self._runs[number]
            empty = not self._runs
        for tell in self.emptied if empty else ():
            tell()

    def _run(self, number: int, schema: Schema) -> Run:
        """A run, under the columns of now."""
        run = self._runs[number]
        if not run.rows.schema.equals(schema.arrow):
            run = self._runs[number] = run.under(schema)
        return run

    def find(
        self, references: Int64s, epochs: Int64s, places: Int64s, schema: Schema
    ) -> tuple[Ordered, Int64s]:  # fmt: skip
        """The rows that are meant, under the columns of `schema`, each at its epoch and place, and the hashes of their keys; not
        in any order."""
        numbers = references >> ROW_BITS
        edges = np.flatnonzero(np.diff(numbers)) + 1
        order: Int64s | None = None
        if len(edges) and len(np.unique(numbers)) <= len(edges):  # runs take turns: the rows of each are taken at once
            order = np.argsort(numbers, kind="stable")
            references, epochs, places = references[order], epochs[order], places[order]
            numbers = numbers[order]
            edges = np.flatnonzero(np.diff(numbers)) + 1
        starts = [0, *edges.tolist()]
        found = [self._run(number, schema) for number in numbers[starts].tolist()]
        at = [part & ((1 << ROW_BITS) - 1) for part in np.split(references, edges)]
        rows = concat_rows([_taken(run.rows, part) for run, part in zip(found, at, strict=True)])
        kinds = np.concatenate([run.kinds[part] for run, part in zip(found, at, strict=True)])
        hashes = np.concatenate([run.hashes[part] for run, part in zip(found, at, strict=True)])
        unchanged: dict[int, Bools] = {}
        for column in sorted({c for run in found for c in run.unchanged}):
            masks = [
                run.unchanged[column][part] if column in run.unchanged else np.zeros(len(part), np.bool_)
                for run, part in zip(found, at, strict=True)
            ]
            unchanged[column] = np.concatenate(masks)
        return (Upserts(rows, epochs, kinds, unchanged), places), hashes


def _taken(rows: pa.RecordBatch, positions: Int64s) -> pa.RecordBatch:
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 == len(positions) and bool((np.diff(positions) == 1).all()):
        return rows if len(positions) == rows.num_rows else rows.slice(first, len(positions))
    return take_rows(rows, positions)


def wanted_out(upserts: Upserts, count: int) -> list[list[Message]]:
    """What each of `count` shards is told of a table's changes, to which `upserts` refers: its own rows, and all truncates."""
    emptied = upserts.kinds == TRUNCATE
    references, places = references_in(upserts.rows), np.arange(len(upserts))
    truncates: Message = ()
    shards = shards_of(references, count)
    if emptied.any():
        at = np.flatnonzero(emptied)
        truncates = _lanes(places[at], upserts.epochs[at], places[at])
        shards[at] = -1
    out = []
    for shard in range(count):
        at = np.flatnonzero(shards == shard)
        out.append([_lanes(references[at], upserts.epochs[at], places[at]), truncates])
    return out


def _lanes(references: Int64s, epochs: Int64s, places: Int64s) -> Message:
    rows = pa.RecordBatch.from_arrays([pa.array(references)], schema=_WANTED)
    return sent(Updates(rows, epochs, places))


_WANTED = pa.schema([REFERENCES.arrow.field(0)])


def _wanted(part: Message) -> tuple[Int64s, Int64s, Int64s]:
    """References, epochs and places."""
    found = received(part, _WANTED)
    if found is None:
        return (np.empty(0, np.int64),) * 3
    return references_in(found.rows), found.times, found.diffs


def found_out(kept: KeptRows, schema: Schema, part: Message) -> tuple[Sequence[int], list[Message]]:
    """Rows of a table for the driver: which columns have values that were not sent, and the parts that carry them."""
    references, epochs, places = _wanted(part)
    if not len(references):
        return [], []
    (rows, at), _ = kept.find(references, epochs, places, schema)
    return upserts_out(_placed(rows, at))


def exchanged(
    shard: Shard, kept: KeptRows, tables: Mapping[str, Schema], parts: Sequence[Message]
) -> dict[str, Upserts]:
    """The changes of this shard's keys, by table. `parts`: of each table the rows wanted of this shard, and the truncates.

    One round, whatever the count of tables: all shards take part in it.
    """
    mine: dict[str, list[Ordered]] = {table: [] for table in tables}
    heads: list[list[tuple[str, Sequence[int]]]] = [[] for _ in range(shard.count)]
    out: list[list[Message]] = [[] for _ in range(shard.count)]
    for at, (table, schema) in enumerate(tables.items()):
        references, epochs, places = _wanted(parts[2 * at])
        if not len(references):
            continue
        (rows, order), hashes = kept.find(references, epochs, places, schema)
        for k, positions in enumerate(shard_positions(hashes.view(np.uint64), shard.count)):
            if not len(positions):
                continue
            part = _at(rows, positions), order[positions]
            if k == shard.index:
                mine[table].append(part)
            else:
                columns, buffers = upserts_out(_placed(*part))
                heads[k].append((table, columns))
                out[k] += buffers
    if not shard.is_alone:
        messages = [message({"tables": head}, some) for head, some in zip(heads, out, strict=True)]
        with shard.together():
            found = shard.exchange(0, messages).messages
        for k, one in enumerate(found):
            if k != shard.index:
                _add(mine, tables, one)
    joined = {}
    for at, (table, schema) in enumerate(tables.items()):
        _, epochs, places = _wanted(parts[2 * at + 1])
        if len(places):
            mine[table].append(_truncates(schema, epochs, places))
        if mine[table]:
            joined[table] = in_order(mine[table])
    return joined


def _add(mine: Mapping[str, list[Ordered]], tables: Mapping[str, Schema], found: Message) -> None:
    head, parts = opened(found)
    for at, (table, columns) in enumerate(head["tables"]):
        mine[table].append(placed_in(columns, parts[2 * at : 2 * at + 2], tables[table]))


def _placed(rows: Upserts, places: Int64s) -> Upserts:
    """As it travels: the places go where what fills a row would, which has been seen to before."""
    return Upserts(rows.rows, rows.epochs, rows.kinds, rows.unchanged, places)


def placed_in(columns: Sequence[int], parts: Sequence[Message], schema: Schema) -> Ordered:
    """As `_placed` and `upserts_out` made it."""
    found = upserts_in(columns, parts, schema.arrow)
    assert found.fill_from is not None, "places are no less than 0"
    return Upserts(found.rows, found.epochs, found.kinds, found.unchanged), found.fill_from


def _truncates(schema: Schema, epochs: Int64s, places: Int64s) -> Ordered:
    rows = pa.RecordBatch.from_arrays([pa.nulls(len(places), f.type) for f in schema.arrow], schema=schema.arrow)
    return Upserts(rows, epochs, np.full(len(places), TRUNCATE, np.uint8)), places


def truncates_of(upserts: Upserts, schema: Schema) -> Ordered | None:
    """The truncates among changes; None where there are none."""
    at = np.flatnonzero(upserts.kinds == TRUNCATE)
    return _truncates(schema, upserts.epochs[at], at) if len(at) else None


def in_order(parts: Sequence[Ordered]) -> Upserts:
    """All of them, in the order of their places."""
    rows = concat_rows([part.rows for part, _ in parts])
    epochs, kinds = (np.concatenate([getattr(p, name) for p, _ in parts]) for name in ("epochs", "kinds"))
    none = [np.zeros(len(part), np.bool_) for part, _ in parts]
    columns = sorted({c for part, _ in parts for c in part.unchanged})
    unchanged = {
        c: np.concatenate([part.unchanged.get(c, no) for (part, _), no in zip(parts, none, strict=True)])
        for c in columns
    }
    whole = Upserts(rows, epochs, kinds, unchanged)
    places = np.concatenate([at for _, at in parts])
    if bool((places[1:] > places[:-1]).all()):
        return whole
    return _at(whole, np.argsort(places))


def _at(upserts: Upserts, positions: Int64s) -> Upserts:
    if len(positions) == len(upserts) and bool((np.diff(positions) == 1).all()):
        return upserts
    unchanged = {c: mask[positions] for c, mask in upserts.unchanged.items()}
    rows = take_rows(upserts.rows, positions)
    return Upserts(rows, upserts.epochs[positions], upserts.kinds[positions], unchanged)


def hashes_of(changes: TableChanges, schema: Schema) -> tuple[Int64s, Int64s]:
    """The two lanes that identify the key of each row: by the first of them a row's shard is known."""
    keys = layout_of(schema, schema.key or tuple(range(len(schema.columns)))).keys(changes.rows)
    return keys.hash.view(np.int64), keys.check.view(np.int64)
