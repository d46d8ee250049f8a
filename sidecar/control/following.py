"""A dataflow that follows the running one: it is given what each step of that takes in, and takes it in some steps later.

Invariant: once it has finished it stands at the runtime's epoch, having missed nothing since it was begun. One thread writes it,
but for `feed` and `finish`, which the loop calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping

from headrace.engine.batch.updates import Upserts
from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.intake.table_upserts import TableErrors, push

ENOUGH = 4
"""So many of the loop's steps may be left for the loop to make up for."""
ROUNDS = 50
"""So many steps of catching up are made before the loop is asked whatever is left."""
STEP_ROWS = 1 << 16
"""Changes that one step of catching up takes in: from so many on, what comes later is left to the next one."""


class Cancelled(HeadraceError):
    """Somebody asked for the end of it."""

    code = "cancelled"


class NothingYet(HeadraceError):
    """No epoch is complete yet."""

    code = "control"


class Following(ABC):
    """See the module. `epoch`: the last one complete in it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._waiting: deque[tuple[int, Mapping[str, Upserts], TableErrors]] = deque()
        self._cancelled = False

    @property
    @abstractmethod
    def flow(self) -> Flow:
        """The dataflow that follows."""

    def taken_in(self, changes: Mapping[str, Upserts]) -> Mapping[str, Upserts]:
        """What it takes in of changes by table."""
        return changes

    @abstractmethod
    def stepped(self) -> None:
        """Take what its outputs emitted with a step."""

    def feed(self, epoch: int, changes: Mapping[str, Upserts], errors: TableErrors) -> None:
        """What the running dataflow takes in with the step to `epoch`. Called by the loop."""
        self._waiting.append((epoch, changes, errors))

    def cancel(self) -> None:
        """Have it end with Cancelled at the next node or step. Called by any thread."""
        self._cancelled = True

    def catch_up(self) -> None:
        """Take in what came meanwhile, until little is left. Raises Cancelled.

        A step takes in what many steps of the loop took in: the longer it waits, the cheaper it is.
        """
        for _ in range(ROUNDS):
            if len(self._waiting) <= ENOUGH:
                return
            self.check()
            self._step()

    def finish(self) -> None:
        """Take in the rest: then it stands where the runtime stands. Called by the loop."""
        self.check()
        while self._waiting:
            self._step()

    def _step(self) -> None:
        """Take in what waits, as one step."""
        room = STEP_ROWS
        while self._waiting and room > 0:
            self.epoch, changes, errors = self._waiting.popleft()
            push(self.flow, self.taken_in(changes), errors)
            room -= sum(map(len, changes.values()))
        self.flow.step(self.epoch + 1)
        self.stepped()
        self.flow.advance_since(self.epoch)

    def check(self) -> None:
        """Raise Cancelled once somebody asked for the end."""
        if self._cancelled:
            raise Cancelled("it was cancelled", hint="nothing was changed")


__all__ = ["Cancelled", "Following", "NothingYet"]
