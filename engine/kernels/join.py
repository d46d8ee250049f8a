"""The loops of a join: from matches of probes to pairs with their times and diffs.

Always: a pair stands at the greater of its two times and its diff is the exact product of both; a product that does not
fit int64 is marked, never wrapped. Called by the join operator alone.
"""

from __future__ import annotations

from numba import types

from engine.kernels.compiler import I64, I64_NEW, kernel

U8_NEW = types.Array(types.uint8, 1, "C")


@kernel(types.int64(I64, I64, I64, I64, I64, I64_NEW, I64_NEW, U8_NEW))
def pair(probe, probe_times, probe_diffs, match_times, match_diffs, times, diffs, bad):  # type: ignore[no-untyped-def]
    """Time and diff of each pair of a match m and the probe `probe[m]` that it answers.

    `bad`: 1 where the product of diffs does not fit (`diffs` is then 1). Returns how many are bad.
    """
    found = 0
    for m in range(len(probe)):
        p = probe[m]
        a = probe_diffs[p]
        b = match_diffs[m]
        product = a * b
        lost = a != 0 and (product // a != b or (a == -1 and b == -9223372036854775808))
        times[m] = max(match_times[m], probe_times[p])
        diffs[m] = 1 if lost else product
        bad[m] = 1 if lost else 0
        found += 1 if lost else 0
    return found
