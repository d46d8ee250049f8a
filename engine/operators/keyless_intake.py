"""The intake of a table without a key: inserts and retractions of whole rows, counted by identical image.

Always: a retraction of a row that is not there is an error update and changes nothing; a truncate retracts every live
copy. Called by the dataflow's table nodes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.gather_rows import take_rows, taken
from headrace.engine.batch.keys import Keys, fingerprint
from headrace.engine.batch.lanes import elided
from headrace.engine.batch.updates import INSERT, RETRACT, TRUNCATE, Int64s, UInt8s, Updates, Upserts
from headrace.engine.kernels import small_batch
from headrace.engine.kernels.multiplicities import copies_of
from headrace.engine.kernels.upsert import net_counts
from headrace.engine.operators.delta import QUIET, Delta, concat_rows, errors_at
from headrace.engine.operators.expressions.core.columns import MESSAGE
from headrace.engine.operators.group_versions import group, runs
from headrace.engine.operators.keyed_intake import FEW, live_content, spell_out
from headrace.engine.operators.ranks import has_images
from headrace.engine.schema import Schema
from headrace.engine.trace.spine import Spine

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
    if not truncates.any() and not any(map(has_images, spine.layout.key_types)):
        return _by_key(name, spine, upserts)
    prior, diffs = _prior(spine, upserts, as_of, everything=bool(truncates.any()))
    payload = concat_rows([upserts.rows, prior]) if prior.num_rows else upserts.rows
    groups = group(Keys(*fingerprint(payload)))
    counts = np.zeros(groups.count, np.int64)
    np.add.at(counts, groups.ids[len(upserts) :], diffs)
    images = np.empty(groups.count, np.int64)
    real = np.flatnonzero(np.concatenate([~truncates, np.ones(prior.num_rows, np.bool_)]))
    images[groups.ids[real]] = real
    changes = spell_out(upserts, truncates, groups.ids, groups.count)
    order = np.argsort(changes.groups, kind="stable")
    epochs, kinds = upserts.epochs[changes.rows], upserts.kinds[changes.rows]
    net, bad = _netted(order, changes.groups[order], epochs, kinds, counts)
    at = net[0]
    rows = Updates(take_rows(payload, images[changes.groups[at]]), net[1], net[2]) if len(at) else None
    return Delta(rows, _absent(name, epochs[bad]) if len(bad) else None)


def _by_key(name: str, spine: Spine, upserts: Upserts) -> Delta:
    """`count_rows` of rows that are alike where their keys are, none of them cut off by a truncate."""
    fresh = Updates(upserts.rows, upserts.epochs, np.ones(len(upserts), np.int64))
    order, groups, keys = runs(spine.layout.keys_of(fresh))
    net, bad = _netted(order, groups, elided(upserts.epochs), upserts.kinds, _copies(spine, keys))
    errors = _absent(name, upserts.epochs[bad]) if len(bad) else None
    if not net.shape[1]:
        return Delta(None, errors) if errors is not None else QUIET
    made = Updates(taken(fresh.struct, net[0]), net[1], net[2], net[3])
    if (net[4, 1:] > net[4, :-1]).all():
        spine.layout.tell_order(made, None, keys if len(made) == len(keys) else keys.take(net[4]))
    return Delta(made, errors)


def _alike(kinds: UInt8s) -> UInt8s:
    """The same, of stride 0 where all are alike: reading them takes no memory then."""
    return np.broadcast_to(kinds[:1], kinds.shape) if (kinds == kinds[0]).all() else kinds


def _copies(spine: Spine, keys: Keys) -> Int64s:
    copies: Int64s
    copies, overflow = copies_of(spine.view.table, keys.hash, keys.check)
    if overflow:
        raise DiffOverflow
    return copies


def _netted(order: Int64s, groups: Int64s, epochs: Int64s, kinds: UInt8s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """What changes make of their groups, which have `counts` copies; and which changes are bad. `groups`: in that order.

    Rows of the first: a change of the group, time, diff, copies before, the group.
    """
    n = len(groups)
    found, bad = np.empty((5, n), np.int64), np.zeros(n, np.uint8)
    kept = net_counts((order, groups, epochs), _alike(_KINDS[kinds]), counts, found, bad)
    return found[:, :kept], np.flatnonzero(bad)


def _few(spine: Spine, upserts: Upserts, as_of: int) -> Delta | None:
    """`count_rows` of a few changes, in one call of a kernel; None if it takes more."""
    own = Exported(upserts.rows)
    spine.layout.check_rows(own)
    found, size, how, overflow = small_batch.count_in(
        own.address, spine.layout.sealing, upserts.epochs, upserts.kinds, spine.view.table, as_of
    )
    if overflow:
        raise DiffOverflow
    if how == small_batch.LONG:
        return None
    if not size:
        return QUIET
    rows = own if how == small_batch.WHOLE else _picked(spine, own, found[:1, :size])
    # Copies are counted by image, which is by key where a key has but one.
    before = None if any(map(has_images, spine.layout.key_types)) else found[3, :size]
    return Delta(Updates(rows, found[1, :size], found[2, :size], before), None)


def _picked(spine: Spine, own: Exported, positions: Int64s) -> Exported:
    """Few rows of the table's, put together by a kernel: Arrow's own way takes three times as long."""
    sources = np.zeros_like(positions)
    return spine.layout.assembly().picked(np.array([own.address]), sources, np.ascontiguousarray(positions))


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
