"""Values of groups over time, and the versions at which to look at them: what aggregates over whole values work on.

Always: a stream holds no nulls, and its entries need no order. Called by `reduce` and its parts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.gather_rows import indices
from headrace.engine.batch.updates import Int64s
from headrace.engine.kernels.reduce import least_at_versions

_MANY = 1024


class Stream(NamedTuple):
    """Of each entry its group (`probe`), `times`, `diffs` and the value itself (never null)."""

    probe: Int64s
    times: Int64s
    diffs: Int64s
    values: pa.Array

    def at(self, positions: Int64s) -> Stream:
        """The entries at `positions`."""
        return Stream(
            self.probe[positions], self.times[positions], self.diffs[positions], self.values.take(indices(positions))
        )


class Clock(NamedTuple):
    """The versions to compute: group g's are starts[g] … starts[g + 1], each with its time."""

    starts: Int64s
    times: Int64s


def least(ranks: Int64s, stream: Stream, clock: Clock) -> Int64s:
    """Position of the live entry of least rank at each version, or -1; entries of one rank count as one value."""
    out = np.empty(len(clock.times), np.int64)
    order = _by_rank(ranks, stream.probe)
    least_at_versions(order, stream.probe, ranks, stream.times, stream.diffs, clock.starts, clock.times, out)
    return out


def _by_rank(ranks: Int64s, probe: Int64s) -> Int64s:
    """Entries by group, then rank."""
    if len(ranks) >= _MANY:
        low, groups = int(ranks.min()), int(probe.max()) + 1
        span = int(ranks.max()) - low + 1
        if span * groups < 1 << 63:
            # One lane sorts several times faster than two.
            return np.argsort(probe * span + (ranks - low))
    return np.lexsort((ranks, probe))
