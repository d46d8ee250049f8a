"""Several small neighbouring batches made one, at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.engine.batch.batch import Batch, DiffOverflow, blocked
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.description import Description
from headrace.engine.batch.gather_rows import Picked, concat_rows
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.batch.updates import Int64s
from headrace.engine.kernels import entries, small_merge
from headrace.engine.kernels.consolidate import seal_batches
from headrace.engine.kernels.entries import STRUCT
from headrace.engine.kernels.hashing import ROW_IMAGE
from headrace.engine.lattice import CLOSED, Frontier
from headrace.engine.trace.lookup import EARLIEST

FEW = 1024
"""Fewer updates than this are merged in one call; from so many on, lanes that can be left out are."""

_FEW = 4096
"""Fewer rows are cheaper put together as kernels see them than as Arrow does."""


def merge_small(layout: Layout, batches: Sequence[Batch], since: Frontier) -> Batch:
    """The merge of batches of which each begins where the one before ended; times are advanced to `since`.

    Raises DiffOverflow.
    """
    first, last = batches[0].description, batches[-1].description
    reached = since
    for batch in batches:
        reached = reached.join(batch.description.since) if not reached.closed else CLOSED
    table = np.array([batch.addresses for batch in batches])
    since_epoch = EARLIEST if reached.closed else reached.epoch
    whole = Description(first.lower, last.upper, reached)
    if len(layout.schema.columns) and sum(map(len, batches)) < FEW:
        return _merge_few(layout, table, since_epoch, whole)
    sizes = [batch.struct.num_rows for batch in batches]
    shifts = np.cumsum([0, *sizes[:-1]])
    ids, facts, distinct = blocked(*seal_batches(table, shifts, since_epoch))
    if sum(sizes) < _FEW:
        sources = np.repeat(np.arange(len(sizes)), sizes)
        places = np.arange(len(sources)) - shifts[sources]
        payload = layout.assembly().picked(table[:, STRUCT], sources[None], places[None])
    else:
        payload = Exported(concat_rows([b.payload for b in batches]))
    return Batch.of(layout, whole, ids, facts, payload, distinct)


def _merge_few(layout: Layout, table: Int64s, since: int, whole: Description) -> Batch:
    """As `merge_small`, in one call of a kernel. `table`: the batches' addresses."""
    located, assembly = np.empty(entries.COLUMNS, np.int64), layout.assembly()
    located[entries.IMAGE] = ROW_IMAGE
    block, distinct, overflow, *found = small_merge.merge_few(
        table, since, assembly.steps, layout.image_plan.steps, located
    )
    if overflow:
        raise DiffOverflow
    if not distinct:
        return Batch.empty(layout, whole)
    return Batch.of_block(layout, whole, block, located, Picked(assembly.itself, distinct, found[3], found), distinct)
