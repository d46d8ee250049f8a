"""Reduce over any aggregates: each changed group is computed anew, at each epoch at which it changes, from its rows.

Always: the rows come from the input arrangement, which already holds this step's updates; equal keys of several images
show the least image among the live rows; floats are summed exactly and rounded once. Called by the dataflow's reduce
nodes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.batch.keys import fingerprint
from engine.batch.payload import take_rows
from engine.batch.updates import Bools, Int64s, Updates
from engine.kernels.exact_sum import exact_sums
from engine.kernels.reduce import presence, sums_at_versions
from engine.operators import numeric_text
from engine.operators.aggregates import (
    Slot,
    add_lanes,
    first_message,
    is_summable,
    message_where,
    quotient,
    result_of,
    width_of,
)
from engine.operators.delta import QUIET, Delta, concat, rows_of
from engine.operators.fixed import float_bits
from engine.operators.groups import Versions, corrections_of, group, versions_of
from engine.operators.join import Span
from engine.operators.linear import split
from engine.operators.ranks import has_images, ranks_of, row_ranks
from engine.operators.reduce import Shape, nothing_at
from engine.operators.streams import Clock, Stream, least
from engine.schema import NUMERIC, DataType, Kind
from engine.trace.spine import Spine

FLOAT_RANGE = "value out of range: overflow"


def recompute(shape: Shape, spine: Spine, updates: Updates | None, lower: int, span: Span, *, initial: bool) -> Delta:
    """The updates of the result that `updates` make, which `spine` (the input by group key) already holds.

    `span`: the part of the trace that counts: everything, or what there is at one epoch.
    `initial`: nothing was ever emitted, so that a reduce without a key gets its one row at `lower`.
    """
    whole = shape.key == 0
    if whole and initial:
        updates = concat([nothing_at(shape.types, lower), updates])
    if updates is None:
        return QUIET
    keys = spine.layout.keys_of(updates)
    found = group(keys, updates.times)
    none = np.empty((len(updates), 0), np.int64)
    states = versions_of(found, updates, none, none[: found.count], lower - 1)
    clock = Clock(states.starts(found.count), states.times)
    matches = spine.gather(keys.take(found.first), span.since, span.until)
    images = any(has_images(kind) for kind in shape.key_types)
    wanted = {slot.column for slot in shape.slots if slot.column is not None}.union(range(shape.key) if images else ())
    place = {column: at for at, column in enumerate(sorted(wanted))}
    rows, probe = matches.rows(list(place)), matches.probe
    order = np.lexsort((matches.times, probe))
    counts = np.zeros((len(states.times), 1), np.int64)
    ones = np.ones((len(probe), 1), np.int64)
    sums_at_versions(order, probe, matches.times, matches.diffs, ones, clock.starts, clock.times, counts)
    columns: list[pa.Array] = _keys(
        shape, updates, states, rows, Stream(probe, matches.times, matches.diffs, None), clock
    )
    messages: pa.Array | None = None
    for slot in shape.slots:
        if slot.column is None:
            columns.append(pa.array(counts[:, 0]))
            continue
        values = rows.column(place[slot.column])
        stream = Stream(probe, matches.times, matches.diffs, values)
        if values.null_count:
            stream = stream.at(np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)))
        computed, fault = _aggregate(slot, stream, clock)
        columns.append(computed)
        messages = first_message(messages, fault)
    live = counts[:, 0] > 0
    if whole:
        live[:] = True
        live[0] = not initial
    return _corrections(shape, columns, messages, states, live)


def _corrections(
    shape: Shape, columns: list[pa.Array], messages: pa.Array | None, states: Versions, live: Bools
) -> Delta:
    rows = rows_of(columns, shape.schema.arrow, len(live))
    high, low = fingerprint(rows)
    same = states.same
    same[:1] = 0
    same[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    if messages is not None:
        failed = messages.is_valid().to_numpy(zero_copy_only=False)
        same[1:] &= ~(failed[1:] | failed[:-1])
    version, times, diffs = corrections_of(states, live.astype(np.uint8))
    if not len(version):
        return QUIET
    faults = None if messages is None else messages.take(pa.array(version))
    return split(Updates(take_rows(rows, version), times, diffs), faults)


def _keys(
    shape: Shape, updates: Updates, states: Versions, rows: pa.RecordBatch, stream: Stream, clock: Clock
) -> list[pa.Array]:
    """The key columns of each version: the least live image where a type has several."""
    shown = pa.array(states.rows)
    if not any(has_images(kind) for kind in shape.key_types):
        return [updates.rows.column(i).take(shown) for i in range(shape.key)]
    ranks = row_ranks(rows.columns[: shape.key], shape.key_types)
    at = least(ranks, stream, clock)
    # A version without rows is not shown; any row of the group stands in for its key.
    index = pa.array(at, mask=at < 0)
    return [pc.coalesce(rows.column(i).take(index), updates.rows.column(i).take(shown)) for i in range(shape.key)]


def _aggregate(slot: Slot, stream: Stream, clock: Clock) -> tuple[pa.Array, pa.Array | None]:
    """One aggregate's value at each version, and the messages of those that fail."""
    assert slot.arg is not None
    function = slot.aggregate.function
    if function in ("min", "max"):
        ranks = ranks_of(stream.values, slot.arg, images=True)
        at = least(~ranks if function == "max" else ranks, stream, clock)
        return stream.values.take(pa.array(at, mask=at < 0)), None
    if slot.aggregate.distinct:
        stream = _distinct(stream, slot.arg, clock)
    plain = slot.aggregate.__class__(function, slot.aggregate.arg, slot.aggregate.type)
    if is_summable(plain, slot.arg):
        width = width_of(plain, slot.arg)
        summed = Slot(plain, slot.column, slot.arg, 0, width)
        lanes = np.empty((len(stream.probe), width), np.int64)
        add_lanes(stream.values, summed, lanes)
        return result_of(_sums(stream, lanes, clock), summed)
    counts = np.ascontiguousarray(_sums(stream, np.ones((len(stream.probe), 1), np.int64), clock)[:, 0])
    if slot.arg.kind in (Kind.REAL, Kind.DOUBLE):
        return _float_sum(slot, stream, clock, counts)
    order = np.lexsort((stream.times, stream.probe))
    sums = numeric_text.sums(stream.values, order, stream.probe, stream.times, stream.diffs, clock.starts, clock.times)
    total = pa.array(sums, pa.large_string(), mask=counts <= 0)
    return (total if function == "sum" else quotient(total, NUMERIC, counts)), None


