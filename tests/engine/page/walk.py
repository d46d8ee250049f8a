"""docs/engine.md run as a program: its python blocks in one namespace, its tables written from what the engine did.

Always: a table is made right after the block above it has run, from the engine's own objects. Called by `make docs` (as
`python -m tests.engine.page`) and by the test that compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import headrace.engine.dataflow.join as joining
import headrace.engine.operators.reduce as reducing
from headrace.engine.operators import group_versions, join, small_join

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "engine.md"

_PART = re.compile(
    r"```python\n(?P<code>.*?)```|(?P<head><!-- (?P<table>[\w ]+) -->\n).*?(?P<foot><!-- end -->)", re.DOTALL
)

Namespace = dict[str, Any]
Table = Callable[[Namespace], str]


def written(text: str, tables: dict[str, Table]) -> str:
    """The page `text` with its blocks run and every table made anew. Raises KeyError for a table nobody makes."""
    names: Namespace = {"seen": {}}

    def part(match: re.Match[str]) -> str:
        code = match["code"]
        if code is not None:
            exec(compile(code, str(PAGE), "exec"), names)
            return match[0]
        return f"{match['head']}{tables[match['table']](names)}{match['foot']}"

    with _watched(names["seen"]):
        return _PART.sub(part, text)


@contextmanager
def _watched(seen: dict[str, list[Any]]) -> Iterator[None]:
    """Notes what the join's halves and the reduce's versions were: they pass on and nobody keeps them.

    No change counts as few there, which one call of a kernel would take through all of these steps.
    """

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **named: Any) -> Any:
            found = function(*args, **named)
            seen.setdefault(name, []).append(found)
            return found

        return run

    with (
        patch.object(joining, "join_trace", noting("pairs", join.join_trace)),
        patch.object(reducing, "versions_of", noting("versions", group_versions.versions_of)),
        patch.object(reducing, "FEW", 0),
        patch.object(small_join, "FEW", 0),
    ):
        yield


def table(head: list[str], rows: list[list[object]]) -> str:
    """A table of markdown."""
    lines = [head, ["---"] * len(head), *([_shown(cell) for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(cell: object) -> str:
    if cell is None:
        return "NULL"
    return ("+" if cell > 0 else "") + str(cell) if isinstance(cell, Diff) else str(cell)


class Diff(int):
    """A number shown with its sign."""
