"""The state of a recursive group in checkpoints: of each variable the rows with their rounds and counts, and an account.

Each is an arrangement to which nothing is added but when a checkpoint is taken, and then what changed since the one before.
Invariant: after `save` they hold the state as readers know it; a restart that finds them all goes on from there and derives
nothing anew, unless the group was late: what it was doing then is begun again. Owned by the group's node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.engine.arrangement import Registry
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.owned_trace import Trace
from headrace.engine.lattice import Frontier
from headrace.engine.operators.delta import concat, negated
from headrace.engine.recursion.state import Stated
from headrace.engine.recursion.switching import Account, SparseRecursion
from headrace.engine.schema import BIGINT, INTEGER, TEXT, Column, Schema

_ACCOUNT = Schema((Column("name", TEXT, nullable=False), Column("value", BIGINT, nullable=False)))
_WORK, _ROUNDS, _FAILED, _LATE = "work", "rounds", "failed: ", "late since"


class SavedTrace(Trace):
    """An arrangement that is written when a checkpoint is taken. `save`: writes it and those beside it."""

    save: Callable[[int], None]

    def catch_up(self, upper: int) -> None:
        """Not before a checkpoint."""

    def advance(self, since: int) -> bool:  # noqa: ARG002
        """Nobody asks for its past."""
        return True

    def complete(self, upper: int) -> None:
        """Hold what the state is now."""
        self.save(upper)

    def become(self, updates: Updates | None, upper: int) -> None:
        """Take in what changed since, and forget what was before."""
        if updates is not None and len(updates):
            self.insert(updates, upper)
        super().catch_up(upper)
        self._handle.advance(Frontier.at(upper - 1))


class SavedRecursion:
    """What is saved of `state`. `late`: the epoch since which the group is late, else -1. Single writer: the group's node."""

    late = -1

    def __init__(self, registry: Registry, fingerprint: str, state: SparseRecursion) -> None:
        self._state = state
        self._schemas = [
            Schema(
                (*schema.columns, Column("round", INTEGER, nullable=False), Column("count", INTEGER, nullable=False))
            )
            for schema in state.program.schemas[: state.program.variables]
        ]
        keys = [tuple(range(len(schema.columns) - 2)) for schema in self._schemas]
        self._rows = [
            SavedTrace(registry, "recursion-rows", f"{v}-{fingerprint[:16]}", schema, key)
            for v, (schema, key) in enumerate(zip(self._schemas, keys, strict=True))
        ]
        self.account = SavedTrace(registry, "recursion-account", f"a-{fingerprint[:16]}", _ACCOUNT, (0,))
        self._told: dict[str, int] = {}
        self.traces: list[Trace] = [*self._rows, self.account]
        for trace in (*self._rows, self.account):
            trace.save = self.save

    def save(self, upper: int) -> None:
        """Write what changed of the state since it was saved last."""
        if self.account.spine.upper.epoch >= upper:
            return
        shown, now = self._state.shown, upper - 1
        whole, noted = shown.unsaved.whole, shown.unsaved.take()
        for variable, trace in enumerate(self._rows):
            parts: list[Updates | None] = [self._updates(variable, part, now) for part in noted[variable]]
            if whole:
                parts = [self._updates(variable, self._state.stated(variable), now)]
                if trace.spine.upper.epoch:
                    before = negated(trace.spine.snapshot(trace.spine.upper.epoch - 1))
                    parts.append(None if before is None else before.at(np.full(len(before), now)))
            trace.become(concat(parts), upper)
        told = {_WORK: shown.account.work, _ROUNDS: shown.account.rounds}
        told |= {_FAILED + message: many for message, many in shown.failures.items()}
        told |= {_LATE: self.late} if self.late >= 0 else {}
        self.account.become(_differing(self._told, told, now), upper)
        self._told = told

    def resume(self, frontier: int, content: Mapping[int, Updates]) -> bool:
        """Go on from what a checkpoint held, if it held the state; `content`: what is outside."""
        if not all(trace.loaded for trace in self.traces):
            return False
        found = self.account.spine.snapshot(frontier - 1).rows
        told: dict[str, int] = dict(zip(*(c.to_pylist() for c in found.columns), strict=True))
        if _WORK not in told:
            return False
        failures = {n.removeprefix(_FAILED): many for n, many in told.items() if n.startswith(_FAILED)}
        saved = [trace.spine.snapshot(frontier - 1) for trace in self._rows]
        self._state.resume(content, saved, Account(work=told[_WORK], rounds=told[_ROUNDS]), failures)
        self._state.unsaved.take()
        self._told, self.late = told, told.get(_LATE, -1)
        return True

    def begin(self) -> None:
        """The state was made anew."""
        for trace in self.traces:
            trace.loaded = True

    def release(self) -> None:
        """Let it go."""
        for trace in self.traces:
            trace.release()

    def _updates(self, variable: int, some: Stated, now: int) -> Updates:
        columns: Sequence[pa.Array] = self._state.columns_of(variable, some)
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schemas[variable].arrow)
        return Updates(rows, np.full(len(some.diffs), now), some.diffs)


def _differing(before: Mapping[str, int], after: Mapping[str, int], now: int) -> Updates | None:
    """What makes the one account of the other."""
    gone = [(n, v, -1) for n, v in before.items() if after.get(n) != v]
    come = [(n, v, 1) for n, v in after.items() if before.get(n) != v]
    if not gone and not come:
        return None
    names, values, diffs = zip(*gone, *come, strict=True)
    arrow = _ACCOUNT.arrow
    columns = [pa.array(names, arrow.field(0).type), pa.array(values, arrow.field(1).type)]
    rows = pa.RecordBatch.from_arrays(columns, schema=arrow)
    return Updates(rows, np.full(len(diffs), now), np.array(diffs, np.int64))


__all__ = ["SavedRecursion"]
