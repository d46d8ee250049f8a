"""The loops of a join: from matches of probes to pairs with their times and diffs.

Always: a pair stands at the greater of its two times and its diff is the exact product of both; a product that does not
fit int64 is marked, never wrapped. Called by the join operator alone.
"""

from __future__ import annotations

from numba import types

from engine.kernels.compiler import I64, I64_NEW, kernel

U8_NEW = types.Array(types.uint8, 1, "C")


@kernel(types.int64(I64, I64, I64, I64, I64, types.int64, I64_NEW, I64_NEW, I64_NEW, I64_NEW, U8_NEW))
def pair(
    probe, probe_times, probe_diffs, match_times, match_diffs, before, out_probe, out_match, out_times, out_diffs, out_bad
):  # type: ignore[no-untyped-def]
    """Pairs of every match older than `before`. `probe[m]`: the probe that match m answers.

    Writes positions of probe and match, time and diff of each pair, and 1 in `out_bad` where the product overflows
    (its diff is then 1); every output holds at least len(probe). Returns the number of pairs.
    """
    n = 0
    for m in range(len(probe)):
        time = match_times[m]
        if time >= before:
            continue
        p = probe[m]
        a = probe_diffs[p]
        b = match_diffs[m]
        product = a * b
        bad = a != 0 and (product // a != b or (a == -1 and b == -9223372036854775808))
        out_probe[n] = p
        out_match[n] = m
        out_times[n] = max(time, probe_times[p])
        out_diffs[n] = 1 if bad else product
        out_bad[n] = 1 if bad else 0
        n += 1
    return n
