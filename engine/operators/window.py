"""Window functions: each row of a group with values that depend on the group's other rows, at each epoch that changes it.

Always: rows that the order calls equal stand by their fingerprint, so that the answer is a function of the rows alone; of
a row that is there several times each copy counts. All states of all groups that change are computed together, in columns,
as if each were a group of its own; only the rows whose values differ from one state to the next are sent. Called by the
dataflow's window nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.consolidation import consolidate, netted_at
from headrace.engine.batch.gather_rows import take_rows
from headrace.engine.batch.keys import fingerprint, image_plan
from headrace.engine.batch.updates import Bools, Int64s, Updates
from headrace.engine.kernels import versions_live as kernels
from headrace.engine.operators import chunked_delta
from headrace.engine.operators.aggregates import MESSAGE, first_message
from headrace.engine.operators.chunked_delta import Pieced, added_up, whole
from headrace.engine.operators.delta import QUIET, Delta, concat_rows, errors_at, take
from headrace.engine.operators.linear import present, split
from headrace.engine.operators.top import Order, order_lanes
from headrace.engine.operators.window_frames import Places
from headrace.engine.operators.window_values import WindowFunction, value_of
from headrace.engine.schema import Schema

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


class States(NamedTuple):
    """The states to compute: group g's are starts[g] … starts[g + 1], each with its time; its first is from before."""

    starts: Int64s
    times: Int64s


def window_changes(window: Window, updates: Updates, groups: Int64s, changed: Updates, of: Int64s, since: int) -> Delta:
    """How the values change by `changed`, whose groups are `of`; `updates` with their `groups` hold them already.

    `since`: the last epoch before them. In pieces where the states of the groups have many rows. Raises DiffOverflow, as
    the pieces may.
    """
    order = np.lexsort((changed.times, of))
    ids, times = of[order], changed.times[order]
    # Of each group the state from before, then one a time.
    first = np.append(True, ids[1:] != ids[:-1])
    new = first | np.append(True, times[1:] != times[:-1])
    place = np.arange(len(ids))[new]
    befores = np.flatnonzero(first[new])
    owners = np.insert(ids[place], befores, ids[place][befores])
    whens = np.insert(times[place], befores, since)
    starts = np.searchsorted(owners, np.arange(int(groups.max(initial=0)) + 2))
    history = _History(window, updates, groups, States(starts, whens))
    if history.is_small:
        return next(history.changes(), QUIET)
    return Pieced(history.changes())


def window_of_groups(window: Window, updates: Updates, groups: Int64s, since: int) -> Delta:
    """How the values of whole groups, whose updates these are, change after `since`. Raises DiffOverflow."""
    new = np.flatnonzero(updates.times > since)
    return whole(window_changes(window, updates, groups, take(updates, new), groups[new], since))


def window_content(window: Window, content: Updates, groups: Int64s, as_of: int) -> Delta:
    """The values of a collection with this content. Raises DiffOverflow."""
    count = int(groups.max(initial=-1)) + 1
    history = _History(window, content, groups, States(np.arange(count + 1), np.full(count, as_of)))
    return added_up(history.contents())


class _Shown(NamedTuple):
    """Rows with their values, by state: `messages` says why some have none, `states` whose rows they are."""

    rows: pa.RecordBatch
    messages: pa.Array | None
    states: Int64s

    def take(self, at: Int64s) -> _Shown:
        messages = None if self.messages is None else self.messages.take(pa.array(at))
        return _Shown(take_rows(self.rows, at), messages, self.states[at])

    def and_then(self, other: _Shown) -> _Shown:
        sides = (self, other)
        messages: pa.Array | None = None
        if any(side.messages is not None for side in sides):
            parts = [pa.nulls(len(s.states), MESSAGE) if s.messages is None else s.messages for s in sides]
            messages = pa.concat_arrays(parts)
        return _Shown(concat_rows([s.rows for s in sides]), messages, np.concatenate([s.states for s in sides]))


