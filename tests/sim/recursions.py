"""Recursions that may do little work in a step: they are late, go on between steps, and come back by themselves.

Always: a view that is late is marked, and keeps what it had; it may be so at any frontier, but not for good. Lives in which no
recursive view is in force are played as ever.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.runtime import late_recursions
from headrace.sidecar.wiring import build

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

RECURSIVE = {"reached"}


@dataclass(frozen=True)
class Recursions:
    """`step_work`: the counted work after which a recursion leaves a step; `portion`: what it may do between two turns."""

    step_work: int
    portion: int

    def begin(self, world: World) -> None:
        """See `Fate`."""
        world.patches.append(self._in_place)
        world.judge.causes.append(lambda view, at: at is None and view in RECURSIVE)

    def _in_place(self, patch: pytest.MonkeyPatch) -> None:
        real = build.make_flow

        def made(*of: Any) -> Any:
            flow = real(*of)
            assert isinstance(flow, KeptDataflow), "the simulator has no workers"
            flow.late.step_work = self.step_work
            return flow

        patch.setattr(build, "make_flow", made)
        patch.setattr(late_recursions, "PORTION", self.portion)

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""

    def mend(self, world: World) -> None:
        """See `Fate`."""

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """It is no cause of any."""
        return False


def drawn_recursions(draw: random.Random) -> Recursions | None:
    """Of one life, if it has this."""
    step_work, portion = draw.choice([0, 1, 60]), draw.choice([1, 1000, 20_000])
    return Recursions(step_work, portion) if step_work else None
