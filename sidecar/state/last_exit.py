"""Why the last run ended: a note in the state folder, for `headrace status` when nobody answers any more.

It is best effort and about the last run alone; recovery does not read it. The host writes it, the command reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.engine.errors import HeadraceError
from headrace.sidecar.state.filesystem import LOCAL, replace_whole

NAME = "stopped.json"


def note(state: Path, error: HeadraceError) -> None:
    """Keep the error that ends this run; a folder that cannot be written keeps none."""
    body = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "text": str(error), **error.as_json()}
    with suppress(OSError):
        replace_whole(LOCAL, state / NAME, [json.dumps(body, default=str).encode()])


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
