"""Two answers compared: Postgres's, and that of a view of ours.

Always: columns by name and type, rows as a multiset of texts; floats within their rounding, everything else exactly. An
error of Postgres that depends on data is met by a view in error. Called by the script's run.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from engine.schema import DataType, Kind
from sidecar.script.maintained import Standing
from sidecar.script.session import Failure, Result, Row

_ROUNDING = {Kind.REAL: 1e-5, Kind.DOUBLE: 1e-12}
_NESTED = 1e-9
"""Of floats that stand next to large ones which cancel out, their sum is as wrong as they are large."""


def difference(theirs: Result | Failure, ours: Standing, types: Sequence[str]) -> str | None:
    """Why the answers are not equal, or None. `types`: Postgres's column types by name."""
    if isinstance(theirs, Failure):
        return None if ours.errors else f"Postgres fails: {theirs.message}; the view has rows"
    if ours.errors:
        return f"the view is in error: {next(iter(ours.errors))}"
    columns = ours.view.schema.columns
    if len(columns) != len(theirs.columns):
        return f"Postgres has {len(theirs.columns)} columns, the view {len(columns)}"
    for place, (column, (name, _), spelled) in enumerate(zip(columns, theirs.columns, types, strict=True), 1):
        if column.name != name:
            return f'column {place} is named "{name}" by Postgres, "{column.name}" by the view'
        if type_name(column.type) != spelled:
            return f'column {place} "{name}" is {spelled} in Postgres, {type_name(column.type)} in the view'
    wanted = Counter(theirs.rows)
    if wanted == ours.rows:
        return None
    missing, extra = wanted - ours.rows, ours.rows - wanted
    tolerances = [_ROUNDING.get(c.type.kind) for c in columns]
    if any(tolerances) and _near(list(missing.elements()), list(extra.elements()), tolerances):
        return None
    return f"{missing.total()} rows are missing, {extra.total()} are too many"


def type_name(datatype: DataType) -> str:
    """A type as format_type() prints it without its modifiers."""
    if datatype.kind is not Kind.OTHER:
        return str(datatype.kind.value)
    plain = re.sub(r"\([^)]*\)", "", datatype.name or "text").strip()
    return {"bpchar[]": "character[]", '"bit"[]': "bit[]"}.get(plain, plain)


def _near(missing: list[Row], extra: list[Row], tolerances: Sequence[float | None]) -> bool:
    """Whether the rows pair up so that only floats differ, and these by rounding."""
    if len(missing) != len(extra):
        return False
    floats = [i for i, t in enumerate(tolerances) if t]
    rest = [i for i, t in enumerate(tolerances) if not t]

    def place(row: Row) -> tuple[object, ...]:
        return (*(row[i] or "" for i in rest), *(_number(row[i]) for i in floats))

    pairs = zip(sorted(missing, key=place), sorted(extra, key=place), strict=True)
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
