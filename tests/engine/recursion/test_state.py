"""The store of a relation against a dictionary of its rows, and its kernels against loops over these."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.recursion.state import ABSENT, NO_NULLS, Joined, Lanes, Store

Row = tuple[int, ...]


def lanes(rows: list[Row], width: int) -> Lanes:
    """Rows as a store takes them."""
    return np.array(rows, np.int64).reshape(len(rows), width)


def drawn(random: Random, count: int, width: int) -> list[Row]:
    """Rows, some of them equal, with values at both ends."""
    some = [0, 1, 2, 3, 5, -1, -(2**63), 2**63 - 1]
    return [tuple(random.choice(some) for _ in range(width)) for _ in range(count)]


def rows_of(store: Store) -> dict[Row, tuple[int, int]]:
    """What is there, with round and count."""
    return {
        tuple(store.lanes[p].tolist()): (int(store.rounds[p]), int(store.counts[p])) for p in store.places().tolist()
    }


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_rounds_count_what_is_new_in_them(width: int, seed: int) -> None:
    random, store = Random(seed), Store(width)
    twin: dict[Row, tuple[int, int]] = {}
    for now in range(1, 6):
        rows = drawn(random, random.randrange(0, 90), width)
        store.count_in(lanes(rows, width), now)
        for row in rows:
            first, count = twin.get(row, (now, 0))
            twin[row] = (first, count + (first == now))
        assert rows_of(store) == twin
        assert store.here == len(twin)
    store.shrink()
    assert rows_of(store) == twin
    assert len(store.rounds) == len(twin)


@pytest.mark.parametrize("columns", [(0,), (1,), (2, 0), (0, 1, 2), ()])
def test_rows_are_found_by_any_lanes_whatever_came_and_went(columns: tuple[int, ...]) -> None:
    random, store = Random(7), Store(3)
    for step in range(12):
        new = drawn(random, 40, 3)
        places = store.place(lanes(new, 3))
        assert [tuple(store.lanes[p].tolist()) for p in places] == new
        some = np.unique(places)
        rounds = np.array([random.choice([1, 4, ABSENT]) for _ in some], np.int32)
        store.set(some, rounds, np.ones(len(some), np.int32))
        if step % 4 == 3:
            store.compact()
        keys = drawn(random, 20, len(columns))
        for latest in (1, ABSENT - 1):
            ones, found, visited = store.probe(lanes(keys, len(columns)), columns, latest, NO_NULLS, 1 << 62)
            got = sorted(
                (k, tuple(store.lanes[p].tolist())) for k, p in zip(ones.tolist(), found.tolist(), strict=True)
            )
            there = [(row, r) for row, (r, _) in rows_of(store).items() if r <= latest]
            want = [(k, row) for k, key in enumerate(keys) for row, _ in there if tuple(row[c] for c in columns) == key]
            assert got == sorted(want)
            assert visited >= len(ones)


def found_rows(random: Random, count: int) -> tuple[Store, dict[Row, int]]:
    """A store of three lanes, the last of NULLs' bits, by row the round."""
    store, rounds = Store(3), dict[Row, int]()
    for _ in range(count):
        bits = random.choice([0, 0, 0, 1, 2, 3])
        row = (0 if bits & 1 else random.randrange(5), 0 if bits & 2 else random.randrange(9), bits)
        rounds[row] = random.choice([0, 0, 3, ABSENT])
    places = store.place(lanes(list(rounds), 3))
    store.set(places, np.array(list(rounds.values()), np.int32), np.ones(len(rounds), np.int32))
    return store, rounds


def pairs_of(*pairs: tuple[int, int]) -> Lanes:
    return np.array(pairs, np.int64).reshape(-1, 2)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_joined_is_counted_in_as_if_it_were_listed(seed: int) -> None:
    random = Random(seed)
    other, rounds = found_rows(random, 40)
    store = Store(3)
    twin: dict[Row, tuple[int, int]] = {}
    for now in range(1, 4):
        keys = [random.randrange(6) for _ in range(random.choice([0, 1, 3, 300]))]
        begun = [(random.randrange(50), 77, 0) for _ in keys]
        of = Joined(other, (0,), (0, 2, 1), (pairs_of((1, 1)), 2, 2))
        visited, found = store.count_joined(lanes([(k,) for k in keys], 1), lanes(begun, 3), of, now)
        made = [
            (start[0], row[1], (row[2] >> 1 & 1) << 1)
            for key, start in zip(keys, begun, strict=True)
            for row, came in rounds.items()
            if row[0] == key and not row[2] & 1 and came == 0
        ]
        assert found == len(made)
        assert visited >= found + len(keys)
        for row in made:
            first, count = twin.get(row, (now, 0))
            twin[row] = (first, count + (first == now))
        assert rows_of(store) == twin
        assert store.here == store.size == len(twin)


