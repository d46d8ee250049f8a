"""Delta joins in loops: every combination of rows once, at the least time ≥ those of all of them, in any cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.engine.batch.updates import INSERT, RETRACT
from headrace.engine.dataflow import Collection, Dataflow, Iteration, delta_join
from headrace.engine.dataflow.arrange import ArrangeNode
from headrace.engine.dataflow.graph import reachable
from headrace.engine.dataflow.loop_node import IterateNode
from headrace.engine.operators.join import OVERFLOW
from headrace.engine.schema import BIGINT, TEXT, Column, Schema
from tests.engine.dataflow.pairs import Pair, Shape, World, keyed_ops
from tests.engine.dataflow.standard import (
    any_cut,
    asked_about_the_past,
    leaves_its_steps,
    long_steps,
    made_late,
    passes,
    restart,
)
from tests.engine.dataflow.test_dataflow import push, taken
from tests.engine.dataflow.test_iterate import EDGES, NODES, A, B, C, chosen, far, history, least
from tests.engine.dataflow.test_overflow import ONE, change, errors_of, most, values_of
from tests.reference import rules
from tests.reference.dataflow import Content, Twin

LINKS = Schema.of([Column("id", BIGINT), Column("a", BIGINT), Column("b", BIGINT), Column("name", TEXT)], ["id"])
SCHEMAS = {"edges": EDGES, "roots": NODES, "links": LINKS}
Pairs = set[rules.Edge]


class Known(NamedTuple):
    """What there is at one epoch."""

    edges: Pairs
    roots: set[int]
    links: Pairs
    ends: dict[int, int]
    """Of each link by its key."""


def after(*paths: Collection) -> Collection:
    """Pairs one after the other: the ends of the chains that they make."""
    equal = [[(k, 1), (k + 1, 0)] for k in range(len(paths) - 1)]
    return delta_join(paths, equal, [(0, 0), (len(paths) - 1, 1)])


def composed(*paths: Pairs) -> Pairs:
    """The same of sets."""
    found = paths[0]
    for other in paths[1:]:
        found = {(a, d) for a, b in found for c, d in other if b == c}
    return found


def same_generation(loop: Iteration, edges: Collection, _: Collection, __: Collection) -> list[Collection]:
    pairs, entered = loop.variable(EDGES), loop.enter(edges)
    siblings = delta_join([entered, entered], [[(0, 0), (1, 0)]], [(0, 1), (1, 1)])
    ours = delta_join([entered, pairs, entered], [[(0, 0), (1, 0)], [(1, 1), (2, 0)]], [(0, 1), (2, 1)])
    rule = chosen(ours.concat(siblings), A, B).distinct()
    return loop.close({pairs: rule}, [rule])


def cubed(loop: Iteration, edges: Collection, _: Collection, __: Collection) -> list[Collection]:
    """Chains of three of the loop's own pairs."""
    entered = loop.enter(edges)
    pairs = loop.variable(EDGES, entered)
    rule = after(pairs, pairs, pairs).concat(after(pairs, entered), entered).distinct()
    return loop.close({pairs: rule}, [rule])


def turning(loop: Iteration, edges: Collection, _: Collection, links: Collection) -> list[Collection]:
    """Pairs that a third closes to a triangle, by what stands outside, by a part of it, and by what the loop finds."""
    pairs, entered = loop.variable(EDGES), loop.enter(edges)
    corners = [[(0, 1), (1, 0)], [(1, 1), (2, 0)], [(2, 1), (0, 0)]]
    found = delta_join([pairs, pairs, far(entered)], corners, [(2, 1), (2, 0)])
    known = delta_join([entered, loop.enter(links), pairs], [[(0, 1), (1, 1)], [(1, 2), (2, 0)]], [(0, 0), (2, 1)])
    rule = found.concat(known, entered).distinct()
    return loop.close({pairs: rule}, [rule])


def turned(known: Known) -> Pairs:
    beyond = {edge for edge in known.edges if edge[1] > 1}

    def turn(pairs: Pairs) -> Pairs:
        closed = {(a, c) for c, a in beyond if (a, c) in composed(pairs, pairs)}
        return pairs | closed | composed(known.edges, known.links, pairs) | known.edges

    return rules.settled(set(), turn)


def parities(loop: Iteration, edges: Collection, _: Collection, links: Collection) -> list[Collection]:
    """Paths of even and odd length, each found by the others."""
    even, odd = loop.variable(EDGES), loop.variable(EDGES)
    entered, other = loop.enter(edges), chosen(loop.enter(links), B, C)
    evens = after(odd, odd).concat(after(even, other, odd)).distinct()
    odds = entered.concat(after(even, entered, even), after(odd, odd, entered)).distinct()
    return loop.close({even: evens, odd: odds}, [evens, odds])


