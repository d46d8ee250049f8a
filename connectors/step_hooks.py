"""Hooks at durable steps: each step's name is reported when it is reached, so that a test can end the process there.

Invariant: `unwatched`, which does nothing, is what every part has unless wiring hands in something else. The sinks and
whatever writes the state folder call it.
"""

from __future__ import annotations

from collections.abc import Callable

Reached = Callable[[str], None]
"""Told the name of a step just before or after it, as the name says; may never return."""


def unwatched(step: str) -> None:
    """Nobody waits for any step."""
    del step
