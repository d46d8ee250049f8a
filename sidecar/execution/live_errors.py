"""Counts of the errors that are alive in a view: message → how often it stands there.

An error is retractable, as a row is. Whoever follows a view's errors adds them up here.
"""

from __future__ import annotations

from headrace.engine.batch.updates import Updates


def add_errors(live: dict[str, int], changes: Updates) -> None:
    """Add changes of a view's errors to those that are alive, in place; what is not there any more has no entry.

    >>> import numpy as np, pyarrow as pa
    >>> def of(diff): return Updates(pa.record_batch({"error": ["overflow"]}), np.ones(1, np.int64), np.array([diff]))
    >>> live = {}
    >>> add_errors(live, of(2)); print(live)
    {'overflow': 2}
    >>> add_errors(live, of(-2)); print(live)
    {}
    """
    for message, diff in zip(changes.rows.column(0).to_pylist(), changes.diffs.tolist(), strict=True):
        left = live.get(message, 0) + diff
        if left:
            live[message] = left
        else:
            live.pop(message, None)
