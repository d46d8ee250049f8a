"""Sealing, consolidating, merging and coding batches, against dictionaries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.batch import Batch, Description, DiffOverflow, Layout, Updates, c_data, consolidate
from headrace.engine.batch import batch as module
from headrace.engine.batch.c_data import Exported
from headrace.engine.batch.codec import UnreadableBatch, decode, encode
from headrace.engine.batch.merger import Merger, merged
from headrace.engine.errors import InvariantBroken
from headrace.engine.kernels import large_batch
from headrace.engine.kernels.compiler import JIT_OFF
from headrace.engine.lattice import Frontier
from headrace.engine.schema import INTEGER, TEXT, Column, Schema
from tests.engine.strategies import rows_of, schema_of, some_types, some_updates
from tests.reference.updates import counted, entries, total


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Layout, Updates, Updates]:
    types = draw(some_types())
    key = tuple(draw(st.lists(st.integers(0, len(types) - 1), max_size=2, unique=True)))
    order = draw(st.sampled_from([(), (0,)]))
    mask = draw(st.sampled_from([2**64 - 1, 1, 0]))
    layout = Layout(schema_of(types), key, order, mask)
    return layout, draw(some_updates(types, 0, 4)), draw(some_updates(types, 4, 8))


@given(_cases())
@settings(max_examples=60)
def test_seal_sorts_and_consolidates(case: tuple[Layout, Updates, Updates]) -> None:
    layout, updates, _ = case
    batch = Batch.seal(layout, updates, Description.epochs(0, 4))
    batch.check_order()
    assert total(batch.updates()) == total(updates)
    assert len(batch) == len(total(updates))
    assert batch.distinct == len({row for row, _ in total(updates)})
    assert batch.distinct == len(set(batch.positions.tolist()))
    assert len(batch) == 0 or batch.distinct * 2 > batch.payload.num_rows or batch.payload.num_rows == 1
    keys = layout.keys(batch.updates().rows)
    assert np.array_equal(keys.hash, batch.keys.hash)
    assert np.array_equal(keys.check, batch.keys.check)


@contextmanager
def _lanes_left_out(large: bool, many_ties: bool) -> Iterator[None]:
    """Batches of any size count as large; fingerprints are made anew however many rows share a key."""
    with (
        mock.patch.object(module, "_LARGE", 1 if large else 1024),
        mock.patch.object(large_batch, "FEW_TIES", 0 if many_ties else 8),
    ):
        yield


@given(_cases(), st.integers(0, 9), st.integers(1, 9), st.tuples(*[st.booleans()] * 4))
@settings(max_examples=100)
def test_merge_in_small_steps_equals_the_sum(
    case: tuple[Layout, Updates, Updates], since: int, fuel: int, left_out: tuple[bool, bool, bool, bool]
) -> None:
    layout, first, second = case
    with _lanes_left_out(*left_out[:2]):
        a = Batch.seal(layout, first, Description.epochs(0, 4))
    with _lanes_left_out(*left_out[2:]):
        b = Batch.seal(layout, second, Description.epochs(4, 8))
    a.check_order()
    b.check_order()
    merger = Merger(a, b, Frontier.at(since))
    steps = 0
    while not merger.done:
        merger.work(fuel)
        steps += 1
        assert steps <= len(a) + len(b) + 4, "at most three lanes are filled in"
    found = merger.result()
    found.check_order()
    everything = entries(first) + entries(second)
    expected = counted((row, max(time, since), diff) for row, time, diff in everything)
    assert total(found.updates()) == expected
    assert len(found) == len(expected)
    assert found.distinct == len({row for row, _ in expected})
    assert found.description == Description(Frontier.at(0), Frontier.at(8), Frontier.at(since))
    assert total(a.updates()) == total(first), "the inputs stay as they are"


@given(_cases(), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_consolidate_is_canonical(case: tuple[Layout, Updates, Updates], random: object) -> None:
    _, updates, _ = case
    once = consolidate(updates)
    assert total(once) == total(updates)
    assert len(once) == len(total(updates))
    assert once.times.tolist() == sorted(once.times.tolist())
    order = list(range(len(updates)))
    random.shuffle(order)  # type: ignore[attr-defined]
    mixed = Updates(updates.rows.take(pa.array(order, pa.int64())), updates.times[order], updates.diffs[order])
    assert entries(consolidate(mixed)) == entries(once)


@given(_cases(), st.integers(0, 3), st.booleans())
@settings(max_examples=40)
def test_codec_round_trip_without_a_copy(case: tuple[Layout, Updates, Updates], since: int, large: bool) -> None:
    layout, updates, _ = case
    description = Description(Frontier.at(0), Frontier.at(4), Frontier.at(since))
    with _lanes_left_out(large, large):
        batch = Batch.seal(layout, updates, description)
    data = b"".join(bytes(part) for part in encode(batch))
    buffer = pa.py_buffer(data)
    back = decode(buffer, layout)
    back.check_order()
    assert back.description == description
    assert back.distinct == batch.distinct
    assert entries(back.updates()) == entries(batch.updates())
    lanes = [lane for lane in (*back.ids, *back.facts) if len(lane) and lane.strides[0]]
    assert [len(lane) for lane in (*back.ids, *back.facts)] == [len(lane) for lane in (*batch.ids, *batch.facts)]
    for lane in lanes:
        assert buffer.address <= lane.ctypes.data < buffer.address + buffer.size
    merger = Merger(back, Batch.empty(layout, Description.epochs(4, 5)), Frontier.at(0))
    while not merger.done:
        merger.work(100)
    advanced = counted((row, max(time, since), diff) for row, time, diff in entries(updates))
    assert total(merger.result().updates()) == advanced


def _batch(size: int, diff: int = 1, types: tuple[str, ...] = ("bigint", "text")) -> tuple[Layout, Updates]:
    layout = Layout(schema_of(types), (0,))
    rows = rows_of(types, [(k * 7919 % size, f"row {k}") for k in range(size)])
    return layout, Updates(rows, np.zeros(size, np.int64), np.full(size, diff))


def test_large_batches_go_another_way_to_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    # Plain Python is slow, and reads the kernel's constants anew: it takes the same way with smaller parts.
    if JIT_OFF:
        monkeypatch.setattr("headrace.engine.kernels.consolidate._PART", 64)
    size = 600 if JIT_OFF else 36_000
    random = np.random.default_rng(3)
    schema = schema_of(("bigint", "integer"))
    columns = [pa.array(random.integers(0, size // 5, size)), pa.array(random.integers(0, 3, size), pa.int32())]
    updates = Updates(
        pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        random.integers(0, 2, size),
        random.choice([-1, 1], size),
    )
    expected = total(updates)
    for layout in (Layout(schema, (0,)), Layout(schema, (), hash_mask=0), Layout(schema, (1,), (0,))):
        batch = Batch.seal(layout, updates, Description.epochs(0, 2))
        batch.check_order()
        assert total(batch.updates()) == expected
        assert batch.distinct == len({row for row, _ in expected})


def test_lanes_of_one_value_take_no_memory() -> None:
    layout, updates = _batch(2000)
    batch = Batch.seal(layout, updates, Description.epochs(0, 1))
    assert [lane.strides[0] for lane in (*batch.ids[:3], *batch.facts[:2])] == [8, 0, 0, 0, 0]
    assert [len(lane) for lane in batch.ids[3:]] == [0, 0], "they can be told without"
    assert batch.nbytes < 2000 * 16 + batch.payload.nbytes + 1000
    assert decode(b"".join(encode(batch)), layout).times.strides[0] == 0


def test_lanes_of_one_value_stay_so_beside_a_small_batch() -> None:
    """A small batch writes all its lanes out; what merges make of it takes room only for what has a second value."""
    layout, updates = _batch(2000)
    large = Batch.seal(layout, updates, Description.epochs(0, 1))
    ones = np.ones(100, np.int64)
    few = Updates(rows_of(("bigint", "text"), [(-1 - k, None) for k in range(100)]), ones, ones)
    small = Batch.seal(layout, few, Description.epochs(1, 2))
    assert [lane.strides[0] for lane in small.ids[1:3]] == [8, 8]
    whole = merged(large, small, Frontier.at(1))
    assert [lane.strides[0] for lane in (*whole.ids[:3], *whole.facts[:2])] == [8, 0, 0, 0, 0]
    whole.check_order()
    assert total(whole.updates()) == counted([(row, 1, diff) for row, _, diff in entries(few) + entries(updates)])


def test_a_lane_whose_ends_are_alike_gets_room_where_it_has_another_value() -> None:
    layout, types = Layout(schema_of(("bigint", "integer")), (0,), (1,)), ("bigint", "integer")
    plain = [(k, 0) for k in range(400)]
    zeros = np.zeros(400, np.int64)
    batch = Batch.seal(layout, Updates(rows_of(types, plain), zeros, zeros + 1), Description.epochs(0, 1))
    # The order of keys is that of their hashes; rows in the midst of it have another value than those at its ends.
    rows = [(k, int(at in (150, 151, 300))) for at, k in enumerate(batch.updates().rows.column(0).to_pylist())]
    sides = []
    for side in (0, 1):
        half = Updates(rows_of(types, rows[side::2]), zeros[:200] + side, zeros[:200] + 1)
        sides.append(Batch.seal(layout, half, Description.epochs(side, side + 1)))
    assert all(len({int(side.ids[2][at]) for at in (0, -1)}) == 1 for side in sides)
    with mock.patch("headrace.engine.batch.merger._PIECE", 32):
        merger = Merger(*sides, Frontier.at(1))
        while not merger.done:
            merger.work(20)
    whole = merger.result()
    whole.check_order()
    assert list(zip(*(c.to_pylist() for c in whole.updates().rows.columns), strict=True)) == rows


def test_large_payloads_lie_in_the_batchs_order() -> None:
    """Narrow rows are put in order at once, others by their first merge; then no lane says where a row lies."""
    for types, at_once in ((("bigint", "integer"), True), (("bigint", "text"), False)):
        layout = Layout(schema_of(types), (0,))
        rows = rows_of(types, [(k * 7919 % 2003, k if at_once else f"row {k}") for k in range(2000)])
        updates = Updates(rows, np.zeros(2000, np.int64), np.ones(2000, np.int64))
        batch = Batch.seal(layout, updates, Description.epochs(0, 1))
        assert len(batch.facts[2]) == (0 if at_once else 2000)
        after = merged(batch, Batch.empty(layout, Description.epochs(1, 2)), Frontier.at(0))
        assert [len(lane) for lane in (*after.ids[3:], after.facts[2])] == [0, 0, 0]
        assert after.nbytes <= 2000 * 8 + batch.payload.nbytes + 1000
        for one in (batch, after):
            one.check_order()
            assert total(one.updates()) == total(updates)


def test_fingerprints_are_kept_where_many_rows_share_a_key() -> None:
    """A merge of batches without fingerprints whose rows pile up on few keys writes them from some row on."""
    layout = Layout(schema_of(("bigint", "text")), (0,))
    size = 300 if JIT_OFF else 9000
    expected = []
    whole = Batch.empty(layout, Description.epochs(0, 0))
    with (
        mock.patch("headrace.engine.batch.merger._PIECE", 64 if JIT_OFF else 4096),
        mock.patch.object(module, "_LARGE", 100),
    ):
        for epoch in range(3):
            rows = rows_of(("bigint", "text"), [(k, None if k % 5 == 0 else f"{epoch} {k}") for k in range(size)])
            updates = Updates(rows, np.full(size, epoch), np.ones(size, np.int64))
            expected += entries(updates)
            batch = Batch.seal(layout, updates, Description.epochs(epoch, epoch + 1))
            assert len(batch.ids[3]) == 0
            merger = Merger(whole, batch, Frontier.at(0))
            while not merger.done:
                merger.work(50)
            whole = merger.result()
            whole.check_order()
            assert total(whole.updates()) == counted(expected)
    assert len(whole.ids[3]) == len(whole)
    high, low = (lane.copy() for lane in whole.fingerprints)
    bare = (*whole.ids[:3], high[:0], low[:0])
    made = Batch(layout, whole.description, bare, whole.facts, whole.struct, whole.distinct)
    assert np.array_equal(made.fingerprints, (high, low))


def test_rows_inserted_and_retracted_share_payload_and_garbage_goes() -> None:
    layout = Layout(schema_of(("bigint",)), (0,))
    rows = rows_of(("bigint",), [(k // 4,) for k in range(40)])
    updates = Updates(rows, np.arange(40) % 4, np.ones(40, np.int64))
    batch = Batch.seal(layout, updates, Description.epochs(0, 4))
    assert (len(batch), batch.payload.num_rows) == (40, 10)


@pytest.mark.parametrize("sign", [1, -1])
def test_overflow_is_an_error(sign: int) -> None:
    types = ("bigint",)
    layout = Layout(schema_of(types), (0,))
    huge = Updates(rows_of(types, [(1,), (1,)]), np.zeros(2, np.int64), np.full(2, sign * (2**62 + 2**61)))
    with pytest.raises(DiffOverflow):
        Batch.seal(layout, huge, Description.epochs(0, 1))
    with pytest.raises(DiffOverflow):
        consolidate(huge)
    one = Updates(huge.rows.slice(1), huge.times[1:], huge.diffs[1:])
    a = Batch.seal(layout, one, Description.epochs(0, 1))
    merger = Merger(a, a.described(Description.epochs(1, 2)), Frontier.at(2))
    with pytest.raises(DiffOverflow):
        merger.work(100)


def test_wrong_births_are_refused() -> None:
    layout, updates = _batch(10)
    with pytest.raises(InvariantBroken, match="outside of their batch"):
        Batch.seal(layout, updates, Description.epochs(1, 2))
    with pytest.raises(InvariantBroken, match="lanes of their layout"):
        Batch.seal(Layout(schema_of(("bigint", "date")), (0,)), updates, Description.epochs(0, 1))
    with pytest.raises(InvariantBroken, match="ends before it begins"):
        Description.epochs(2, 1)
    batch = Batch.seal(layout, updates, Description.epochs(0, 1))
    with pytest.raises(InvariantBroken, match="do not meet"):
        Merger(batch, batch, Frontier.at(0))
    broken = Batch(layout, batch.description, tuple(i[::-1] for i in batch.ids), batch.facts, batch.payload, 10)
    with pytest.raises(InvariantBroken, match="not sorted"):
        broken.check_order()


def test_rows_under_other_names_take_the_layouts() -> None:
    layout, updates = _batch(3)
    renamed = updates.rows.rename_columns(["x", "y"])
    batch = Batch.seal(layout, Updates(renamed, updates.times, updates.diffs), Description.epochs(0, 1))
    assert batch.payload.schema.names == ["c0", "c1"]


def test_rows_put_together_take_the_names_of_each_layout_and_fit_no_other() -> None:
    loose = Updates(
        _loose(Layout(schema_of(["integer", "text"]), (0,)), [(1, "a"), (2, "b")]), *np.ones((2, 2), np.int64)
    )
    named = Schema((Column("x", INTEGER), Column("y", TEXT)))
    fit = [Layout(schema, (0,)) for schema in (schema_of(["integer", "text"]), named)]
    other = Layout(schema_of(["bigint", "text"]), (0,))
    for _ in range(2):
        for layout in fit:
            sealed = Batch.seal(layout, loose, Description.epochs(0, 4))
            assert sealed.payload.schema.names == list(layout.schema.names)
            assert sorted(sealed.payload.column(1).to_pylist()) == ["a", "b"]
        with pytest.raises(InvariantBroken, match="lanes of their layout"):
            Batch.seal(other, loose, Description.epochs(0, 4))


def _loose(layout: Layout, values: list[tuple[int, str]]) -> Exported:
    whole = Exported(rows_of(["integer", "text"], values))
    at = np.arange(len(values))[None]
    return layout.assembly().picked(np.array([whole.address]), np.zeros_like(at), at)


def test_a_small_slice_does_not_keep_a_large_payload() -> None:
    layout, updates = _batch(20_000)
    one = Updates(updates.rows.slice(7, 1), np.zeros(1, np.int64), np.ones(1, np.int64))
    batch = Batch.seal(layout, one, Description.epochs(0, 1))
    assert batch.nbytes < 1000
    assert total(batch.updates()) == total(one)


def test_rows_of_no_columns() -> None:
    layout = Layout(schema_of(()), ())
    rows = module.take_rows(layout.schema.empty(), np.zeros(5, np.int64))
    assert rows.num_rows == 5
    batch = Batch.seal(layout, Updates(rows, np.zeros(5, np.int64), np.ones(5, np.int64)), Description.epochs(0, 1))
    assert batch.diffs.tolist() == [5]
    assert decode(b"".join(encode(batch)), layout).updates().rows.num_rows == 1


def test_unreadable_bytes_are_named() -> None:
    layout, updates = _batch(10)
    data = b"".join(encode(Batch.seal(layout, updates, Description.epochs(0, 1))))
    with pytest.raises(UnreadableBatch, match="not a batch"):
        decode(b"nonsense", layout)
    with pytest.raises(UnreadableBatch, match="not a batch"):
        decode(data[:-100], layout)
    with pytest.raises(UnreadableBatch, match="another layout"):
        decode(data, Layout(layout.schema, (1,)))
    with pytest.raises(UnreadableBatch, match="another format"):
        decode(data.replace(b'"format": 2', b'"format": 1'), layout)


def test_another_thread_never_sees_half_of_the_addresses() -> None:
    """Dataflows in two threads share batches, and kernels run beside one another: what was half written was read as pointers."""
    layout, updates = _batch(20_000)
    batch = Batch.seal(layout, updates, Description.epochs(0, 1))
    locate, seen = module.entries.locate, []

    def located(*of: Any) -> None:
        seen.append(batch._addresses)
        locate(*of)
        seen.append(batch._addresses)

    with mock.patch.object(module.entries, "locate", located):
        found = batch.addresses
    assert seen == [None, None]
    assert found is batch.addresses


def test_two_threads_that_export_a_payload_at_once_have_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    _, updates = _batch(10)
    exported, told = c_data.Exported(updates.rows), []
    address_of = c_data._address_of

    def meanwhile(*of: Any) -> int:
        monkeypatch.setattr(c_data, "_address_of", address_of)
        told.append(exported.address)
        return int(address_of(*of))

    monkeypatch.setattr(c_data, "_address_of", meanwhile)
    first = exported.address
    assert told == [first] == [exported.address]
