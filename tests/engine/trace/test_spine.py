"""The spine against a dictionary of everything ever inserted."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.batch import Batch, Description, DiffOverflow, Keys, Layout, Updates
from headrace.engine.batch.codec import decode, encode
from headrace.engine.errors import InvariantBroken
from headrace.engine.lattice import CLOSED, Frontier
from headrace.engine.trace import Matches, NotFaithful, Spine
from headrace.engine.trace import spine as module
from tests.engine.strategies import row_values, rows_of, schema_of, some_types, some_updates
from tests.reference.updates import NaiveTrace, counted, entries, total
from tests.reference.values import key_value, row_image


def _insert(spine: Spine, twin: NaiveTrace, updates: Updates, lower: int, upper: int) -> None:
    spine.insert(Batch.seal(spine.layout, updates, Description.epochs(lower, upper)))
    twin.insert(updates)


def _check_tiling(spine: Spine) -> None:
    at = Frontier.at(0)
    for batch in spine.batches():
        assert batch.description.lower == at
        at = batch.description.upper
        batch.check_order()
    assert at == spine.upper or not spine.batches()


def _check_matches(
    spine: Spine, twin: NaiveTrace, found: Matches, probes: pa.RecordBatch, since: int, until: int
) -> None:
    types = spine.layout.key_types
    names = [spine.layout.schema.names[k] for k in spine.layout.key]
    rows = found.rows()
    read = rows.to_pylist()
    by_probe: dict[int, list[tuple[object, int, int]]] = {}
    for probe, row, time, diff in zip(found.probe, read, found.times, found.diffs, strict=True):
        by_probe.setdefault(int(probe), []).append((row_image(row), int(time), int(diff)))
    assert found.probe.tolist() == sorted(found.probe.tolist())
    originals = {row_image(r): r for b in spine.batches() for r in b.updates().rows.to_pylist()}
    for probe, wanted in enumerate(probes.to_pylist()):
        values = [key_value(v, t) for v, t in zip(wanted.values(), types, strict=True)]

        def meets(image: object, values: list[object] = values) -> bool:
            row = originals.get(image)  # type: ignore[call-overload]
            # A row that cancelled everywhere is in no batch, and in no answer.
            return row is not None and [key_value(row[n], t) for n, t in zip(names, types, strict=True)] == values

        mine = by_probe.get(probe, [])
        expected = twin.where(meets, since, until)
        assert counted(mine) == expected
        assert len(mine) == len(expected), "consolidated within the probe"


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_history_answers_as_the_dictionary_does(data: st.DataObject) -> None:
    types = data.draw(some_types(3))
    key = tuple(data.draw(st.lists(st.integers(0, len(types) - 1), max_size=2, unique=True)))
    layout = Layout(
        schema_of(types), key, data.draw(st.sampled_from([(), (0,)])), data.draw(st.sampled_from([2**64 - 1, 1]))
    )
    spine, twin = Spine(layout), NaiveTrace()
    pool = data.draw(st.lists(row_values(types), min_size=1, max_size=5))
    upper = 0
    for _ in range(data.draw(st.integers(1, 14))):
        lower, upper = upper, upper + data.draw(st.integers(1, 3))
        drawn = data.draw(
            st.lists(
                st.tuples(st.sampled_from(pool), st.integers(lower, upper - 1), st.sampled_from([1, -1])), max_size=6
            )
        )
        rows = rows_of(types, [d[0] for d in drawn])
        updates = Updates(rows, np.array([d[1] for d in drawn], np.int64), np.array([d[2] for d in drawn], np.int64))
        _insert(spine, twin, updates, lower, upper)
        if data.draw(st.booleans()):
            spine.advance(Frontier.at(data.draw(st.integers(0, upper - 1))))
        if data.draw(st.integers(0, 3)) == 0:
            spine.exert(data.draw(st.integers(0, 40)))
    _check_tiling(spine)
    since = spine.since.epoch
    for as_of in {since, upper - 1}:
        content = spine.snapshot(as_of)
        assert total(content) == twin.at(as_of)
        assert len(content) == len(twin.at(as_of))
        _check_pieces(spine, as_of, data.draw(st.integers(1, 4)), twin)
    probes = rows_of(types, data.draw(st.lists(st.sampled_from(pool) | row_values(types), max_size=5))).select(
        list(key)
    )
    if key:
        keys = layout.keys(rows_of(types, [tuple(r.values()) for r in _padded(types, key, probes)]))
        until = data.draw(st.integers(since + 1, upper + 1))
        _check_matches(spine, twin, spine.gather(keys, since, until), probes, since, until)


def _check_pieces(spine: Spine, as_of: int, size: int, twin: NaiveTrace) -> list[int]:
    """The pieces are the content, each row and each key in one of them; how large each is."""
    pieces = list(spine.snapshot_in_pieces(as_of, size))
    found = [entry for piece in pieces for entry in entries(piece)]
    assert counted(found) == twin.at(as_of)
    assert len(found) == len(twin.at(as_of))
    known: set[tuple[int, int]] = set()
    for piece in pieces:
        keys = spine.layout.keys_of(piece)
        mine = set(zip(keys.hash.tolist(), keys.check.tolist(), strict=True))
        assert mine
        assert not mine & known
        known |= mine
    return list(map(len, pieces))


def _padded(types: list[str], key: tuple[int, ...], probes: pa.RecordBatch) -> list[dict[int, object]]:
    """Whole rows that hold the probes' values at the key's columns, NULL elsewhere."""
    found = []
    for probe in probes.to_pylist():
        values = dict(zip(key, probe.values(), strict=True))
        found.append({k: values.get(k) for k in range(len(types))})
    return found


_TYPES = ("bigint", "text")


def _random_updates(source: random.Random, size: int, keys: int, lower: int, upper: int) -> Updates:
    rows = rows_of(_TYPES, [(source.randrange(keys), source.choice("ab")) for _ in range(size)])
    times = np.array([source.randrange(lower, upper) for _ in range(size)], np.int64)
    return Updates(rows, times, np.array([source.choice([1, 1, -1]) for _ in range(size)], np.int64))


@pytest.mark.parametrize("seed", range(3))
def test_a_long_life_of_sizes_great_and_small(seed: int) -> None:
    source = random.Random(seed)
    spine, twin = Spine(Layout(schema_of(_TYPES), (0,))), NaiveTrace()
    most = 0
    for epoch in range(120):
        size = source.choice([0, 1, 3, 10, 10, 100, 100, 1500])
        _insert(spine, twin, _random_updates(source, size, 3000, epoch, epoch + 1), epoch, epoch + 1)
        spine.advance(Frontier.at(max(0, epoch - source.randrange(10))))
        most = max(most, len(spine.batches()))
        if epoch % 40 == 39:
            _check_tiling(spine)
            assert total(spine.snapshot(epoch)) == twin.at(epoch)
            sizes = _check_pieces(spine, epoch, 500, twin)
            assert max(sizes) <= 2 * 500 < sum(sizes)
    assert most <= 24, "batches grow geometrically"
    spine.exert(10**9)
    assert len(spine.batches()) <= 5
    _check_tiling(spine)
    assert total(spine.snapshot(119)) == twin.at(119)


def test_work_of_an_insert_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large merges take their fuel from many inserts: none of them merges more than its share."""
    spent: list[int] = []
    work = module.Merger.work

    def counting(self: module.Merger, fuel: int) -> int:
        left = work(self, fuel)
        spent[-1] += fuel - left
        return left

    monkeypatch.setattr(module.Merger, "work", counting)
    source = random.Random(1)
    spine = Spine(Layout(schema_of(_TYPES), (0,)))
    under_way = 0
    for epoch in range(60):
        spent.append(0)
        updates = _random_updates(source, 1000, 10**9, epoch, epoch + 1)
        spine.insert(Batch.seal(spine.layout, updates, Description.epochs(epoch, epoch + 1)))
        under_way += bool(spine.merging)
    assert under_way, "some merges stay under way between inserts"
    assert max(spent) <= 1000 * 8 * 4
    assert len(spine.batches()) < 16
    assert len(spine) == 60_000


