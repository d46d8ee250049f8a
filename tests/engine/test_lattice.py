"""Every law of the lattice, and the two theorems about representatives, against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.errors import InvariantBroken
from headrace.engine.lattice import CLOSED, MOST_ROUNDS, Frontier, Time, TooDeep, representative
from tests.reference.frontiers import SIDE, alike, below, beyond, grid, minimal

_depths = st.integers(0, 2)


def _times(depth: int) -> st.SearchStrategy[Time]:
    return st.tuples(*[st.integers(0, SIDE - 1)] * (depth + 1)).map(Time.at)


def _frontiers(depth: int) -> st.SearchStrategy[Frontier]:
    return st.lists(_times(depth), max_size=4).map(Frontier.of)


def _points(frontier: Frontier) -> list[tuple[int, ...]]:
    return [t.coordinates for t in frontier]


@given(st.data(), _depths)
def test_order_is_the_product_order(data: st.DataObject, depth: int) -> None:
    a, b = data.draw(_times(depth)), data.draw(_times(depth))
    assert a.less_equal(b) == below(a.coordinates, b.coordinates)
    assert a.less_than(b) == (a != b and below(a.coordinates, b.coordinates))


@given(st.data(), _depths)
def test_join_is_least_upper_and_meet_greatest_lower_bound(data: st.DataObject, depth: int) -> None:
    a, b = data.draw(_times(depth)), data.draw(_times(depth))
    uppers = {p for p in grid(depth) if below(a.coordinates, p) and below(b.coordinates, p)}
    lowers = {p for p in grid(depth) if below(p, a.coordinates) and below(p, b.coordinates)}
    join, meet = a.join(b).coordinates, a.meet(b).coordinates
    assert join in uppers
    assert all(below(join, p) for p in uppers)
    assert meet in lowers
    assert all(below(p, meet) for p in lowers)


@given(st.data(), _depths)
def test_lattice_laws(data: st.DataObject, depth: int) -> None:
    a, b, c = (data.draw(_times(depth)) for _ in range(3))
    assert a.join(b) == b.join(a)
    assert a.meet(b) == b.meet(a)
    assert a.join(b.join(c)) == a.join(b).join(c)
    assert a.meet(b.meet(c)) == a.meet(b).meet(c)
    assert a.join(a.meet(b)) == a == a.meet(a.join(b))
    assert a.meet(b.join(c)) == a.meet(b).join(a.meet(c))


@given(st.data(), _depths)
def test_frontier_is_the_antichain_of_minimal_times(data: st.DataObject, depth: int) -> None:
    times = data.draw(st.lists(_times(depth), max_size=5))
    points = {t.coordinates for t in times}
    frontier = Frontier.of(times)
    assert set(_points(frontier)) == minimal(points)
    assert frontier == Frontier.of(reversed(times))
    assert {p for p in grid(depth) if frontier.less_equal(Time.at(p))} == beyond(points, depth)
    more = data.draw(_times(depth))
    assert frontier.insert(more) == Frontier.of([*times, more])


@given(st.data(), _depths)
def test_frontiers_join_to_the_intersection_and_meet_to_the_union(data: st.DataObject, depth: int) -> None:
    f, g = data.draw(_frontiers(depth)), data.draw(_frontiers(depth))
    in_f, in_g = beyond(_points(f), depth), beyond(_points(g), depth)
    assert beyond(_points(f.join(g)), depth) == in_f & in_g
    assert beyond(_points(f.meet(g)), depth) == in_f | in_g
    assert f.before(g) == (in_g <= in_f)


@given(st.data(), _depths)
def test_representative_is_correct(data: st.DataObject, depth: int) -> None:
    """A time and its representative compare alike with every time beyond the frontier."""
    frontier = data.draw(_frontiers(depth).filter(lambda f: not f.closed))
    time = data.draw(_times(depth))
    found = representative(time, frontier)
    assert found is not None
    assert alike(time.coordinates, found.coordinates, beyond(_points(frontier), depth))


@given(st.data(), _depths)
def test_representative_is_optimal(data: st.DataObject, depth: int) -> None:
    """Two times that compare alike with every time beyond the frontier have one representative."""
    frontier = data.draw(_frontiers(depth).filter(lambda f: not f.closed))
    a, b = data.draw(_times(depth)), data.draw(_times(depth))
    if alike(a.coordinates, b.coordinates, beyond(_points(frontier), depth)):
        assert representative(a, frontier) == representative(b, frontier)


@given(st.data(), _depths)
def test_representative_is_idempotent_and_never_earlier(data: st.DataObject, depth: int) -> None:
    frontier = data.draw(_frontiers(depth).filter(lambda f: not f.closed))
    time = data.draw(_times(depth))
    found = representative(time, frontier)
    assert found is not None
    assert time.less_equal(found)
    assert representative(found, frontier) == found


def test_closed_and_depth_zero() -> None:
    assert CLOSED.closed
    assert representative(Time(3), CLOSED) is None
    assert representative(Time(3), Frontier.at(5)) == Time(5)
    assert representative(Time(7), Frontier.at(5)) == Time(7)
    assert Frontier.at(5).epoch == 5
    assert Frontier.at(5).before(CLOSED)
    assert not CLOSED.before(Frontier.at(5))
    with pytest.raises(InvariantBroken):
        _ = CLOSED.epoch
    with pytest.raises(InvariantBroken):
        Time(1).join(Time(1, (2,)))


@given(st.data(), _depths)
def test_order_is_reflexive_antisymmetric_and_transitive(data: st.DataObject, depth: int) -> None:
    a, b, c = (data.draw(_times(depth)) for _ in range(3))
    assert a.less_equal(a)
    assert not a.less_than(a)
    assert not (a.less_equal(b) and b.less_equal(a)) or a == b
    assert not (a.less_equal(b) and b.less_equal(c)) or a.less_equal(c)
    assert a.less_equal(b) == (a.join(b) == b) == (a.meet(b) == a)
    assert not a.less_equal(b) or a.coordinates <= b.coordinates, "coordinates sort as a linear extension"


@given(st.data(), _depths)
def test_frontiers_form_a_lattice_of_what_may_still_come(data: st.DataObject, depth: int) -> None:
    f, g, h = (data.draw(_frontiers(depth)) for _ in range(3))
    for one, other in ((f, g), (g, f)):
        assert one.meet(other).before(one)
        assert one.before(one.join(other))
        assert one.before(other) == (one.join(other) == other) == (one.meet(other) == one)
    assert f.join(g) == g.join(f)
    assert f.meet(g) == g.meet(f)
    assert f.join(g.join(h)) == f.join(g).join(h)
    assert f.meet(g.meet(h)) == f.meet(g).meet(h)
    assert f.join(f.meet(g)) == f == f.meet(f.join(g))
    assert f.before(CLOSED)
    assert all(not one.less_equal(two) for one in f for two in f if one != two), "an antichain"


@given(st.data(), _depths)
def test_representatives_keep_order_and_follow_later_frontiers(data: st.DataObject, depth: int) -> None:
    """Advancing to a frontier and then to a later one is advancing to the later one: merges may do it by steps."""
    f = data.draw(_frontiers(depth).filter(lambda x: not x.closed))
    later = f.join(data.draw(_frontiers(depth).filter(lambda x: not x.closed)))
    a, b = data.draw(_times(depth)), data.draw(_times(depth))
    first, second = representative(a, f), representative(b, f)
    assert first is not None
    assert second is not None
    assert not a.less_equal(b) or first.less_equal(second)
    assert representative(first, later) == representative(a, later)


def test_two_rounds_are_the_most() -> None:
    assert Time(1, (2, 3)).depth == MOST_ROUNDS == 2
    for deep in (lambda: Time(0, (0, 0, 0)), lambda: Frontier.at(0, 0, 0, 0), lambda: Time.at((1, 2, 3, 4))):
        with pytest.raises(TooDeep, match="nested 3 deep") as told:
            deep()
        assert told.value.as_json()["code"] == "depth"
