"""Identity of key values and of rows, as 64-bit lanes.

Always: two key values meet (same `hash` and `check`) exactly when Postgres calls them equal, or both are NULL; two rows
have one fingerprint exactly when their images are identical. A single column of at most 64 bits is exact; everything
else rests on 128 bits. `hash` alone says where to look, never what is equal. Called by layouts and operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.errors import InvariantBroken, TypeNotSupported
from headrace.engine.kernels import hashing, order_images
from headrace.engine.schema import DataType, Kind

UInt64s = npt.NDArray[np.uint64]

FULL_HASH = (1 << 64) - 1
"""The mask that leaves a hash as it is; tests hand a weaker one to make keys collide on `hash`."""

_CODES: dict[pa.DataType, int] = {
    pa.bool_(): hashing.BOOL,
    pa.int8(): hashing.I8,
    pa.int16(): hashing.I16,
    pa.int32(): hashing.I32,
    pa.int64(): hashing.I64,
    pa.uint8(): hashing.U8,
    pa.uint16(): hashing.U16,
    pa.uint32(): hashing.U32,
    pa.uint64(): hashing.U64,
    pa.float32(): hashing.F32,
    pa.float64(): hashing.F64,
    pa.date32(): hashing.I32,
    pa.string(): hashing.BYTES32,
    pa.binary(): hashing.BYTES32,
    pa.large_string(): hashing.BYTES64,
    pa.large_binary(): hashing.BYTES64,
}


@dataclass(frozen=True)
class Keys:
    """Identities of key values: `hash` and `check`, one entry a key, in the order of the rows they came from."""

    hash: UInt64s
    check: UInt64s

    def __post_init__(self) -> None:
        if len(self.hash) != len(self.check):
            raise InvariantBroken("one check a hash", hashes=len(self.hash), checks=len(self.check))

    def __len__(self) -> int:
        return len(self.hash)

    def take(self, positions: Int64s) -> Keys:
        """The keys at `positions`, in that order."""
        return Keys(self.hash[positions], self.check[positions])


@dataclass(frozen=True, eq=False)
class HashPlan:
    """What of which columns is hashed: `steps` is int64[columns, 4] of (column, code, form, width in bytes).

    Plans are made once and known by identity.
    """

    steps: Int64s
    exact: bool


def lane_code(arrow: pa.DataType) -> int:
    """The kernels' code of an Arrow lane. Raises TypeNotSupported."""
    code = _CODES.get(arrow)
    if code is not None:
        return code
    if pa.types.is_decimal128(arrow):
        return hashing.D128
    if pa.types.is_timestamp(arrow) or pa.types.is_time64(arrow) or pa.types.is_duration(arrow) or arrow == pa.date64():
        return hashing.I64
    if pa.types.is_time32(arrow):
        return hashing.I32
    if pa.types.is_fixed_size_binary(arrow):
        return hashing.FIXED
    raise TypeNotSupported(
        "no lane for this Arrow type", type=arrow, hint="cast it to one that headrace.engine.schema names"
    )


def _form(code: int, declared: DataType | None) -> int:
    if code in (hashing.F32, hashing.F64):
        return hashing.VALUE
    if code in (hashing.BYTES32, hashing.BYTES64) and declared is not None:
        if declared.kind is Kind.BPCHAR:
            return hashing.TRIMMED
        if declared.kind is Kind.NUMERIC:
            return hashing.NUMERIC_TEXT
    return hashing.IMAGE


def _width(arrow: pa.DataType) -> int:
    return arrow.byte_width if pa.types.is_fixed_size_binary(arrow) else 0


def key_plan(schema: pa.Schema, columns: tuple[int, ...], types: tuple[DataType, ...] | None = None) -> HashPlan:
    """How to hash the values of `columns` (positions); `types`, where known, one for each of them."""
    return _key_plan(tuple(schema.field(c).type for c in columns), columns, types)


@lru_cache(maxsize=4096)
def _key_plan(lanes: tuple[pa.DataType, ...], columns: tuple[int, ...], types: tuple[DataType, ...] | None) -> HashPlan:
    steps = np.zeros((len(columns), 4), np.int64)
    for k, (column, arrow) in enumerate(zip(columns, lanes, strict=True)):
        code = lane_code(arrow)
        steps[k] = (column, code, _form(code, types[k] if types else None), _width(arrow))
    exact = len(columns) == 1 and int(steps[0, 1]) < hashing.D128
    return HashPlan(steps, exact)


