"""The node of a loop's variable: what its rule made of the round before.

Always: only changes go round, and what cancels does not. Single writer: the loop, which turns it after each round.
"""

from __future__ import annotations

from engine.batch.consolidation import consolidate
from engine.batch.updates import Updates
from engine.dataflow.grouped import StandingNode
from engine.dataflow.nodes import Node
from engine.dataflow.reduce import ReduceNode
from engine.operators.delta import QUIET, Delta, concat, negated
from engine.schema import Schema


class VariableNode(Node):
    """What the loop's rule made of the round before; in the first round the initial collection, if there is one."""

    label = "variable"

    def __init__(self, fingerprint: str, schema: Schema, initial: Node | None) -> None:
        super().__init__(fingerprint, schema, () if initial is None else [initial])
        self.initial = initial
        self.rule: Node | None = None
        self._next: Updates | None = None

    def step(self, lower: int, upper: int) -> None:  # noqa: ARG002
        """The changes of this round."""
        assert self.scope is not None
        found, self._next = self._next, None
        if self.initial is not None and not self.scope.own:
            found = concat([found, self.initial.delta.rows])
        self.delta = QUIET if found is None else Delta(found, None)

    def turn(self) -> bool:
        """Take what the rule made in this round, for the next one; false if that is nothing.

        Errors do not go round: the loop hands them out as they arise.
        """
        assert self.rule is not None
        assert self.scope is not None
        made, settled = self.rule.delta.rows, isinstance(self.rule, (ReduceNode, StandingNode))
        if self.initial is not None and not self.scope.own and self.initial.delta.rows is not None:
            # From now on it is what the rule makes, and no more what it began as.
            made, settled = concat([made, negated(self.initial.delta.rows)]), False
        if made is not None and not settled:
            # What cancels must not go round: each round would multiply it.
            made = consolidate(made)
        self._next = made if made is not None and len(made) else None
        return self._next is not None
