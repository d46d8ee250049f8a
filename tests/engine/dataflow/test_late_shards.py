"""Loops that leave their steps in several shards: all in the same place, and together they answer what one does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.updates import INSERT
from headrace.engine.dataflow import OVERFLOWED, Collection, Dataflow
from headrace.engine.dataflow.late_loop import OutermostLoopNode
from headrace.engine.dataflow.round_work import PIECE
from headrace.engine.dataflow.shard import Shard
from headrace.engine.operators.expressions.core.ir import Call, Literal
from headrace.engine.recursion.late import LATE, Standing
from headrace.engine.schema import BIGINT
from headrace.engine.trace.spine import Spine
from tests.engine.dataflow import test_delta_rounds, test_iterate
from tests.engine.dataflow.pairs import World, cuts_of, triples
from tests.engine.dataflow.shards import in_shards
from tests.engine.dataflow.standard import seeds
from tests.engine.dataflow.test_iterate import EDGES, NODES, A, closure
from tests.engine.dataflow.test_shards import Part, world
from tests.reference.dataflow import Op

Sides = tuple[Counter[Any], Counter[Any]]
"""Rows and errors."""
Told = dict[tuple[str, int], tuple[Sides, Sides]]
"""Of a view at an epoch what it holds, and what it has put out so far."""


def sides_of(part: Part, name: str, some: Sequence[Any]) -> Sides:
    schema = part.views[name].real.schema
    rows, errors = (
        Counter({row: d for _, row, d in triples(updates, s)}) for updates, s in zip(some, (schema, None), strict=True)
    )
    return rows, errors


def put_out(part: Part, name: str, epoch: int) -> Sides:
    found: Sides = Counter(), Counter()
    schema = part.views[name].real.schema
    for sides in part.seen[name]:
        for side, updates in enumerate(sides):
            for t, row, d in triples(updates, None if side else schema):
                found[side][row] += d if t <= epoch else 0
    return found


def story(name: str, seed: int, shard: Shard) -> tuple[Told, list[list[Standing]]]:
    """What one shard of a world holds and has put out, epoch by epoch; how its late groups stood."""
    made, rng = world(name, seed)
    part, step_work = Part(made, shard), rng.choice([1, 10_000])
    part.build()
    part.flow.late.step_work = step_work
    told: Told = {}
    stood: list[list[Standing]] = []

    def stands() -> None:
        stood.append([group.standing for group in part.flow.late])
        epoch = part.flow.frontier - 1
        for view, pair in part.views.items():
            told[view, epoch] = sides_of(part, view, pair.real.snapshot(epoch)), put_out(part, view, epoch)

    last = 0
    for upper in cuts_of(rng, made.end):
        part.push(last, upper)
        part.step(upper)
        last = upper
        if rng.random() < 0.3:
            part.restart()
            part.flow.late.step_work = step_work
            part.flow.hydrate()
        part.flow.late.go_on(rng.choice([1, 1, 10_000, 100_000]))
        stands()
        if rng.random() < 0.5:
            part.compact(rng.randrange(upper))
    part.flow.late.go_on(0)
    assert part.flow.late.ended or not part.flow.late
    for upper in (made.end + 1, made.end + 2):
        part.step(upper)
    assert not part.flow.late
    stands()
    return told, stood


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", [*test_iterate.SHAPES, *test_delta_rounds.SHAPES])
@seeds(4)
def test_what_leaves_its_steps_comes_back(name: str, count: int, seed: int) -> None:
    made, _ = world(name, seed)
    one = Part(made, Shard())
    one.build()
    parts = in_shards(count, lambda shard: story(name, seed, shard))
    for part in parts:
        if isinstance(part, BaseException):
            raise part
    assert [stood for _, stood in parts] == [parts[0][1]] * count, "all leave, stop and come back in the same place"
    for view, epoch in parts[0][0]:
        held, out = [], []
        for kind, found in ((0, held), (1, out)):
            for side in range(2):
                total: Counter[Any] = Counter()
                for told, _ in parts:
                    total.update(told[view, epoch][kind][side])
                found.append({row: n for row, n in total.items() if n})
        assert held == out, f"{view} at {epoch}"
        marks = [n for text, n in held[1].items() if text.startswith(LATE)]
        assert marks in ([], [1]), "one of them says it"
        if not marks:
            twin = one.views[view].twin.at(min(epoch, made.end - 1))
            assert tuple(held) == tuple(dict(side) for side in twin), f"{view} at {epoch}"


def counting(flow: Dataflow) -> Collection:
    """A loop that counts on, for 50 rounds."""
    roots = flow.table("roots", NODES)
    loop = flow.iterate("view for_ever", most=50)
    numbers = loop.variable(NODES)
    more = Call("+(bigint,bigint)", (A, Literal(1, BIGINT)), BIGINT)
    rule = loop.enter(roots).concat(numbers.project([more], NODES)).distinct()
    [left] = loop.close({numbers: rule}, [rule])
    return left


def part_of(flow: Dataflow, table: str, rows: Sequence[tuple[int, ...]]) -> Part:
    """To feed this shard's part of some rows, all of epoch 0."""
    schema = {"roots": NODES, "edges": EDGES}[table]
    made = World({table: schema}, lambda _: {}, {table: [Op(0, INSERT, row) for row in rows]})
    part = Part(made, flow.shard)
    part.flow = flow
    return part


