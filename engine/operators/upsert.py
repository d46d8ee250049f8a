"""The intake of a keyed table: from upserts to updates, with the old row from the table's own primary-key arrangement.

Always: changes apply in their order and the last one of an epoch stands; an image that does not change emits nothing; a
delete of an absent key is nothing (a replay); an unchanged value is filled from the key's previous image, or is an
error that names table, column and key until a later change mends it. Called by the dataflow's table nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.batch.keys import HashPlan, Keys, lanes_of
from engine.batch.payload import indices, take_rows
from engine.batch.updates import DELETE, TRUNCATE, Bools, Int64s, UInt8s, Updates, Upserts
from engine.kernels.upsert import fill_forward, net_images, walk
from engine.operators.delta import Delta, concat_rows, rows_of, take
from engine.operators.groups import group
from engine.operators.unfilled import Touched, unfilled
from engine.schema import Schema
from engine.trace.spine import Spine


class Changes(NamedTuple):
    """Upserts with every truncate spelt out as a delete of each known key: one entry a change of one key.

    `rows`: the upsert's position; `groups`: number of the key; `fills`: change that fills, or -1.
    """

    rows: Int64s
    groups: Int64s
    removes: UInt8s
    fills: Int64s


def upsert(
    name: str, schema: Schema, spine: Spine, upserts: Upserts, as_of: int, errors: Updates | None = None
) -> Delta:
    """The updates that `upserts` make of a table whose trace stands at `as_of` (the last complete epoch).

    `errors`: the errors that live there then.
    """
    layout = spine.layout
    layout.check_rows(upserts.rows)
    keys = layout.keys(upserts.rows)
    truncates = upserts.kinds == TRUNCATE
    if truncates.any():
        prior = live_content(spine, as_of).rows
        known = layout.keys(prior)
        found = group(Keys(np.concatenate([keys.hash, known.hash]), np.concatenate([keys.check, known.check])))
        current = np.full(found.count, -1, np.int64)
        current[found.ids[len(upserts) :]] = np.arange(prior.num_rows)
        changes = spell_out(upserts, truncates, found.ids, found.count)
    else:
        found = group(keys)
        current, prior = _live_rows(spine, keys.take(found.first), as_of)
        changes = Changes(
            np.arange(len(upserts)), found.ids, (upserts.kinds == DELETE).astype(np.uint8), _fills(upserts)
        )
    count = len(changes.rows)
    current[current >= 0] += count
    before, after, fill_image = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    bad = np.empty(count, np.uint8)
    partial = _partial(upserts)
    failed = walk(
        changes.groups, changes.removes, changes.fills, partial[changes.rows], current, before, after, fill_image, bad
    )
    order = np.argsort(changes.groups, kind="stable")
    old, new, times = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    n = net_images(order, changes.groups, upserts.epochs[changes.rows], before, after, old, new, times)
    images = _Images(upserts, prior, changes.rows, fill_image)
    rows = _emit(images, old[:n], new[:n], times[:n], layout.image_plan)
    if not failed and errors is None:
        return Delta(rows, None)
    shown = concat_rows([r.select(list(schema.key or ())) for r in (upserts.rows, prior)])
    cut = int(upserts.epochs[np.argmax(truncates)]) if truncates.any() else None
    lacks = {column: mask[changes.rows] for column, mask in upserts.unchanged.items()}
    epochs = upserts.epochs[changes.rows]
    touched = Touched(changes.groups, epochs, bad.astype(np.bool_), lacks, take_rows(shown, found.first), cut)
    return Delta(rows, unfilled(name, schema, touched, errors))


def live_content(spine: Spine, as_of: int) -> Updates:
    """The whole table at `as_of`; nothing before the first epoch."""
    if as_of >= 0:
        return spine.snapshot(as_of)
    none = np.empty(0, np.int64)
    return Updates(spine.layout.schema.empty(), none, none)


def spell_out(upserts: Upserts, truncates: Bools, groups: Int64s, count: int) -> Changes:
    """Every truncate as a removal of each of `count` groups, in place."""
    repeats = np.where(truncates, count, 1)
    starts = np.cumsum(repeats) - repeats
    rows = np.repeat(np.arange(len(upserts)), repeats)
    cut = truncates[rows]
    own = groups[: len(upserts)][rows]
    fills = _fills(upserts)[rows]
    return Changes(
        rows,
        np.where(cut, np.arange(len(rows)) - starts[rows], own),
        (cut | (upserts.kinds[rows] == DELETE)).astype(np.uint8),
        np.where(fills >= 0, starts[fills], -1),
    )


def _fills(upserts: Upserts) -> Int64s:
    return np.full(len(upserts), -1, np.int64) if upserts.fill_from is None else upserts.fill_from


def _partial(upserts: Upserts) -> UInt8s:
    partial = np.zeros(len(upserts), np.uint8)
    for mask in upserts.unchanged.values():
        partial |= mask
    return partial


def _live_rows(spine: Spine, keys: Keys, as_of: int) -> tuple[Int64s, pa.RecordBatch]:
    """For each key the position of its live row in the payload returned beside, or -1."""
    current = np.full(len(keys), -1, np.int64)
    found = spine.gather(keys, as_of)
    current[found.probe] = np.arange(len(found))
    return current, found.rows()


class _Images:
    """Rows by image number: below the number of changes a change's row (filled), above it a prior row."""

    def __init__(self, upserts: Upserts, prior: pa.RecordBatch, rows: Int64s, fill_image: Int64s) -> None:
        self._count = len(rows)
        self._rows = rows
        self._offset = len(upserts) - self._count
        self._payload = concat_rows([upserts.rows, prior]) if prior.num_rows else upserts.rows
        self._sources: Mapping[int, Int64s] = {
            column: self._filled(mask[rows], fill_image) for column, mask in upserts.unchanged.items() if mask.any()
        }

    def _filled(self, mask: Bools, fill_image: Int64s) -> Int64s:
        sources = np.empty(self._count, np.int64)
        fill_forward(mask.astype(np.uint8), fill_image, sources)
        return sources

    def _positions(self, images: Int64s) -> Int64s:
        if not self._count:
            return images
        return np.where(images < self._count, self._rows[np.minimum(images, self._count - 1)], images + self._offset)

    def take(self, images: Int64s) -> pa.RecordBatch:
        """The rows of `images`, unchanged values filled in."""
        taken = take_rows(self._payload, self._positions(images))
        if not self._sources:
            return taken
        columns = taken.columns
        for column, sources in self._sources.items():
            filled = np.where(images < self._count, sources[np.minimum(images, self._count - 1)], images)
            columns[column] = self._payload.column(column).take(indices(self._positions(filled)))
        return rows_of(columns, taken.schema, len(images))


def _emit(images: _Images, old: Int64s, new: Int64s, times: Int64s, plan: HashPlan) -> Updates | None:
    """-old and +new at each time, where the two are not the same image."""
    if not len(times):
        return None
    ends, begins = np.flatnonzero(old >= 0), np.flatnonzero(new >= 0)
    updates = Updates(
        images.take(np.concatenate([old[ends], new[begins]])),
        np.concatenate([times[ends], times[begins]]),
        np.concatenate([np.full(len(ends), -1, np.int64), np.ones(len(begins), np.int64)]),
    )
    both = np.flatnonzero((old >= 0) & (new >= 0))
    if len(both):
        high, low, _ = lanes_of(updates, plan)
        one, two = np.searchsorted(ends, both), len(ends) + np.searchsorted(begins, both)
        same = (high[one] == high[two]) & (low[one] == low[two])
        if same.any():
            keep = np.ones(len(updates), np.bool_)
            keep[one[same]] = False
            keep[two[same]] = False
            kept = np.flatnonzero(keep)
            return take(updates, kept) if len(kept) else None
    return updates
