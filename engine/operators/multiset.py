"""The intake of a table without a key: inserts and retractions of whole rows, counted by identical image.

Always: a retraction of a row that is not there is an error update and changes nothing; a truncate retracts every live
copy. Called by the dataflow's table nodes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from engine.batch.batch import DiffOverflow
from engine.batch.exported import Exported
from engine.batch.keys import Keys, fingerprint
from engine.batch.payload import take_rows, taken
from engine.batch.updates import INSERT, RETRACT, TRUNCATE, Int64s, Updates, Upserts
from engine.kernels import few
from engine.kernels.upsert import net_counts
from engine.operators.delta import QUIET, Delta, concat_rows, errors_at
from engine.operators.expressions.columns import MESSAGE
from engine.operators.groups import group
from engine.operators.upsert import FEW, live_content, spell_out
from engine.schema import Schema
from engine.trace.spine import Spine

_KINDS = np.zeros(5, np.uint8)
_KINDS[[INSERT, RETRACT, TRUNCATE]] = (0, 1, 2)


def count_rows(
    name: str,
    schema: Schema,  # noqa: ARG001 (as `upsert` takes it)
    spine: Spine,
    upserts: Upserts,
    as_of: int,
    errors: Updates | None = None,  # noqa: ARG001 (as `upsert` takes it)
) -> Delta:
    """The updates that inserts, retractions and truncates make of a multiset whose trace stands at `as_of`."""
    if len(upserts) < FEW:
        made = _few(spine, upserts, as_of)
        if made is not None:
            return made
    truncates = upserts.kinds == TRUNCATE
    prior, diffs = _prior(spine, upserts, as_of, everything=bool(truncates.any()))
    payload = concat_rows([upserts.rows, prior]) if prior.num_rows else upserts.rows
    groups = group(Keys(*fingerprint(payload)))
    counts = np.zeros(groups.count, np.int64)
    np.add.at(counts, groups.ids[len(upserts) :], diffs)
    images = np.empty(groups.count, np.int64)
    real = np.flatnonzero(np.concatenate([~truncates, np.ones(prior.num_rows, np.bool_)]))
    images[groups.ids[real]] = real
    changes = spell_out(upserts, truncates, groups.ids, groups.count)
    n = len(changes.rows)
    order = np.argsort(changes.groups, kind="stable")
    out, times, net = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    bad = np.empty(n, np.uint8)
    epochs = upserts.epochs[changes.rows]
    kept = net_counts(
        (order, changes.groups, epochs), _KINDS[upserts.kinds[changes.rows]], counts, out, times, net, bad
    )
    rows = None
    if kept:
        at = images[changes.groups[out[:kept]]]
        rows = Updates(take_rows(payload, at), times[:kept], net[:kept])
    failed = np.flatnonzero(bad)
    return Delta(rows, _absent(name, epochs[failed]) if len(failed) else None)


def _few(spine: Spine, upserts: Upserts, as_of: int) -> Delta | None:
    """`count_rows` of a few changes, in one call of a kernel; None if it takes more."""
    own = Exported(upserts.rows)
    spine.layout.check_rows(own)
    found, size, how, overflow = few.count_in(
        own.address, spine.layout.sealing, upserts.epochs, upserts.kinds, spine.view.table, as_of
    )
    if overflow:
        raise DiffOverflow
    if how == few.LONG:
        return None
    if not size:
        return QUIET
    rows = own if how == few.WHOLE else taken(own, found[0, :size])
    return Delta(Updates(rows, found[1, :size], found[2, :size]), None)


def _prior(spine: Spine, upserts: Upserts, as_of: int, *, everything: bool) -> tuple[pa.RecordBatch, Int64s]:
    if everything:
        live = live_content(spine, as_of)
        return live.rows, live.diffs
    keys = spine.layout.keys(upserts.rows)
    found = spine.gather(keys.take(group(keys).first), as_of)
    return found.rows(), found.diffs


def _absent(name: str, epochs: Int64s) -> Updates:
    text = f"table {name}: a row without a key was retracted that is not there; the table needs REPLICA IDENTITY FULL"
    return errors_at(pa.array([text] * len(epochs), MESSAGE), epochs, np.ones(len(epochs), np.int64))
