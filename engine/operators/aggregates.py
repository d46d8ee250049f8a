"""Aggregates as sums of int64 lanes: what a row adds, and what the sums say.

Always: a lane is a plain sum over the group's rows of diff × contribution, so that retracting a row undoes adding it
and a group's lanes do not depend on how it came about. Sums are kept as limbs (16-bit for integer, 32-bit for bigint
and numeric), so that no lane overflows before the group is in error. Called by `reduce`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.updates import Bools, Int64s, UInt8s
from headrace.engine.kernels import sum_lanes as kernels
from headrace.engine.kernels.numeric_average import ROOM, quotients
from headrace.engine.kernels.reduce import narrow, widen
from headrace.engine.kernels.sum_lanes import contributions
from headrace.engine.operators.expressions.core import fallback
from headrace.engine.operators.expressions.core.ir import Aggregate
from headrace.engine.operators.expressions.numeric import decimal_math
from headrace.engine.operators.expressions.numeric.decimals import text_image
from headrace.engine.operators.min_max import Extreme
from headrace.engine.schema import MAX_DIGITS, DataType, Kind

MESSAGE = pa.large_string()
SMALL_INTS = (Kind.SMALLINT, Kind.INTEGER)
INTS = (*SMALL_INTS, Kind.BIGINT)
MANY = 1 << 31
"""So many terms make 32-bit limbs lose exactness: the group is in error before that."""

MANY_SMALL = 1 << 47
"""As `MANY`, of 16-bit limbs."""

FEW = 32
"""Up to so many quotients, dividing them one by one is cheaper than looking for equal ones."""

TOO_MANY = f"more than {MANY - 1} terms in one sum"
TOO_MANY_SMALL = f"more than {MANY_SMALL - 1} terms in one sum"
BIGINT_RANGE = "bigint out of range"
FLOAT_RANGE = "value out of range: overflow"
NUMERIC_RANGE = f"numeric value exceeds the {MAX_DIGITS} digits that a column of known scale holds"

_READ = {Kind.SMALLINT: kernels.I16, Kind.INTEGER: kernels.I32, Kind.BIGINT: kernels.I64}


@dataclass(frozen=True)
class Slot:
    """One aggregate over a column of a reduce's input (None: count(*)), and its lanes: `first` … `first + width`.

    Without lanes it is an extreme, or needs all values of its group.
    """

    aggregate: Aggregate
    column: int | None
    arg: DataType | None
    first: int
    width: int

    @cached_property
    def extreme(self) -> Extreme | None:
        """The extreme that it shows, if it is one."""
        if self.aggregate.function not in ("min", "max") or self.column is None or self.arg is None:
            return None
        return Extreme(self.column, self.arg, self.aggregate.function == "max")

    @cached_property
    def read(self) -> int:
        """What of a value its lanes add up, as `headrace.engine.kernels.sum_lanes` has it."""
        if self.aggregate.function == "count" or self.arg is None:
            return kernels.PRESENT
        if self.aggregate.function in ("bool_and", "bool_or", "every"):
            return kernels.BOOL
        return _READ.get(self.arg.kind, kernels.D128)

    @property
    def is_whole(self) -> bool:
        """True if it needs all values of its group."""
        return not self.width and self.column is not None and self.extreme is None


def is_summable(aggregate: Aggregate, arg: DataType | None) -> bool:
    """True if the aggregate, over the rows or over distinct values, can be kept as sums of lanes."""
    if aggregate.function in ("count", "bool_and", "bool_or", "every"):
        return True
    if aggregate.function not in ("sum", "avg") or arg is None:
        return False
    return arg.kind in INTS or (arg.kind is Kind.NUMERIC and arg.fixed_scale)


def width_of(aggregate: Aggregate, arg: DataType | None) -> int:
    """How many lanes a summable aggregate takes."""
    if arg is None:
        return 0
    if aggregate.function == "count":
        return 1
    if aggregate.function in ("bool_and", "bool_or", "every"):
        return 2
    return 3 if arg.kind in INTS else 5


def slots_of(aggregates: Sequence[Aggregate], columns: Sequence[int | None], types: Sequence[DataType]) -> list[Slot]:
    """Slots laid out one after the other behind lane 0, the number of rows."""
    slots = []
    at = 1
    for aggregate, column in zip(aggregates, columns, strict=True):
        arg = None if column is None else types[column]
        width = width_of(aggregate, arg) if is_summable(aggregate, arg) else 0
        slots.append(Slot(aggregate, column, arg, at, width))
        at += width
    return slots


def add_lanes(rows: Exported, column: int, slot: Slot, lanes: Int64s) -> None:
    """Write what each row's value in `column` adds to its slot's lanes (a view of width slot.width)."""
    contributions(rows.address, column, slot.read, lanes)


def results_of(
    lanes: Int64s, slots: Sequence[Slot], known: Mapping[int, pa.Array]
) -> tuple[list[pa.Array], pa.Array | None]:
    """The aggregates' values for each row of lanes (lane 0 the number of rows), and the messages of those that fail.

    `known`: the values of the slots (by place) that are no sums.
    """
    columns = []
    messages: pa.Array | None = None
    for place, slot in enumerate(slots):
        if place in known:
            columns.append(known[place])
            continue
        sums = lanes[:, :1] if slot.column is None else lanes[:, slot.first : slot.first + slot.width]
        values, fault = result_of(sums, slot)
        columns.append(values)
        messages = first_message(messages, fault)
    return columns, messages


def result_of(sums: Int64s, slot: Slot) -> tuple[pa.Array, pa.Array | None]:
    """One aggregate's values from its own lanes, and the messages of those that fail."""
    counts = np.ascontiguousarray(sums[:, 0])
    if slot.aggregate.function == "count":
        return pa.array(counts), None
    empty = counts <= 0
    if slot.aggregate.function in ("bool_and", "every"):
        return pa.array(sums[:, 1] == counts, mask=empty), None
    if slot.aggregate.function == "bool_or":
        return pa.array(sums[:, 1] > 0, mask=empty), None
    return _total(slot, np.ascontiguousarray(sums[:, 1:]), counts, empty)


