"""Several small neighbouring batches made one, at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.engine.batch.batch import Batch, blocked
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.description import Description
from headrace.engine.batch.gather_rows import concat_rows
from headrace.engine.batch.sort_layout import Layout
from headrace.engine.kernels.consolidate import seal_batches
from headrace.engine.kernels.entries import STRUCT
from headrace.engine.lattice import CLOSED, Frontier
from headrace.engine.trace.lookup import EARLIEST

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
    sizes = [batch.struct.num_rows for batch in batches]
    shifts = np.cumsum([0, *sizes[:-1]])
    table = np.array([batch.addresses for batch in batches])
    since_epoch = EARLIEST if reached.closed else reached.epoch
    ids, facts, distinct = blocked(*seal_batches(table, shifts, since_epoch))
    if sum(sizes) < _FEW:
        sources = np.repeat(np.arange(len(sizes)), sizes)
        places = np.arange(len(sources)) - shifts[sources]
        payload = layout.assembly().picked(table[:, STRUCT], sources[None], places[None])
    else:
        payload = Exported(concat_rows([b.payload for b in batches]))
    return Batch.of(layout, Description(first.lower, last.upper, reached), ids, facts, payload, distinct)
