"""Counting: what is shown of the keys that change, read off an arrangement of which the key is the whole row.

Always: a row's copies are its multiplicity there, so that nothing is kept beside the arrangement, which any other reader
of the same columns shares; it depends on a total order of times, which loops do not have. Called by the dataflow's nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.gather_rows import Assembly
from headrace.engine.batch.keys import Keys, key_lanes
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels import multiplicities as kernels
from headrace.engine.operators.delta import QUIET, Delta, rows_of
from headrace.engine.operators.group_versions import Groups, corrections_of, group, versions_of
from headrace.engine.operators.ranks import row_ranks
from headrace.engine.operators.reduce_layout import Shape
from headrace.engine.operators.value_history import Clock, Stream, least
from headrace.engine.schema import DataType
from headrace.engine.trace.lookup import EARLIEST, LATEST, Matches
from headrace.engine.trace.spine import Spine

Span = tuple[int | None, int | None]
"""Times after the first and before the second."""


class Shown(NamedTuple):
    """What is shown of a counted key: the result's `schema`, as Arrow has it, and of how many `least` copies on.

    `numbers`: how many columns after the key's say how many copies there are. `images`: the types of the key, where equal
    ones may look different: the least image of those that are there is shown; else None.
    """

    keys: Assembly
    schema: pa.Schema
    least: int
    numbers: int
    images: tuple[DataType, ...] | None

    @staticmethod
    def of(shape: Shape) -> Shown:
        """Of a reduce that only counts."""
        schema = shape.schema.arrow
        key = pa.schema([schema.field(k) for k in range(shape.key)])
        images = shape.key_types if shape.has_images else None
        return Shown(Assembly.of(key, range(shape.key)), schema, shape.least, len(shape.slots), images)

    def rows(self, keys: Exported, copies: Int64s) -> Exported:
        """Rows of the result from their keys, and how many of each there are."""
        if not self.numbers:
            return keys
        columns = [*keys.rows.columns, *[pa.array(copies)] * self.numbers]
        return Exported(rows_of(columns, self.schema, len(copies)))


def count_changes(shown: Shown, spine: Spine, keys: Keys, since: int, until: int | None = None) -> Delta:
    """What is shown otherwise of `keys` at the epochs after `since` and before `until`. Raises DiffOverflow."""
    found = _found(shown, spine, keys, (since, until), whole=False)
    if not found.shape[1]:
        return QUIET
    return Delta(Updates(_rows(shown, spine, found), found[kernels.TIME], found[kernels.DIFF]), None)


def _rows(shown: Shown, spine: Spine, found: Int64s) -> Exported:
    keys = shown.keys.picked(spine.view.structs, found[kernels.BATCH][None], found[kernels.POSITION][None])
    return shown.rows(keys, found[kernels.COPIES])


def count_known(shown: Shown, updates: Updates) -> Delta:
    """As `count_changes`, of keys that are whole rows whose copies `before` are known: nothing is looked up."""
    assert updates.before is not None
    before, after = updates.before, updates.before + updates.diffs
    was, comes = before >= shown.least, after >= shown.least
    gone, come = (np.flatnonzero(is_so & ~other) for is_so, other in ((was, comes), (comes, was)))
    if shown.numbers:
        gone, come = np.flatnonzero(was), np.flatnonzero(comes)
    at = np.concatenate([gone, come])
    if not len(at):
        return QUIET
    diffs = np.repeat(np.array([-1, 1]), [len(gone), len(come)])
    here = np.array([updates.struct.address])
    keys = shown.keys.picked(here, np.zeros((1, len(at)), np.int64), at[None])
    rows = shown.rows(keys, np.concatenate([before[gone], after[come]]))
    return Delta(Updates(rows, updates.times[at], diffs), None)


def _found(shown: Shown, spine: Spine, keys: Keys, span: Span, *, whole: bool) -> Int64s:
    """What is shown of `keys` in `span`, as `kernels.tally` tells it. Raises DiffOverflow."""
    since, until = span
    if shown.images is not None:
        return _found_images(shown, spine, keys, span, whole=whole)
    first, stop = EARLIEST if since is None else since, LATEST if until is None else until
    how = shown.least, shown.numbers > 0, whole
    block, size, overflow = kernels.tally(spine.view.table, keys.hash, keys.check, first, stop, *how)
    if overflow:
        raise DiffOverflow
    return np.ascontiguousarray(block[:, :size])


def _found_images(shown: Shown, spine: Spine, keys: Keys, span: Span, *, whole: bool) -> Int64s:
    """As `_found`, where a key may have several images: all of those that it has are read."""
    if not whole:
        keys = keys.take(group(keys).first)
    matches = spine.gather(keys, *span)
    if not len(matches):
        return np.empty((kernels.COPIES + 1, 0), np.int64)
    begins = np.append(True, matches.probe[1:] != matches.probe[:-1])
    order = np.lexsort((matches.times, matches.probe))
    found = Groups(order, np.cumsum(begins) - 1, np.flatnonzero(begins))
    at, times, diffs, copies = _least_images(shown, found, matches.rows(), matches.times, matches.diffs)
    block = np.stack([matches.probe[at], *matches.places[:, at], times, diffs, copies])
    return block if whole or span[0] is None else np.ascontiguousarray(block[:, times > span[0]])


def _least_images(
    shown: Shown, found: Groups, rows: pa.RecordBatch, times: Int64s, diffs: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """What is shown of each group of rows, of which nothing was there before: (row, time, diff, copies). Raises DiffOverflow."""
    assert shown.images is not None
    ones, none = np.ones((len(times), 1), np.int64), np.zeros((found.count, 1), np.int64)
    states = versions_of(found, times, diffs, ones, none, int(times.min()) - 1)
    clock = Clock(states.starts(found.count), states.times)
    at = least(row_ranks(rows.columns, shown.images), Stream(found.ids, times, diffs, rows.column(0)), clock)
    same = states.same if shown.numbers else np.ones_like(states.same)
    same[1:] &= at[1:] == at[:-1]
    copies = states.lanes[:, 0]
    version, when, net = corrections_of(states._replace(same=same), (copies >= shown.least).astype(np.uint8))
    return at[version], when, net, copies[version]


def counted(shown: Shown, content: Updates) -> Delta:
    """What is shown of rows that are there, each once, as often as their diff says."""
    if not len(content):
        return QUIET
    at, copies = np.flatnonzero(content.diffs >= shown.least), content.diffs
    if shown.images is not None:
        found = group(key_lanes(content.rows, range(len(shown.images)), shown.images))
        at, _, _, copies = _least_images(shown, found, content.rows, content.times, content.diffs)
    else:
        copies = copies[at]
    if not len(at):
        return QUIET
    keys = content.rows if len(at) == len(content) else content.rows.take(pa.array(at))
    rows = shown.rows(Exported(rows_of(keys.columns, shown.keys.schema, len(at))), copies)
    return Delta(Updates(rows, content.times[at], np.ones(len(at), np.int64)), None)


class CountedIndex:
    """What a count shows, looked up in the arrangement of what it counts. `layout`: of its rows, by their key."""

    def __init__(self, spine: Spine, shown: Shown, layout: Layout) -> None:
        self._spine = spine
        self._shown = shown
        self._layout = layout

    def __len__(self) -> int:
        return len(self._spine)

    def gather(
        self,
        keys: Keys,
        since: int | None = None,
        until: int | None = None,
        most: int = LATEST,  # noqa: ARG002 (what is shown of a key is one row at a time)
    ) -> Matches:
        """As `Spine.gather`. Raises DiffOverflow."""
        view = self._spine.view
        found = _found(self._shown, self._spine, keys, (since, until), whole=True)
        probe, times, diffs = found[kernels.PROBE], found[kernels.TIME], found[kernels.DIFF]
        # One row of a key is shown at a time: what goes is what came last.
        row = np.cumsum(diffs > 0)
        if not self._shown.numbers:
            places = found[kernels.BATCH : kernels.POSITION + 1]
            return Matches(probe, times, diffs, row, places, view.structs, view.batches, self._layout)
        rows = _rows(self._shown, self._spine, found)
        return Matches.of_rows((probe, times, diffs, row), rows, self._layout)
