"""Compares Postgres's answer to a SELECT with the view of it that we maintain.

Always: columns by name and type, rows as a multiset of texts; floats within their rounding (`float_rounding`), everything
else exactly. An error of Postgres that depends on data is met by a view in error. Called by the script's run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from headrace.engine.schema import DataType, Kind
from headrace.sidecar.offline.sql_replay.maintained_views import MaintainedView
from headrace.sidecar.offline.sql_replay.session import Failure, Result
from headrace.sidecar.operations.float_rounding import is_rounding


def difference(theirs: Result | Failure, ours: MaintainedView, types: Sequence[str]) -> str | None:
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
    if is_rounding(missing, extra, columns):
        return None
    return f"{missing.total()} rows are missing, {extra.total()} are too many"


def type_name(datatype: DataType) -> str:
    """A type as format_type() prints it without its modifiers."""
    if datatype.kind is not Kind.OTHER:
        return str(datatype.kind.value)
    plain = re.sub(r"\([^)]*\)", "", datatype.name or "text").strip()
    return {"bpchar[]": "character[]", '"bit"[]': "bit[]"}.get(plain, plain)
