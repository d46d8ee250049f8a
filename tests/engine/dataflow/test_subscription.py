"""Readings: any epoch since, any window, each reader at its own pace, whatever the dataflow gives up or drops meanwhile."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headrace.engine.batch.updates import UPSERT, Updates
from headrace.engine.dataflow import Dataflow, Reading
from headrace.engine.dataflow.node import Node
from headrace.engine.errors import InvariantBroken
from headrace.engine.trace.spine import NotFaithful
from tests.engine.dataflow.pairs import Pair, World, cuts_of, triples
from tests.engine.dataflow.standard import seeds
from tests.engine.dataflow.test_dataflow import GROUPS, ITEMS, push, taken, two_joins
from tests.engine.dataflow.test_random import SHAPES, world


def check_window(pair: Pair, found: tuple[Updates, Updates], lower: int, upper: int) -> None:
    """The window's changes, epoch by epoch, are the twin's, and consolidated."""
    for side, updates in enumerate(found):
        seen: dict[int, dict[object, int]] = {}
        for time, row, diff in triples(updates, pair.real.schema if side == 0 else None):
            assert row not in seen.setdefault(time, {}), "not consolidated"
            seen[time][row] = diff
        for epoch in range(lower, upper):
            assert seen.pop(epoch, {}) == pair.twin.delta(epoch)[side], f"at {epoch}"
        assert not seen, "updates outside of the window"


def check_content(pair: Pair, found: tuple[Updates, Updates], as_of: int) -> None:
    """The content is the twin's."""
    for side, updates in enumerate(found):
        mine = Counter({row: diff for _, row, diff in triples(updates, pair.real.schema if side == 0 else None)})
        assert mine == pair.twin.at(as_of)[side]


def read_on(rng: random.Random, pair: Pair, reading: Reading, frontier: int) -> None:
    """Ask for a past epoch and a window, then go on some way."""
    if reading.since < frontier:
        as_of = rng.randrange(reading.since, frontier)
        check_content(pair, reading.snapshot(as_of), as_of)
        lower = rng.randrange(reading.since + 1, frontier + 1)
        upper = rng.randrange(lower, frontier + 1)
        check_window(pair, reading.changes(lower, upper), lower, upper)
    start = reading.frontier
    if start <= frontier:
        upper = rng.randrange(start, frontier + 1)
        check_window(pair, reading.take(upper), start, upper)


def run_with_readings(made: World, rng: random.Random) -> None:
    """Step through the history, giving up the past at random; readings come, lag behind, catch up and go."""
    readings: list[tuple[Pair, Reading]] = []
    given_up = last = 0
    for upper in cuts_of(rng, made.end):
        made.push(last, upper)
        made.step(upper)
        last = upper
        given_up = max(given_up, min(rng.randrange(upper + 1), upper - 1))
        made.flow.advance_since(given_up)
        made.flow.exert(100)
        pair = made.views[rng.choice(list(made.views))]
        since = rng.randrange(given_up, upper)
        readings.append((pair, made.flow.read(pair.real, f"reader {upper}", since)))
        check_content(pair, readings[-1][1].snapshot(since), since)
        for read, reading in readings:
            read_on(rng, read, reading, upper)
        if rng.random() < 0.3:
            readings.pop(rng.randrange(len(readings)))[1].release()
    for read, reading in readings:
        start = reading.frontier
        check_window(read, reading.take(made.end), start, made.end)
        reading.release()
    for arranged in made.flow.arrangements().values():
        assert not [r for r in arranged.readers if r.startswith("reader")]
    made.check_changes()


@pytest.mark.parametrize("shape", SHAPES)
@seeds()
def test_each_reading_has_its_own_frontier(shape: str, seed: int) -> None:
    made, rng = world(SHAPES[shape], seed)
    made.build()
    run_with_readings(made, rng)


@pytest.mark.parametrize("shape", SHAPES)
@seeds()
def test_the_changes_of_any_node_are_the_differences_of_its_contents(shape: str, seed: int) -> None:
    made, rng = world(SHAPES[shape], seed)
    made.build()
    made.run(cuts_of(rng, made.end))
    for pair in made.views.values():
        lower = rng.randrange(made.end)
        node = pair.real.node
        with pytest.MonkeyPatch.context() as patch:
            if node.inputs:
                patch.setattr(type(node), "compute_changes", Node.compute_changes)
            found = pair.real.changes(lower, made.end)
        check_window(pair, found, lower, made.end)


def test_a_reading_holds_the_past_and_the_plan_until_it_lets_go() -> None:
    flow = Dataflow()
    one, _ = two_joins(flow)
    output = one.output("one")
    push(flow, "groups", GROUPS, (0, UPSERT, (1, "a")), (1, UPSERT, (1, "b")), (2, UPSERT, (1, "c")))
    push(flow, "items", ITEMS, (0, UPSERT, (7, 1, "x")))
    flow.step(3)
    reading = flow.read(one, "late", 0)
    flow.drop(output)
    flow.advance_since(2)
    assert reading.snapshot(0)[0].rows.to_pylist()[0]["title"] == "a"
    assert sorted(r["title"] for r in reading.take(2)[0].rows.to_pylist()) == ["a", "b"]
    assert (reading.since, reading.frontier) == (1, 2)
    with pytest.raises(NotFaithful, match="compacted"):
        reading.changes(1, 3)
    with pytest.raises(NotFaithful, match="not complete"):
        reading.changes(2, 4)
    with pytest.raises(NotFaithful, match="not complete"):
        reading.snapshot(3)
    with pytest.raises(InvariantBroken, match="went back"):
        reading.take(1)
    push(flow, "groups", GROUPS, (3, UPSERT, (1, "d")))
    flow.step(4)
    assert len(reading.take(4)[0]) == 4, "two epochs, each with the old row and the new one"
    reading.release()
    reading.release()
    for use in (lambda: reading.take(5), lambda: reading.snapshot(3), lambda: reading.advance(3)):
        with pytest.raises(InvariantBroken, match="released"):
            use()
    with pytest.raises(InvariantBroken, match="dropped"):
        one.snapshot(3)
    assert taken(two_joins(flow)[0].output("anew")) == ([], [])


def test_a_reading_of_what_is_compacted_is_refused_and_holds_nothing() -> None:
    flow = Dataflow()
    one, _ = two_joins(flow)
    flow.step(5)
    flow.arrangements()  # quiet traces catch up
    flow.advance_since(3)
    before = {n: a.readers for n, a in flow.arrangements().items()}
    with pytest.raises(NotFaithful, match="compacted"):
        flow.read(one, "late", 2)
    assert {n: a.readers for n, a in flow.arrangements().items()} == before
    assert flow.read(one, "now").since == 4
