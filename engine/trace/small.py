"""Several small neighbouring batches made one, at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.batch.batch import Batch, seal_lanes
from engine.batch.description import Description
from engine.batch.layout import Layout
from engine.batch.payload import concat_rows
from engine.lattice import CLOSED, Frontier


def merge_small(layout: Layout, batches: Sequence[Batch], since: Frontier) -> Batch:
    """The merge of batches of which each begins where the one before ended; times are advanced to `since`.

    Raises DiffOverflow.
    """
    first, last = batches[0].description, batches[-1].description
    reached = since
    for batch in batches:
        reached = reached.join(batch.description.since) if not reached.closed else CLOSED
    times = np.concatenate([b.times for b in batches])
    if not reached.closed:
        times = np.maximum(times, reached.epoch)
    diffs = np.concatenate([b.diffs for b in batches])
    shift = 0
    places = []
    for batch in batches:
        places.append(batch.positions + shift)
        shift += batch.payload.num_rows
    h, c, o, high, low = (np.concatenate([b.ids[k] for b in batches]) for k in range(5))
    ids, facts, distinct = seal_lanes((h, c, o, high, low), (times, diffs, np.concatenate(places)))
    payload = concat_rows([b.payload for b in batches])
    return Batch.of(layout, Description(first.lower, last.upper, reached), ids, facts, payload, distinct)
