"""The names of durable steps, told as they are reached, so that a test can end the process exactly there.

Always: `unwatched` is what every part has unless wiring hands in something else, and does nothing. Called by the sinks and by
what writes the state folder.
"""

from __future__ import annotations

from collections.abc import Callable

Reached = Callable[[str], None]
"""Told the name of a step just before or after it, as the name says; may never return."""


def unwatched(step: str) -> None:
    """Nobody waits for any step."""
    del step
