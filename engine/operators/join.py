"""The inner equi-join of updates with a trace: each pair once, at the later of its two times.

Always: NULL keys meet nothing; a residual that fails, or a multiplicity that overflows, is an error update; the rows
hold columns of the left before those of the right, whichever side the updates are of. Called by the dataflow's join nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from engine.batch.keys import Keys
from engine.batch.payload import take_rows
from engine.batch.updates import Int64s, Updates
from engine.kernels.join import pair
from engine.operators.aggregates import message_where
from engine.operators.delta import QUIET, Delta, concat, rows_of
from engine.operators.expressions.ir import Expr
from engine.operators.linear import filter_rows, split
from engine.trace.spine import Spine

FUEL = 1 << 18
"""Pairs whose rows are assembled at a time, so that a residual which drops most of them bounds the memory."""

OVERFLOW = "a row's multiplicity does not fit 64 bits"


class Span(NamedTuple):
    """Which part of a trace is asked: times are advanced to `since`; epochs ≥ `until` are left out."""

    since: int
    until: int | None


class Probes(NamedTuple):
    """Updates to look up: the `keys` of all of them, the positions of those without NULL (None: all), and which of
    their columns the join's rows hold."""

    updates: Updates
    keys: Keys
    nulls: Int64s | None
    held: Sequence[int]


class Joined(NamedTuple):
    """What a join makes of pairs: `schema` of the columns held, left before right, and the residual over that row."""

    schema: pa.Schema
    residual: Expr | None


def without_nulls(rows: pa.RecordBatch, key: Sequence[int]) -> Int64s | None:
    """Positions of the rows whose key has no NULL, or None if that is all of them."""
    mask = None
    for k in key:
        column = rows.column(k)
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            mask = valid if mask is None else mask & valid
    return None if mask is None else np.flatnonzero(mask)


def join_trace(probes: Probes, spine: Spine, held: Sequence[int], span: Span, joined: Joined, *, left: bool) -> Delta:
    """`probes` joined with the updates of `spine` in `span`, of which the rows hold the columns `held`.

    `left`: the probes are the left side.
    """
    updates, keys, nulls, _ = probes
    if nulls is not None:
        if not len(nulls):
            return QUIET
        keys = keys.take(nulls)
    matches = spine.gather(keys, span.since, span.until)
    n = len(matches)
    if not n:
        return QUIET
    probe = matches.probe if nulls is None else nulls[matches.probe]
    times, diffs = np.empty(n, np.int64), np.empty(n, np.int64)
    bad = np.empty(n, np.uint8)
    lost = pair(probe, updates.times, updates.diffs, matches.times, matches.diffs, times, diffs, bad)
    own = updates.rows.select(list(probes.held))
    rows: list[Updates | None] = []
    errors: list[Updates | None] = []
    for start in range(0, n, FUEL):
        stop = min(start + FUEL, n)
        others = (matches if stop - start == n else matches.take(np.arange(start, stop))).rows(held)
        mine = take_rows(own, probe[start:stop])
        columns = [*mine.columns, *others.columns] if left else [*others.columns, *mine.columns]
        pairs = Updates(rows_of(columns, joined.schema, stop - start), times[start:stop], diffs[start:stop])
        found = split(pairs, message_where(bad[start:stop], OVERFLOW) if lost else None)
        if joined.residual is not None and found.rows is not None:
            errors.append(found.errors)
            found = filter_rows(found.rows, joined.residual)
        rows.append(found.rows)
        errors.append(found.errors)
    return Delta(concat(rows), concat(errors))
