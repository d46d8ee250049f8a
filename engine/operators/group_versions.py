"""Rows numbered by group, and the versions of each group: what a reduce starts from.

Always: groups are numbered by key identity, versions stand by group and time, and depend on nothing but the updates'
content. Called by the reduce operators and the tables' intake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.updates import Int64s, UInt8s
from headrace.engine.kernels import grouping
from headrace.engine.kernels.reduce import all_within, corrections, group_rows, versions

_FEW = 1 << 31
"""So many copies of each of so many rows, with up to `_SOME` from before, fit 64 bits: nothing more need be looked at."""

_SOME = 1 << 62

_LOW = 0xFFFFFFFF


@dataclass(frozen=True)
class Groups:
    """`ids[row]`: the row's group; `order`: rows by group, then time; `first[group]`: one row of it."""

    order: Int64s
    ids: Int64s
    first: Int64s

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.first)


def group(keys: Keys, times: Int64s | None = None) -> Groups:
    """The groups of rows with these keys; within a group by time, or as they come when there are no times."""
    when = np.zeros(len(keys), np.int64) if times is None else times
    if len(keys) >= grouping.MANY:
        return _many(keys, when).by_row()
    block, count = group_rows(keys.hash, keys.check, when)
    return Groups(block[0], block[1], block[2, :count])


class Runs(NamedTuple):
    """Rows by group, then as they came: `order`; the group of each of these places; and the key of each group."""

    order: Int64s
    groups: Int64s
    keys: Keys

    def by_row(self) -> Groups:
        """The same, told of each row."""
        ids = np.empty_like(self.order)
        ids[self.order] = self.groups
        return Groups(self.order, ids, self.order[np.flatnonzero(np.diff(self.groups, prepend=-1))])


def runs(keys: Keys) -> Runs:
    """The groups of rows with these keys, as they stand side by side: of many rows that costs less than `group`."""
    if len(keys) >= grouping.MANY:
        return _many(keys, np.zeros(len(keys), np.int64))
    found = group(keys)
    return Runs(found.order, found.ids[found.order], keys.take(found.first))


def _many(keys: Keys, times: Int64s) -> Runs:
    size = len(keys)
    order, groups = np.empty(size, np.int64), np.empty(size, np.int64)
    hashes, checks = np.empty(size, np.uint64), np.empty(size, np.uint64)
    count = grouping.group_many((keys.hash, keys.check), times, (order, groups), (hashes, checks))
    return Runs(order, groups, Keys(hashes[:count], checks[:count]))


class Versions(NamedTuple):
    """States of groups: `groups`, `times`, `rows` (a row of the group), `same` (1: as the one above) and `lanes`."""

    groups: Int64s
    times: Int64s
    rows: Int64s
    same: Int64s
    lanes: Int64s

    def starts(self, count: int) -> Int64s:
        """Group g's versions are starts[g] … starts[g + 1]."""
        return np.searchsorted(self.groups, np.arange(count + 1))


def versions_of(found: Groups, times: Int64s, diffs: Int64s, lanes: Int64s, prior: Int64s, before: int) -> Versions:
    """Each group's lanes at `before` (`prior`) and after each time of its rows. lanes: rows × width.

    Lane 0 counts the group's rows: it decides whether there is a group at all, and no sum has more terms than it says.
    Raises DiffOverflow where it does not fit 64 bits.
    """
    few = len(times) < _FEW and all_within(diffs, -_FEW, _FEW) and all_within(prior[:, 0], -_SOME, _SOME)
    if not few:
        _check_counts(found, times, diffs * lanes[:, 0], prior[:, 0])
    room = len(times) + found.count
    out, out_lanes = np.empty((4, room), np.int64), np.empty((room, lanes.shape[1]), np.int64)
    n = versions((found.order, found.ids, times, diffs), lanes, prior, before, out, out_lanes)
    return Versions(out[0, :n], out[1, :n], out[2, :n], out[3, :n], out_lanes[:n])


def _check_counts(found: Groups, times: Int64s, diffs: Int64s, prior: Int64s) -> None:
    """Raises DiffOverflow if prior + diffs, added up by group, does not fit 64 bits at some time."""
    order = found.order
    groups, when, diffs = found.ids[order], times[order], diffs[order]
    starts = np.searchsorted(groups, groups)

    def running(half: Int64s, before: Int64s) -> Int64s:
        total = np.cumsum(half)
        found_so_far: Int64s = total - total[starts] + half[starts] + before[groups]
        return found_so_far

    # In halves of 32 bits, neither of which can wrap; only what stands at the end of a time counts.
    low = running(diffs & _LOW, prior & _LOW)
    high = running(diffs >> 32, prior >> 32) + (low >> 32)
    last = np.append((groups[1:] != groups[:-1]) | (when[1:] != when[:-1]), True)
    if bool(((high < -_FEW) | (high >= _FEW))[last].any()):
        raise DiffOverflow


def corrections_of(found: Versions, live: UInt8s) -> tuple[Int64s, Int64s, Int64s]:
    """(version, time, diff) of the updates that lead from each version to the next."""
    out = np.empty((3, 2 * len(found.groups)), np.int64)
    n = corrections(found.groups, found.times, live, found.same, out)
    return out[0, :n], out[1, :n], out[2, :n]
