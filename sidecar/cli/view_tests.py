"""`headrace test`: how each unit test of the views ended, and for those that failed what was expected and what came.

Always: the exit code is 9 where a test failed. Called by the command.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console

from headrace.sidecar.cli import output
from headrace.sidecar.cli.errors import EXIT_CODES
from headrace.sidecar.config.config import Settings
from headrace.sidecar.offline.view_tests import Outcome, run_tests
from headrace.sidecar.wiring.project import read_project


def run_unit_tests(settings: Settings, names: Sequence[str], *, as_json: bool) -> None:
    """Run and print them. Raises HeadraceError."""
    found = run_tests(read_project(settings), names)
    failed = [o for o in found if not o.passed]
    body = {"passed": len(found) - len(failed), "failed": len(failed), "tests": [o.json() for o in found]}
    output.emit(body, as_json=as_json)
    if not as_json:
        _print(found)
        sys.stdout.write(f"{body['passed']} passed, {body['failed']} failed\n")
    if failed:
        raise SystemExit(EXIT_CODES["test"])


def _print(found: Sequence[Outcome]) -> None:
    console = Console(highlight=False, markup=False)
    for outcome in found:
        mark = "ok    " if outcome.passed else "FAILED"
        console.print(f"{mark} {outcome.view}: {outcome.test} ({outcome.file} line {outcome.line})", soft_wrap=True)
        if outcome.error:
            console.print(f"       {outcome.error}", soft_wrap=True)
        elif not outcome.passed:
            console.print(output.table("- expected and not there, + there and not expected", ("", *outcome.columns),
                                     _rows(outcome)))  # fmt: skip


def _rows(outcome: Outcome) -> Iterator[list[str]]:
    """What differs between what is the same, in one order of rows."""
    marked = [(row, mark) for rows, mark in ((outcome.missing, "-"), (outcome.extra, "+"), (outcome.same, ""))
              for row in Counter(rows).elements()]  # fmt: skip
    for row, mark in sorted(marked, key=lambda m: ([(v is None, v or "") for v in m[0]], m[1])):
        yield [mark, *("NULL" if v is None else v for v in row)]
