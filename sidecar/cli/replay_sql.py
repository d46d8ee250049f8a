"""`headrace replay script.sql`: an embedded Postgres for the scripts, and what is printed of each SELECT.

Always: with --json standard output has one object a SELECT and nothing else; each script has a database of its own. Leaves
with 9 where an answer was different.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import orjson
import psycopg

from headrace.engine.errors import HeadraceError
from headrace.sidecar.devstack.postgres import SUPERUSER, EmbeddedPostgres
from headrace.sidecar.offline.sql_replay.runner import Note, Script
from headrace.sidecar.offline.sql_replay.select_checks import Answer
from headrace.sidecar.offline.sql_replay.session import Row, Session

DIFFERENT = 9
"""The exit code where an answer was different."""
MEMORY = 4 << 30
"""Bytes that the answers may take."""
SHOWN = 20
"""Rows of an answer that are printed."""
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "max_connections": "20"}


class ScriptError(HeadraceError):
    """A script that cannot be read."""

    code: ClassVar[str] = "recording"


@dataclass
class Tally:
    """The SELECTs by status, and the seconds that they took."""

    counts: Counter[str]
    seconds: float = 0.0

    def line(self) -> str:
        """One line for people."""
        total = self.counts.total()
        rate = total / self.seconds if self.seconds else 0.0
        parts = ", ".join(f"{self.counts[status]} {status}" for status in ("equal", "different", "refused"))
        return f"{total} SELECTs: {parts} ({rate:.0f} a second)"


def run_scripts(paths: Sequence[Path], seed: int, *, as_json: bool) -> None:
    """Run each script over an embedded Postgres of this run alone. Raises ScriptError for one that cannot be read."""
    texts = [(path, _read(path)) for path in paths]
    tally = Tally(Counter())
    with (
        tempfile.TemporaryDirectory(prefix="headrace") as folder,
        EmbeddedPostgres(folder, settings=_SETTINGS) as server,
        _bounded(),  # the server, which runs by now, has a memory of its own
    ):
        for number, (path, text) in enumerate(texts):
            begun = time.monotonic()
            for told in run_script(server, f"script_{number}", text, seed):
                if isinstance(told, Answer):
                    tally.counts[told.status] += 1
                _print(told, path if len(paths) > 1 else None, as_json=as_json)
            tally.seconds += time.monotonic() - begun
    print(tally.line(), file=sys.stderr if as_json else sys.stdout)
    sys.stdout.flush()
    if tally.counts["different"]:
        raise SystemExit(DIFFERENT)


@contextmanager
def _bounded() -> Iterator[None]:
    """Limits the memory of Postgres, so that a query that needs more fails and the machine does not."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + MEMORY
    if before[1] != resource.RLIM_INFINITY:
        most = min(most, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def run_script(server: EmbeddedPostgres, database: str, text: str, seed: int = 0) -> Iterable[Answer | Note]:
    """One script in a new database of its own."""
    with psycopg.connect(server.url(SUPERUSER), autocommit=True) as admin:
        admin.execute(f'create database "{database}"')
    session = Session(server.url(database))
    try:
        yield from Script(session, seed).run(text)
    finally:
        session.close()


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError as error:
        raise ScriptError(f"cannot read the script: {error.strerror}", file=path, hint="name a file of SQL") from None


def _print(told: Answer | Note, path: Path | None, *, as_json: bool) -> None:
    where = {} if path is None else {"file": str(path)}
    if isinstance(told, Note):
        print(f"{_place(path, told.line)}: {told.reason}: {_short(told.sql)}", file=sys.stderr)  # noqa: T201
        return
    if as_json:
        body: dict[str, object] = {**where, "line": told.line, "sql": told.sql, "status": told.status, "reason": told.reason,
                "rows": told.rows}  # fmt: skip
        if told.status == "different":
            body |= {"postgres": told.postgres[:SHOWN], "headrace": told.headrace[:SHOWN]}
        sys.stdout.buffer.write(orjson.dumps(body) + b"\n")
        return
    reason = f": {told.reason}" if told.reason else f", {told.rows} rows" if told.rows is not None else ""
    print(f"{_place(path, told.line)}: {told.status}{reason}: {_short(told.sql)}")  # noqa: T201
    if told.status == "different":
        for name, rows in (("Postgres", told.postgres), ("headrace", told.headrace)):
            print(f"  {name}: {len(rows)} rows")  # noqa: T201
            for row in rows[:SHOWN]:
                print(f"    {_row(row)}")  # noqa: T201


def _place(path: Path | None, line: int) -> str:
    return f"line {line}" if path is None else f"{path}:{line}"


def _short(sql: str) -> str:
    flat = " ".join(sql.split())
    return flat if len(flat) <= 100 else flat[:97] + "..."


def _row(row: Row) -> str:
    return " | ".join("NULL" if cell is None else cell for cell in row)
