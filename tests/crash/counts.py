"""Counts of proofs: each run writes its own to build/proof/NAME.json; `python -m tests.crash.counts` puts the last ones
into docs/guarantees.md.

Always: the page's figures come from these files alone; a proof that was not run since keeps its line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROOFS = ROOT / "build" / "proof"


def write(name: str, facts: Mapping[str, Any]) -> None:
    """Keep what a run of the proof `name` counted."""
    PROOFS.mkdir(parents=True, exist_ok=True)
    body = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **facts}
    arriving = PROOFS / f"{name}.json.new"
    arriving.write_text(json.dumps(body, indent=1) + "\n")
    os.replace(arriving, PROOFS / f"{name}.json")
