"""The one error of the embedded stack: which part failed, what it said last in its log, and what to do about it."""

from __future__ import annotations

from pathlib import Path

from headrace.engine.errors import HeadraceError

_TAIL_LINES = 12
_TAIL_BYTES = 16_384


class DevstackError(HeadraceError):
    """A part of the embedded stack could not be fetched, started, reached or stopped."""

    code = "devstack"


def log_tail(log: Path, lines: int = _TAIL_LINES) -> str:
    """The last `lines` lines of a log, empty where there is none yet; reads at most 16 kB from its end."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])
