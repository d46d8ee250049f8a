"""The one rule by which answers with floats are equal: what differs is real or double precision, and only by rounding.

Always: everything else is compared exactly. A sum of floats is rounded once here and after each row in Postgres
(decision 26). Called by the audit and the replay of scripts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from headrace.engine.schema import Column, Kind

Row = tuple[str | None, ...]

_ROUNDING = {Kind.REAL: 1e-5, Kind.DOUBLE: 1e-12}
"""How far two values may be apart, as a share of the larger one."""
_NESTED = 1e-9
"""Where large floats cancel out beside small ones, the error of the sum is in proportion to the large ones."""


def is_rounding(missing: Counter[Row], extra: Counter[Row], columns: Sequence[Column]) -> bool:
    """Whether the rows pair up so that only floats differ, and these by rounding.

    >>> from headrace.engine.schema import DOUBLE
    >>> columns = [Column("x", DOUBLE)]
    >>> is_rounding(Counter([("0.3",)]), Counter([("0.30000000000000004",)]), columns)
    True
    >>> is_rounding(Counter([("0.3",)]), Counter([("0.3001",)]), columns)
    False
    """
    tolerances = [_ROUNDING.get(c.type.kind) for c in columns]
    if missing.total() != extra.total() or not any(tolerances):
        return False
    floats = [i for i, t in enumerate(tolerances) if t]
    rest = [i for i, t in enumerate(tolerances) if not t]

    def place(row: Row) -> tuple[object, ...]:
        # NULL is told apart from an empty text: what sorts alike is compared below.
        return (*(row[i] or "" for i in rest), *(_number(row[i]) for i in floats))

    pairs = zip(sorted(missing.elements(), key=place), sorted(extra.elements(), key=place), strict=True)
    return all(
        all(a[i] == b[i] for i in rest) and all(_close(a[i], b[i], tolerances[i] or 0) for i in floats)
        for a, b in pairs
    )


def _number(text: str | None) -> float:
    value = math.inf if text is None else float(text)
    return math.inf if math.isnan(value) else value


def _close(one: str | None, two: str | None, tolerance: float) -> bool:
    if one is None or two is None or one == two:
        return one == two
    a, b = float(one), float(two)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=_NESTED * tolerance)
