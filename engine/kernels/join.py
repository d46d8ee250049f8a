"""The loops of a join: from matches of probes to pairs with their times and diffs.

Always: a pair stands at the greater of its two times and its diff is the exact product of both; a product that does not
fit int64 is marked, never wrapped. Called by the join operator alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from engine.kernels.compiler import I64, I64_TABLE, helper, kernel, repeated

_PAIRED: Any = types.Tuple((types.Array(types.int64, 2, "C"), types.int64))  # type: ignore[no-untyped-call]

_SMALL = 1 << 31
_LEAST = -9223372036854775808
_MOST = 9223372036854775807


@helper
def fits(a, b):  # type: ignore[no-untyped-def]
    """True if a × b fits int64.

    Found without the product: compiled code takes it for granted that none overflows, and drops a check of one that did.
    """
    if (-_SMALL <= a < _SMALL and -_SMALL <= b < _SMALL) or a == 0 or b == 0:
        return True
    if a > 0 and b > 0:
        return a <= _MOST // b
    if a > 0:
        return b == -1 or a <= _LEAST // b
    if b > 0:
        return a == -1 or b <= _LEAST // a
    return a != _LEAST and b != _LEAST and -a <= _MOST // -b


@kernel(_PAIRED(repeated(I64, 3), I64, I64_TABLE, I64, I64))
def pair(probes, probe, places, times, diffs):  # type: ignore[no-untyped-def]
    """Each match m paired with the probe `probe[m]` that it answers: (block, how many products of diffs do not fit).

    `probes`: of each its position in its payload, time and diff; `places`: int64[2, matches], payload and position of
    each match, which has `times` and `diffs`. Rows of the block: payload of the probe (0) and of the match (1 + its own),
    position of the probe and of the match, time, diff (1 where the product does not fit), and 1 where it does not.
    """
    positions, probe_times, probe_diffs = probes
    block = np.empty((7, len(probe)), np.int64)
    found = 0
    for m in range(len(probe)):
        p = probe[m]
        a = probe_diffs[p]
        b = diffs[m]
        lost = not fits(a, b)
        block[0, m] = 0
        block[1, m] = places[0, m] + 1
        block[2, m] = positions[p]
        block[3, m] = places[1, m]
        block[4, m] = max(times[m], probe_times[p])
        block[5, m] = 1 if lost else a * b
        block[6, m] = 1 if lost else 0
        found += 1 if lost else 0
    return block, found
