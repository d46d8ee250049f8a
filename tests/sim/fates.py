"""What more may befall a life than the faults of every day: each is a part of its own, which a life has or has not.

Always: each is drawn apart from all else, so that a life without any of them is played as if there were none. The world asks
each between two steps, when a sidecar ends with an error, and at the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tests.sim.beside import drawn_incremental
from tests.sim.changes import drawn_changes
from tests.sim.columns import drawn_columns
from tests.sim.kept import drawn_kept
from tests.sim.kinds import drawn_kinds
from tests.sim.lake import drawn_publisher
from tests.sim.late import drawn_late
from tests.sim.leaves import drawn_leaves
from tests.sim.odd import drawn_odd
from tests.sim.ranges import drawn_ranges
from tests.sim.readers import drawn_readers
from tests.sim.recursions import drawn_recursions
from tests.sim.remade import drawn_remade
from tests.sim.signals import drawn_signals
from tests.sim.slots import drawn_slots
from tests.sim.stands import drawn_stands
from tests.sim.wider import drawn_wider

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World


class Fate(Protocol):
    """One of these."""

    def begin(self, world: World) -> None:
        """The world is made."""

    def mend(self, world: World) -> None:
        """Nothing more happens, and whatever stands still for it is to go on: asked again and again until it does."""

    def at_door(self, world: World, process: Process) -> None:
        """A process is about to do something to the outside, and faults may happen."""

    def befall(self, world: World) -> None:
        """Between two steps."""

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool | None:
        """Whether it is a cause of this error, for which the operator is told to begin with an empty state folder; None: it is,
        and he has done what else he is told to."""


# a publisher is drawn last: the others know shops alone
DRAWN: tuple[Callable[[random.Random], Fate | None], ...] = (
    drawn_slots, drawn_signals, drawn_stands, drawn_columns, drawn_kinds, drawn_incremental, drawn_wider, drawn_changes,
    drawn_odd, drawn_kept, drawn_remade, drawn_late, drawn_ranges, drawn_recursions, drawn_readers, drawn_publisher,
)  # fmt: skip
BESIDE_LEAVES = (drawn_slots, drawn_changes, drawn_kept, drawn_late, drawn_ranges, drawn_recursions, drawn_readers)
"""The others name topics by their tables."""


def drawn(seed: int) -> list[Fate]:
    """Those of one life."""
    leaves = drawn_leaves(random.Random(f"{drawn_leaves.__name__} of {seed}"))
    found = (make(random.Random(f"{make.__name__} of {seed}")) for make in (BESIDE_LEAVES if leaves else DRAWN))
    return [fate for fate in (leaves, *found) if fate is not None]
