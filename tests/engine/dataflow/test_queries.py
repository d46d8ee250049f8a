"""Interactive queries as data: a query class is a plan, its arguments a collection, over a graph that changes meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

from headrace.engine.batch.updates import INSERT, RETRACT, Updates
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.schema import BIGINT, Column, Schema
from tests.engine.dataflow.pairs import cuts_of
from tests.engine.dataflow.standard import seeds
from tests.engine.dataflow.test_dataflow import push

EDGES = Schema((Column("from", BIGINT), Column("to", BIGINT)))
ONE = Schema((Column("query", BIGINT), Column("node", BIGINT)))
TWO = Schema((Column("source", BIGINT), Column("target", BIGINT)))
NODES = 6
EPOCHS = 8

Row = tuple[int, ...]
Content = Counter[Row]


def look_up(asked: Collection, edges: Collection) -> Collection:
    """query, node: of the nodes asked for those that stand in the graph, by their edges."""
    return asked.join(edges, [1], [0], columns=(0, 1))


def hop_1(asked: Collection, edges: Collection) -> Collection:
    """query, node asked for, node one edge on."""
    return asked.join(edges, [1], [0], columns=(0, 1, 3))


def hop_2(asked: Collection, edges: Collection) -> Collection:
    """query, node asked for, node two edges on."""
    return hop_1(asked, edges).join(edges, [2], [0], columns=(0, 1, 4))


def path_4(asked: Collection, edges: Collection) -> Collection:
    """source, target, node in the middle of a path of four edges between them; two from each end."""
    found = asked.join(edges, [0], [0], columns=(0, 1, 3)).join(edges, [2], [0], columns=(0, 1, 4))
    once = asked.distinct()  # a pair asked for twice counts in one half alone
    before = once.join(edges, [1], [1], columns=(0, 1, 2)).join(edges, [2], [1], columns=(0, 1, 3))
    return found.join(before, [0, 1, 2], [0, 1, 2], columns=(0, 1, 2))


QUERIES = {"look-up": (look_up, ONE), "1-hop": (hop_1, ONE), "2-hop": (hop_2, ONE), "4-path": (path_4, TWO)}


def naive(query: str, asked: Content, edges: Content) -> Content:
    """The answers, by trying every edge."""
    reverse = Counter({(b, a): m for (a, b), m in edges.items()})
    found: Content = Counter()
    for (first, second), n in asked.items():
        if query == "look-up":
            found[first, second] += n * hopped({second: 1}, edges).total()
        elif query == "4-path":
            back = hopped(hopped({second: 1}, reverse), reverse)
            for middle, m in hopped(hopped({first: n}, edges), edges).items():
                found[first, second, middle] += m * back[middle]
        else:
            reached = hopped({second: n}, edges)
            for node, m in (reached if query == "1-hop" else hopped(reached, edges)).items():
                found[first, second, node] += m
    return Counter({row: n for row, n in found.items() if n})


def hopped(nodes: Mapping[int, int], edges: Content) -> Counter[int]:
    """The nodes one edge on, as often as there are ways."""
    found: Counter[int] = Counter()
    for (a, b), m in edges.items():
        if nodes.get(a):
            found[b] += nodes[a] * m
    return found


class Table:
    """A multiset of pairs that changes at random: pushed as it goes, and known as of each epoch."""

    def __init__(self, flow: Dataflow, name: str, schema: Schema, rng: random.Random) -> None:
        self.collection = flow.table(name, schema)
        self.name = name
        self.live: Content = Counter()
        self.at: dict[int, Content] = {}
        self._flow, self._schema, self._rng = flow, schema, rng

    def change(self, epoch: int, most: int) -> None:
        """Some rows come, some that are there go."""
        changes: list[tuple[int, int, tuple[object, ...]]] = []
        for _ in range(self._rng.randrange(most + 1)):
            row = self._rng.randrange(NODES), self._rng.randrange(NODES)
            if self.live and self._rng.random() < 0.45:
                row = self._rng.choice(sorted(self.live))
                self.live -= Counter([row])
                changes.append((epoch, RETRACT, row))
            else:
                self.live[row] += 1
                changes.append((epoch, INSERT, row))
        if changes:
            push(self._flow, self.name, self._schema, *changes)
        self.at[epoch] = Counter(self.live)


class Query:
    """One query of a class, with arguments of its own; its answers, added up, are checked at every epoch."""

    def __init__(self, flow: Dataflow, number: int, rng: random.Random) -> None:
        self.kind = rng.choice(list(QUERIES))
        make, schema = QUERIES[self.kind]
        self.asked = Table(flow, f"asked {number}", schema, rng)
        self.output: Output = make(self.asked.collection, flow.table("edges", EDGES)).output(f"answers {number}")
        self._answers: Content = Counter()

    def check(self, edges: Table, lower: int, upper: int) -> None:
        """The answers at each epoch of the step."""
        rows, errors = self.output.take()
        assert not len(errors)
        for epoch in range(lower, upper):
            for row, diff in changed_at(rows, epoch):
                self._answers[row] += diff
                if not self._answers[row]:
                    del self._answers[row]
            assert self._answers == naive(self.kind, self.asked.at[epoch], edges.at[epoch]), f"{self.kind} at {epoch}"


def changed_at(updates: Updates, epoch: int) -> list[tuple[Row, int]]:
    """(row, diff) of one epoch."""
    rows = [tuple(row.values()) for row in updates.rows.to_pylist()]
    return [(r, d) for r, t, d in zip(rows, updates.times.tolist(), updates.diffs.tolist(), strict=True) if t == epoch]


@seeds()
def test_queries_come_and_go_and_their_arguments_too_while_edges_change(seed: int) -> None:
    rng = random.Random(seed)
    flow = Dataflow()
    edges = Table(flow, "edges", EDGES, rng)
    live: list[Query] = []
    lower = number = 0
    for upper in cuts_of(rng, EPOCHS):
        for _ in range(rng.randrange(4)):
            live.append(Query(flow, number, rng))
            number += 1
        for epoch in range(lower, upper):
            edges.change(epoch, 8)
            for query in live:
                query.asked.change(epoch, 3)
        flow.step(upper)
        flow.advance_since(rng.randrange(upper))
        for query in live:
            query.check(edges, lower, upper)
        for query in rng.sample(live, len(live) // 3):
            live.remove(query)
            flow.drop(query.output)
            flow.drop_table(query.asked.name)
        lower = upper
    for query in live:
        flow.drop(query.output)
        flow.drop_table(query.asked.name)
    assert {a.name.split("-")[0] for a in flow.registry} == {"edges"}
    assert len(flow.registry) == 2, "the edges and their errors; arrangements of theirs went with the queries"


def test_one_plan_answers_many_at_once() -> None:
    flow = Dataflow()
    edges, asked = flow.table("edges", EDGES), flow.table("asked", ONE)
    output = hop_2(asked, edges).output("answers")
    push(flow, "edges", EDGES, *[(0, INSERT, (i, i + 1)) for i in range(100)])
    push(flow, "asked", ONE, *[(1, INSERT, (q, q)) for q in range(50)], (2, RETRACT, (0, 0)))
    push(flow, "edges", EDGES, (2, RETRACT, (2, 3)), (2, INSERT, (2, 70)))
    flow.step(3)
    rows, _ = output.take()
    assert sorted(changed_at(rows, 1)) == [((q, q, q + 2), 1) for q in range(50)]
    gone = [((0, 0, 2), -1), ((1, 1, 3), -1), ((2, 2, 4), -1)]
    assert sorted(changed_at(rows, 2)) == sorted([*gone, ((1, 1, 70), 1), ((2, 2, 71), 1)])
