"""Canaries of a test run: the embedded servers' passwords, which stand in the urls of every sidecar that a test starts, and may
stand in no error, log, checkpoint, metric or answer over HTTP.

Always: only what is drawn at random is a canary, so that nothing else can look like one. One a session, of the fixture
`canary`: errors are looked at where they are made, files at the end; who fetches an answer has it looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psycopg import conninfo

from headrace.engine.errors import HeadraceError

LONG = 16
"""Characters of a password that nobody chose."""


class Canary:
    """`told`: where one was seen, so far."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._secrets: set[bytes] = set()

    def watch(self, url: str) -> None:
        """The password in a libpq URL may be seen nowhere from here on."""
        password = str(conninfo.conninfo_to_dict(url).get("password") or "")
        if len(password) >= LONG:
            self._secrets.add(password.encode())

    def look(self, text: bytes, where: str) -> None:
        """Note `where` if one stands in what is about to be seen."""
        if any(secret in text for secret in self._secrets):
            self.told.append(where)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at every error that is made meanwhile, whether it is shown or not."""
        made = HeadraceError.__init__

        def looked(error: HeadraceError, /, *arguments: Any, **named: Any) -> None:
            made(error, *arguments, **named)
            if self._secrets:
                self.look(f"{error} {error.as_json()}".encode(), f"an error: {type(error).__name__}, {error.what[:40]}")

        HeadraceError.__init__ = looked  # type: ignore[method-assign]
        try:
            yield
        finally:
            HeadraceError.__init__ = made  # type: ignore[method-assign]

    def look_at_files(self, root: Path) -> int:
        """Look at the state folders and logs of all sidecars below a folder; how many files these were."""
        files = 0
        for config in root.rglob("headrace.yaml"):
            for path in (*config.parent.glob("*.log"), *config.parent.glob("state/**/*")):
                if path.is_file():
                    self.look(path.read_bytes(), str(path))
                    files += 1
        return files
