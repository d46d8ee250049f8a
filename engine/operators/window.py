"""Window functions: each row of a group with values that depend on the group's other rows, at each epoch that changes it.

Always: rows that the order calls equal stand by their fingerprint, so that the answer is a function of the rows alone; of
a row that is there several times each copy counts; a group that changes is computed anew, in columns, and only the rows
whose values differ are sent. Called by the dataflow's window nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.batch.batch import DiffOverflow
from engine.batch.consolidation import netted
from engine.batch.keys import fingerprint, image_plan
from engine.batch.payload import take_rows
from engine.batch.updates import Bools, Int64s, Updates
from engine.operators.aggregates import MESSAGE, first_message
from engine.operators.delta import QUIET, Delta, concat, take
from engine.operators.framed import WindowFunction, value_of
from engine.operators.frames import Places
from engine.operators.linear import split
from engine.operators.top import Order, order_lanes
from engine.schema import Schema

MOST_ROWS = 1 << 31


@dataclass(frozen=True)
class Window:
    """Groups by the columns `key`, in `orders`; `schema`: the input's columns, then one a function."""

    input: Schema
    key: tuple[int, ...]
    orders: tuple[Order, ...]
    functions: tuple[WindowFunction, ...]
    schema: Schema

    @cached_property
    def arrow(self) -> pa.Schema:
        """The lanes of the result."""
        return self.schema.arrow


class Entries(NamedTuple):
    """Updates of rows by group: `groups` ascending; `ids`: equal for identical rows; `lanes`: what rows sort by."""

    rows: pa.RecordBatch
    groups: Int64s
    times: Int64s
    diffs: Int64s
    ids: Int64s
    lanes: tuple[Int64s, ...]


def entries_of(window: Window, updates: Updates, groups: Int64s) -> Entries:
    """Updates made ready: rows told apart and ranked once, whatever the epochs are."""
    high, low = fingerprint(updates.rows)
    order = np.lexsort((low, high))
    new = np.ones(len(order), np.int64)
    new[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(new) - 1
    ranks = [lane for o in window.orders for lane in order_lanes(updates.rows.column(o.column), o, window.input)]
    # The fingerprint's order stands in for the row where the order says no more.
    lanes = (*ranks, ids)
    return Entries(updates.rows, groups, updates.times, updates.diffs, ids, lanes)


def window_changes(window: Window, updates: Updates, groups: Int64s, changed: Updates, of: Int64s, since: int) -> Delta:
    """How the values change by `changed`, whose groups are `of`; `updates` with their `groups` hold them already.

    `since`: the last epoch before them. Raises DiffOverflow.
    """
    by_group = np.argsort(groups, kind="stable")
    content = entries_of(window, take(updates, by_group), groups[by_group])
    deltas: list[Delta] = []
    for time in np.unique(changed.times).tolist():
        some = np.unique(of[changed.times == time])
        positions = _of_groups(content, some)
        old = _state(window, content, positions, max(since, time - 1), time, -1)
        new = _state(window, content, positions, time, time, 1)
        deltas.append(_difference(window, old, new))
    return Delta(concat([d.rows for d in deltas]), concat([d.errors for d in deltas]))


def window_of_groups(window: Window, updates: Updates, groups: Int64s, since: int) -> Delta:
    """How the values of whole groups, whose updates these are, change after `since`. Raises DiffOverflow."""
    new = np.flatnonzero(updates.times > since)
    return window_changes(window, updates, groups, take(updates, new), groups[new], since)


def window_content(window: Window, content: Updates, groups: Int64s, as_of: int) -> Delta:
    """The values of a collection with this content. Raises DiffOverflow."""
    entries = entries_of(window, content, groups)
    return _state(window, entries, np.arange(len(content)), as_of, as_of, 1)


def _of_groups(content: Entries, groups: Int64s) -> Int64s:
    """Positions of the entries of some groups."""
    starts, ends = np.searchsorted(content.groups, groups), np.searchsorted(content.groups, groups, "right")
    sizes = ends - starts
    offsets = np.repeat(starts - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
    found: Int64s = np.arange(int(sizes.sum())) + offsets
    return found


def _state(window: Window, content: Entries, positions: Int64s, upto: int, time: int, diff: int) -> Delta:
    """The rows that are live at `upto`, with their values, as updates of `time` and `diff`."""
    kept = positions[content.times[positions] <= upto]
    if not len(kept):
        return QUIET
    ids, first, inverse = np.unique(content.ids[kept], return_index=True, return_inverse=True)
    counts = np.zeros(len(ids), np.int64)
    np.add.at(counts, inverse, content.diffs[kept])
    live = np.flatnonzero(counts > 0)
    if not len(live):
        return QUIET
    if int(counts.max()) > MOST_ROWS or int(counts[live].sum()) > MOST_ROWS:
        raise DiffOverflow
    rows = np.repeat(kept[first[live]], counts[live])
    order = np.lexsort((*(lane[rows] for lane in reversed(content.lanes)), content.groups[rows]))
    rows = rows[order]
    batch = take_rows(content.rows, rows)
    places = _places(content, rows)
    columns: list[pa.Array] = []
    messages: pa.Array | None = None
    for function in window.functions:
        values, fault = value_of(function, batch, window.input, places)
        columns.append(values)
        messages = first_message(messages, None if fault is None else fault.cast(MESSAGE))
    batch = pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=window.arrow)
    size = len(rows)
    return split(Updates(batch, np.full(size, time, np.int64), np.full(size, diff, np.int64)), messages)


def _places(content: Entries, rows: Int64s) -> Places:
    """Where each row's group and its equals in the order begin and end."""
    groups = content.groups[rows]
    size = len(rows)
    new: Bools = np.ones(size, bool)
    new[1:] = groups[1:] != groups[:-1]
    peer = new.copy()
    for lane in content.lanes[:-1]:
        peer[1:] |= lane[rows[1:]] != lane[rows[:-1]]
    return Places.of(np.flatnonzero(new), np.flatnonzero(peer), size)


def _difference(window: Window, old: Delta, new: Delta) -> Delta:
    """Both, less what is in both."""
    rows = concat([old.rows, new.rows])
    errors = concat([old.errors, new.errors])
    if rows is not None:
        times, diffs, positions = netted(rows, image_plan(window.arrow))
        rows = Updates(take_rows(rows.rows, positions), times, diffs) if len(positions) else None
    return Delta(rows, errors)
