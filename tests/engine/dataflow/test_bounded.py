"""Joins of every kind are made in pieces, in steps and in first fillings: the answers stay, and no piece is too large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from headrace.engine.batch.batch import DiffOverflow
from headrace.engine.batch.keys import Keys
from headrace.engine.batch.updates import INSERT, UPSERT
from headrace.engine.dataflow import OVERFLOWED, Collection, Dataflow, Output, delta_join
from headrace.engine.dataflow.stateless import FilterNode
from headrace.engine.operators import join as joining
from headrace.engine.operators.counts import CountedIndex
from headrace.engine.operators.delta import Delta
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, TEXT, Column, Schema
from headrace.engine.trace.lookup import Matches
from tests.engine.dataflow import test_delta_join, test_delta_rounds, test_iterate, test_partners, test_shards
from tests.engine.dataflow.shards import in_shards
from tests.engine.dataflow.standard import any_cut, asked_about_the_past, long_steps, made_late, passes, restart, seeds
from tests.engine.dataflow.test_dataflow import push as push_rows
from tests.engine.dataflow.test_dataflow import taken
from tests.engine.dataflow.test_pieces import PAIR, SMALL, in_pieces, pieces_of_at_most, push, sizes_sent

DELTA = test_delta_join.SHAPES, test_delta_join.world
ROUNDS = test_delta_rounds.SHAPES, test_delta_rounds.world
LOOPS = test_iterate.SHAPES, test_iterate.world
PARTNERS = test_partners.SHAPES, test_partners.world

test_delta_joins_in_any_cut = passes(in_pieces(any_cut), *DELTA, 6)
test_delta_joins_made_late = passes(in_pieces(made_late), *DELTA, 4)
test_delta_joins_and_the_past = passes(in_pieces(asked_about_the_past), *DELTA, 3)
test_partners_in_any_cut = passes(in_pieces(any_cut), *PARTNERS, 4)
test_partners_in_long_steps = passes(in_pieces(long_steps), *PARTNERS, 4)
test_partners_made_late = passes(in_pieces(made_late), *PARTNERS, 4)
test_partners_and_the_past = passes(in_pieces(asked_about_the_past), *PARTNERS, 3)
test_loops_in_any_cut = passes(in_pieces(any_cut), *LOOPS, 4)
test_loops_in_long_steps = passes(in_pieces(long_steps), *LOOPS, 3)
test_loops_made_late = passes(in_pieces(made_late), *LOOPS, 3)
test_delta_joins_in_loops = passes(in_pieces(any_cut), *ROUNDS, 4)
test_delta_joins_in_loops_over_a_restart = passes(in_pieces(restart), *ROUNDS, 3)
test_delta_joins_in_loops_made_late = passes(in_pieces(made_late), *ROUNDS, 3)


@pytest.mark.parametrize("name", ["joins", "partners", "outer", "one_way", "same_generation", "turning", "chain"])
@seeds(3)
def test_shards_go_the_same_way_while_pieces_are_made(name: str, seed: int) -> None:
    made, rng = test_shards.world(name, seed)
    middle, since = rng.randrange(1, made.end + 1), rng.randrange(made.end)
    whole, schemas = in_shards(1, lambda shard: test_shards.story(made, shard, middle, since))[0]
    with pieces_of_at_most(SMALL):
        parts = in_shards(2, lambda shard: test_shards.story(made, shard, middle, since)[0])
    test_shards.check_parts(whole, schemas, parts)


SIZE, PIECE = 300, 1000
COUNTED = Schema((PAIR.columns[0], Column("n", BIGINT)))
Kind = Callable[[Collection, Collection], Collection]


def big(pairs: Collection, at: int) -> Collection:
    """Those whose second text is the greater one."""
    return pairs.filter(Call(">(text,text)", (ColumnRef(1, TEXT), ColumnRef(at, TEXT)), BOOLEAN))


def join(t: Collection, u: Collection) -> Collection:
    return big(t.join(u, [0], [0]), 3)


def chain(t: Collection, u: Collection) -> Collection:
    """A delta join of three, of which the last has each key once."""
    v = t.flow.table("v", Schema(PAIR.columns))  # type: ignore[attr-defined]
    return big(delta_join([t, u, v], [[(0, 0), (1, 0), (2, 0)]], [(0, 0), (0, 1), (2, 1), (1, 1)]), 3)


def in_loop(kind: Kind) -> Kind:
    """Both sides from outside."""

    def made(t: Collection, u: Collection) -> Collection:
        loop = t.flow.iterate("loop")  # type: ignore[attr-defined]
        left, right = loop.enter(t), loop.enter(u)
        found = loop.variable(PAIR)
        rule = kind(left, right).project([ColumnRef(0, BIGINT), ColumnRef(1, TEXT)], PAIR).concat(found).distinct()
        [found] = loop.close({found: rule}, [rule])
        return found

    return made


def of_its_own(t: Collection, u: Collection) -> Collection:
    """Of the pairs of a loop's own rows."""
    loop = t.flow.iterate("loop")  # type: ignore[attr-defined]
    found = loop.variable(PAIR, loop.enter(t.concat(u)))
    pairs = big(found.join(found, [0], [0]), 3)
    rule = pairs.project([ColumnRef(0, BIGINT), ColumnRef(3, TEXT)], PAIR).concat(found).distinct()
    [found] = loop.close({found: rule}, [rule])
    return found


