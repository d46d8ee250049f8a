"""The exits of a loop: what of a body's collection leaves it, and what its last round would have brought to the next one.

Always: what leaves in a step is the changes of all rounds added up. Single writer: the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.arrangement import Registry
from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.grouped import LoopGroupsNode
from headrace.engine.dataflow.node import Node, merged
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.dataflow.reduce import ReduceNode
from headrace.engine.operators.delta import ERRORS, QUIET, Delta, concat
from headrace.engine.schema import Schema


class LoopExit:
    """One collection as it leaves: the changes of all rounds added up. What the body does not keep is kept here."""

    def __init__(self, registry: Registry, node: Node, k: int) -> None:
        schema = Schema(node.schema.columns)
        self.delta: Delta = QUIET
        self._errors = Trace(registry, "leave-errors", f"leave-errors-{k}", ERRORS, ())
        self._made_by = node if isinstance(node, (ReduceNode, LoopGroupsNode)) else None
        self._rows = None if self._made_by else Trace(registry, "leave", f"leave-{k}", schema, ())
        self._parts: list[Delta] = []

    @property
    def traces(self) -> list[Trace]:
        """The errors; and the rows, unless a reduce has them."""
        return [self._errors] if self._rows is None else [self._rows, self._errors]

    def open(self) -> None:
        """A step begins."""
        self._parts = []

    def pass_through(self, delta: Delta, errors: Sequence[Updates | None]) -> None:
        """The changes of one round, and all errors of the body's rules."""
        self._parts.append(delta)
        self._parts += [Delta(None, some) for some in errors if some is not None and some is not delta.errors]

    def close(self, upper: int, now: int) -> None:
        """The step ends, at the round `now` of the loop around."""
        parts, self._parts = self._parts, []
        rows, errors = concat([d.rows for d in parts]), concat([d.errors for d in parts])
        parts.clear()
        if rows is not None and bool((rows.diffs < 0).any()):
            # What only comes cancels nothing.
            rows = consolidate(rows)
        self.delta = merged(Delta(rows if rows is not None and len(rows) else None, errors))
        if self._rows is not None and self.delta.rows is not None:
            self._rows.insert(self.delta.rows, upper, now)
        if errors is not None:
            self._errors.insert(errors, upper, now)

    def content(self, as_of: int) -> Delta:
        """Rows and errors at `as_of`."""
        errors = self._errors.snapshot(as_of)
        if self._made_by is not None:
            return merged(self._made_by.kept_content(as_of), Delta(None, errors))
        assert self._rows is not None
        return Delta(self._rows.snapshot(as_of), errors)

    def errors(self, as_of: int) -> Updates:
        """The errors at `as_of`."""
        return self._errors.snapshot(as_of)
