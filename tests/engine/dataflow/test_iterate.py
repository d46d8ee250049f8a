"""Loops: recursive rules are at every epoch what they make of the edges of that epoch, in any cut.

The file is long because every shape of a loop is played in the same ways: in steps, portions, restarts and shards.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headrace.engine.batch.updates import INSERT, RETRACT
from headrace.engine.dataflow import Collection, Dataflow, Iteration, Order
from headrace.engine.dataflow.constant import one_row
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.loop_node import IterateNode
from headrace.engine.dataflow.window import windowed
from headrace.engine.errors import InvariantBroken
from headrace.engine.lattice import TooDeep
from headrace.engine.operators.delta import QUIET
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.operators.window import Window
from headrace.engine.operators.window_frames import Frame
from headrace.engine.operators.window_values import WindowFunction
from headrace.engine.recursion.late import STOP
from headrace.engine.schema import BIGINT, BOOLEAN, Column, Schema
from tests.engine.dataflow.pairs import Pair, Shape, World
from tests.engine.dataflow.standard import (
    any_cut,
    asked_about_the_past,
    leaves_its_steps,
    made_late,
    passes,
    restart,
)
from tests.reference import rules
from tests.reference.dataflow import Content, Op, Row, Twin

EDGES = Schema((Column("a", BIGINT), Column("b", BIGINT)))
NODES = Schema((Column("node", BIGINT),))
SCHEMAS = {"edges": EDGES, "roots": NODES}
A, B, C, D = (ColumnRef(k, BIGINT) for k in range(4))


def chosen(collection: Collection, *columns: ColumnRef) -> Collection:
    schema = Schema(tuple(Column(f"c{k}", BIGINT) for k in range(len(columns))))
    return collection.project(columns, schema)


def least(collection: Collection) -> Collection:
    """The least second column of each first one."""
    return collection.reduce([0], [Aggregate("min", B, BIGINT)], EDGES)


def reached(loop: Iteration, edges: Collection, roots: Collection) -> list[Collection]:
    nodes = loop.variable(NODES)
    rule = loop.enter(roots).concat(chosen(nodes.join(loop.enter(edges), [0], [0]), C)).distinct()
    return loop.close({nodes: rule}, [rule])


def far(edges: Collection) -> Collection:
    """The edges to nodes beyond 1."""
    return edges.filter(Call(">(bigint,bigint)", (B, Literal(1, BIGINT)), BOOLEAN))


Part = Callable[[Collection], Collection]


def reached_far(loop: Iteration, edges: Collection, roots: Collection, part: Part = far) -> list[Collection]:
    """By a part of the edges, which are arranged outside."""
    nodes = loop.variable(NODES)
    entered = part(loop.enter(edges.arrange([0])))
    rule = loop.enter(roots).concat(chosen(nodes.join(entered, [0], [0]), C)).distinct()
    return loop.close({nodes: rule}, [rule])


def reached_far_within(loop: Iteration, edges: Collection, roots: Collection) -> list[Collection]:
    kept = loop.variable(NODES)
    inner = loop.iterate("within")
    [found] = reached_far(inner, loop.enter(edges).arrange([0]), kept)
    rule = found.concat(loop.enter(roots)).distinct()
    return loop.close({kept: rule}, [rule])


def far_generation(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    """The same generation by a part of the edges, some of them turned around, all looked up in the whole."""
    pairs, entered = loop.variable(EDGES), far(loop.enter(edges.arrange([0])))
    turned = chosen(entered, B, A)
    siblings = chosen(entered.join(turned, [0], [1]), B, C)
    ours = chosen(turned.join(pairs, [1], [0]), A, D)
    rule = chosen(ours.join(entered, [1], [0]), A, D).concat(siblings).distinct()
    return loop.close({pairs: rule}, [rule])


def closure(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    pairs, entered = loop.variable(EDGES), loop.enter(edges)
    rule = chosen(pairs.join(entered, [1], [0]), A, D).concat(entered).distinct()
    return loop.close({pairs: rule}, [rule])


def one_way(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    """Paths, each part of which ends where no edge leads back to its begin."""
    pairs, entered = loop.variable(EDGES), loop.enter(edges)
    rule = chosen(pairs.join(entered, [1], [0]), A, D).concat(entered).antijoin(entered, [0, 1], [1, 0]).distinct()
    return loop.close({pairs: rule}, [rule])


def squared(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    entered = loop.enter(edges)
    pairs = loop.variable(EDGES, entered)
    rule = chosen(pairs.join(pairs, [1], [0]), A, D).concat(entered).distinct()
    return loop.close({pairs: rule}, [rule])


def same_generation(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    pairs, entered = loop.variable(EDGES), loop.enter(edges)
    siblings = chosen(entered.join(entered, [0], [0]), B, D)
    ours = chosen(entered.join(pairs, [0], [0]), B, D)
    rule = chosen(ours.join(entered, [1], [0]), A, D).concat(siblings).distinct()
    return loop.close({pairs: rule}, [rule])


def distances(loop: Iteration, edges: Collection, roots: Collection) -> list[Collection]:
    zero = Literal(0, BIGINT)
    start = loop.enter(roots.distinct().project([A, zero], EDGES))
    found = loop.variable(EDGES, start)
    one = Call("+(bigint,bigint)", (B, Literal(1, BIGINT)), BIGINT)
    further = found.join(loop.enter(edges), [0], [0]).project([D, one], EDGES)
    rule = least(further.concat(start))
    return loop.close({found: rule}, [rule])


def further(found: Collection, loop: Iteration, edges: Collection, roots: Collection) -> Collection:
    """The lengths of paths: none from a root, and one more than those of the nodes before."""
    one = Call("+(bigint,bigint)", (B, Literal(1, BIGINT)), BIGINT)
    start = loop.enter(roots).project([A, Literal(0, BIGINT)], EDGES)
    return found.join(loop.enter(edges), [0], [0]).project([D, one], EDGES).concat(start).distinct()


def two_shortest(loop: Iteration, edges: Collection, roots: Collection) -> list[Collection]:
    found = loop.variable(EDGES)
    rule = further(found, loop, edges, roots).top_k([0], [Order(1)], 2)
    return loop.close({found: rule}, [rule])


def second_shortest(loop: Iteration, edges: Collection, roots: Collection) -> list[Collection]:
    found = loop.variable(EDGES)
    lengths = further(found, loop, edges, roots)
    rule = lengths.top_k([0], [Order(1)], 2)
    return loop.close(
        {found: rule}, [rule.top_k([0], [Order(1, descending=True)], 1), rule.top_k([0], [Order(1)], 9, 1)]
    )


def ranked(loop: Iteration, edges: Collection, roots: Collection) -> list[Collection]:
    found = loop.variable(EDGES)
    row_number = WindowFunction("row_number", (), BIGINT, Frame("rows", None, None))
    schema = Schema((*EDGES.columns, Column("rank", BIGINT)))
    numbered = windowed(further(found, loop, edges, roots), Window(EDGES, (0,), (Order(1),), (row_number,), schema))
    rule = chosen(numbered.filter(Call("<=(bigint,bigint)", (C, Literal(2, BIGINT)), BOOLEAN)), A, B)
    return loop.close({found: rule}, [rule])


def from_zero(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    nodes = loop.variable(NODES)
    zero = one_row(loop).project([Literal(0, BIGINT)], NODES)
    rule = zero.concat(chosen(nodes.join(loop.enter(edges), [0], [0]), C)).distinct()
    return loop.close({nodes: rule}, [rule])


def from_zero_within(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    kept = loop.variable(NODES)
    [found] = from_zero(loop.iterate("within"), loop.enter(edges), kept)
    rule = found.concat(kept).distinct()
    return loop.close({kept: rule}, [rule])


def parities(loop: Iteration, edges: Collection, roots: Collection) -> list[Collection]:
    even, odd, entered = loop.variable(NODES), loop.variable(NODES), loop.enter(edges)
    evens = loop.enter(roots).concat(chosen(odd.join(entered, [0], [0]), C)).distinct()
    odds = chosen(even.join(entered, [0], [0]), C).distinct()
    return loop.close({even: evens, odd: odds}, [evens, odds])


def core(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    kept = loop.variable(EDGES, loop.enter(edges.distinct()))
    counts = kept.reduce([0], [Aggregate("count", None, BIGINT)], EDGES)
    many = Call(">=(bigint,bigint)", (B, Literal(2, BIGINT)), BOOLEAN)
    rich = chosen(counts.filter(many), A)
    rule = kept.semijoin(rich, [0], [0]).semijoin(rich, [1], [0])
    return loop.close({kept: rule}, [rule])


def components(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    return _components(loop, edges, least)


def components_by_top(loop: Iteration, edges: Collection, _: Collection) -> list[Collection]:
    return _components(loop, edges, lambda labels: labels.top_k([0], [Order(1)], 1))


Least = Callable[[Collection], Collection]


def _components(loop: Iteration, edges: Collection, least: Least) -> list[Collection]:
    whole = loop.enter(edges.distinct())
    inside = loop.variable(EDGES, whole)
    forth = _alike(loop, inside, whole, least)
    back = _alike(loop, chosen(forth, B, A), chosen(whole, B, A), least)
    rule = chosen(back, B, A)
    return loop.close({inside: rule}, [rule])


def _alike(outer: Iteration, cycle: Collection, edges: Collection, least: Least) -> Collection:
    """The edges whose ends get the same label: of each node the least node of which there is a path in `cycle`."""
    loop = outer.iterate("labels")
    nodes = chosen(cycle, A, A).concat(chosen(cycle, B, B))
    start = loop.enter(least(nodes))
    labels = loop.variable(EDGES, start)
    passed = chosen(labels.join(loop.enter(cycle), [0], [0]), D, B)
    rule = least(passed.concat(start))
    [found] = loop.close({labels: rule}, [rule])
    one = chosen(edges.join(found, [0], [0]), A, B, D)
    both = one.join(found, [1], [0])
    same = Call("=(bigint,bigint)", (C, ColumnRef(4, BIGINT)), BOOLEAN)
    return chosen(both.filter(same), A, B)


def countdown(loop: Iteration, _: Collection, roots: Collection) -> list[Collection]:
    start = loop.enter(roots)
    left = loop.variable(NODES)
    above = Call(">(bigint,bigint)", (A, Literal(0, BIGINT)), BOOLEAN)
    less = Call("-(bigint,bigint)", (A, Literal(1, BIGINT)), BIGINT)
    rule = start.concat(left.filter(above).project([less], NODES))
    return loop.close({left: rule}, [rule])


Build = Callable[[Iteration, Collection, Collection], list[Collection]]
Naive = Callable[[set[rules.Edge], Counter[int]], list[Mapping[Any, int]]]


def ones(*found: set[Any]) -> list[Mapping[Any, int]]:
    return [{row if isinstance(row, tuple) else (row,): 1 for row in rows} for rows in found]


def second(found: set[tuple[int, int]]) -> list[set[Any]]:
    """Of each node the greatest length, and the lengths that are not its least."""
    lengths: dict[int, list[int]] = {}
    for node, length in sorted(found):
        lengths.setdefault(node, []).append(length)
    return [{(n, some[-1]) for n, some in lengths.items()}, {(n, at) for n, some in lengths.items() for at in some[1:]}]


def counted_down(roots: Counter[int]) -> Mapping[Row, int]:
    found: Counter[Row] = Counter()
    for node, copies in roots.items():
        for k in range(node + 1):
            found[(k,)] += copies
    return found


def beyond(edges: set[rules.Edge]) -> set[rules.Edge]:
    """What `far` keeps."""
    return {edge for edge in edges if edge[1] > 1}


PROGRAMS: dict[str, tuple[Build, Naive]] = {
    "reached": (reached, lambda edges, roots: ones(rules.reached(edges, roots))),
    "reached_far": (reached_far, lambda edges, roots: ones(rules.reached(beyond(edges), roots))),
    "reached_far_within": (reached_far_within, lambda edges, roots: ones(rules.reached(beyond(edges), roots))),
    "far_generation": (far_generation, lambda edges, _: ones(rules.same_generation(beyond(edges)))),
    "closure": (closure, lambda edges, _: ones(rules.closure(edges))),
    "one_way": (one_way, lambda edges, _: ones(rules.one_way(edges))),
    "squared": (squared, lambda edges, _: ones(rules.closure(edges))),
    "same_generation": (same_generation, lambda edges, _: ones(rules.same_generation(edges))),
    "distances": (distances, lambda edges, roots: ones(rules.distances(edges, roots))),
    "parities": (parities, lambda edges, roots: ones(*rules.parities(edges, roots))),
    "core": (core, lambda edges, _: ones(rules.core(edges, 2))),
    "components": (components, lambda edges, _: ones(rules.components(edges))),
    "components_by_top": (components_by_top, lambda edges, _: ones(rules.components(edges))),
    "two_shortest": (two_shortest, lambda edges, roots: ones(rules.shortest(edges, roots, 2))),
    "second_shortest": (second_shortest, lambda edges, roots: ones(*second(rules.shortest(edges, roots, 2)))),
    "ranked": (ranked, lambda edges, roots: ones(rules.shortest(edges, roots, 2))),
    "from_zero": (from_zero, lambda edges, _: ones(rules.reached(edges, [0]))),
    "from_zero_within": (from_zero_within, lambda edges, _: ones(rules.reached(edges, [0]))),
    "countdown": (countdown, lambda _, roots: [counted_down(roots)]),
}


def shape_of(program: str) -> Shape:
    build, naive = PROGRAMS[program]

    def shape(tables: Mapping[str, Pair]) -> Mapping[str, Pair]:
        edges, roots = tables["edges"], tables["roots"]
        left = build(Iteration(edges.real.flow, program), edges.real, roots.real)

        def at(k: int) -> Callable[[int], Content]:
            def content(epoch: int) -> Content:
                known = {(row[0], row[1]) for row in edges.twin.at(epoch)[0]}
                starts = Counter({row[0]: n for row, n in roots.twin.at(epoch)[0].items()})
                return Counter(naive(known, starts)[k]), Counter()

            return content

        return {f"{program}{k}": Pair(c, Twin(c.schema, at(k))) for k, c in enumerate(left)}

    return shape


def history(rng: random.Random, draw: Callable[[random.Random], Row], rate: int) -> list[Op]:
    """Rows that come, and rows that are there and go."""
    live: list[Row] = []
    ops = []
    for epoch in range(8):
        for _ in range(rng.randrange(2 * rate + 1)):
            if live and rng.random() < 0.4:
                ops.append(Op(epoch, RETRACT, live.pop(rng.randrange(len(live)))))
            else:
                live.append(draw(rng))
                ops.append(Op(epoch, INSERT, live[-1]))
    return ops


SHAPES: dict[str, Shape] = {program: shape_of(program) for program in PROGRAMS}


def world(shape: Shape, seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)
    size = rng.choice([4, 6, 9])
    ops = {
        "edges": history(rng, lambda r: (r.randrange(size), r.randrange(size)), rng.choice([2, 5])),
        "roots": history(rng, lambda r: (r.randrange(size),), 1),
    }
    return World(SCHEMAS, shape, ops), rng


test_every_epoch_is_what_the_rules_make_of_it = passes(any_cut, SHAPES, world, examples=12)
test_a_restart_changes_nothing = passes(restart, SHAPES, world, examples=12)
test_a_loop_made_late_is_hydrated = passes(made_late, SHAPES, world, examples=12)
test_what_leaves_its_steps_comes_back = passes(leaves_its_steps, SHAPES, world, examples=20)
test_the_past_is_asked = passes(asked_about_the_past, SHAPES, world, examples=3)


def test_a_loop_that_does_not_rest_fails_alone() -> None:
    flow, left = for_ever()
    endless, steady = left.output("endless"), flow.table("roots", NODES).output("steady")
    flow.step(2)
    rows, errors = endless.take()
    assert len(rows) == 0
    [message] = errors.rows.column(0).to_pylist()
    assert message.startswith("view for_ever did not come to rest within 50 rounds")
    assert len(steady.take()[0]) == 2
    assert left.snapshot(1)[1].rows.column(0).to_pylist() == [message]


def for_ever() -> tuple[Dataflow, Collection]:
    """A loop that counts on, and two numbers from which it does, to be stepped to 2."""
    flow = Dataflow()
    roots = flow.table("roots", NODES)
    loop = flow.iterate("view for_ever", most=50)
    numbers = loop.variable(NODES)
    more = Call("+(bigint,bigint)", (A, Literal(1, BIGINT)), BIGINT)
    rule = loop.enter(roots).concat(numbers.project([more], NODES)).distinct()
    [left] = loop.close({numbers: rule}, [rule])
    made = World({"roots": NODES}, lambda _: {}, {"roots": [Op(0, INSERT, (1,)), Op(1, INSERT, (2,))]})
    made.flow = flow
    made.push(0, 2)
    return flow, left


def test_a_loop_that_does_not_rest_fails_while_it_is_late() -> None:
    flow, left = for_ever()
    flow.late.step_work = 1
    endless, steady = left.output("endless"), flow.table("roots", NODES).output("steady")
    flow.step(2)
    [late] = endless.take()[1].rows.column(0).to_pylist()
    assert late.startswith("late: view for_ever takes more than a step may")
    flow.late.go_on(10_000)
    [group] = flow.late
    assert 0 < group.standing.round < 50
    flow.late.go_on(0)
    assert flow.late.ended
    assert len(endless.take()[1]) == 0, "before a step nobody hears of it"
    flow.step(3)
    [message] = endless.take()[1].rows.column(0).to_pylist()
    assert message.startswith("view for_ever did not come to rest within 50 rounds")
    assert not flow.late
    assert left.snapshot(2)[1].rows.column(0).to_pylist() == [message]
    assert not [name for name in flow.arrangements() if name.startswith("loop")], "a restart makes it anew"
    flow.step(4)
    assert len(steady.take()[0]) == 2


def test_the_work_of_a_late_loop_is_counted_whatever_the_portions() -> None:
    done = set()
    for portion in (1, 50_000, 0):
        flow = Dataflow()
        edges, roots = flow.table("edges", EDGES), flow.table("roots", NODES)
        [left] = closure(flow.iterate("pairs"), edges, roots)
        made = World({"edges": EDGES}, lambda _: {}, {"edges": [Op(0, INSERT, (k, k + 1)) for k in range(20)]})
        made.flow, flow.late.step_work, output = flow, 1, left.output("pairs")
        made.push(0, 1)
        flow.step(1)
        [group] = flow.late
        while not group.standing.ended:
            flow.late.go_on(portion)
        assert (group.standing.since, group.standing.round) == (0, 20)
        done.add(group.standing.work)
        flow.step(2)
        output.take()
        assert len(left.snapshot(1)[0]) == 210
    [work] = done
    assert 20 * STOP < work < 25 * STOP


def test_what_comes_in_while_a_loop_is_late_is_told_from_what_was_there() -> None:
    """The edges are compacted meanwhile as far as anybody lets them be; two arrangements of them meet in the body."""
    flow = Dataflow()
    edges = flow.table("edges", EDGES)
    loop = flow.iterate("pairs")
    pairs, entered = loop.variable(EDGES), loop.enter(edges)
    two = chosen(entered.join(entered, [1], [0]), A, D)
    rule = two.concat(chosen(pairs.join(two, [1], [0]), A, D)).distinct()
    [left] = loop.close({pairs: rule}, [rule])
    ops = [Op(0, INSERT, (k, k + 1)) for k in range(40)]
    ops += [Op(epoch, RETRACT if epoch % 2 else INSERT, (epoch // 2, epoch // 2 + 1)) for epoch in range(1, 60)]
    made = World({"edges": EDGES}, lambda _: {}, {"edges": ops})
    made.flow = flow
    made.push(0, 1)
    flow.step(1)
    flow.late.step_work = 1
    for epoch in range(1, 60):
        made.push(epoch, epoch + 1)
        flow.step(epoch + 1)
        flow.advance_since(epoch)
        for _ in range(8):
            flow.exert(10_000)
        if epoch == 30:
            flow.late.go_on(0)
    flow.late.go_on(0)
    flow.step(61)
    assert not flow.late
    there = {(row[0], row[1]) for row in made.twins["edges"].at(59)[0]}
    steps = {(a, d) for a, b in there for c, d in there if b == c}
    rows = left.snapshot(60)[0].rows
    assert set(zip(*(c.to_pylist() for c in rows.columns), strict=True)) == set(rules.closure(steps))


def test_errors_in_a_loop_leave_it_and_go() -> None:
    flow = Dataflow()
    roots = flow.table("roots", NODES)
    loop = flow.iterate("halves")
    numbers = loop.variable(NODES)
    half = Call("/(bigint,bigint)", (Literal(8, BIGINT), A), BIGINT)
    rule = loop.enter(roots).concat(numbers.project([half], NODES)).distinct()
    [left] = loop.close({numbers: rule}, [rule])
    output = left.output("halves")
    made = World({"roots": NODES}, lambda _: {}, {"roots": [Op(0, INSERT, (16,)), Op(1, RETRACT, (16,))]})
    made.flow = flow
    made.push(0, 1)
    flow.step(1)
    rows, errors = output.take()
    assert sorted(rows.rows.column(0).to_pylist()) == [0, 16]
    assert errors.rows.column(0).to_pylist() == ["division by zero"]
    made.push(1, 2)
    flow.step(2)
    rows, errors = output.take()
    assert rows.diffs.tolist() == [-1, -1]
    assert errors.diffs.tolist() == [-1]
    assert [len(side) for side in left.snapshot(1)] == [0, 0]


def test_a_loop_at_rest_keeps_no_updates_of_its_rounds() -> None:
    """What ran along its edges is as large as all that it found; only what leaves is there when a step is over."""
    flow = Dataflow()
    edges, roots = flow.table("edges", EDGES), flow.table("roots", NODES)
    [left] = closure(flow.iterate("pairs"), edges, roots)
    chain = {"edges": [Op(0, INSERT, (k, k + 1)) for k in range(5)]}
    made = World({"edges": EDGES}, lambda _: {}, chain)
    made.flow = flow
    made.push(0, 1)
    flow.step(1)
    [loop] = [node for node in reachable([left.node]) if isinstance(node, IterateNode)]
    assert [node.label for node in loop.body if node.delta is not QUIET] == []
    assert [one._parts for _, one in loop.exits] == [[]]
    assert left.node.delta.rows is not None
    assert len(left.node.delta.rows) == 15


def test_equal_loops_are_one_and_go_with_their_last_reader() -> None:
    flow = Dataflow()
    edges, roots = flow.table("edges", EDGES), flow.table("roots", NODES)
    before = set(flow.arrangements())
    outputs = [closure(flow.iterate("pairs"), edges, roots)[0].output(str(k)) for k in range(2)]
    flow.step(1)
    assert outputs[0].collection.node is outputs[1].collection.node
    shared = set(flow.arrangements())
    assert shared > before
    flow.drop(outputs[0])
    assert set(flow.arrangements()) == shared
    flow.drop(outputs[1])
    assert set(flow.arrangements()) == before


def test_what_a_loop_cannot_hold_is_refused_by_name() -> None:
    flow = Dataflow()
    edges, roots = flow.table("edges", EDGES), flow.table("roots", NODES)
    loop = flow.iterate("view x")
    entered = loop.enter(edges)
    with pytest.raises(InvariantBroken, match="elsewhere"):
        loop.enter(entered)
    with pytest.raises(InvariantBroken, match="outside of its loop"):
        entered.concat(edges)
    pairs = loop.variable(EDGES)
    with pytest.raises(InvariantBroken, match="no rule"):
        loop.close({}, [entered])
    with pytest.raises(InvariantBroken, match="other types"):
        loop.close({pairs: loop.enter(roots)}, [entered])
    with pytest.raises(TooDeep):
        loop.iterate("inner").iterate("innermost")
