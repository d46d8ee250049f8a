"""Merger: a resumable merge of two batches, the second right after the first.

Always: the inputs stay as they are and readable until the result is taken; fuel counts updates read and rows copied, and
no call does more than its fuel allows, the last one neither; the result is sorted, consolidated and advanced to `since`,
its payload holds each of its rows once, in its order. Single writer: the spine that owns it.
"""

from __future__ import annotations

import numpy as np

from headrace.engine.batch.batch import Batch, DiffOverflow
from headrace.engine.batch.description import Description
from headrace.engine.batch.lanes import few_ties
from headrace.engine.batch.merge_buffers import Growing, Lanes
from headrace.engine.batch.updates import Int64s
from headrace.engine.errors import InvariantBroken
from headrace.engine.kernels import merge as kernels
from headrace.engine.kernels import merge_output as appending
from headrace.engine.kernels.times import EPOCHS, ROUNDS
from headrace.engine.lattice import Frontier

FOREVER = np.iinfo(np.int64).max

_PIECE = 1 << 12
"""Entries that are merged before they are carried away: they fit the cache, and dispatches do not count."""

_ROWS_A_FUEL = 2
"""Rows copied that count as one update."""


class Merger:
    """Merge `earlier` and `later` under `since`; call `work` until `done`, then take `result`.

    `until`: updates at epochs ≥ it are left out; `kept`: the bits of rounds that stay.
    """

    def __init__(
        self, earlier: Batch, later: Batch, since: Frontier, *, until: int = FOREVER, kept: int = ROUNDS
    ) -> None:
        self.earlier = earlier
        self.later = later
        description = earlier.description.followed_by(later.description)
        self._description = Description(description.lower, description.upper, description.since.join(since))
        self._table = np.array([earlier.addresses, later.addresses])
        self._structs = np.array([earlier.struct.address, later.struct.address])
        self._state = merge_state(earlier.payload.num_rows, self._description.since, until, kept)
        self._total = len(earlier) + len(later)
        self._scratch = np.empty((kernels.LANES, min(self._total, _PIECE) + 2), np.int64)
        self._lanes = Lanes(earlier, later)
        self._rows = Growing(earlier.layout, (earlier.payload, later.payload))
        self._state[kernels.PRINTS] = self._lanes.fingerprints
        self._done = self._total == 0

    def widen(self, upper: Frontier) -> None:
        """Let the result reach to `upper`, where nothing happened between."""
        self._description = Description(self._description.lower, upper, self._description.since)

    @property
    def size(self) -> int:
        """Updates of both inputs."""
        return self._total

    @property
    def done(self) -> bool:
        """True when `result` may be taken."""
        return self._done

    def work(self, fuel: int) -> int:
        """Go on for about `fuel` updates; returns the fuel left, negative after a step that could not be parted.

        Raises DiffOverflow.
        """
        state = self._state
        fuel = int(fuel)  # a kernel run as plain Python hands back the integers of numpy, which overflow, if given them
        while fuel > 0 and not self._done:
            fuel = self._lanes.catch_up(self._rows, fuel)
            if self._lanes.behind:
                break
            fuel = int(kernels.merge(self._table, self._scratch, state, fuel))
            if state[kernels.OVERFLOW]:
                raise DiffOverflow
            everything = bool(state[kernels.LEFT] + state[kernels.RIGHT] == self._total)
            before = int(state[kernels.ROWS])
            lane = self._append(everything)
            fuel -= (int(state[kernels.ROWS]) - before) // _ROWS_A_FUEL
            written = int(state[kernels.WRITTEN])
            if lane >= 0:
                self._lanes.widen(lane, written)
                continue
            self._done = everything
            if not self._lanes.fingerprints and written >= _PIECE and not few_ties(int(state[kernels.TIES]), written):
                self._lanes.widen_fingerprints(written)
                state[kernels.PRINTS] = 1
                self._done = False
        return fuel

    def result(self) -> Batch:
        """The merged batch. Raises InvariantBroken unless `done`."""
        if not self._done:
            raise InvariantBroken("a merge is taken when it is done")
        layout = self.earlier.layout
        written, rows = int(self._state[kernels.WRITTEN]), int(self._state[kernels.ROWS])
        if written == 0:
            return Batch.empty(layout, self._description)
        ids, facts = self._lanes.taken(written, int(self._state[kernels.TIES]))
        return Batch(layout, self._description, ids, facts, self._rows.taken(rows), rows)

    def _append(self, everything: bool) -> int:
        rows = self._rows
        found = appending.append(
            self._scratch, self._lanes.table, self._structs, rows.steps, rows.table, self._state, everything
        )
        return int(found)


def merged(earlier: Batch, later: Batch, since: Frontier, *, until: int = FOREVER, kept: int = ROUNDS) -> Batch:
    """The merge of two batches at once. Raises DiffOverflow."""
    merger = Merger(earlier, later, since, until=until, kept=kept)
    merger.work(FOREVER)
    return merger.result()


def merge_state(shift: int, since: Frontier, until: int = FOREVER, kept: int = ROUNDS) -> Int64s:
    """The state of a merge that has not begun: the later side's positions move by `shift`, rounds keep the bits `kept`."""
    state = np.zeros(kernels.SLOTS, np.int64)
    state[kernels.HELD] = 1
    state[kernels.SINCE] = EPOCHS if since.closed else since.epoch
    state[kernels.KEPT] = kept
    state[kernels.UNTIL] = until
    state[kernels.SHIFT] = shift
    return state
