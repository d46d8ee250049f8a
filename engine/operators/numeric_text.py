"""Sums of numerics in the text lane: the named fallback, one parse for each distinct image.

Always: exact; the display scale is the greatest among the live terms, as Postgres shows it; NaN and infinities as
Postgres adds them. Called by the reduce operators.
"""

from __future__ import annotations

from collections import Counter
from decimal import Context, Decimal

import pyarrow as pa

from headrace.engine.batch.updates import Int64s

_WIDE = Context(prec=600_000)
_SPECIAL = ("NaN", "Infinity", "-Infinity")


def sums(
    values: pa.Array, order: Int64s, probe: Int64s, times: Int64s, diffs: Int64s, starts: Int64s, version_times: Int64s
) -> list[str]:
    """The sum of each group's terms at each version, as Postgres prints it. `order`: by group, then time."""
    coded = values.dictionary_encode()
    images = coded.dictionary.to_pylist()
    scales = [0 if text in _SPECIAL else max(len(text.partition(".")[2]), 0) for text in images]
    width = max(scales, default=0)
    units = [0 if text in _SPECIAL else int(Decimal(text).scaleb(width, _WIDE)) for text in images]
    codes = coded.indices.to_numpy(zero_copy_only=False)[order].tolist()
    groups, whens, counts = probe[order].tolist(), times[order].tolist(), diffs[order].tolist()
    found: list[str] = []
    k = 0
    for g in range(len(starts) - 1):
        total = 0
        live_scales: Counter[int] = Counter()
        special: Counter[str] = Counter()
        while k < len(groups) and groups[k] < g:
            k += 1
        for v in range(starts[g], starts[g + 1]):
            limit = version_times[v]
            while k < len(groups) and groups[k] == g and whens[k] <= limit:
                code = codes[k]
                if images[code] in _SPECIAL:
                    special[images[code]] += counts[k]
                else:
                    total += units[code] * counts[k]
                    live_scales[scales[code]] += counts[k]
                k += 1
            found.append(_special(special) or _image(total, width, live_scales))
    return found


def _special(special: Counter[str]) -> str | None:
    plus, minus = special["Infinity"] > 0, special["-Infinity"] > 0
    if special["NaN"] > 0 or (plus and minus):
        return "NaN"
    return "Infinity" if plus else "-Infinity" if minus else None


def _image(total: int, width: int, live_scales: Counter[int]) -> str:
    scale = max((s for s, n in live_scales.items() if n > 0), default=0)
    digits = abs(total) // 10 ** (width - scale)
    sign = "-" if total < 0 else ""
    if not scale:
        return f"{sign}{digits}"
    text = str(digits).rjust(scale + 1, "0")
    return f"{sign}{text[:-scale]}.{text[-scale:]}"