def image_plan(schema: pa.Schema) -> HashPlan:
    """How to hash the identical image of whole rows: the same plan for the same lanes, whatever their names."""
    return _columns_plan(tuple(schema.types), tuple(range(len(schema))))


def columns_plan(schema: pa.Schema, columns: Sequence[int]) -> HashPlan:
    """How to hash the identical image of some columns of rows: the same plan for the same lanes at the same places."""
    return _columns_plan(tuple(schema.field(c).type for c in columns), tuple(columns))


@lru_cache(maxsize=4096)
def _columns_plan(lanes: tuple[pa.DataType, ...], columns: tuple[int, ...]) -> HashPlan:
    steps = np.zeros((len(lanes), 4), np.int64)
    for k, (column, arrow) in enumerate(zip(columns, lanes, strict=True)):
        steps[k] = (column, lane_code(arrow), hashing.IMAGE, _width(arrow))
    return HashPlan(steps, exact=False)


def hash_rows(struct: Exported, size: int, plan: HashPlan, mask: int = FULL_HASH) -> tuple[UInt64s, UInt64s, bool]:
    """The two lanes of `plan` over the `size` rows exported, and whether the second is zero throughout."""
    ones = np.empty(size, np.uint64)
    twos = np.empty(size, np.uint64)
    zero = hashing.hash_rows(struct.address, plan.steps, plan.exact, mask, ones, twos)
    return ones, twos, zero


def lanes_of(updates: Updates, plan: HashPlan, mask: int = FULL_HASH) -> tuple[UInt64s, UInt64s, bool]:
    """As `hash_rows`, worked out once for each plan: readers of one delta ask for the same lanes. Never write them."""
    known = updates.identities.get((plan, mask))
    if known is None:
        known = updates.identities[plan, mask] = hash_rows(updates.struct, len(updates), plan, mask)
    return known


def key_lanes(
    rows: pa.RecordBatch,
    columns: Sequence[int],
    types: Sequence[DataType] | None = None,
    mask: int = FULL_HASH,
) -> Keys:
    """The identities of the values of `columns` (positions in `rows`), one a row.

    `types`: the Postgres types of those columns; without them text is compared byte by byte, which is wrong for
    character(n) and for numerics in a text lane. Both sides of a join must have the same lanes (cast first); integers,
    dates and times of different widths meet all the same. `mask`: see FULL_HASH. Without columns all rows have one key.
    """
    plan = key_plan(rows.schema, tuple(columns), tuple(types) if types is not None else None)
    ones, twos, _ = hash_rows(Exported(rows), rows.num_rows, plan, mask)
    return Keys(ones, twos)


def fingerprint(rows: pa.RecordBatch) -> tuple[UInt64s, UInt64s]:
    """128 bits (high, low) of each row's identical image: 1.0 and 1.00 in a text lane differ, so do 0.0 and -0.0."""
    high, low, _ = hash_rows(Exported(rows), rows.num_rows, image_plan(rows.schema))
    return high, low


def order_lane(rows: pa.RecordBatch, columns: Sequence[int], types: Sequence[DataType] | None = None) -> UInt64s:
    """A lane that never contradicts Postgres's ascending order (NULLS LAST) of the first of `columns`.

    Equal values have equal entries; equal entries do not mean equal values: text shows its first eight bytes only
    (collation C), a numeric its first 13 digits or 64 bits unscaled, and the columns after the first nothing at all.
    NULL and NaN sort last. `types`: as for `key_lanes`, needed for character(n) and for numerics in a text lane.
    """
    lane = np.zeros(rows.num_rows, np.uint64)
    if columns and rows.num_rows:
        shape = order_shape(rows.schema.field(columns[0]).type, types)
        struct = Exported(rows)
        order_images.order_lane(struct.address, columns[0], shape, lane)
    return lane


def order_shape(arrow: pa.DataType, types: Sequence[DataType] | None) -> tuple[int, int, int]:
    """How the kernels read the first column of an order: code, form and width in bytes."""
    code = lane_code(arrow)
    return code, _form(code, types[0] if types else None), _width(arrow)
