"""Aggregates of pairs of numbers: correlation, covariance and the line of least squares.

Always: sums are exact and rounded once at the end, so that the answer is a function of the live pairs alone and equal
values have no spread at all. A pair is (Y, X), in SQL's order. Called by `python_aggregates`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from headrace.engine.operators.aggregates import FLOAT_RANGE
from headrace.engine.operators.expressions.core.fallback import RowError


class Sums(NamedTuple):
    """The number of pairs, their sums, and the sums of squares and products about the means."""

    n: int
    x: Fraction
    y: Fraction
    xx: Fraction
    yy: Fraction
    xy: Fraction


def _root(value: Fraction) -> float:
    return math.sqrt(value)


def _corr(s: Sums) -> float | None:
    return None if not s.xx or not s.yy else max(-1.0, min(1.0, float(s.xy) / _root(s.xx * s.yy)))


def _r2(s: Sums) -> float | None:
    if not s.xx:
        return None
    return float(s.xy * s.xy / (s.xx * s.yy)) if s.yy else 1.0


_OF: dict[str, Callable[[Sums], Any]] = {
    "corr": _corr,
    "covar_pop": lambda s: float(s.xy / s.n),
    "covar_samp": lambda s: float(s.xy / (s.n - 1)),
    "regr_avgx": lambda s: float(s.x / s.n),
    "regr_avgy": lambda s: float(s.y / s.n),
    "regr_intercept": lambda s: float((s.y - s.x * s.xy / s.xx) / s.n) if s.xx else None,
    "regr_r2": _r2,
    "regr_slope": lambda s: float(s.xy / s.xx) if s.xx else None,
    "regr_sxx": lambda s: float(s.xx),
    "regr_sxy": lambda s: float(s.xy),
    "regr_syy": lambda s: float(s.yy),
}
REGRESSIONS = frozenset(_OF) | {"regr_count"}


def regression(name: str) -> Callable[[list[Any], Mapping[str, Any]], float | None]:
    """The fold of one of them, over packed pairs."""

    def fold(values: list[Any], _detail: Mapping[str, Any]) -> float | None:
        pairs = [json.loads(v) for v in values]
        if name == "covar_samp" and len(pairs) < 2:
            return None
        if not all(math.isfinite(v) for pair in pairs for v in pair):
            return (
                math.nan if name not in ("regr_avgx", "regr_avgy") else _mean([p[name == "regr_avgx"] for p in pairs])
            )
        sums = _sums(pairs)
        try:
            for part in sums[1:]:  # Postgres adds them all up, whichever of them is asked for
                float(part)
            found: float | None = _OF[name](sums)
        except OverflowError:
            raise RowError(FLOAT_RANGE) from None
        return found

    return fold


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _sums(pairs: Sequence[Sequence[float]]) -> Sums:
    ys, xs = ([Fraction(pair[i]) for pair in pairs] for i in (0, 1))
    n, x, y = len(pairs), sum(xs, Fraction(0)), sum(ys, Fraction(0))
    xx = sum((v * v for v in xs), Fraction(0)) - x * x / n
    yy = sum((v * v for v in ys), Fraction(0)) - y * y / n
    xy = sum((a * b for a, b in zip(xs, ys, strict=True)), Fraction(0)) - x * y / n
    return Sums(n, x, y, xx, yy, xy)
