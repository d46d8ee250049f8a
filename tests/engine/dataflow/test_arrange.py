"""Arranged collections: filters and projections of one are looked up in it, and give what they would without it."""

from __future__ import annotations

import random
from collections.abc import Mapping

from headrace.engine.dataflow import Dataflow
from headrace.engine.operators.expressions.core.ir import Call, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, DOUBLE, INTEGER, TEXT
from tests.engine.dataflow.pairs import Both, Pair, Shape, World, cuts_of
from tests.engine.dataflow.standard import any_cut, asked_about_the_past, made_late, passes, restart, seeds
from tests.engine.dataflow.test_determinism import as_bytes
from tests.engine.dataflow.test_iterate import EDGES, far, reached_far
from tests.engine.dataflow.test_random import EVENTS, ORDERS, SCHEMAS, divide, named, over, ref
from tests.engine.dataflow.test_random import world as random_world


def parts(t: Mapping[str, Pair], *, arranged: bool) -> Mapping[str, Pair]:
    """Joins with filters and projections of orders by customer and by (note, customer), and of events by customer."""
    orders, events, customers = t["orders"], t["events"], t["customers"]

    def by(pair: Pair, *key: int) -> Pair:
        return Pair(pair.real.arrange(key), pair.twin) if arranged else pair

    by_customer, by_note = by(orders, 1), by(orders, 2, 1)
    fails = Both(
        Call(">(integer,integer)", (divide(1, 0).expr, Literal(0, INTEGER)), BOOLEAN),
        lambda row: None if divide(1, 0).fn(row) is None else divide(1, 0).fn(row) > 0,
    )
    swapped = by_customer.filter(over(0, 1)).project(
        [ref(4, ORDERS), ref(1, ORDERS), divide(0, 1)], named(DOUBLE, INTEGER, INTEGER)
    )
    without_key = by_customer.project([ref(0, ORDERS), ref(2, ORDERS)], named(INTEGER, TEXT))
    return {
        "whole": events.join(by_customer, [0], [1]),
        "filtered": events.join(by_customer.filter(over(0, 2)), [0], [1]),
        "failing": events.join(by_customer.filter(fails), [0], [1]),
        "projected": swapped.join(customers, [1], [1]),
        "both": swapped.join(by(events, 0).filter(over(0, 1)), [1], [0]),
        "itself": by_note.filter(over(0, 1)).join(by_note, [1, 2], [1, 2]),
        "without key": without_key.join(events, [0], [0]),
        "among": events.semijoin(by_customer.filter(over(0, 2)), [0], [1]),
        "not among": by_customer.filter(over(0, 1)).antijoin(events, [1], [0]),
        "again": by(by_customer.filter(over(0, 1)), 1).join(events, [1], [0]),
    }


SHAPES: dict[str, Shape] = {"parts": lambda t: parts(t, arranged=True)}


def world(shape: Shape, seed: int) -> tuple[World, random.Random]:
    return random_world(shape, seed)


test_changes_of_each_epoch_in_any_cut = passes(any_cut, SHAPES, world)
test_a_restart_changes_nothing = passes(restart, SHAPES, world)
test_a_view_made_late_is_hydrated = passes(made_late, SHAPES, world)
test_the_past_is_asked = passes(asked_about_the_past, SHAPES, world)


@seeds()
def test_an_arranged_collection_gives_the_same_bytes(seed: int) -> None:
    sides = []
    for arranged in (False, True):
        made, rng = world(lambda t, arranged=arranged: parts(t, arranged=arranged), seed)  # type: ignore[misc]
        made.build()
        made.run(cuts_of(random.Random(rng.random() + arranged), made.end), rng=rng)
        sides.append(
            {name: [as_bytes([part[k] for part in seen]) for k in range(2)] for name, seen in made.seen.items()}
        )
    assert sides[0] == sides[1]


def test_its_filters_and_projections_are_not_arranged_once_more() -> None:
    flow = Dataflow()
    orders, events = flow.table("orders", SCHEMAS["orders"]), flow.table("events", EVENTS)
    by_customer, asking = orders.arrange([1]), events.arrange([0])
    assert by_customer.arrange([1]).node is by_customer.node
    assert orders.arrange([0]).node is orders.node, "a table is arranged by its key"
    events.join(orders, [0], [1]).output("whole")
    held = len(flow.arrangements())
    some = by_customer.filter(over(0, 1).expr)
    outputs = [asking.join(some, [0], [1]).output("filtered")]
    columns = [ref(1, ORDERS).expr, ref(0, ORDERS).expr]
    outputs.append(asking.join(some.project(columns, named(INTEGER, INTEGER)), [0], [0]).output("projected"))
    assert len(flow.arrangements()) == held, "both are looked up in the whole"
    asking.join(some.project(columns, named(INTEGER, INTEGER)), [0], [1]).output("by another column")
    assert len(flow.arrangements()) == held + 1
    flow.step(1)
    for output in outputs:
        flow.drop(output)
    assert len(flow.arrangements()) == held + 1


def test_what_enters_a_loop_is_filtered_there_without_a_copy() -> None:
    held = []
    for whole in (True, False):
        flow = Dataflow()
        edges, roots = flow.table("edges", EDGES), flow.table("roots", named(BIGINT))
        loop = flow.iterate("reached")
        output = reached_far(loop, edges, roots, (lambda entered: entered) if whole else far)[0].output("reached")
        held.append(len(flow.arrangements()))
        assert held[0] == held[-1], "a filter in the loop keeps nothing"
        flow.step(1)
        flow.drop(output)
        assert len(flow.arrangements()) == 4, "rows and errors of two tables"
