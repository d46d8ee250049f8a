"""Errors on the terminal: one line for people or one JSON object, and the exit code that goes with each kind.

Always: an error meant for people never shows a traceback. The codes are part of the interface (docs/cli.md).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from headrace.engine.errors import HeadraceError
from headrace.views.yaml_reader import ConfigError, masked

EXIT_CODES: dict[str, int] = {
    "error": 1,
    "internal": 1,
    "batch": 1,
    "since": 1,
    "depth": 1,
    "worker": 1,
    "shard": 1,
    "literal": 1,
    "function": 1,
    "demo": 1,
    "config": 3,
    "init": 3,
    "view": 4,
    "type": 4,
    "apply": 4,
    "query": 4,
    "tail": 4,
    "cancelled": 4,
    "source": 5,
    "sink": 5,
    "connect": 5,
    "http": 5,
    "control": 5,
    "request": 5,
    "devstack": 5,
    "publish": 5,
    "read": 5,
    "load": 5,
    "state": 6,
    "checkpoint": 6,
    "reclock": 6,
    "fenced": 7,
    "undecodable": 8,
    "continuity": 8,
    "recording": 8,
    "overflow": 8,
    "rounds": 8,
    "audit": 9,
    "resync": 9,
    "test": 9,
}
"""Exit code by the kind of error; 0 is success, 2 a wrong command line, 130 Ctrl-C."""


def exit_code(error: HeadraceError) -> int:
    """The exit code of an error."""
    return EXIT_CODES.get(str(error.as_json()["code"]), 1)


def fail(error: HeadraceError, *, as_json: bool) -> NoReturn:
    """Print an error and leave with its exit code."""
    others = list(error.others)
    if as_json:
        body = {"error": error.as_json(), "others": [e.as_json() for e in others]}
        sys.stdout.write(json.dumps(body, default=str) + "\n")
    else:
        console = Console(stderr=True, soft_wrap=True, highlight=False)
        for each in (error, *others):
            where, kind = (f"{each.place}: ", "error:") if each.place else ("", "error")
            console.print(Text.assemble(where, (kind, "bold red"), f" {each.sentence}"))
            for line in _pointed(each):
                console.print(Text(line))
    raise SystemExit(exit_code(error))


def _pointed(error: HeadraceError) -> list[str]:
    """The line of the file that is at fault, and a caret under its column; nothing where it cannot or must not be shown."""
    at, column = error.where.get("line"), error.where.get("column")
    if not error.place or not isinstance(at, int):
        return []
    try:
        lines = Path(str(error.where["file"])).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    if not 1 <= at <= len(lines):
        return []
    line: str | None = lines[at - 1].replace("\t", " ")
    if error.as_json()["code"] == ConfigError.code:
        line = masked(lines[at - 1].replace("\t", " "))
    if line is None or not line.isprintable():
        return []
    shown = [f"{at:5} | {line}"]
    if isinstance(column, int) and 1 <= column <= len(line) + 1:
        shown.append(f"{'':5} | {' ' * (column - 1)}^")
    return shown


@contextmanager
def reported(*, as_json: bool) -> Iterator[None]:
    """Turn our errors into messages and exit codes."""
    try:
        yield
    except HeadraceError as error:
        fail(error, as_json=as_json)
