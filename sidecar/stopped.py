"""Why the last run ended: a note in the state folder, for `headrace status` when nobody answers any more.

Always: best effort, and about the last run alone; nothing that is recovered rests on it. Written by the host, read by
the command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.errors import HeadraceError

NAME = "stopped.json"


def note(state: Path, error: HeadraceError) -> None:
    """Keep the error that ends this run; a folder that cannot be written keeps none."""
    body = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "text": str(error), **error.as_json()}
    with suppress(OSError):
        fresh = state / f"{NAME}.new"
        fresh.write_text(json.dumps(body, default=str))
        os.replace(fresh, state / NAME)


def forget(state: Path) -> None:
    """A run began: whatever ended the one before it is past."""
    with suppress(OSError):
        (state / NAME).unlink()


def last(state: Path) -> Mapping[str, Any] | None:
    """What ended the last run (`at`, `text`, and the error as `--json` prints it); None where nothing is known."""
    try:
        body = json.loads((state / NAME).read_text())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) and {"at", "text", "code", "hint"} <= body.keys() else None