def both_parities(known: Known) -> tuple[Pairs, Pairs]:
    def turn(found: tuple[Pairs, Pairs]) -> tuple[Pairs, Pairs]:
        even, odd = found
        odds = known.edges | composed(even, known.edges, even) | composed(odd, odd, known.edges)
        return even | composed(odd, odd) | composed(even, known.links, odd), odd | odds

    return rules.settled((set[rules.Edge](), set[rules.Edge]()), turn)


def components(loop: Iteration, edges: Collection, _: Collection, __: Collection) -> list[Collection]:
    """Edges whose ends reach each other: labels pass on in a loop within, and are compared in this one."""
    whole = loop.enter(edges.distinct())
    inside = loop.variable(EDGES, whole)
    forth = _alike(loop, inside, whole)
    rule = chosen(_alike(loop, chosen(forth, B, A), chosen(whole, B, A)), B, A)
    return loop.close({inside: rule}, [rule])


def _alike(outer: Iteration, cycle: Collection, edges: Collection) -> Collection:
    loop = outer.iterate("labels")
    start = loop.enter(least(chosen(cycle, A, A).concat(chosen(cycle, B, B))))
    labels, entered = loop.variable(EDGES, start), loop.enter(cycle)
    twice = delta_join([entered, labels, entered], [[(0, 0), (1, 0)], [(0, 1), (2, 0)]], [(2, 1), (1, 1)])
    once = delta_join([labels, entered], [[(0, 0), (1, 0)]], [(1, 1), (0, 1)])
    rule = least(once.concat(twice, start))
    [found] = loop.close({labels: rule}, [rule])
    ends = [[(0, 0), (1, 0)], [(0, 1), (2, 0)], [(1, 1), (2, 1)]]
    return delta_join([edges, found, found], ends, [(0, 0), (0, 1)])


def copies(loop: Iteration, edges: Collection, roots: Collection, links: Collection) -> list[Collection]:
    """Without distinct: how many ways two steps of the nodes reached allow, and a step and a link by its own key."""
    nodes = loop.variable(NODES)
    entered = loop.enter(edges)
    rule = loop.enter(roots).concat(chosen(nodes.join(entered, [0], [0]), C)).distinct()
    ways = delta_join([rule, entered, nodes, entered], [[(0, 0), (1, 0)], [(1, 1), (2, 0), (3, 0)]], [(0, 0), (3, 1)])
    linked = delta_join([entered, loop.enter(links)], [[(0, 1), (1, 0)]], [(0, 0), (1, 2)])
    return loop.close({nodes: rule}, [rule, ways, linked])


Build = Callable[[Iteration, Collection, Collection, Collection], list[Collection]]
Naive = Callable[[Known, Counter[rules.Edge]], list[Mapping[tuple[int, ...], int]]]


def ones(*found: Pairs) -> list[Mapping[tuple[int, ...], int]]:
    return [dict.fromkeys(rows, 1) for rows in found]


def counted(known: Known, edges: Counter[rules.Edge]) -> list[Mapping[tuple[int, ...], int]]:
    nodes = rules.reached(known.edges, known.roots)
    ways: Counter[tuple[int, ...]] = Counter()
    for (a, b), n in edges.items():
        for (c, d), m in edges.items():
            if b == c and a in nodes:
                ways[a, d] += n * m
    linked: Counter[tuple[int, ...]] = Counter()
    for (a, b), n in edges.items():
        if b in known.ends:
            linked[a, known.ends[b]] += n
    return [{(node,): 1 for node in nodes}, ways, linked]


PROGRAMS: dict[str, tuple[Build, Naive]] = {
    "same generation at once": (same_generation, lambda known, _: ones(rules.same_generation(known.edges))),
    "cubed": (cubed, lambda known, _: ones(rules.closure(known.edges))),
    "turning": (turning, lambda known, _: ones(turned(known))),
    "parities of pairs": (parities, lambda known, _: ones(*both_parities(known))),
    "components at once": (components, lambda known, _: ones(rules.components(known.edges))),
    "ways": (copies, counted),
}


def shape_of(program: str) -> Shape:
    build, naive = PROGRAMS[program]

    def shape(tables: Mapping[str, Pair]) -> Mapping[str, Pair]:
        edges, roots, links = (tables[name] for name in ("edges", "roots", "links"))
        left = build(Iteration(edges.real.flow, program), edges.real, roots.real, links.real)

        def at(k: int) -> Callable[[int], Content]:
            def content(epoch: int) -> Content:
                rows, starts, ways = (table.twin.at(epoch)[0] for table in (edges, roots, links))
                copies = Counter({(row[0], row[1]): n for row, n in rows.items()})
                pairs, ends = {(row[1], row[2]) for row in ways}, {row[0]: row[2] for row in ways}
                known = Known(set(copies), {row[0] for row in starts}, pairs, ends)
                return Counter(naive(known, copies)[k]), Counter()

            return content

        return {f"{program}{k}": Pair(c, Twin(c.schema, at(k))) for k, c in enumerate(left)}

    return shape


