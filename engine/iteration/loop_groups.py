"""Groups inside a loop, read off the arrangement of their rows: the rows that are there often enough, or each group's extreme
value.

Always: it is read off the arrangement of what came in, by (epoch, round), and nothing is kept beside that; a group that
changed is looked at again in later rounds in which its history has updates. It holds for values whose order lane is all
of them. Called by the dataflow's nodes of loops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.gather_rows import Assembly
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s, Updates
from headrace.engine.kernels import loop_groups as kernels
from headrace.engine.operators.counts import Shown, counted
from headrace.engine.operators.delta import QUIET, Delta, keep, rows_of, take
from headrace.engine.operators.group_versions import group
from headrace.engine.operators.min_max import Extreme
from headrace.engine.operators.reduce_layout import Shape
from headrace.engine.operators.rounds import Later, Moment, by_round
from headrace.engine.operators.value_history import Clock, Stream, least
from headrace.engine.schema import Kind
from headrace.engine.trace.spine import Spine

_EXACT = frozenset({
    Kind.SMALLINT, Kind.INTEGER, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ,
})  # fmt: skip
"""The types whose values are equal, and look alike, where their order lanes are equal."""


class LoopGroups(NamedTuple):
    """What is asked of each group: `shown` of a reduce that only counts; or else the `extreme` of the column after the key."""

    shape: Shape
    shown: Shown
    extreme: Extreme | None

    @staticmethod
    def of(shape: Shape) -> LoopGroups | None:
        """Of a reduce that asks no more than this; None for any other."""
        if shape.is_count:
            return LoopGroups(shape, Shown.of(shape), None)
        extreme = shape.slots[0].extreme if len(shape.slots) == 1 and shape.key else None
        if extreme is None or shape.has_images or extreme.kind.kind not in _EXACT or shape.least != 1:
            return None
        return LoopGroups(shape, Shown.of(shape), extreme)

    @property
    def columns(self) -> list[int]:
        """Of the reduce's input, those that are arranged: the key's, and the value's."""
        return [*range(self.shape.key), *([] if self.extreme is None else [self.extreme.column])]

    @property
    def order(self) -> tuple[int, ...]:
        """Of the arrangement, what orders a key's rows."""
        return () if self.extreme is None else (self.shape.key,)

    def round(self, spine: Spine, keys: Keys, moment: Moment) -> tuple[Delta, Later]:
        """What stands otherwise of `keys`, some of them perhaps several times, in the moment's round; groups due later.

        Raises DiffOverflow.
        """
        view, since = spine.view, moment.lower - 1
        # While a loop is filled, all that lies in an arrangement from outside is of this step.
        floor = moment.lower if moment.floor < moment.lower else since
        asked = (kernels.COPIES_OF, self.shown.least, int(self.shown.numbers > 0), 0)
        if self.extreme is not None:
            asked = (kernels.GREATEST if self.extreme.greatest else kernels.LEAST, 1, 0, self.shape.key)
        block, size, later, due, overflow = kernels.stand(
            view.table, keys.hash, keys.check, (moment.now, moment.outer, since, floor), asked
        )
        if overflow:
            raise DiffOverflow
        again = list(by_round(keys, later[0, :due], later[1, :due]))
        if not size:
            return QUIET, again
        found = np.ascontiguousarray(block[:, :size])
        rows = self._assembly.picked(view.structs, found[kernels.BATCH][None], found[kernels.POSITION][None])
        times, diffs = found[kernels.TIME], found[kernels.DIFF]
        if self.extreme is not None or not self.shown.numbers:
            return Delta(Updates(rows, times, diffs), None), again
        columns = [*rows.rows.columns, *[pa.array(found[kernels.COPIES])] * self.shown.numbers]
        return Delta(Updates(rows_of(columns, self.shown.schema, size), times, diffs), None), again

    @property
    def _assembly(self) -> Assembly:
        if self.extreme is None:
            return self.shown.keys
        return Assembly.of(self.shown.schema, range(self.shape.key + 1))

    def content(self, layout: Layout, content: Updates) -> Delta:
        """What stands of an arrangement of `layout` that holds `content`."""
        if self.extreme is None:
            return counted(self.shown, content)
        there = keep(content, content.diffs > 0)
        if there is None or not len(there):
            return QUIET
        width = self.shape.key
        groups = group(layout.keys_of(there))
        value = there.struct.column(width)
        valid = np.flatnonzero(value.is_valid().to_numpy(zero_copy_only=False))
        stream = Stream(groups.ids, there.times, there.diffs, value).at(valid)
        clock = Clock(np.arange(groups.count + 1), np.full(groups.count, int(there.times.max())))
        at = least(self.extreme.ranks(stream.values), stream, clock)
        places: Int64s = groups.first.copy()
        places[at >= 0] = valid[at[at >= 0]]
        best = take(there, places)
        rows = rows_of(best.rows.columns, self.shown.schema, len(best))
        return Delta(Updates(rows, best.times, np.ones(len(best), np.int64)), None)
