"""The recursive groups of a dataflow that are late, and how much work a step may take before a group becomes so.

Invariant: what a late group does between steps is seen by nobody before a step. Owned by the graph; the groups' nodes come and go
by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.recursion.late import Standing


class LateGroup(Protocol):
    """The node of a group, as far as it is late."""

    def go_on(self, work: int) -> None:
        """Do so much of what is left to do. Raises DiffOverflow."""

    def fail(self, why: DiffOverflow) -> None:
        """Its state is lost; the next step says so."""

    @property
    def standing(self) -> Standing:
        """How it stands."""

    @property
    def is_told(self) -> bool:
        """Whether this shard tells of it: of a loop, of which each shard has a part, one does."""


class LateGroups:
    """`step_work`: the counted work after which a group leaves a step, 0 for any: then none is late for longer than a step.
    Not `returns`: a group that is late here is late where it is evaluated, and stays so.
    """

    def __init__(self) -> None:
        self.step_work = 0
        self.returns = True
        self._groups: dict[LateGroup, None] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __iter__(self) -> Iterator[LateGroup]:
        return iter(self._groups)

    def add(self, group: LateGroup) -> None:
        """It is late from now on."""
        self._groups[group] = None

    def remove(self, group: LateGroup) -> None:
        """It is late no more."""
        self._groups.pop(group, None)

    def go_on(self, work: int) -> None:
        """Let each do so much work, between two steps."""
        for group in list(self._groups):
            try:
                group.go_on(work)
            except DiffOverflow as why:
                group.fail(why)

    @property
    def ended(self) -> bool:
        """Whether any comes back, or fails, with the next step."""
        return any(group.standing.ended for group in self._groups)


__all__ = ["LateGroup", "LateGroups"]
