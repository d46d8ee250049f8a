"""Operators without state: project and filter. Each is a pure function from updates to updates.

Always: a row whose expression fails leaves the rows and stands in the errors, with its own time and diff, so that
retracting the row retracts the error. Called by the dataflow's linear nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.gather_rows import Assembly, Chosen, Loose
from headrace.engine.batch.updates import Bools, Int64s, Updates
from headrace.engine.operators.delta import Delta, errors_at, keep, rows_of
from headrace.engine.operators.expressions.core.evaluate import evaluate, satisfied
from headrace.engine.operators.expressions.core.ir import ColumnRef, Expr


def project(updates: Updates, exprs: Sequence[Expr], schema: pa.Schema) -> Delta:
    """Each row replaced by the values of `exprs`, in the lanes of `schema`; the first failing one is the error."""
    columns, messages = columns_of(updates.struct, exprs)
    return split(Updates(rows_of(columns, schema, len(updates)), updates.times, updates.diffs), messages)


def columns_of(rows: Exported, exprs: Sequence[Expr]) -> tuple[list[pa.Array], pa.Array | None]:
    """The values of `exprs`, and of each row the message of the first failing one; None for no failure."""
    columns: list[pa.Array] = []
    messages: pa.Array | None = None
    for expr in exprs:
        if isinstance(expr, ColumnRef):
            columns.append(rows.column(expr.index))
            continue
        found = evaluate(expr, rows)
        columns.append(found.values)
        if found.errors is not None and found.errors.null_count < len(found.errors):
            messages = found.errors if messages is None else pc.coalesce(messages, found.errors)
    return columns, messages


class Choice(NamedTuple):
    """A projection that only chooses columns: which, and how all of them are picked from rows of its own."""

    columns: Int64s
    whole: Assembly


def choice_of(exprs: Sequence[Expr], schema: pa.Schema) -> Choice | None:
    """What `choose` needs of a projection; None if it computes anything."""
    columns = [expr.index for expr in exprs if isinstance(expr, ColumnRef)]
    if not exprs or len(columns) < len(exprs):
        return None
    return Choice(np.array(columns), Assembly.of(schema, range(len(columns))))


def choose(updates: Updates, choice: Choice | None) -> Delta | None:
    """As `project`, without a call of Arrow; None where that cannot be."""
    rows = updates.struct
    if choice is None or not isinstance(rows, Loose):
        return None
    return Delta(Updates(Chosen(rows, choice.whole, choice.columns), updates.times, updates.diffs), None)


def filter_rows(updates: Updates, predicate: Expr) -> Delta:
    """The rows for which `predicate` is TRUE (neither FALSE nor NULL); an error where a part of it fails and none is either."""
    found = satisfied(predicate, updates.struct)
    mask = as_mask(found.values)
    if found.errors is None or found.errors.null_count == len(found.errors):
        return Delta(keep(updates, mask), None)
    failed = present(found.errors)
    return Delta(keep(updates, mask & ~failed), _failures(updates, found.errors, failed))


def split(updates: Updates, messages: pa.Array | None) -> Delta:
    """Rows apart from errors: `messages` (large_string, or None for no error) is non-null where the row failed."""
    if messages is None:
        return Delta(updates, None)
    failed = present(messages)
    return Delta(keep(updates, ~failed), _failures(updates, messages, failed))


def as_mask(values: pa.Array) -> Bools:
    """A boolean column as a mask; NULL counts as false."""
    filled = values.fill_null(False) if values.null_count else values
    mask: Bools = filled.to_numpy(zero_copy_only=False)
    return mask


def present(messages: pa.Array) -> Bools:
    """Which rows have a message."""
    mask: Bools = messages.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _failures(updates: Updates, messages: pa.Array, failed: Bools) -> Updates | None:
    at = np.flatnonzero(failed)
    if not len(at):
        return None
    return errors_at(messages.take(pa.array(at)), updates.times[at], updates.diffs[at])