def _sums(stream: Stream, lanes: Int64s, clock: Clock) -> Int64s:
    out = np.zeros((len(clock.times), lanes.shape[1]), np.int64)
    order = np.lexsort((stream.times, stream.probe))
    sums_at_versions(order, stream.probe, stream.times, stream.diffs, lanes, clock.starts, clock.times, out)
    return out


def _distinct(stream: Stream, kind: DataType, clock: Clock) -> Stream:
    """One entry when a value first becomes live in its group and one when it goes; the least image stands for it."""
    values = ranks_of(stream.values, kind, images=False)
    if has_images(kind):
        return _distinct_images(stream, values, ranks_of(stream.values, kind, images=True), clock)
    order = np.lexsort((stream.times, values, stream.probe))
    room = len(order)
    row, time, diff = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    n = presence(order, stream.probe, values, stream.times, stream.diffs, row, time, diff)
    at = row[:n]
    return Stream(stream.probe[at], time[:n], diff[:n], stream.values.take(pa.array(at)))


def _distinct_images(stream: Stream, values: Int64s, images: Int64s, clock: Clock) -> Stream:
    """The same where the image that stands for a value may change while the value stays live."""
    order = np.lexsort((values, stream.probe))
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(values[order]) != 0) | (np.diff(stream.probe[order]) != 0)
    pair = np.empty(len(order), np.int64)
    pair[order] = np.cumsum(new) - 1
    probe = stream.probe[order[new]]
    lengths = clock.starts[probe + 1] - clock.starts[probe]
    starts = np.zeros(len(probe) + 1, np.int64)
    starts[1:] = np.cumsum(lengths)
    times = clock.times[np.arange(starts[-1]) + np.repeat(clock.starts[probe] - starts[:-1], lengths)]
    at = least(images, Stream(pair, stream.times, stream.diffs, stream.values), Clock(starts, times))
    last = np.full(len(at), -1, np.int64)
    last[1:] = at[:-1]
    last[starts[:-1]] = -1
    ends, begins = np.flatnonzero((at != last) & (last >= 0)), np.flatnonzero((at != last) & (at >= 0))
    rows = np.concatenate([last[ends], at[begins]])
    return Stream(
        stream.probe[rows],
        np.concatenate([times[ends], times[begins]]),
        np.concatenate([np.full(len(ends), -1, np.int64), np.ones(len(begins), np.int64)]),
        stream.values.take(pa.array(rows)),
    )


def _float_sum(slot: Slot, stream: Stream, clock: Clock, counts: Int64s) -> tuple[pa.Array, pa.Array | None]:
    bits, overflow = np.empty(len(clock.times), np.int64), np.empty(len(clock.times), np.uint8)
    order = np.lexsort((stream.times, stream.probe))
    terms = float_bits(stream.values)
    exact_sums(order, stream.probe, stream.times, stream.diffs, terms, clock.starts, clock.times, bits, overflow)
    total = bits.view(np.float64)
    empty = counts <= 0
    if slot.aggregate.function == "avg":
        total = total / np.maximum(counts, 1)
    elif slot.aggregate.type.kind is Kind.REAL:
        with np.errstate(over="ignore"):
            narrowed = total.astype(np.float32)
        overflow |= np.isinf(narrowed) & np.isfinite(total)
        return pa.array(narrowed, mask=empty), message_where(overflow, FLOAT_RANGE)
    return pa.array(total, mask=empty), message_where(overflow, FLOAT_RANGE)
