"""A trace seen through a filter or a projection: the updates of another one, with nothing kept.

Always: a row on which an expression fails does not pass; that it failed is said once, where the rows themselves are
filtered or projected. Called by joins with such an arrangement (shared arrangements, §5: operators that wrap a trace).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.operators.delta import rows_of
from headrace.engine.operators.expressions.core.evaluate import evaluate
from headrace.engine.operators.expressions.core.ir import Expr
from headrace.engine.operators.linear import as_mask, columns_of, present
from headrace.engine.trace.lookup import LATEST, Matches


class Index(Protocol):
    """What can be asked for the updates of some keys: a spine, or one seen through a filter."""

    def __len__(self) -> int:
        """How many updates it holds at the most."""
        ...

    def gather(self, keys: Keys, since: int | None = None, until: int | None = None, most: int = LATEST) -> Matches:
        """As `Spine.gather`."""
        ...


class FilteredIndex:
    """The updates of `index` whose rows make `predicate` TRUE."""

    def __init__(self, index: Index, predicate: Expr) -> None:
        self._index = index
        self._predicate = predicate

    def __len__(self) -> int:
        return len(self._index)

    def gather(self, keys: Keys, since: int | None = None, until: int | None = None, most: int = LATEST) -> Matches:
        """As `Spine.gather`. Raises DiffOverflow."""
        found = self._index.gather(keys, since, until, most)
        if not len(found):
            return found
        passed = as_mask(evaluate(self._predicate, _Found(found)).values)
        return found if passed.all() else found.take(np.flatnonzero(passed))


class ProjectedIndex:
    """The updates of `index` with the values of `exprs`, under the columns of `layout`, which has the same keys."""

    def __init__(self, index: Index, exprs: Sequence[Expr], layout: Layout) -> None:
        self._index = index
        self._exprs = exprs
        self._layout = layout

    def __len__(self) -> int:
        return len(self._index)

    def gather(self, keys: Keys, since: int | None = None, until: int | None = None, most: int = LATEST) -> Matches:
        """As `Spine.gather`; what differs in other columns alone is not consolidated. Raises DiffOverflow."""
        found = self._index.gather(keys, since, until, most)
        columns, messages = columns_of(_Found(found), self._exprs)
        rows = Exported(rows_of(columns, self._layout.arrow, len(found)))
        made = Matches.of_rows((found.probe, found.times, found.diffs, found.row), rows, self._layout)
        return made if messages is None else made.take(np.flatnonzero(~present(messages)))


class _Found(Exported):
    """The rows of some matches, of which only the columns that are asked for are fetched."""

    __slots__ = ("_found",)

    def __init__(self, found: Matches) -> None:
        self._found = found
        self.num_rows = len(found)

    def column(self, column: int) -> pa.Array:
        """One column, an entry an update."""
        return self._found.rows([column]).column(0)