def test_snapshot_refuses_what_it_cannot_answer() -> None:
    spine, twin = Spine(Layout(schema_of(_TYPES), (0,))), NaiveTrace()
    _insert(spine, twin, _random_updates(random.Random(0), 5, 9, 0, 5), 0, 5)
    spine.advance(Frontier.at(3))
    spine.advance(Frontier.at(1))
    assert spine.since == Frontier.at(3)
    with pytest.raises(NotFaithful, match="compacted"):
        spine.snapshot(2)
    with pytest.raises(NotFaithful, match="not complete"):
        spine.snapshot(5)
    with pytest.raises(NotFaithful, match="compacted"):
        spine.snapshot_in_pieces(2, 1)
    spine.advance(CLOSED)
    with pytest.raises(NotFaithful):
        spine.snapshot(4)


def test_gaps_and_other_layouts_are_refused() -> None:
    spine = Spine(Layout(schema_of(_TYPES), (0,)))
    with pytest.raises(InvariantBroken, match="do not meet"):
        spine.insert(Batch.empty(spine.layout, Description.epochs(1, 2)))
    with pytest.raises(InvariantBroken, match="another layout"):
        spine.insert(Batch.empty(Layout(schema_of(_TYPES), (1,)), Description.epochs(0, 2)))


def test_empty_batches_only_move_the_frontier() -> None:
    spine, twin = Spine(Layout(schema_of(_TYPES), (0,))), NaiveTrace()
    source = random.Random(0)
    for epoch in range(30):
        _insert(
            spine, twin, _random_updates(source, 3 if epoch % 10 == 4 else 0, 9, epoch, epoch + 1), epoch, epoch + 1
        )
    assert len(spine.batches()) <= 5
    assert spine.upper == Frontier.at(30)
    _check_tiling(spine)
    assert total(spine.snapshot(29)) == twin.at(29)


