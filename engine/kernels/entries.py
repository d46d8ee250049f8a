# mypy: allow-untyped-defs
"""The entries of a batch as kernels see them: one row of a table of addresses a batch, and what an entry has there.

Always: the lanes and the payload that a row tells of outlive every call that it is given to. A row holds (address,
stride) for the five identity lanes, times, diffs and positions; the count of entries; the address of the payload's
struct; the address and length of the plan by which its rows' images are hashed, and the address of what does it. Called
by every kernel that reads batches.
"""

from __future__ import annotations

from numba import types

from headrace.engine.kernels.compiler import FACTS, I64_NEW, I64_TABLE, IDS, helper, kernel
from headrace.engine.kernels.hashing import row_image
from headrace.engine.kernels.memory import address, load_i64, load_u64

HASH, CHECK, ORDER, HIGH, LOW = 0, 2, 4, 6, 8
"""Where the addresses of the identity lanes stand, each before its stride. HIGH is 0 where fingerprints are not kept."""

TIMES, DIFFS, POSITIONS = 10, 12, 14
"""Likewise the facts. POSITIONS is 0 where the payload lies in the order of the entries, one row each."""

SIZE, STRUCT, PLAN, STEPS, IMAGE = 16, 17, 18, 19, 20

COLUMNS = 21
"""Width of a row of the table."""


@kernel(types.void(IDS, FACTS, types.int64, I64_TABLE, types.int64, I64_NEW))
def locate(ids, facts, struct, plan, image, out):
    """One row of the table of batches: where these lanes and this payload lie. A lane of no entries is one left out."""
    size = len(facts[0])
    for k in range(5):
        out[2 * k] = address(ids[k]) if len(ids[k]) == size else 0
        out[2 * k + 1] = ids[k].strides[0]
    for k in range(3):
        out[TIMES + 2 * k] = address(facts[k]) if len(facts[k]) == size else 0
        out[TIMES + 2 * k + 1] = facts[k].strides[0]
    out[SIZE] = size
    out[STRUCT] = struct
    out[PLAN] = address(plan)
    out[STEPS] = len(plan)
    out[IMAGE] = image


@helper
def held(table, b):
    """Row `b` of the table as a tuple, for loops that write: what they write cannot be it."""
    row = table[b]
    return (
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10], row[11], row[12],
        row[13], row[14], row[15], row[16], row[17], row[18], row[19], row[20],
    )  # fmt: skip


@helper
def word(batch, lane, i):
    """Entry `i` of one of the identity lanes HASH … ORDER."""
    return load_u64(batch[lane] + i * batch[lane + 1])


@helper
def fact(batch, lane, i):
    """Entry `i` of TIMES or DIFFS."""
    return load_i64(batch[lane] + i * batch[lane + 1])


@helper
def position(batch, i):
    """The payload's row of entry `i`."""
    at = batch[POSITIONS]
    return load_i64(at + i * batch[POSITIONS + 1]) if at != 0 else i


@helper
def fingerprint(batch, i):
    """The halves of the fingerprint of entry `i`'s row: as kept, or made of the row anew."""
    if batch[HIGH] != 0:
        return load_u64(batch[HIGH] + i * batch[HIGH + 1]), load_u64(batch[LOW] + i * batch[LOW + 1])
    return image(batch, position(batch, i))


@helper
def image(batch, row):
    """The halves of the fingerprint of one of the payload's rows."""
    return row_image(batch[IMAGE], batch[STRUCT], batch[PLAN], batch[STEPS], row)