@pytest.mark.parametrize("last", [2, 4, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_rounds_follow_one_another_as_if_each_were_joined(seed: int, last: int) -> None:
    random = Random(seed)
    nodes = random.choice([3, 30, 150])
    edges = {(random.randrange(nodes), random.randrange(nodes)) for _ in range(nodes + 10)}
    other, store = Store(2), Store(2)
    store.count_in(lanes(sorted(edges), 2), 1)
    places = other.place(lanes(sorted(edges), 2))
    other.set(places, np.zeros(len(edges), np.int32), np.ones(len(edges), np.int32))
    twin, now = dict.fromkeys(edges, (1, 1)), 1
    while now < last:
        new = [row for row, (came, _) in twin.items() if came == now]
        if not new:
            break
        now += 1
        for a, b in new:
            for c, d in edges:
                if b == c:
                    first, count = twin.get((a, d), (now, 0))
                    twin[a, d] = (first, count + (first == now))
    key = np.array([1], np.int64), -1, 0, pairs_of((0, 0))
    of = Joined(other, (0,), (0, -1, 0), (pairs_of((1, 1)), -1, -1))
    done = store.count_rounds(key, of, 0, 1, (last, 1 << 62))
    assert rows_of(store) == twin
    assert done.now == now
    assert store.rounds[done.before : store.size].tolist() == [now] * (store.size - done.before)


def test_rounds_end_with_the_first_that_makes_too_many_rows() -> None:
    other, store = Store(2), Store(2)
    edges = [(k, k + 1) for k in range(50)]
    store.count_in(lanes(edges, 2), 1)
    other.set(other.place(lanes(edges, 2)), *np.array([[0] * 50, [1] * 50], np.int32))
    key = np.array([1], np.int64), -1, 0, pairs_of((0, 0))
    of = Joined(other, (0,), (0, -1, 0), (pairs_of((1, 1)), -1, -1))
    done = store.count_rounds(key, of, 0, 1, (1000, 120))
    assert (done.now, done.before, store.size) == (3, 99, 147)


def test_the_last_rows_go_as_they_came() -> None:
    random, store = Random(3), Store(2)
    kept = store.place(lanes(drawn(random, 30, 2), 2))
    store.set(np.unique(kept), *np.ones((2, len(np.unique(kept))), np.int32))
    before, size = rows_of(store), store.size
    for _ in range(5):
        # Enough to make every table larger.
        store.place(lanes([(random.randrange(10**6), 0) for _ in range(500)], 2))
        store.probe(lanes([(0,)], 1), (1,), ABSENT, NO_NULLS, 1 << 62)
        store.drop_last(size)
        assert rows_of(store) == before
        assert (store.find(lanes(list(before), 2)) >= 0).all()
        ones, _, _ = store.probe(lanes([(0,)], 1), (1,), ABSENT, NO_NULLS, 1 << 62)
        assert len(ones) == sum(row[1] == 0 for row in before)


def test_nulls_are_found_by_nothing() -> None:
    store = Store(2)
    places = store.place(lanes([(0, 0), (0, 1), (7, 0)], 2))
    store.set(places, *np.ones((2, 3), np.int32))
    ones, found, _ = store.probe(lanes([(0,), (7,)], 1), (0,), 1, (1, 1), 1 << 62)
    assert (ones.tolist(), found.tolist()) == ([0, 1], [places[0], places[2]])
    assert store.find(lanes([(0,)], 1), (0,), (1, 1)).tolist() == [places[0]]


def test_a_search_stops_past_what_it_may_look_at() -> None:
    store = Store(1)
    store.count_in(lanes([(k,) for k in range(100)], 1), 1)
    _, found, visited = store.probe(lanes([(k,) for k in range(100)], 1), (0,), 1, NO_NULLS, 10)
    assert 10 < visited < 40
    assert len(found) < 40


def test_more_derivations_than_can_be_counted_are_an_error() -> None:
    store = Store(1)
    store.count_in(lanes([(1,)], 1), 1)
    store.counts[0] = ABSENT
    with pytest.raises(DiffOverflow):
        store.count_in(lanes([(1,)], 1), 1)


@pytest.mark.parametrize(("values", "size"), [(1, 50), (4, 30_000), (500, 30_000), (10_000, 30_000), (30_000, 30_000)])
def test_how_many_rows_share_a_value_is_estimated_within_a_factor(values: int, size: int) -> None:
    draw, store = np.random.default_rng(values), Store(2)
    rows = np.stack([draw.integers(0, values, size) if values < size else np.arange(size), np.arange(size)], 1)
    store.place(np.ascontiguousarray(rows.astype(np.int64)))
    true = size / len(np.unique(rows[:, 0]))
    found = store.fanout((0,))
    assert found is not None
    assert true / 6 <= found <= 6 * true
    assert store.fanout((0, 1)) == pytest.approx(1, abs=6)
    assert Store(2).fanout((0,)) is None