SHAPES: dict[str, Shape] = {program: shape_of(program) for program in PROGRAMS}


def world(shape: Shape, seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)
    size = rng.choice([4, 6])
    ops = {
        "edges": history(rng, lambda r: (r.randrange(size), r.randrange(size)), rng.choice([2, 4])),
        "roots": history(rng, lambda r: (r.randrange(size),), 1),
        "links": [
            op
            for op in keyed_ops(
                rng, lambda r: (r.randrange(4), r.randrange(size), r.randrange(size), r.choice("xy")), LINKS, 8, 2
            )
            if not op.unchanged
        ],
    }
    return World(SCHEMAS, shape, ops), rng


test_every_epoch_is_what_the_rules_make_of_it = passes(any_cut, SHAPES, world, examples=12)
test_many_epochs_in_a_step = passes(long_steps, SHAPES, world)
test_a_restart_changes_nothing = passes(restart, SHAPES, world)
test_a_loop_made_late_is_hydrated = passes(made_late, SHAPES, world, examples=12)
test_what_leaves_its_steps_comes_back = passes(leaves_its_steps, SHAPES, world)
test_the_past_is_asked = passes(asked_about_the_past, SHAPES, world, examples=3)


def test_nothing_is_kept_between_look_ups() -> None:
    flow = Dataflow()
    tables = [flow.table(name, SCHEMAS[name]) for name in SCHEMAS]
    before = set(flow.arrangements())
    left = same_generation(flow.iterate("pairs"), *tables)
    [loop] = [node for node in reachable([left[0].node]) if isinstance(node, IterateNode)]
    written = [node.key for node in loop.body if isinstance(node, ArrangeNode) and node.traces()]
    assert sorted(written) == [(0,), (0, 1), (1,)]  # the pairs by each end, and what makes them distinct
    [outside] = [a.layout.key for name, a in flow.arrangements().items() if name not in before | _of(loop)]
    assert outside == (0,)  # the edges, once for all paths
    output = left[0].output("pairs")
    flow.step(1)
    flow.drop(output)
    assert set(flow.arrangements()) == before


def _of(loop: IterateNode) -> set[str]:
    return {trace.name for trace in loop.traces()}


def test_a_row_arrives_in_the_latest_round_of_what_it_met() -> None:
    """The end of a chain is cut and comes back: what is found of the new edge belongs to the rounds of the old pairs."""
    flow = Dataflow()
    edges, roots, links = (flow.table(name, SCHEMAS[name]) for name in ("edges", "roots", "links"))
    [left] = same_generation(flow.iterate("pairs"), edges, roots, links)
    output = left.output("pairs")
    # Two chains of one root: 0 → 1 → 3 → 5 → 7 and 0 → 2 → 4 → 6 → 8.
    chain = [(0, 1), (0, 2), *((k, k + 2) for k in range(1, 7))]
    push(flow, "edges", EDGES, *((0, INSERT, edge) for edge in chain))
    flow.step(1)
    found = Counter({row: n for _, row, n in taken(output)[0]})
    assert found == Counter((a, b) for k in range(1, 9, 2) for a in (k, k + 1) for b in (k, k + 1))
    push(flow, "edges", EDGES, (1, RETRACT, (6, 8)), (2, INSERT, (6, 8)), (3, RETRACT, (0, 2)))
    flow.step(4)
    ends, mixed = {(7, 8), (8, 7), (8, 8)}, {(k, k + 1) for k in range(1, 9, 2)} | {(k + 1, k) for k in range(1, 9, 2)}
    changed = (
        [(1, row, -1) for row in ends] + [(2, row, 1) for row in ends] + [(3, row, -1) for row in mixed | {(2, 2)}]
    )
    assert Counter(taken(output)[0]) == Counter(changed)


def test_copies_that_do_not_fit_are_an_error_at_the_epoch_of_the_pair() -> None:
    flow = Dataflow()
    table, other = flow.table("t", ONE), flow.table("u", ONE)
    loop = flow.iterate("copies")
    many, some, seen = loop.enter(most(table)), loop.enter(other), loop.variable(ONE)
    rule = some.distinct()
    pairs = delta_join([many, seen, some], [[(0, 0), (1, 0), (2, 0)]], [(0, 0)])
    _, left = loop.close({seen: rule}, [rule, pairs])
    output = left.output("copies")
    change(flow, 0, 7)
    change(flow, 1, 7, times=1, table="u")
    flow.step(2)
    assert values_of(output) == [(7, 2**62)]
    change(flow, 3, 7, times=4, table="u")
    flow.step(4)
    assert {(epoch, message) for epoch, message, _ in errors_of(output)} == {(3, OVERFLOW)}
