"""The node of a loop's variable: what its rule made of the round before.

Always: only changes go round, and what cancels does not. Single writer: the loop, which turns it after each round.
"""

from __future__ import annotations

from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.grouped import LoopGroupsNode
from headrace.engine.dataflow.node import Node
from headrace.engine.dataflow.reduce import ReduceNode
from headrace.engine.operators.delta import QUIET, Delta, concat, negated
from headrace.engine.schema import Schema


class VariableNode(Node):
    """What the loop's rule made of the round before; in the first round the initial collection, if there is one."""

    label = "variable"

    def __init__(self, fingerprint: str, schema: Schema, initial: Node | None) -> None:
        super().__init__(fingerprint, schema, () if initial is None else [initial])
        self.initial = initial
        self.rule: Node | None = None
        self.next: Updates | None = None
        """What the rule made in this round, for the next one."""

    def step(self, lower: int, upper: int) -> None:  # noqa: ARG002
        """The changes of this round."""
        assert self.scope is not None
        found, self.next = self.next, None
        if self.initial is not None and not self.scope.own:
            found = concat([found, self.initial.delta.rows])
        self.delta = QUIET if found is None else Delta(found, None)

    def turn(self) -> bool:
        """Take what the rule made in this round, for the next one; false if that is nothing.

        Errors do not go round: the loop hands them out as they arise.
        """
        assert self.rule is not None
        assert self.scope is not None
        made, settled = self.rule.delta.rows, isinstance(self.rule, (ReduceNode, LoopGroupsNode))
        if self.initial is not None and not self.scope.own and self.initial.delta.rows is not None:
            # From now on it is what the rule makes, and no more what it began as.
            made, settled = concat([made, negated(self.initial.delta.rows)]), False
        if made is not None and not settled:
            # What cancels must not go round: each round would multiply it.
            made = consolidate(made)
        self.next = made if made is not None and len(made) else None
        return self.next is not None
