"""The first live rows of keys, in the order lane's order, against a list of all updates."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.batch import Batch, Description, DiffOverflow, Layout, Updates
from headrace.engine.batch.codec import decode, encode
from headrace.engine.batch.keys import order_lane
from headrace.engine.lattice import Frontier
from headrace.engine.trace import Spine
from tests.engine.strategies import VALUES, rows_of, schema_of

Fact = tuple[int, int]
Found = set[tuple[int, str, int, int]]

KINDS = ["bigint", "text", "numeric", "double precision", "date", "character(8)", "numeric(38,0)"]


def naive(rows: dict[str, tuple[int, int, list[Fact]]], bounds: list[int], since: int, *, backward: bool) -> Found:
    """`rows`: image → (key, order lane, (time, diff) …). The probes are the keys 0, 1, …"""
    found: Found = set()
    for key, bound in enumerate(bounds):
        mine = [(lane, image, facts) for image, (k, lane, facts) in rows.items() if k == key]
        mine = [m for m in mine if (m[0] <= bound if backward else m[0] >= bound)]
        stop = None
        for lane, image, facts in sorted(mine, key=lambda m: m[0], reverse=backward):
            if stop is not None and lane != stop:
                break
            totals: dict[int, int] = defaultdict(int)
            for time, diff in facts:
                totals[max(time, since)] += diff
            kept = [(t, d) for t, d in sorted(totals.items()) if d]
            found |= {(key, image, t, d) for t, d in kept}
            running, live = 0, totals[since] > 0
            for _, diff in kept:
                running += diff
                live = live and running > 0
            if live and lane != 2**64 - 1:
                stop = lane
    return found


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_history_ends_where_the_list_does(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    types = ("bigint", kind)
    schema = schema_of(types)
    mask = data.draw(st.sampled_from([2**64 - 1, 1]))
    layout = Layout(schema, (0,), (1,), mask)
    pool = data.draw(st.lists(st.tuples(st.integers(0, 2), st.none() | VALUES[kind]), min_size=1, max_size=8))
    spine, drawn = Spine(layout), []
    upper = 0
    for _ in range(data.draw(st.integers(1, 10))):
        lower, upper = upper, upper + data.draw(st.integers(1, 3))
        some = data.draw(
            st.lists(
                st.tuples(st.sampled_from(pool), st.integers(lower, upper - 1), st.sampled_from([1, 1, -1])), max_size=8
            )
        )
        times = np.array([s[1] for s in some], np.int64)
        updates = Updates(rows_of(types, [s[0] for s in some]), times, np.array([s[2] for s in some], np.int64))
        spine.insert(Batch.seal(layout, updates, Description.epochs(lower, upper)))
        drawn += some
        if data.draw(st.booleans()):
            spine.advance(Frontier.at(data.draw(st.integers(0, lower))))
        if data.draw(st.booleans()):
            spine.exert(100)
    since = data.draw(st.integers(spine.since.epoch, upper - 1))
    backward = data.draw(st.booleans())
    read = rows_of(types, [d[0] for d in drawn])
    lanes = order_lane(read, [1], [schema.columns[1].type]).tolist()
    rows: dict[str, tuple[int, int, list[Fact]]] = {}
    for (row, time, diff), lane, image in zip(drawn, lanes, map(str, read.to_pylist()), strict=True):
        rows.setdefault(image, (row[0], lane, []))[2].append((time, diff))
    limit = st.sampled_from([0, 2**64 - 1, *lanes])
    bounds = [data.draw(limit) for _ in range(3)]
    keys = layout.keys(rows_of(types, [(k, None) for k in range(3)]))
    ends = spine.first_live(keys, np.array(bounds, np.uint64), since, backward=backward)
    values = ends.column(1).to_pylist()
    found = [
        (p, str({"c0": p, "c1": v}), t, d)
        for p, v, t, d in zip(ends.probe.tolist(), values, ends.times.tolist(), ends.diffs.tolist(), strict=True)
    ]
    assert len(found) == len(set(found))
    assert set(found) == naive(rows, bounds, since, backward=backward)
    assert ends.probe.tolist() == sorted(ends.probe.tolist())
    assert ends.visited >= len({f[:2] for f in found})


def test_a_long_prefix_of_changes_makes_room_for_itself() -> None:
    layout = Layout(schema_of(("bigint", "bigint")), (0,), (1,))
    spine = Spine(layout)
    size = 300
    rows = rows_of(("bigint", "bigint"), [(1, k) for k in range(size + 1)])
    spine.insert(Batch.seal(layout, Updates(rows, np.zeros(size + 1, np.int64), np.ones(size + 1, np.int64)),
                            Description.epochs(0, 1)))  # fmt: skip
    gone = Updates(rows.slice(0, size), np.arange(1, size + 1), np.full(size, -1))
    spine.insert(Batch.seal(layout, gone, Description.epochs(1, size + 1)))
    one = Updates(rows.slice(0, 1).take([0] * size), np.arange(size + 1, 2 * size + 1), np.tile([1, -1], size // 2))
    spine.insert(Batch.seal(layout, one, Description.epochs(size + 1, 2 * size + 1)))
    ends = spine.first_live(layout.keys(rows.slice(0, 1)), np.zeros(1, np.uint64), 0, backward=False)
    assert len(ends) == ends.visited == 2 * size + size + 1
    assert ends.column(1).to_pylist()[-1] == size
    later = spine.first_live(layout.keys(rows.slice(0, 1)), np.zeros(1, np.uint64), 2 * size, backward=False)
    assert later.column(1).to_pylist() == [size]


def test_a_multiplicity_beyond_64_bits_is_told() -> None:
    layout = Layout(schema_of(("bigint", "bigint")), (0,), (1,))
    spine = Spine(layout)
    rows = rows_of(("bigint", "bigint"), [(1, 2)])
    for epoch in range(2):
        most = Updates(rows, np.array([epoch]), np.array([2**63 - 1]))
        spine.insert(Batch.seal(layout, most, Description.epochs(epoch, epoch + 1)))
    with pytest.raises(DiffOverflow):
        spine.first_live(layout.keys(rows), np.zeros(1, np.uint64), 1, backward=False)


@pytest.mark.parametrize("kind", ["text", "numeric", "bigint"])
def test_ordered_batches_survive_their_bytes(kind: str) -> None:
    values = {"text": "a longer one", "numeric": "10.50", "bigint": -7}
    layout = Layout(schema_of(("bigint", kind)), (0,), (1,))
    for size in (1, 3, 2000):
        rows = rows_of(("bigint", kind), [(k, values[kind]) for k in range(size)])
        batch = Batch.seal(layout, Updates(rows, np.zeros(size, np.int64), np.ones(size, np.int64)),
                           Description.epochs(0, 1))  # fmt: skip
        back = decode(b"".join(b.to_pybytes() for b in encode(batch)), layout)
        assert all(np.array_equal(a, b) for a, b in zip(batch.ids, back.ids, strict=True))
        back.check_order()
    assert layout.fingerprint != Layout(layout.schema, (0,)).fingerprint
