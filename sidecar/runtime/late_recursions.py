"""Recursions that took more than a step may: between two steps they go on, a portion at a time.

Always: what has ended comes back at an epoch of its own, without rows, which is bound as any other: so it comes back also while
nothing arrives, and what arrives cannot make it late again first. The loop calls it each turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.connectors.sink import SourceFrontier
from headrace.sidecar.runtime.components import RuntimeComponents
from headrace.sidecar.transactions.model import Marker

PORTION = 10_000
"""Counted work that each may do between two turns: a millisecond or so, and at the most a piece of a round more."""


class Late(NamedTuple):
    """Whether a recursion goes on after its portion, and whether one comes back in this very turn, in which nothing is read."""

    goes_on: bool
    back: bool


def evaluate(parts: RuntimeComponents, sources: Mapping[str, SourceFrontier], *, held: bool) -> Late:
    """Let late recursions go on. `held`: nothing is given to sinks yet, and so no epoch is made for this."""
    if not parts.flow.is_late:
        return Late(False, False)
    if not parts.flow.evaluate(PORTION):
        return Late(True, False)
    intake = next((i for i in parts.intakes if i.name in sources), None)
    if intake is None or held or parts.reclock.replaying is not None:
        return Late(False, False)
    if not any(i.injected for i in parts.intakes):
        at = sources[intake.name]
        intake.injected.append(Marker(at.place, at.commit_us))
    return Late(False, True)


__all__ = ["PORTION", "Late", "evaluate"]