class _History:
    """Rows of groups over their states, read once from the first state to the last. Raises DiffOverflow."""

    def __init__(self, window: Window, updates: Updates, groups: Int64s, states: States) -> None:
        self._window, self._states = window, states
        entries = entries_of(window, updates, groups)
        order = np.lexsort((entries.times, *reversed(entries.lanes), groups))
        self._order = order
        self._entries = entries
        block, size, overflow = kernels.spans_at(
            groups[order], entries.ids[order], entries.times[order], entries.diffs[order], *states
        )
        spans = block[:, :size]
        self._spans = np.ascontiguousarray(spans[:, np.argsort(spans[kernels.FIRST], kind="stable")])
        copies = self._spans[kernels.COPIES]
        if overflow or int(copies.max(initial=0)) > MOST_ROWS:
            raise DiffOverflow
        changes = np.zeros(len(states.times) + 1, np.int64)
        np.add.at(changes, self._spans[kernels.FIRST], copies)
        np.subtract.at(changes, self._spans[kernels.BEHIND], copies)
        self._sizes = np.cumsum(changes)[:-1]
        if int(self._sizes.max(initial=0)) > MOST_ROWS:
            raise DiffOverflow

    @property
    def is_small(self) -> bool:
        """Whether all states together are no more than one piece."""
        return int(self._sizes.sum()) <= chunked_delta.PIECE

    def contents(self) -> Iterator[Delta]:
        """The rows of all states, at the times of these."""
        for shown, _ in self._shown():
            size = len(shown.states)
            yield split(Updates(shown.rows, self._states.times[shown.states], np.ones(size, np.int64)), shown.messages)

    def changes(self) -> Iterator[Delta]:
        """What leads from each state of a group to the next."""
        starts, times = self._states
        first = np.zeros(len(times) + 1, np.bool_)
        first[starts] = True
        carried: _Shown | None = None
        for shown, stop in self._shown():
            fresh = len(shown.states)
            if carried is not None:
                shown = carried.and_then(shown)
            # A row begins with its state, unless that is from before the step, and ends with the next one.
            states = shown.states
            begin = np.flatnonzero(~first[states])
            begin = begin[begin >= len(states) - fresh]
            open_ = ~first[states + 1]
            end = np.flatnonzero(open_ & (states + 1 < stop))
            left = np.flatnonzero(open_ & (states + 1 == stop))
            carried = shown.take(left) if len(left) else None
            at = np.concatenate([begin, end])
            when = np.concatenate([times[states[begin]], times[states[end] + 1]])
            diffs = np.repeat(np.array([1, -1]), [len(begin), len(end)])
            yield _net(self._window, shown, at, when, diffs)

    def _shown(self) -> Iterator[tuple[_Shown, int]]:
        """The rows of some states with their values, and the state behind them: about a piece, or one state, at a time."""
        ends = np.cumsum(self._sizes)
        sweep, active = np.zeros(2, np.int64), np.empty(self._spans.shape[1], np.int64)
        start = done = 0
        while start < len(ends):
            stop = max(int(np.searchsorted(ends, done + chunked_delta.PIECE, "right")), start + 1)
            size = int(ends[stop - 1]) - done
            found = np.empty((2, size), np.int64)
            kernels.live_rows(self._spans, (start, stop), sweep, active, found)
            yield self._valued(found[0], self._order[found[1]]), stop
            start, done = stop, int(ends[stop - 1])

    def _valued(self, states: Int64s, rows: Int64s) -> _Shown:
        """The rows, which stand by state and order, with their values."""
        batch = take_rows(self._entries.rows, rows)
        if not len(rows):
            columns = [pa.nulls(0, f.type.arrow) for f in self._window.functions]
            empty = pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=self._window.arrow)
            return _Shown(empty, None, states)
        places = _places(self._entries, rows, states)
        columns, messages = [], None
        for function in self._window.functions:
            values, fault = value_of(function, batch, self._window.input, places)
            columns.append(values)
            messages = first_message(messages, None if fault is None else fault.cast(MESSAGE))
        return _Shown(
            pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=self._window.arrow), messages, states
        )


def _places(content: Entries, rows: Int64s, states: Int64s) -> Places:
    """Where each row's state and its equals in the order begin and end."""
    size = len(rows)
    new: Bools = np.ones(size, bool)
    new[1:] = states[1:] != states[:-1]
    peer = new.copy()
    for lane in content.lanes[:-1]:
        peer[1:] |= lane[rows[1:]] != lane[rows[:-1]]
    return Places.of(np.flatnonzero(new), np.flatnonzero(peer), size)


def _net(window: Window, shown: _Shown, at: Int64s, times: Int64s, diffs: Int64s) -> Delta:
    """Updates of the rows at `at`, of which the same rows that come and go at one time are left out."""
    errors: Updates | None = None
    if shown.messages is not None:
        failed = present(shown.messages)[at]
        bad = np.flatnonzero(failed)
        errors = consolidate(errors_at(shown.messages.take(pa.array(at[bad])), times[bad], diffs[bad]))
        at, times, diffs = at[~failed], times[~failed], diffs[~failed]
    times, diffs, at = netted_at(shown.rows, at, times, diffs, image_plan(window.arrow))
    rows = Updates(take_rows(shown.rows, at), times, diffs) if len(at) else None
    return QUIET if rows is None and not errors else Delta(rows, errors if errors else None)