def _total(slot: Slot, limbs: Int64s, counts: Int64s, empty: Bools) -> tuple[pa.Array, pa.Array | None]:
    """sum or avg from the limbs of the sum."""
    assert slot.arg is not None
    words, bad = np.empty((len(limbs), 2), np.int64), np.empty(len(limbs), np.uint8)
    if slot.arg.kind in SMALL_INTS:
        total = np.empty(len(limbs), np.int64)
        narrow(limbs, total, bad)
        fault = first_message(message_where(counts >= MANY_SMALL, TOO_MANY_SMALL), message_where(bad, BIGINT_RANGE))
        if slot.aggregate.function == "sum":
            return pa.array(total, mask=empty), fault
        words[:, 0], words[:, 1] = total, total >> 63
    else:
        widen(limbs, words, bad)
        fault = first_message(message_where(counts >= MANY, TOO_MANY), message_where(bad, NUMERIC_RANGE))
    scale = 0 if slot.arg.kind in INTS else max(slot.arg.scale or 0, 0)
    exact = _decimals(words, scale, empty)
    if slot.aggregate.function == "sum":
        return exact, fault
    average = _average(words, scale, counts, empty)
    if average is None:
        average = quotient(exact, DataType(Kind.NUMERIC, scale=scale), counts)
    return average, fault


def _average(words: Int64s, scale: int, counts: Int64s, empty: Bools) -> pa.Array | None:
    """avg of sums in two words, in the text lane; None where some of them are too large for the kernel."""
    offsets, out = np.empty(len(words) + 1, np.int64), np.empty(len(words) * ROOM, np.uint8)
    if not quotients(words[:, 0], words[:, 1], scale, counts, empty.view(np.uint8), offsets, out):
        return None
    text = pa.py_buffer(out[: offsets[-1]])
    return pa.Array.from_buffers(MESSAGE, len(words), [_validity(empty), pa.py_buffer(offsets), text])


def quotient(total: pa.Array, kind: DataType, counts: Int64s) -> pa.Array:
    """avg: total / count as Postgres's numeric division rounds it, in the text lane; NULL where total is."""
    if len(counts) <= FEW:
        images = [
            None if t is None else decimal_math.divide(t if isinstance(t, str) else format(t, "f"), str(c))
            for t, c in zip(total.to_pylist(), counts.tolist(), strict=True)
        ]
        return pa.array(images, MESSAGE)
    return fallback.map_values(decimal_math.divide, MESSAGE, [text_image(total, kind), pa.array(counts).cast(MESSAGE)])[
        0
    ]


def _decimals(words: Int64s, scale: int, empty: Bools | None) -> pa.Array:
    return pa.Array.from_buffers(pa.decimal128(MAX_DIGITS, scale), len(words), [_validity(empty), pa.py_buffer(words)])


def _validity(empty: Bools | None) -> pa.Buffer | None:
    if empty is None or not empty.any():
        return None
    return pa.py_buffer(np.packbits(~empty, bitorder="little").tobytes())


def message_where(bad: UInt8s | Bools, text: str) -> pa.Array | None:
    """`text` where `bad`, null elsewhere; None if nothing is bad."""
    if not bad.any():
        return None
    mask: npt.NDArray[np.bool_] = bad == 0
    return pa.array([text] * len(bad), MESSAGE, mask=mask)


def first_message(one: pa.Array | None, two: pa.Array | None) -> pa.Array | None:
    """The first message of each row."""
    if one is None or two is None:
        return two if one is None else one
    return pc.coalesce(one, two)
