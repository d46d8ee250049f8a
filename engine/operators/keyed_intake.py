"""The intake of a keyed table: from upserts to updates, with the old row from the table's own primary-key arrangement.

Always: changes apply in their order and the last one of an epoch stands; an image that does not change emits nothing; a
delete of an absent key is nothing (a replay); an unchanged value is filled from the key's previous image, or is an
error that names table, column and key until a later change mends it. Called by the dataflow's table nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headrace.engine.batch.batch import Batch, DiffOverflow
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.consolidation import without_pairs
from headrace.engine.batch.description import Description
from headrace.engine.batch.gather_rows import take_rows
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import DELETE, TRUNCATE, Bools, Int64s, UInt8s, Updates, Upserts
from headrace.engine.kernels import small_batch
from headrace.engine.kernels.upsert import fill_forward, net, place
from headrace.engine.lattice import Frontier
from headrace.engine.operators.delta import QUIET, Delta, concat_rows, take
from headrace.engine.operators.group_versions import group, runs
from headrace.engine.operators.missing_toast import Touched, unfilled
from headrace.engine.schema import Schema
from headrace.engine.trace.spine import Spine

FEW = 256
"""Below so many upserts one call that does it all costs less than its steps one by one."""


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
    fresh = Updates(upserts.rows, upserts.epochs, np.ones(len(upserts), np.int64))
    own = fresh.struct
    layout.check_rows(own)
    if errors is None and not upserts.unchanged and len(upserts) < FEW:
        made = _few(spine, fresh, upserts, as_of)
        if made is not None:
            return made
    keys = layout.keys_of(fresh)
    truncates = upserts.kinds == TRUNCATE
    if truncates.any():
        content = live_content(spine, as_of)
        known = layout.keys_of(content)
        found = group(Keys(np.concatenate([keys.hash, known.hash]), np.concatenate([keys.check, known.check])))
        changes = spell_out(upserts, truncates, found.ids, found.count)
        order = np.argsort(changes.groups, kind="stable")
        places = np.stack([np.zeros(len(content), np.int64), np.arange(len(content))])
        prior = _Prior(places, np.array([content.struct.address]), content)
        holders = found.ids[len(upserts) :]
        known_rows = [upserts.rows, content.rows]
    else:
        sorted_rows = runs(keys)
        matches = spine.gather(sorted_rows.keys, as_of)
        is_each_once = len(sorted_rows.keys) == len(upserts)
        if not len(matches) and errors is None and is_each_once and _only_whole_rows(upserts):
            layout.tell_order(fresh, sorted_rows.order, sorted_rows.keys)
            return Delta(fresh, None)  # rows of keys that are new, each said once
        found = sorted_rows.by_row()
        changes = Changes(
            np.arange(len(upserts)), found.ids, (upserts.kinds == DELETE).astype(np.uint8), _fills(upserts)
        )
        order = found.order
        prior = _Prior(matches.places, matches.structs, matches)
        holders = matches.probe
        known_rows = [upserts.rows]
    count = len(changes.rows)
    current = np.full(found.count, -1, np.int64)
    current[holders] = np.arange(count, count + len(holders))
    partial = _partial(upserts)[changes.rows]
    epochs = upserts.epochs[changes.rows]
    block, size, failed = net(order, changes.groups, changes.fills, epochs, changes.removes, partial, current)
    rows = _emit(spine.layout, own, upserts, changes.rows, block, size, prior)
    if not failed and errors is None:
        return Delta(rows, None)
    shown = concat_rows([r.select(list(schema.key or ())) for r in known_rows])
    cut = int(upserts.epochs[np.argmax(truncates)]) if truncates.any() else None
    lacks = {column: mask[changes.rows] for column, mask in upserts.unchanged.items()}
    touched = Touched(changes.groups, epochs, block[4, :count] == 1, lacks, take_rows(shown, found.first), cut)
    return Delta(rows, unfilled(name, schema, touched, errors))


def _few(spine: Spine, fresh: Updates, upserts: Upserts, as_of: int) -> Delta | None:
    """`upsert` of a few whole rows, in one call of a kernel; None if it takes more. `fresh`: the rows, as if all were new."""
    view, own = spine.view, fresh.struct
    found, size, how, overflow = small_batch.take_in(
        own.address, spine.layout.sealing, upserts.epochs, upserts.kinds, view.table, as_of
    )
    if overflow:
        raise DiffOverflow
    if how == small_batch.LONG:
        return None
    if how == small_batch.WHOLE:
        return Delta(fresh, None)
    if not size:
        return QUIET
    structs = np.empty(len(view.structs) + 1, np.int64)
    structs[0], structs[1:] = own.address, view.structs
    found = np.ascontiguousarray(found[:, :size])
    rows = spine.layout.assembly().picked(structs, found[:1], found[1:2])
    return Delta(Updates(rows, found[2], found[3]), None)


def live_content(spine: Spine, as_of: int) -> Updates:
    """The whole table at `as_of`; nothing before the first epoch."""
    if as_of >= 0:
        if spine.upper.epoch <= as_of:
            spine.insert(Batch.empty(spine.layout, Description(spine.upper, Frontier.at(as_of + 1))))
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


def _only_whole_rows(upserts: Upserts) -> bool:
    return not upserts.kinds.any() and not any(mask.any() for mask in upserts.unchanged.values())


def _partial(upserts: Upserts) -> UInt8s:
    partial = np.zeros(len(upserts), np.uint8)
    for mask in upserts.unchanged.values():
        partial |= mask
    return partial


class _Prior(NamedTuple):
    """Rows that stood before: `places` int64[2, rows], in which of the payloads at `structs` each lies, and where."""

    places: Int64s
    structs: Int64s
    owner: object


def _emit(
    layout: Layout, own: Exported, upserts: Upserts, rows: Int64s, block: Int64s, size: int, prior: _Prior
) -> Updates | None:
    """The updates of `block` with their rows, unchanged values filled in, where old and new are not the same image."""
    if not size:
        return None
    count = len(rows)
    images = block[0, :size]
    lanes = [place(images, rows, prior.places)]
    filled: dict[int, int] = {}
    for column, mask in upserts.unchanged.items():
        if mask.any():
            sources = np.empty(count, np.int64)
            fill_forward(mask[rows].astype(np.uint8), block[3, :count], sources)
            at = np.where(images < count, sources[np.minimum(images, count - 1)], images)
            filled[column] = len(lanes)
            lanes.append(place(at, rows, prior.places))
    structs = np.concatenate([[own.address], prior.structs])
    both = np.stack(lanes, axis=1)
    payload = layout.filled_assembly(filled).rows(structs, both[0], both[1])
    updates = Updates(payload, block[1, :size], block[2, :size])
    kept = without_pairs(updates, layout.image_plan)
    if kept is None:
        return updates
    return take(updates, kept) if len(kept) else None
