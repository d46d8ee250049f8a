"""What a run tells while it runs: one line an event on standard error, `key=value` or JSON.

Always: a line is whole, and out before `say` returns. Called by the host and by whatever ends it; loads nothing heavy.
"""

from __future__ import annotations

import json
import sys


def say(as_json: bool, **fact: object) -> None:
    """One event, its facts by name."""
    text = json.dumps(fact) if as_json else " ".join(f"{k}={v}" for k, v in fact.items())
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