def test_merges_respect_the_physical_frontier() -> None:
    spine, twin = Spine(Layout(schema_of(_TYPES), (0,))), NaiveTrace()
    spine.advance(Frontier.at(0), physical=Frontier.at(3))
    source = random.Random(0)
    for epoch in range(12):
        _insert(spine, twin, _random_updates(source, 3, 9, epoch, epoch + 1), epoch, epoch + 1)
    spine.exert(10**6)
    uppers = [b.description.upper.epoch for b in spine.batches()]
    assert set(range(4, 13)) <= set(uppers)
    spine.advance(Frontier.at(11), physical=Frontier.at(12))
    spine.exert(10**6)
    assert len(spine.batches()) < 12
    assert total(spine.snapshot(11)) == twin.at(11)


def test_batches_stay_readable_while_merges_replace_them() -> None:
    spine, twin = Spine(Layout(schema_of(_TYPES), (0,))), NaiveTrace()
    source = random.Random(0)
    _insert(spine, twin, _random_updates(source, 30, 9, 0, 1), 0, 1)
    held = spine.batches()
    before = [entries(b.updates()) for b in held]
    found = spine.gather(held[0].keys.take(np.array([0])))
    rows = entries(found.updates())
    for epoch in range(1, 20):
        _insert(spine, twin, _random_updates(source, 30, 9, epoch, epoch + 1), epoch, epoch + 1)
    assert held[0] not in spine.batches()
    assert [entries(b.updates()) for b in held] == before
    assert entries(found.updates()) == rows


def test_answers_do_not_depend_on_how_updates_lie_in_batches() -> None:
    layout = Layout(schema_of(_TYPES), (0,))
    source = random.Random(5)
    parts = [_random_updates(source, 50, 12, e, e + 1) for e in range(8)]
    one, many = Spine(layout), Spine(layout)
    rows = pa.concat_batches([p.rows for p in parts])
    whole = Updates(rows, np.concatenate([p.times for p in parts]), np.concatenate([p.diffs for p in parts]))
    one.insert(Batch.seal(layout, whole, Description.epochs(0, 8)))
    for epoch, part in enumerate(parts):
        many.insert(Batch.seal(layout, part, Description.epochs(epoch, epoch + 1)))
    keys = layout.keys(rows_of(_TYPES, [(k, None) for k in (5, 3, 3, 99, 0)]))
    for since in (None, 4, 8):
        assert entries(one.gather(keys, since).updates()) == entries(many.gather(keys, since).updates())
    assert entries(one.snapshot(7)) == entries(many.snapshot(7))


