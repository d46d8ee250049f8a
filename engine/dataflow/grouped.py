"""The nodes, in a loop, that keep nothing but read the arrangement of their input by group.

Always: groups whose round is yet to come wait for it. Single writer: the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from headrace.engine.batch.keys import Keys
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.node import Node, merged
from headrace.engine.iteration.loop_groups import LoopGroups
from headrace.engine.operators.delta import QUIET, Delta
from headrace.engine.operators.rounds import Later, Moment
from headrace.engine.schema import Schema
from headrace.engine.trace.spine import Spine

OfRound = Callable[[Spine, Keys, Moment], tuple[Delta, Later]]
"""(the arrangement, groups, which may repeat, the moment) to what changes of theirs in its round, and groups due later."""


class GroupedNode(Node):
    """What `of` makes of the groups that are arranged: their first rows, window functions."""

    def __init__(self, fingerprint: str, label: str, arranged: ArrangeNode, of: OfRound, schema: Schema) -> None:
        super().__init__(fingerprint, schema, [arranged])
        self.label = label
        self._arranged = arranged
        self._of = of
        self._reader = arranged.trace.read_by(f"{label}-{fingerprint[:12]}")
        self._later: dict[int, list[Keys]] = {}
        """Groups due in later rounds; empty between steps."""

    def is_eager(self, lower: int) -> bool:  # noqa: ARG002
        """Groups may be due in this round."""
        assert self.scope is not None
        return self.scope.now in self._later

    def later(self) -> Iterable[int]:
        """Rounds in which groups are due."""
        return self._later

    def run(self, lower: int, upper: int) -> Delta:  # noqa: ARG002
        """The corrections of the groups that change in this round."""
        assert self.scope is not None
        delta = self._arranged.delta
        some = self._later.pop(self.scope.now, [])
        if delta.rows is not None and len(delta.rows):
            some = [*some, self._arranged.changed()]
        if not some:
            return merged(QUIET, delta)
        keys = some[0]
        if len(some) > 1:
            keys = Keys(*(np.concatenate([getattr(k, lane) for k in some]) for lane in ("hash", "check")))
        found, later = self._of(self._arranged.trace.spine, keys, self.scope.moment)
        for now, due in later:
            self._later.setdefault(now, []).append(due)
        return merged(found, Delta(None, delta.errors))

    def release(self) -> None:
        """Stop reading the arrangement."""
        self._reader.release()


class LoopGroupsNode(GroupedNode):
    """Rows that are there often enough, or the extreme value of each group."""

    def __init__(self, fingerprint: str, arranged: ArrangeNode, standing: LoopGroups) -> None:
        super().__init__(fingerprint, "reduce", arranged, standing.round, standing.shape.schema)
        self.key = standing.shape.key
        self._standing = standing

    def kept_content(self, as_of: int) -> Delta:
        """What stood after the last round of `as_of`, without the errors of what is reduced."""
        trace = self._arranged.trace
        return self._standing.content(trace.layout, trace.snapshot(as_of))
