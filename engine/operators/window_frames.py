"""Frames of window functions: which places of its sorted group each row looks at.

Always: a frame is up to three runs of places, in order: what is excluded lies between them. A RANGE with offsets has its
bounds as columns, of the type of what the group is sorted by; other frames have them as columns where the tables say how
far off they are. Called by `window_values`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Int64s
from headrace.engine.operators.ranks import ranks_of
from headrace.engine.schema import DataType

FARTHEST = 1 << 40
"""No group has so many rows: a place so far off is beyond its end, and can be added to any other place."""


@dataclass(frozen=True)
class Frame:
    """Which rows of its group a row looks at: `unit` rows, range or groups; from `start` to `end`, counted from its own
    (None: without bound). `exclude`: current row, group, ties, or nothing.

    `reach`: how many of the function's last columns belong to its bounds; then a `start` or `end` other than 0 says on which
    side of the row such a bound lies. Of a RANGE these columns are what it is sorted by and the bounds, else how many rows
    or sets of equals off they are. `descending`, `nulls_first`: of a RANGE's order.
    """

    unit: str
    start: int | None
    end: int | None
    exclude: str = ""
    reach: int = 0
    descending: bool = False
    nulls_first: bool = False


class Places(NamedTuple):
    """Of each row: its group's first place and the one behind its last, those of its equals, and the equals' number.

    `starts`: where each set of equals begins, and the number of rows behind them.
    """

    low: Int64s
    high: Int64s
    first: Int64s
    behind: Int64s
    peers: Int64s
    starts: Int64s

    @classmethod
    def of(cls, groups: Int64s, peers: Int64s, size: int) -> Places:
        """From the places where groups and sets of equals begin."""
        (low, high), (first, behind) = (_spans(starts, size) for starts in (groups, peers))
        numbers = np.repeat(np.arange(len(peers)), np.diff(np.append(peers, size)))
        return cls(low, high, first, behind, numbers, np.append(peers, size))


def _spans(starts: Int64s, size: int) -> tuple[Int64s, Int64s]:
    ends = np.append(starts[1:], size)
    return np.repeat(starts, ends - starts), np.repeat(ends, ends - starts)


Run = tuple[Int64s, Int64s]
"""Of each row the first place of a run, and the one behind its last; equal where it is empty."""


def runs_of(frame: Frame, places: Places, reach: Sequence[pa.Array], kinds: Sequence[DataType]) -> list[Run]:
    """The runs of each row's frame."""
    if frame.reach and frame.unit == "range":
        start, end = _reached(frame, places, reach, kinds[0])
    else:
        start, end = _counted(frame, places, *_steps(frame, reach))
    end = np.maximum(end, start)
    if not frame.exclude:
        return [(start, end)]
    at = np.arange(len(start))
    first, behind = (at, at + 1) if frame.exclude == "current row" else (places.first, places.behind)
    runs = [(start, np.clip(first, start, end)), (np.clip(behind, start, end), end)]
    if frame.exclude == "ties":
        inside = (at >= start) & (at < end)
        runs.insert(1, (at, at + inside))
    return runs


Step = int | Int64s | None


def _steps(frame: Frame, counts: Sequence[pa.Array]) -> tuple[Step, Step]:
    """The bounds of a frame of rows or of sets of equals, those of which a column says how far off they are being columns."""
    if not counts:
        return frame.start, frame.end
    left = iter(counts)
    start, end = (
        next(left).fill_null(0).to_numpy(zero_copy_only=False).clip(0, FARTHEST) * side if side else side
        for side in (frame.start, frame.end)
    )
    return start, end


def _counted(frame: Frame, places: Places, before: Step, after: Step) -> Run:
    """A frame of rows or of sets of equals, from `before` to `after`."""
    low, high = places.low, places.high
    at = np.arange(len(low))
    start, end = low, high
    if frame.unit == "rows":
        if before is not None:
            start = np.clip(at + before, low, high)
        if after is not None:
            end = np.clip(at + after + 1, low, high)
    else:
        # A range that has a bound has the row's equals for it; groups count sets of equals.
        least, most = places.peers[low], places.peers[high - 1]
        if before is not None:
            peer = places.peers + before
            start = np.where(peer > most, high, places.starts[np.clip(peer, least, most)])
        if after is not None:
            peer = places.peers + after
            end = np.where(peer < least, low, places.starts[np.clip(peer, least, most) + 1])
    return start, end


def _reached(frame: Frame, places: Places, reach: Sequence[pa.Array], kind: DataType) -> Run:
    """A frame of values: from those not before the first bound to those not behind the second."""
    size = len(places.low)
    ranks = np.unique(ranks_of(pa.concat_arrays(list(reach)), kind, images=False), return_inverse=True)[1] + 1
    span = int(ranks.max(initial=0)) + 2
    group = np.cumsum(np.append(0, places.low[1:] != places.low[:-1]))[:size] if size else np.empty(0, np.int64)
    lanes: list[Int64s] = []
    missing = reach[0].is_null().to_numpy(zero_copy_only=False)
    for i in range(len(reach)):
        lane = ranks[i * size : (i + 1) * size]
        lane = np.where(missing, 0 if frame.nulls_first else span - 1, span - 1 - lane if frame.descending else lane)
        lanes.append(group * span + lane)
    start, end = places.low, places.high
    bounds = iter(lanes[1:])
    if frame.start is not None:
        start = np.searchsorted(lanes[0], next(bounds), "left") if frame.start else places.first
    if frame.end is not None:
        end = np.searchsorted(lanes[0], next(bounds), "right") if frame.end else places.behind
    return start, end
