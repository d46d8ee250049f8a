"""The node, in a loop, of what depends on all rows of a group: its first rows, window functions.

Always: it keeps nothing but reads the arrangement of its input by group; groups whose round is yet to come wait for it.
Single writer: the loop.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.batch.keys import Keys
from engine.dataflow.nodes import Node, merged
from engine.dataflow.stateful import ArrangeNode
from engine.operators.delta import QUIET, Delta
from engine.operators.group_round import OfGroups, group_round
from engine.operators.groups import group
from engine.schema import Schema


class GroupedNode(Node):
    """What `of` makes of the groups that are arranged."""

    def __init__(self, fingerprint: str, label: str, arranged: ArrangeNode, of: OfGroups, schema: Schema) -> None:
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
        delta, trace = self._arranged.delta, self._arranged.trace
        some = self._later.pop(self.scope.now, [])
        if delta.rows is not None and len(delta.rows):
            some = [*some, trace.layout.keys_of(delta.rows)]
        if not some:
            return merged(QUIET, delta)
        keys = Keys(*(np.concatenate([getattr(k, lane) for k in some]) for lane in ("hash", "check")))
        found, later = group_round(self._of, trace.spine, keys.take(group(keys).first), self.scope.moment)
        for now, due in later:
            self._later.setdefault(now, []).append(due)
        return merged(found, Delta(None, delta.errors))

    def release(self) -> None:
        """Stop reading the arrangement."""
        self._reader.release()