def test_a_restored_trace_answers_as_before() -> None:
    layout = Layout(schema_of(_TYPES), (0,))
    spine, twin, back = Spine(layout), NaiveTrace(), Spine(layout)
    source = random.Random(2)
    for epoch in range(9):
        _insert(spine, twin, _random_updates(source, 40, 9, epoch, epoch + 1), epoch, epoch + 1)
    spine.advance(Frontier.at(6))
    spine.exert(10**5)
    for batch in spine.batches():
        back.insert(decode(b"".join(encode(batch)), layout))
    back.advance(spine.since)
    assert back.upper == spine.upper
    assert entries(back.snapshot(8)) == entries(spine.snapshot(8))


def test_matches_take_and_columns() -> None:
    layout = Layout(schema_of(_TYPES), (0,))
    spine = Spine(layout)
    rows = rows_of(_TYPES, [(k % 5, f"r{k}") for k in range(20)])
    for epoch in range(3):
        updates = Updates(rows, np.full(20, epoch), np.ones(20, np.int64))
        spine.insert(Batch.seal(layout, updates, Description.epochs(epoch, epoch + 1)))
    found = spine.gather(layout.keys(rows_of(_TYPES, [(1, None), (4, None)])), since=2)
    assert found.diffs.tolist() == [3] * 8
    assert found.rows([1]).to_pylist() == [{"c1": r["c1"]} for r in found.rows().to_pylist()]
    some = found.take(np.array([3, 0]))
    assert some.rows().to_pylist() == [found.rows().to_pylist()[k] for k in (3, 0)]
    none = Spine(layout).gather(Keys(np.zeros(2, np.uint64), np.zeros(2, np.uint64)))
    assert (len(none), none.rows().num_rows) == (0, 0)


def test_overflow_is_found_in_answers_and_merges() -> None:
    layout = Layout(schema_of(("bigint",)), (0,))
    spine = Spine(layout)
    rows = rows_of(("bigint",), [(1,)])
    for epoch in range(2):
        updates = Updates(rows, np.full(1, epoch), np.full(1, 2**62 + 2**61))
        spine.insert(Batch.seal(layout, updates, Description.epochs(epoch, epoch + 1)))
    assert len(spine.gather(layout.keys(rows))) == 2
    with pytest.raises(DiffOverflow):
        spine.gather(layout.keys(rows), since=1)
    with pytest.raises(DiffOverflow):
        spine.snapshot(1)


@given(some_updates(("integer", "character(8)"), 0, 4))
@settings(max_examples=25)
def test_blank_padded_keys_meet(updates: Updates) -> None:
    layout = Layout(schema_of(("integer", "character(8)")), (1,))
    spine = Spine(layout)
    spine.insert(Batch.seal(layout, updates, Description.epochs(0, 4)))
    found = spine.gather(layout.keys(rows_of(("integer", "character(8)"), [(0, "a")])))
    expected = counted(
        e
        for e, r in zip(entries(updates), updates.rows["c1"].to_pylist(), strict=True)
        if (r or "").rstrip() == "a" and r is not None
    )
    assert total(found.updates()) == expected


def test_idle_merging_leaves_a_few_small_batches_alone() -> None:
    spine, twin = Spine(Layout(schema_of(_TYPES), (0,))), NaiveTrace()
    source = random.Random(4)
    for epoch, size in enumerate((400, 160, 70, 30)):
        _insert(spine, twin, _random_updates(source, size, 900, epoch, epoch + 1), epoch, epoch + 1)
    held = spine.batches()
    spine.exert(10**6)
    assert spine.batches() == held, "a lookup in so few costs less than merging them"
    assert total(spine.snapshot(3)) == twin.at(3)


def test_lanes_of_a_delta_are_worked_out_once_for_each_layout() -> None:
    updates = _random_updates(random.Random(6), 20, 9, 0, 1)
    by_number, by_text = Layout(schema_of(_TYPES), (0,)), Layout(schema_of(_TYPES), (1,))
    assert by_number.keys_of(updates).hash is by_number.ids(updates)[0]
    assert by_number.ids(updates)[3] is by_text.ids(updates)[3]
    assert by_number.ids(updates)[0].tolist() == by_number.keys(updates.rows).hash.tolist()
    assert by_number.ids(updates)[0].tolist() != by_text.ids(updates)[0].tolist()
