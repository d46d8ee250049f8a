"""Counting: what is shown of the keys that change, read off an arrangement of which the key is the whole row.

Always: a row's copies are its multiplicity there, so that nothing is kept beside the arrangement, which any other reader
of the same columns shares; it depends on a total order of times, which loops do not have. Called by the dataflow's nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.batch.batch import DiffOverflow
from engine.batch.keys import Keys
from engine.batch.payload import Assembly
from engine.batch.updates import Int64s, Updates
from engine.kernels import tally as kernels
from engine.operators.delta import QUIET, Delta, rows_of
from engine.operators.shape import Shape
from engine.trace.lookup import EARLIEST, LATEST, Matches, View
from engine.trace.spine import Spine


class Shown(NamedTuple):
    """What is shown of a counted key: the result's `schema`, as Arrow has it, and of how many `least` copies on.

    `numbers`: how many columns after the key's say how many copies there are.
    """

    keys: Assembly
    schema: pa.Schema
    least: int
    numbers: int

    @staticmethod
    def of(shape: Shape) -> Shown:
        """Of a reduce that only counts."""
        schema = shape.schema.arrow
        key = pa.schema([schema.field(k) for k in range(shape.key)])
        return Shown(Assembly.of(key, range(shape.key)), schema, shape.least, len(shape.slots))


def count_changes(shown: Shown, spine: Spine, keys: Keys, since: int, until: int | None = None) -> Delta:
    """What is shown otherwise of `keys` at the epochs after `since` and before `until`. Raises DiffOverflow."""
    view = spine.view
    found = _tally(view, keys, (since, until), (shown.least, shown.numbers > 0, False))
    size = found.shape[1]
    if not size:
        return QUIET
    rows = shown.keys.picked(view.structs, found[kernels.BATCH][None], found[kernels.POSITION][None])
    times, diffs = found[kernels.TIME], found[kernels.DIFF]
    if not shown.numbers:
        return Delta(Updates(rows, times, diffs), None)
    columns = [*rows.rows.columns, *[pa.array(found[kernels.COPIES])] * shown.numbers]
    return Delta(Updates(rows_of(columns, shown.schema, size), times, diffs), None)


def _tally(view: View, keys: Keys, span: tuple[int | None, int | None], how: tuple[int, bool, bool]) -> Int64s:
    since, until = span
    first, stop = EARLIEST if since is None else since, LATEST if until is None else until
    block, size, overflow = kernels.tally(view.table, keys.hash, keys.check, first, stop, *how)
    if overflow:
        raise DiffOverflow
    return np.ascontiguousarray(block[:, :size])


def counted(shown: Shown, content: Updates) -> Delta:
    """What is shown of rows that are there, each once, as often as their diff says."""
    enough = np.flatnonzero(content.diffs >= shown.least)
    if not len(enough):
        return QUIET
    rows = content.rows if len(enough) == len(content) else content.rows.take(pa.array(enough))
    columns = [*rows.columns, *[pa.array(content.diffs[enough])] * shown.numbers]
    ones: Int64s = np.ones(len(enough), np.int64)
    return Delta(Updates(rows_of(columns, shown.schema, len(enough)), content.times[enough], ones), None)


class Present:
    """The rows that are there at least so many times, each once, looked up in the arrangement of all of them."""

    def __init__(self, spine: Spine, least: int) -> None:
        self._spine = spine
        self._least = least

    def __len__(self) -> int:
        return len(self._spine)

    def gather(self, keys: Keys, since: int | None = None, until: int | None = None) -> Matches:
        """As `Spine.gather`. Raises DiffOverflow."""
        view = self._spine.view
        found = _tally(view, keys, (since, until), (self._least, False, True))
        places = found[kernels.BATCH : kernels.POSITION + 1]
        times, diffs = found[kernels.TIME], found[kernels.DIFF]
        return Matches(found[kernels.PROBE], times, diffs, places, view.structs, view.batches, view.layout)