def errors_of(sides: Any) -> list[str]:
    found: list[str] = sides[1].rows.column(0).to_pylist()
    return found


def test_a_loop_that_does_not_rest_fails_while_it_is_late() -> None:
    def script(shard: Shard) -> Any:
        flow = Dataflow(shard)
        left = counting(flow)
        flow.late.step_work = 1
        endless, steady = left.output("endless"), flow.table("roots", NODES).output("steady")
        part_of(flow, "roots", [(1,), (2,)]).push(0, 1)
        flow.step(1)
        late = errors_of(endless.take())
        flow.late.go_on(10_000)
        [group] = flow.late
        assert 0 < group.standing.round < 50
        flow.late.go_on(0)
        assert flow.late.ended
        flow.late.go_on(0)
        flow.step(2)
        assert not flow.late
        said = errors_of(endless.take())
        flow.step(3)
        return late, said, len(steady.take()[0])

    found = in_shards(2, script)
    for part in found:
        if isinstance(part, BaseException):
            raise part
    (late, said, some), (none, nothing, others) = found
    assert late[0].startswith("late: view for_ever takes more than a step may")
    assert said[0].startswith("view for_ever did not come to rest within 50 rounds")
    assert (len(late), len(said), none, nothing, some + others) == (1, 1, [], [], 2)


@pytest.mark.parametrize("when", ["in its rounds", "in a merge", "in a merge after its rounds"])
def test_a_multiplicity_that_does_not_fit_in_one_shard_fails_the_loop_in_all(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """While it is late: the shards go on to meet."""
    broken: list[Spine] = []
    insert = Spine.insert

    def inserted(spine: Spine, batch: Any) -> None:
        if any(spine is one for one in broken):
            raise DiffOverflow
        insert(spine, batch)

    monkeypatch.setattr(Spine, "insert", inserted)

    def script(shard: Shard) -> Any:
        flow = Dataflow(shard)
        edges = flow.table("edges", EDGES)
        [left] = closure(flow.iterate("pairs"), edges, edges)
        output, steady = left.output("pairs"), edges.output("steady")
        flow.late.step_work = 1
        part_of(flow, "edges", [(k, k + 1) for k in range(30)]).push(0, 1)
        flow.step(1)
        output.take()
        [loop] = flow.late
        assert isinstance(loop, OutermostLoopNode)
        flow.late.go_on(10_000)
        if when == "in a merge after its rounds":
            flow.late.go_on(0)
        if shard.index and when == "in its rounds":
            broken.extend(trace.spine for trace in loop._within)
        elif shard.index:
            loop.fail(DiffOverflow())
        flow.late.go_on(10_000)
        flow.step(2)
        assert not flow.late
        said = errors_of(output.take())
        flow.step(3)
        return said, errors_of(output.take()), len(steady.take()[0])

    found = in_shards(2, script)
    for part in found:
        if isinstance(part, BaseException):
            raise part
    said = [text for told, _, _ in found for text in told]
    assert OVERFLOWED in said
    assert [again for _, again, _ in found] == [[], []]
    assert sum(some for _, _, some in found) == 30


def test_a_large_round_stops_where_rows_are_exchanged() -> None:
    """Also in the middle of it; one shard that has nothing to do stops with the others."""

    def script(shard: Shard) -> Any:
        flow = Dataflow(shard)
        edges, roots = flow.table("edges", EDGES), flow.table("roots", NODES)
        [left] = closure(flow.iterate("pairs"), edges, roots)
        output = left.output("pairs")
        rows = [(0, k) for k in range(1, 200)] + [(k, 1000 + m) for k in range(1, 200) for m in range(60)]
        part_of(flow, "edges", rows).push(0, 1)
        flow.late.step_work = 1
        flow.step(1)
        [group] = flow.late
        stood = [group.standing]
        while not group.standing.ended:
            flow.late.go_on(1)
            stood.append(group.standing)
        flow.step(2)
        assert not flow.late
        output.take()
        return stood, len(left.snapshot(1)[0])

    found = in_shards(2, script)
    for part in found:
        if isinstance(part, BaseException):
            raise part
    assert found[0][0] == found[1][0]
    assert sum(size for _, size in found) == 199 + 199 * 60 + 60
    rounds = Counter(standing.round for standing in found[0][0])
    assert max(rounds.values()) > 2, "some round is work in several portions"
    assert found[0][0][-1].work > PIECE