def counted(rows: Collection) -> Collection:
    return rows.reduce([0], [Aggregate("count", None, BIGINT)], COUNTED)


KINDS: dict[str, tuple[Kind, int]] = {
    "join": (join, SIZE * (SIZE - 1) // 2),
    "chain": (chain, SIZE * (SIZE - 1) // 2),
    "a join in a loop": (in_loop(join), SIZE - 1),
    "of a loop's own": (of_its_own, SIZE),
}


def texts(begin: int = 0, size: int = SIZE) -> list[str]:
    return [f"{k:04}" for k in range(begin, begin + size)]


def fill(flow: Dataflow) -> None:
    """Both sides at epoch 1; `chain` has a third."""
    if "v" not in flow._tables:
        flow.table("v", Schema(PAIR.columns))
    push(flow, "t", 1, [7] * SIZE, texts())
    push(flow, "u", 1, [7] * SIZE, texts())
    push(flow, "v", 1, [7], ["only"])


@contextmanager
def noted() -> Iterator[tuple[list[int], list[int]]]:
    """How many pairs each call put together, and how many rows each filter was given at a time."""
    put, given = list[int](), list[int]()
    made = joining._rows_of

    def noting(pairs: Any, *args: Any, **how: Any) -> Delta:
        put.append(pairs.shape[1])
        return made(pairs, *args, **how)

    with patch.object(joining, "_rows_of", noting), sizes_sent(FilterNode, given), pieces_of_at_most(PIECE):
        yield put, given


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_piece_is_larger_than_it_may_be(kind: str, late: bool) -> None:
    how, left = KINDS[kind]
    flow = Dataflow()
    t, u = flow.table("t", PAIR), flow.table("u", PAIR)
    outputs: list[Output] = []
    if not late:
        outputs.append(counted(how(t, u)).output("counted"))
    fill(flow)
    with noted() as (put, given):
        flow.step(2)
        if late:
            assert not put
            outputs.append(counted(how(t, u)).output("counted"))
            rows, errors = outputs[0].snapshot(1)
        else:
            rows, errors = outputs[0].take()
    assert (rows.rows.to_pylist(), rows.diffs.tolist(), len(errors)) == ([{"k": 7, "n": left}], [1], 0)
    assert sum(put) >= SIZE * SIZE
    assert max(put) <= PIECE
    assert sum(given) >= SIZE * SIZE
    assert max(given) <= PIECE


def counted_ends(pairs: Collection) -> Collection:
    return pairs.reduce([], [Aggregate("count", None, BIGINT)], Schema((Column("n", BIGINT),)))


def push_edges(flow: Dataflow, epoch: int, edges: Sequence[tuple[int, int]]) -> None:
    push_rows(flow, "edges", test_iterate.EDGES, *((epoch, INSERT, edge) for edge in edges))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_overflows_within_the_pieces_stands_still_and_says_so_once(kind: str, late: bool) -> None:
    how, _ = KINDS[kind]
    flow = Dataflow()
    t, u = flow.table("t", PAIR), flow.table("u", PAIR)
    made, calls = joining._rows_of, iter(range(SIZE * SIZE))

    def failing(*args: Any, **how: Any) -> Delta:
        if next(calls) > 5:
            raise DiffOverflow
        return made(*args, **how)

    if late:
        fill(flow)
        flow.step(2)
    output = counted(how(t, u)).output("counted")
    plain = t.output("plain")
    if not late:
        fill(flow)
    with pieces_of_at_most(PIECE), patch.object(joining, "_rows_of", failing):
        if late:
            assert output.snapshot(1)[1].rows.column(0).to_pylist() == [OVERFLOWED]
        else:
            flow.step(2)
            assert [message for _, message, _ in taken(output)[1]] == [OVERFLOWED]
    plain.take()
    push(flow, "t", 2, [8], ["x"])
    push(flow, "u", 2, [8], ["w"])
    flow.step(3)
    assert taken(output) == ([], [])
    assert taken(plain) == ([(2, (8, "x"), 1)], [])
    assert output.snapshot(2)[1].rows.column(0).to_pylist() == [OVERFLOWED]


MANY = 5 * PIECE


def partners(*, among: bool) -> tuple[Dataflow, Collection]:
    """Rows of `t` whose key is among those of `u`, or is not, of which a filter keeps a few."""
    flow = Dataflow()
    t, u = flow.table("t", PAIR), flow.table("u", PAIR)
    kept = (t.semijoin if among else t.antijoin)(u, [0], [0])
    return flow, kept.filter(Call("<(text,text)", (ColumnRef(1, TEXT), Literal("0002", TEXT)), BOOLEAN))


@pytest.mark.parametrize("among", [False, True])
def test_a_key_that_comes_for_many_rows_changes_them_in_pieces(among: bool) -> None:
    flow, few = partners(among=among)
    output = few.output("few")
    push(flow, "t", 0, [7] * MANY, texts(0, MANY))
    flow.step(1)
    output.take()
    push(flow, "u", 1, [7], ["only"])
    with noted() as (put, given):
        flow.step(2)
    diff = 1 if among else -1
    assert sorted(taken(output)[0]) == [(1, (7, "0000"), diff), (1, (7, "0001"), diff)]
    assert given == put == [PIECE] * 5


def test_many_rows_that_come_without_partners_pass_in_pieces_and_those_with_one_not_at_all() -> None:
    flow, few = partners(among=False)
    output = few.output("few")
    push(flow, "u", 0, [7], ["only"])
    flow.step(1)
    push(flow, "t", 1, [7, 8] * MANY, [f"{k // 2:04}" for k in range(2 * MANY)])
    with noted() as (put, given):
        flow.step(2)
    assert sorted(taken(output)[0]) == [(1, (8, "0000"), 1), (1, (8, "0001"), 1)]
    assert sum(given) == MANY
    assert sum(put) == MANY
    assert max(*given, *put) <= PIECE


def test_the_first_content_of_an_antijoin_puts_nothing_together() -> None:
    flow, few = partners(among=False)
    push(flow, "t", 0, [7, 8] * MANY, [f"{k // 2:04}" for k in range(2 * MANY)])
    push(flow, "u", 0, [7, 9], ["only", "none"])
    asked: list[int] = []
    gather = CountedIndex.gather

    def asking(self: CountedIndex, keys: Keys, *args: Any) -> Matches:
        asked.append(len(keys))
        return gather(self, keys, *args)

    flow.step(1)
    with noted() as (put, given), patch.object(CountedIndex, "gather", asking):
        rows, errors = few.snapshot(0)
    assert (sorted(rows.rows.column(0).to_pylist()), len(errors)) == ([8, 8], 0)
    assert put == []
    assert given == [MANY], "no more than the left side has"
    assert (sum(asked), max(asked)) == (10, 1), "each key once a piece"


def test_a_new_view_reads_its_tables_in_pieces() -> None:
    """What is made of a table's rows one by one, and of those of several readers, holds no more of them than a piece."""
    flow = Dataflow()
    keyed = flow.table("keyed", Schema.of(PAIR.columns, ["k"]))
    rows = [(0, UPSERT, (k, f"{k:04}")) for k in range(MANY)]
    push_rows(flow, "keyed", keyed.schema, *rows)
    flow.step(1)
    few = keyed.filter(Call("<(bigint,bigint)", (ColumnRef(0, BIGINT), Literal(30, BIGINT)), BOOLEAN))
    other = keyed.filter(Call("<(bigint,bigint)", (ColumnRef(0, BIGINT), Literal(3, BIGINT)), BOOLEAN))
    outputs = [
        few.project([ColumnRef(1, TEXT), ColumnRef(0, BIGINT)], Schema((PAIR.columns[1], PAIR.columns[0])))
        .distinct()
        .output("few"),
        delta_join([other, keyed, few], [[(0, 0), (1, 0), (2, 0)]], [(0, 0), (2, 1)]).output("chain"),
        keyed.antijoin(other, [0], [0]).filter(few.node.predicate).output("not"),  # type: ignore[attr-defined]
        other.join(keyed, [0], [0]).output("pairs"),
    ]
    with noted() as (_, given):
        found = [output.snapshot(0) for output in outputs]
    assert [len(errors) for _, errors in found] == [0] * 4
    assert sorted(found[0][0].rows.column(1).to_pylist()) == list(range(30))
    assert sorted(found[1][0].rows.column(0).to_pylist()) == [0, 1, 2]
    assert sorted(found[2][0].rows.column(0).to_pylist()) == list(range(3, 30))
    assert sorted(found[3][0].rows.column(0).to_pylist()) == [0, 1, 2]
    assert sum(given) >= 2 * MANY
    assert max(given) <= 2 * PIECE


def test_what_waits_for_a_later_round_is_added_up_and_comes_then() -> None:
    """A new edge meets, in the first round, pairs that the loop found in later ones."""
    flow = Dataflow()
    edges = flow.table("edges", test_iterate.EDGES)
    [closed] = test_iterate.closure(flow.iterate("closure"), edges, edges)
    output = counted_ends(closed).output("closed")
    nodes = list(range(60))
    push_edges(flow, 0, list(pairwise(nodes)))
    flow.step(1)
    output.take()
    push_edges(flow, 1, [(nodes[-1], 100), (100, 101)])
    with pieces_of_at_most(10):
        flow.step(2)
    rows, errors = taken(output)
    assert (sorted(rows), errors) == ([(1, (60 * 59 // 2,), -1), (1, (62 * 61 // 2,), 1)], [])
