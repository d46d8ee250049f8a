"""The moment of a scope that iterates: which of a trace's updates count in its round, and when the others will.

Always: within a step rounds are worked off one after the other, each for all epochs of the step at once; an update met
now counts in the least round that is ≥ both its own and the moment's (paper: "Shared Arrangements", section 5.3.2).
A row on its way through a delta join has a **stamp** as its first column: the least round that is ≥ those of all updates
that it met, in the bits of a time.
Called by the joins and the reduces of scopes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.updates import Bools, Int64s, Updates
from headrace.engine.kernels.times import EPOCHS, ROUNDS
from headrace.engine.operators.fixed_width import int_values
from headrace.engine.trace.lookup import Matches

Later = list[tuple[int, Keys]]
"""Groups to look at again, by round."""


class Moment(NamedTuple):
    """`now`: the round, as in the bits of a time; `outer`: the bits of the outer of two rounds, or of the only one.

    `lower`: the step's first epoch; `floor`: from which epoch on updates are of this step.
    """

    now: int
    outer: int
    lower: int
    floor: int

    @property
    def since(self) -> int:
        """To which epoch times are advanced: the last before the step, or the step's where all that there is is of it."""
        return self.lower - 1 if self.floor == self.lower else self.lower

    def reached(self, times: Int64s) -> Int64s:
        """The round in which updates of these times meet those of the moment."""
        rounds, mine = times & ROUNDS, self.now
        found: Int64s
        if self.outer == ROUNDS:
            found = np.maximum(rounds, mine)
        else:
            inner = ROUNDS & ~self.outer
            found = np.maximum(rounds & self.outer, mine & self.outer)
            found |= np.maximum(rounds & inner, mine & inner)
        return found

    def is_new(self, times: Int64s) -> Bools:
        """Of each time whether it is one of the moment's own."""
        found: Bools = ((times & ROUNDS) == self.now) & ((times & EPOCHS) >= self.floor)
        return found

    def by_round(self, matches: Matches) -> Iterator[tuple[int, Matches]]:
        """The matches by the round in which they count, this one first; their times are epochs."""
        here, later = self.parted(matches)
        if len(here):
            yield self.now, here
        yield from later

    def parted(self, matches: Matches) -> tuple[Matches, list[tuple[int, Matches]]]:
        """What of `matches` counts now, and what in which later round; their times are epochs."""
        reached = self.reached(matches.times)
        matches = replace(matches, times=matches.times & EPOCHS)
        later = reached != self.now
        if not later.any():
            return matches, []
        return matches.take(np.flatnonzero(~later)), list(_by_round(matches, reached, later))


def stamped(updates: Updates, now: int, schema: pa.Schema) -> Updates:
    """Updates of the round `now` as rows of `schema`, whose first column is the stamp."""
    stamps = pa.array(np.full(len(updates), now, np.int64))
    rows = pa.RecordBatch.from_arrays([stamps, *updates.rows.columns], schema=schema)
    return Updates(rows, updates.times, updates.diffs)


def stamps_of(rows: Exported) -> Int64s:
    """The stamps of rows that have some."""
    return int_values(rows.column(0))


def _by_round(matches: Matches, reached: Int64s, later: Bools) -> Iterator[tuple[int, Matches]]:
    for moment in np.unique(reached[later]).tolist():
        yield moment, matches.take(np.flatnonzero(reached == moment))


def by_round(keys: Keys, probes: Int64s, rounds: Int64s) -> Later:
    """The keys at the places `probes` by the `rounds` in which they are due."""
    if not len(rounds):
        return []
    order = np.argsort(rounds, kind="stable")
    probes, rounds = probes[order], rounds[order]
    ends = [*(np.flatnonzero(rounds[1:] != rounds[:-1]) + 1).tolist(), len(rounds)]
    return [(int(rounds[end - 1]), keys.take(probes[begin:end])) for begin, end in zip([0, *ends], ends, strict=False)]
