"""Data tests: counts the rows that break what is declared of a view's columns, at every step.

Invariant: each data test is a view of the rows that break it, and its count is the sum of its last column. The loop writes;
status and metrics read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.connectors.sink import ViewChanges
from headrace.sidecar.delivery.view_state import ViewState
from headrace.sidecar.wiring.build import Running


class Checks:
    """The data tests of a running sidecar, by the names of their views: how many rows break each."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._counts: dict[str, int] = {}
        self._tests: Mapping[str, str] = {}
        self._states: dict[str, ViewState] = {}
        self._constraints: frozenset[str] = frozenset()
        self.renew()
        running.runtime.told.append(self.tell)

    def renew(self) -> None:
        """The views in force changed: count what is new. Called by the loop."""
        runtime, metrics = self._running.runtime, self._running.metrics
        self._tests = {v.name: v.spec.check for v in self._running.views if v.spec.check}
        self._constraints = frozenset(v.name for v in self._running.views if v.spec.program)
        before, counts = self._states, self._counts
        self._states = {s.view.name: s for s in runtime.parts.views if s.view.name in self._tests}
        self._counts = {
            n: counts[n] if before.get(n) is s else self._count(s, runtime.epoch) for n, s in self._states.items()
        }
        for name, count in self._counts.items():
            metrics.data_tests.labels(name).set(count)
        for gone in before.keys() - self._states.keys():
            metrics.data_tests.remove(gone)

    def _count(self, state: ViewState, epoch: int) -> int:
        if not epoch or state.stands:
            return 0
        rows, _ = state.output.snapshot(epoch)
        return self._failing(state, rows.rows, rows.diffs)

    def tell(self, epoch: int, changes: Mapping[str, ViewChanges]) -> None:
        """What a step changed. Called by the loop."""
        for name, state in self._states.items():
            if state.mended:
                self._counts[name] = self._count(state, epoch)
            elif name in changes:
                self._counts[name] += self._failing(state, changes[name].rows, changes[name].diffs)
            else:
                continue
            self._running.metrics.data_tests.labels(name).set(self._counts[name])

    def _failing(self, state: ViewState, rows: pa.RecordBatch, diffs: np.ndarray) -> int:
        """How many rows break it: the last column of a column's test counts them; of a program's constraint each is one."""
        if state.view.name in self._constraints:
            return int(diffs.sum())
        return int((rows.column(rows.num_columns - 1).to_numpy() * diffs).sum())

    def status(self) -> list[dict[str, Any]]:
        """As `headrace status` shows them. Called by the loop."""
        return [
            {"name": n, "test": self._tests[n], "failing": count, "error": self._states[n].error or None}
            for n, count in sorted(self._counts.items())
        ]
