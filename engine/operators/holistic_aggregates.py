"""Sums that need every value of their group: floats, summed exactly and rounded once, and numerics in the text lane; and
what is folded in Python (`python_aggregates`).

Always: a sum is a function of the values alone, in whatever order they came. Called by `reduce`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.batch.updates import Int64s, UInt8s
from headrace.engine.kernels.exact_sum import exact_sums
from headrace.engine.kernels.reduce import sums_at_versions
from headrace.engine.operators import numeric_text
from headrace.engine.operators.aggregates import FLOAT_RANGE, Slot, first_message, message_where, quotient
from headrace.engine.operators.fixed_width import float_bits
from headrace.engine.operators.python_aggregates import fold_at_versions
from headrace.engine.operators.value_history import Clock, Stream
from headrace.engine.schema import NUMERIC, Kind

Float64s = npt.NDArray[np.float64]


MANY = 1 << 30
"""So many terms may be too many for the limbs of an exact sum: the group is in error before that."""

TOO_MANY = f"more than {MANY - 1} terms in one sum"


def sum_at_versions(slot: Slot, stream: Stream, clock: Clock) -> tuple[pa.Array, pa.Array | None]:
    """The slot's sum, average or fold of each group's values at each version, and the messages of those that fail."""
    assert slot.arg is not None
    order = np.lexsort((stream.times, stream.probe))
    if slot.aggregate.function not in ("sum", "avg"):
        return fold_at_versions(slot, order, stream, clock)
    entries = (order, stream.probe, stream.times, stream.diffs)
    found = np.zeros((len(clock.times), 1), np.int64)
    sums_at_versions(*entries, np.ones((len(order), 1), np.int64), clock.starts, clock.times, found)
    counts = np.ascontiguousarray(found[:, 0])
    if slot.arg.kind not in (Kind.REAL, Kind.DOUBLE):
        sums = numeric_text.sums(stream.values, *entries, clock.starts, clock.times)
        exact = pa.array(sums, pa.large_string(), mask=counts <= 0)
        return (exact if slot.aggregate.function == "sum" else quotient(exact, NUMERIC, counts)), None
    bits, overflow = np.empty(len(clock.times), np.int64), np.empty(len(clock.times), np.uint8)
    exact_sums(entries, float_bits(stream.values), clock.starts, clock.times, bits, overflow)
    total, fault = _rounded(slot, bits.view(np.float64), overflow, counts)
    return total, first_message(message_where(counts >= MANY, TOO_MANY), fault)


def _rounded(slot: Slot, total: Float64s, overflow: UInt8s, counts: Int64s) -> tuple[pa.Array, pa.Array | None]:
    empty = counts <= 0
    if slot.aggregate.function == "avg":
        total = total / np.maximum(counts, 1)
    elif slot.aggregate.type.kind is Kind.REAL:
        with np.errstate(over="ignore"):
            narrowed = total.astype(np.float32)
        overflow |= np.isinf(narrowed) & np.isfinite(total)
        return pa.array(narrowed, mask=empty), message_where(overflow, FLOAT_RANGE)
    return pa.array(total, mask=empty), message_where(overflow, FLOAT_RANGE)
