"""Sharing: one arrangement a collection and key, since as the meet of its readers, gone with the last of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.arrangement import Registry
from headrace.engine.batch import Batch, Description, Layout, Updates
from headrace.engine.errors import InvariantBroken
from headrace.engine.lattice import Frontier
from tests.engine.strategies import rows_of, schema_of

_LAYOUT = Layout(schema_of(("bigint", "text")), (0,))


def test_two_readers_share_one_arrangement() -> None:
    registry = Registry()
    first = registry.share("orders", _LAYOUT, "view a")
    second = registry.share("orders", _LAYOUT, "view b")
    other = registry.share("orders", Layout(_LAYOUT.schema, (1,)), "view b")
    assert first.arranged is second.arranged is not other.arranged
    assert first.arranged.readers == ("view a", "view b")
    assert len(registry) == 2
    assert set(registry.arrangements()) == {"orders@0", "orders@1"}
    rows = rows_of(("bigint", "text"), [(1, "x")])
    updates = Updates(rows, np.zeros(1, np.int64), np.ones(1, np.int64))
    first.arranged.spine.insert(Batch.seal(_LAYOUT, updates, Description.epochs(0, 1)))
    assert registry.nbytes == first.arranged.nbytes > 0
    assert len(second.arranged) == 1


def test_the_last_reader_takes_the_arrangement_along() -> None:
    registry = Registry()
    first = registry.share("orders", _LAYOUT, "a")
    second = registry.share("orders", _LAYOUT, "b")
    assert not registry.release(first)
    assert not registry.release(first), "a second release changes nothing"
    assert registry.find("orders", (0,)) is second.arranged
    assert registry.release(second)
    assert registry.find("orders", (0,)) is None
    assert registry.share("orders", _LAYOUT, "c").arranged is not second.arranged


def test_unread_arrangements_are_dropped_by_name() -> None:
    registry = Registry()
    registry.add("orders", _LAYOUT)
    held = registry.share("lines", _LAYOUT, "a")
    assert registry.drop_unread() == ("orders@0",)
    assert list(registry) == [held.arranged]
    with pytest.raises(InvariantBroken, match="arranged twice"):
        registry.add("lines", _LAYOUT)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=12))
def test_since_is_the_meet_of_the_handles(moves: list[tuple[int, int]]) -> None:
    registry = Registry()
    handles = [registry.share("orders", _LAYOUT, f"reader {k}") for k in range(3)]
    spine = handles[0].arranged.spine
    reached = [0, 0, 0]
    for who, epoch in moves:
        handles[who].advance(Frontier.at(epoch))
        reached[who] = max(reached[who], epoch)
        assert spine.since == Frontier.at(min(reached))
    handles[0].release()
    assert spine.since == Frontier.at(min(reached[1:]))


def test_a_reader_that_comes_late_starts_at_since() -> None:
    registry = Registry()
    first = registry.share("orders", _LAYOUT, "a")
    first.advance(Frontier.at(5))
    assert first.arranged.hold("b").since == Frontier.at(5)
    assert first.arranged.hold("c", Frontier.at(7)).since == Frontier.at(7)
    with pytest.raises(InvariantBroken, match="compacted"):
        first.arranged.hold("d", Frontier.at(4))
    first.release()
    assert not first.held
    with pytest.raises(InvariantBroken, match="released"):
        first.advance(Frontier.at(9))
