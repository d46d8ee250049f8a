"""The first copies of keys' rows, in the order lane's order, against a list of all updates."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.batch import Batch, Description, DiffOverflow, Layout, Updates
from headrace.engine.batch.keys import fingerprint, order_lane
from headrace.engine.lattice import Frontier
from headrace.engine.trace import Spine
from tests.engine.strategies import VALUES, rows_of, schema_of

Facts = list[tuple[int, int]]
Place = tuple[int, int, int]
"""Order lane and fingerprint of a row."""


def naive(
    rows: dict[Place, Facts], need: int, since: int, *, backward: bool, exact: bool
) -> tuple[dict[Place, Facts], int]:
    """The updates of the rows that are read for `need` copies, and how many copies lack."""
    found: dict[Place, Facts] = {}
    last = None
    for place in sorted(rows, reverse=backward):
        if need <= 0 and (exact or place[0] != last):
            break
        last = place[0]
        totals: dict[int, int] = defaultdict(int)
        for time, diff in rows[place]:
            totals[max(time, since)] += diff
        kept = [(t, d) for t, d in sorted(totals.items()) if d]
        if kept:
            found[place] = kept
        lowest = running = totals[since]
        for time, diff in kept:
            running += diff if time > since else 0
            lowest = min(lowest, running)
        need -= min(max(need, 0), max(lowest, 0))
    return found, need


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_history_is_read_as_far_as_the_list_is(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["bigint", "text", "numeric", "double precision"]))
    types = ("bigint", kind)
    layout = Layout(schema_of(types), (0,), (1,), data.draw(st.sampled_from([2**64 - 1, 1])))
    pool = data.draw(st.lists(st.tuples(st.integers(0, 1), st.none() | VALUES[kind]), min_size=1, max_size=9))
    spine, drawn, upper = Spine(layout), [], 0
    for _ in range(data.draw(st.integers(1, 8))):
        lower, upper = upper, upper + data.draw(st.integers(1, 3))
        fact = st.tuples(st.sampled_from(pool), st.integers(lower, upper - 1), st.sampled_from([1, 1, 2, -1]))
        some = data.draw(st.lists(fact, max_size=8))
        lanes = [np.array([s[k] for s in some], np.int64) for k in (1, 2)]
        updates = Updates(rows_of(types, [s[0] for s in some]), *lanes)
        spine.insert(Batch.seal(layout, updates, Description.epochs(lower, upper)))
        drawn += some
        if data.draw(st.booleans()):
            spine.advance(Frontier.at(data.draw(st.integers(0, lower))))
    since = data.draw(st.integers(spine.since.epoch, upper - 1))
    backward, exact = data.draw(st.booleans()), data.draw(st.booleans())
    read = rows_of(types, [d[0] for d in drawn])
    orders = order_lane(read, [1], [layout.schema.columns[1].type]).tolist()
    high, low = (half.tolist() for half in fingerprint(read))
    rows: dict[int, dict[Place, Facts]] = defaultdict(dict)
    for (row, time, diff), *place in zip(drawn, orders, high, low, strict=True):
        rows[row[0]].setdefault(tuple(place), []).append((time, diff))
    needs = [data.draw(st.integers(0, 4)) for _ in range(3)]
    keys = layout.keys(rows_of(types, [(k, None) for k in range(3)]))
    ends, lacking = spine.first_enough(keys, np.array(needs), since, backward=backward, exact=exact)
    got: dict[int, dict[Place, Facts]] = defaultdict(dict)
    here = ends.rows()
    halves = [half.tolist() for half in fingerprint(here)]
    lane = order_lane(here, [1], [layout.schema.columns[1].type]).tolist()
    for k, probe in enumerate(ends.probe.tolist()):
        facts = got[probe].setdefault((lane[k], halves[0][k], halves[1][k]), [])
        facts.append((int(ends.times[k]), int(ends.diffs[k])))
    for key, need in enumerate(needs):
        expected, rest = naive(rows[key], need, since, backward=backward, exact=exact)
        if need:
            assert got[key] == expected
        assert lacking[key] == rest


def test_a_multiplicity_beyond_64_bits_is_told() -> None:
    layout = Layout(schema_of(("bigint", "bigint")), (0,), (1,))
    spine = Spine(layout)
    rows = rows_of(("bigint", "bigint"), [(1, 2)])
    for epoch in range(2):
        most = Updates(rows, np.array([epoch]), np.array([2**63 - 1]))
        spine.insert(Batch.seal(layout, most, Description.epochs(epoch, epoch + 1)))
    with pytest.raises(DiffOverflow):
        spine.first_enough(layout.keys(rows), np.ones(1, np.int64), 1, backward=False, exact=True)
