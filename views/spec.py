"""A view as declared: its text, what its sinks and tests are told, and where in a file each character of the text stands.

`view_files` makes one of each view of a folder; `headrace.views.compile` compiles it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.views.limits import MOST_ROUNDS, MOST_ROWS, FreshnessLimits, Unstratified
from headrace.views.view_models import FOLLOWED, ColumnSpec, RecursionModel, UnitTest


@dataclass(frozen=True)
class ViewSpec:
    """A view as declared. `locate` turns an offset in `sql` into a line and column (from 1) of `file`.

    `check`: what must hold of another view, "unique of view.column"; then this one holds the rows that break it.
    `tests`: its unit tests, with their lines. `indexes`, `grants`: of its table in a Postgres sink. `rounds`, `rows`: with
    more a recursive query is taken not to end. `unstratified`: of a program, how relations that negate themselves are made.
    `recursion`: how it follows changes. `freshness`: how old it may become, None for its sources' default.
    `program`, `relation`: of a view that a Datalog program puts out, whose text is `sql` then; a constraint's relation is
    `constraint NAME`.
    """

    name: str
    sql: str
    file: str = "<sql>"
    description: str = ""
    key: tuple[str, ...] | None = None
    sinks: tuple[str, ...] = ()
    columns: tuple[ColumnSpec, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    grants: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict, hash=False)
    rounds: int = MOST_ROUNDS
    rows: int = MOST_ROWS
    unstratified: Unstratified | None = None
    recursion: RecursionModel = FOLLOWED
    freshness: FreshnessLimits | None = None
    line: int | None = None
    check: str = ""
    program: str = ""
    relation: str = ""
    tests: tuple[tuple[UnitTest, int], ...] = field(default=(), compare=False, repr=False)
    locate: Callable[[int], tuple[int, int]] | None = field(default=None, compare=False, repr=False)

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of a character of the SQL."""
        return self.locate(offset) if self.locate is not None else line_and_column(self.sql, offset)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    r"""Line and column, from 1, of the character at `offset`.

    >>> line_and_column("a\nbc", 3)
    (2, 2)
    """
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1
