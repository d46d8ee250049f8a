"""The exits of a loop: what of a body's collection leaves it, and what its last round would have brought to the next one.

Always: what leaves in a step is the changes of all rounds added up. While the loop is late nothing leaves, and what has left
stands here; what its rounds bring meanwhile is held, and leaves at once when it is back. Single writer: the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.engine.arrangement import Registry
from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.grouped import LoopGroupsNode
from headrace.engine.dataflow.node import Node, merged
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.dataflow.reduce import ReduceNode
from headrace.engine.operators.delta import ERRORS, QUIET, Delta, concat, negated
from headrace.engine.schema import Schema


class LoopExit:
    """One collection as it leaves: the changes of all rounds added up. What the body does not keep is kept here.

    `apart`: where that is kept, too, which the body keeps, of an outermost loop from the epoch on at which it was late first: its
    body is ahead of what has left, or made anew.
    """

    def __init__(self, registry: Registry, node: Node, k: int, *, is_outer: bool) -> None:
        schema = Schema(node.schema.columns)
        self.delta: Delta = QUIET
        self._errors = Trace(registry, "leave-errors", f"leave-errors-{k}", ERRORS, ())
        self._made_by = node if isinstance(node, (ReduceNode, LoopGroupsNode)) else None
        self._rows = None if self._made_by else Trace(registry, "leave", f"leave-{k}", schema, ())
        self._since = 0  # epochs before it are asked of the body, if it keeps them
        self.apart = [Trace(registry, "left", f"left-{k}", schema, ())] if is_outer and self._made_by else []
        self._parts: list[Delta] = []
        self._held: list[Delta] | None = None
        self._is_anew = False

    @property
    def traces(self) -> list[Trace]:
        """The errors; and the rows, unless a reduce has them."""
        return [self._errors] if self._made_by else [*self._own, self._errors]

    @property
    def _own(self) -> list[Trace]:
        return [] if self._rows is None else [self._rows]

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
        if self._held is None:
            self._leave(parts, upper, now)
        else:
            self._held += parts

    def _leave(self, parts: list[Delta], upper: int, now: int = 0) -> None:
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

    # A loop that is late.

    def hold(self, lower: int, upper: int, said: Updates | None) -> None:
        """From the epoch `lower` of this step on nothing leaves, but the error `said`; it is taken back when the loop is back."""
        if self._rows is None:
            assert self._made_by is not None
            [self._rows] = self.apart
            self._since = lower
            content = _at(self._made_by.kept_content(lower - 1).rows, lower) if lower else None
            if content is not None:
                self._rows.insert(content, upper)
        self._held = []
        if said is not None:
            self._leave([Delta(None, said)], upper)
            self._held.append(Delta(None, negated(said)))

    def resume(self, *, late: bool) -> None:
        """Go on from a checkpoint. `late`: of a late loop, which is made anew."""
        if self.apart and (late or len(self.apart[0].spine)):
            [self._rows] = self.apart
        if late:
            self._held, self._is_anew = [], True

    def come_back(self, lower: int, upper: int) -> None:
        """The loop is back: what it brought since it is late leaves in the last epoch of the step."""
        held, self._held = self._held, None
        assert held is not None, "it was late"
        if self._is_anew:
            self._is_anew = False
            held += [Delta(*(negated(updates) for updates in self.content(lower - 1)))]
        rows, errors = (concat(parts) for parts in zip(*held, strict=True)) if held else (None, None)
        self._leave([Delta(*(_at(u, upper - 1, net=True) for u in (rows, errors)))], upper)

    # Questions.

    def content(self, as_of: int) -> Delta:
        """Rows and errors at `as_of`."""
        errors = self._errors.snapshot(as_of)
        if self._rows is None or as_of < self._since:
            assert self._made_by is not None
            return merged(self._made_by.kept_content(as_of), Delta(None, errors))
        return Delta(self._rows.snapshot(as_of), errors)

    def errors(self, as_of: int) -> Updates:
        """The errors at `as_of`."""
        return self._errors.snapshot(as_of)

    def changes(self, lower: int, upper: int) -> Delta:
        """What of it is known to have left at the epochs [lower, upper): all errors; and rows, where they are kept here."""
        if lower < 1:
            lower = 1
        if lower >= upper:
            return QUIET
        rows = None if self._rows is None else self._rows.window(lower, upper)
        return Delta(rows, self._errors.window(lower, upper))


def _at(updates: Updates | None, epoch: int, *, net: bool = False) -> Updates | None:
    """All of them at an epoch; `net`: equal ones added up."""
    if updates is None or not len(updates):
        return None
    moved = updates.at(np.full(len(updates), epoch, np.int64))
    found = consolidate(moved) if net else moved
    return found if len(found) else None
