"""Update of a state against Bootstrap over what is outside then: each row's round and count, after every epoch."""

from __future__ import annotations

from random import Random
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine.batch.updates import Updates
from headrace.engine.errors import InvariantBroken
from headrace.engine.operators.expressions.core.ir import Call, ColumnRef, Literal
from headrace.engine.recursion import small_update
from headrace.engine.recursion import update as update_module
from headrace.engine.recursion.bootstrap import Begun
from headrace.engine.recursion.budget import Trials
from headrace.engine.recursion.meter import Meter, OverBudget
from headrace.engine.recursion.portions import whole
from headrace.engine.recursion.program import Atom, Program, Rule
from headrace.engine.recursion.switching import SparseRecursion, Strategy
from headrace.engine.recursion.update import Update
from headrace.engine.schema import BIGINT
from tests.engine.recursion.histories import MANY, PAIR, changes_of, histories, state_of, translated
from tests.reference import elastic
from tests.reference.elastic import PROGRAMS, Fact

EPOCHS = 6


def different(name: str, seed: int, strategy: Strategy = Strategy.UPDATE, *, columns: bool = False) -> bool:
    """Whether a history ends in other states than the twin's; `columns`: where no change is small enough for a kernel alone."""
    with patch.object(update_module, "MOST_CHANGES", -1 if columns else small_update.MOST_CHANGES):
        return _different(name, seed, strategy)


def _different(name: str, seed: int, strategy: Strategy) -> bool:
    program = PROGRAMS[name]
    recursion = SparseRecursion(translated(program), strategy)
    before: set[Fact] = set()
    for facts in histories(seed, EPOCHS):
        recursion.follow(changes_of(program, before, facts))
        if state_of(recursion, program) != elastic.bootstrap(program, facts):
            return True
        before = facts
    return False


def different_where_dropped(name: str, seed: int, _: Strategy = Strategy.AUTO) -> bool:
    """As `different`, of Updates in columns that are dropped anywhere, so that Bootstrap goes on from their rounds."""
    program, random = PROGRAMS[name], Random(seed)
    recursion = SparseRecursion(translated(program), Strategy.AUTO, switch=1e-9)
    before: set[Fact] = set()
    with patch.object(update_module, "MOST_CHANGES", -1), patch.object(update_module, "_CALL", 64):
        for facts in histories(seed, EPOCHS):
            recursion.least, recursion._trials = random.randrange(4_000), Trials()
            recursion.follow(changes_of(program, before, facts))
            if state_of(recursion, program) != elastic.bootstrap(program, facts):
                return True
            before = facts
    return False


@pytest.mark.parametrize("name", PROGRAMS)
def test_bootstrap_goes_on_from_the_rounds_of_an_update_that_is_dropped(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_over: list[int] = []

    def begun(update: Update) -> Begun | None:
        found = told(update)
        handed_over.append(0 if found is None else found.round)
        return found

    told = Update.begun
    monkeypatch.setattr(Update, "begun", begun)
    assert not [seed for seed in range(40) if different_where_dropped(name, seed)]
    assert min(handed_over) == 0
    assert max(handed_over) >= (2 if max(r for r, _ in _deepest(name)) > 2 else 1)


def test_a_derivation_that_fails_in_a_late_round_is_told_by_the_bootstrap_that_goes_on() -> None:
    """`t(x, y) :- e(x, y). t(x, z) :- t(x, y), e(y, z). u(x, 12 / y) :- t(x, y).` over a row of edges that comes to lead to 0."""
    x, y, z = (ColumnRef(k, BIGINT) for k in range(3))
    copied = Rule(0, (Atom(2),), (), ((0, 0), (0, 1)), (), (x, y))
    further = Rule(0, (Atom(0), Atom(2)), (((0, 1), (1, 0)),), ((0, 0), (0, 1), (1, 1)), (), (x, z))
    divided = Rule(
        1, (Atom(0),), (), ((0, 0), (0, 1)), (), (x, Call("/(bigint,bigint)", (Literal(12, BIGINT), y), BIGINT))
    )
    program = Program((PAIR,) * 3, 2, (copied, further, divided), MANY)
    chain = [(k, k + 1) for k in range(1, 9)]

    def change(edges: list[tuple[int, int]], diff: int) -> dict[int, Updates]:
        columns = [pa.array([e[k] for e in edges], pa.int64()) for k in range(2)]
        rows = pa.RecordBatch.from_arrays(columns, schema=PAIR.arrow)
        return {2: Updates(rows, np.zeros(len(edges), np.int64), np.full(len(edges), diff))}

    def shown(recursion: SparseRecursion) -> list[set[tuple[int, ...]]]:
        states = [recursion.state(v) for v in range(2)]
        return [
            set(zip(*(c.to_pylist() for c in columns), r.tolist(), n.tolist(), strict=True)) for columns, r, n in states
        ]

    recursion, anew = (SparseRecursion(program, strategy) for strategy in (Strategy.UPDATE, Strategy.BOOTSTRAP))
    with patch.object(update_module, "MOST_CHANGES", -1):
        recursion.follow(change(chain, 1))
        recursion.follow(change([(9, 0)], 1))
        anew.follow(change([*chain, (9, 0)], 1))
        assert (recursion.account.dropped, sum(recursion.failures.values())) == (1, 9)
        assert recursion.failures == anew.failures
        assert shown(recursion) == shown(anew)
        recursion.follow(change([(9, 0)], -1))
        anew.follow(change([(9, 0)], -1))
    assert not recursion.failures
    assert shown(recursion) == shown(anew)


def _deepest(name: str) -> list[tuple[int, int]]:
    facts = [facts for seed in range(40) for facts in histories(seed, EPOCHS)]
    return [max(elastic.bootstrap(PROGRAMS[name], some).values(), default=(0, 0)) for some in facts]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_twins_update_makes_what_its_bootstrap_makes(name: str) -> None:
    program = PROGRAMS[name]
    for seed in range(12):
        state: elastic.State = {}
        before: set[Fact] = set()
        for facts in histories(seed, EPOCHS, 5):
            state = elastic.update(program, state, before, facts)
            assert state == elastic.bootstrap(program, facts), seed
            before = facts


@pytest.mark.parametrize("columns", [False, True], ids=["small", "columns"])
@pytest.mark.parametrize("strategy", [Strategy.BOOTSTRAP, Strategy.UPDATE])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_state_is_the_twins(name: str, strategy: Strategy, *, columns: bool) -> None:
    assert not [seed for seed in range(25) if different(name, seed, strategy, columns=columns)]


@pytest.mark.parametrize("room", ["_MOST_WAITING", "_SPARE", "_FIRST"])
def test_what_is_too_large_for_a_kernel_is_followed_in_columns(room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = []
    run = small_update.SmallUpdate.run

    def told(*args: object) -> tuple[int, int]:
        found = run(*args)  # type: ignore[arg-type]
        given_up.append(found[0] == small_update.GIVEN_UP)
        return found

    monkeypatch.setattr(small_update, room, {"_MOST_WAITING": 6, "_SPARE": 1, "_FIRST": 20}[room])
    monkeypatch.setattr(small_update, "_A_ROUND", 1 if room == "_FIRST" else 1_024)
    monkeypatch.setattr(small_update.SmallUpdate, "run", told)
    assert not [seed for seed in range(25) if different("closure", seed)]
    assert 0 < sum(given_up) < len(given_up)


@pytest.mark.parametrize("forwards", [False, True], ids=["backwards", "forwards"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_directions_find_the_same_again(name: str, *, forwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Update, "_goes_forwards", lambda *_: forwards)
    assert not [seed for seed in range(25) if different(name, 200 + seed, columns=True)]


@pytest.mark.parametrize("term", ["_delete", "_insert", "_find_again"])
def test_an_update_without_one_of_its_terms_is_noticed(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Update, term, lambda *_: iter(()))
    noticed = 0
    for seed in range(60):
        try:
            noticed += different("closure", seed, columns=True)
        except InvariantBroken:
            noticed += 1
    assert noticed


def test_the_twin_without_one_of_its_terms_is_noticed() -> None:
    program = PROGRAMS["closure"]
    for terms in ("di", "dr", "ir"):
        wrong = 0
        for seed in range(60):
            before: set[Fact] = set()
            for facts in histories(seed, 4, 5):
                state = elastic.update(program, elastic.bootstrap(program, before), before, facts, terms)
                wrong += state != elastic.bootstrap(program, facts)
                before = facts
        assert wrong, terms


def test_an_update_past_its_budget_changes_nothing_and_bootstrap_runs() -> None:
    program = PROGRAMS["closure"]
    before: set[Fact] = {("e", (a, b)) for a in range(20) for b in range(20) if (a * b) % 7 == 1}
    recursion = SparseRecursion(translated(program), Strategy.AUTO, switch=1e-9)
    recursion.least = 3
    recursion.follow(changes_of(program, set(), before))
    after: set[Fact] = {f for f in before if f[1][0] % 3}
    recursion.follow(changes_of(program, before, after))
    assert (recursion.account.dropped, recursion.account.updates, recursion.account.bootstraps) == (1, 0, 2)
    assert state_of(recursion, program) == elastic.bootstrap(program, after)


@pytest.mark.parametrize("columns", [False, True], ids=["small", "columns"])
def test_a_dropped_update_leaves_the_variables_as_they_were(monkeypatch: pytest.MonkeyPatch, *, columns: bool) -> None:
    if columns:
        monkeypatch.setattr(update_module, "MOST_CHANGES", -1)
    program = PROGRAMS["points to"]
    dropped = 0
    for seed in range(20):
        *_, before, after = histories(seed, 4)
        for most in range(1, 9000, 700) if columns else range(1, 300, 20):
            recursion = SparseRecursion(translated(program), Strategy.UPDATE)
            recursion.follow(changes_of(program, set(), before))
            kept = state_of(recursion, program)
            outside = {r: recursion._changed(r, u) for r, u in changes_of(program, before, after).items()}
            update = Update(recursion._deriver, Meter(most))
            try:
                whole(update.run(outside))
            except OverBudget:
                dropped += 1
                update.drop()
                assert state_of(recursion, program) == kept
                assert [s.size for s in recursion._stores[: recursion.program.variables]] == [len(kept)]
            else:
                break
    assert dropped > 40


@pytest.mark.parametrize("swapped", [False, True])
def test_what_matches_many_rows_is_looked_up_last(*, swapped: bool) -> None:
    """Each of `l` is one of two values by its first column, where `e` has one row a node."""
    wide, narrow = elastic.Literal("l", ("f", "v")), elastic.Literal("e", ("x", "v"))
    body = (narrow, wide) if swapped else (wide, narrow)
    program = [
        elastic.Rule(elastic.Literal("t", ("x", "y")), (elastic.Literal("n", ("x", "y")),)),
        elastic.Rule(elastic.Literal("t", ("x", "v")), (elastic.Literal("t", ("x", "f")), *body)),
    ]
    count = 4000
    facts: set[Fact] = {("n", (x, x % 2)) for x in range(count)} | {("l", (v % 2, v)) for v in range(2, count + 2)}
    facts |= {("e", (x, x + 2)) for x in range(count)}
    recursion = SparseRecursion(translated(program), Strategy.AUTO)
    recursion.follow(changes_of(program, set(), facts))
    assert recursion.rows == 2 * count
    assert recursion.account.work < 100 * count
    store = recursion._stores[-1]
    assert store.fanout(()) == store.size


def test_paths_are_chosen_anew_where_relations_have_grown() -> None:
    program = PROGRAMS["closure"]
    recursion = SparseRecursion(translated(program), Strategy.UPDATE)
    recursion.follow(changes_of(program, set(), {("e", (0, 1))}))
    first = recursion._deriver
    many: set[Fact] = {("e", (2 * k, 2 * k + 1)) for k in range(40_000)}
    recursion.follow(changes_of(program, {("e", (0, 1))}, many))
    assert recursion._deriver is first
    recursion.follow(changes_of(program, many, many - {("e", (4, 5))}))
    assert recursion._deriver is not first
    # Edges that do not meet are paths of one round and one derivation each; the twin would look at all pairs of them.
    assert state_of(recursion, program) == {("t", edge): (1, 1) for _, edge in many - {("e", (4, 5))}}


def test_no_updates_are_tried_that_are_sure_to_fail() -> None:
    program = PROGRAMS["closure"]
    recursion = SparseRecursion(translated(program), Strategy.AUTO, switch=1e-9)
    recursion.least = 3
    before: set[Fact] = set()
    for k in range(12):
        after: set[Fact] = {("e", (a, a + 1 + k % 2)) for a in range(15)}
        recursion.follow(changes_of(program, before, after))
        assert state_of(recursion, program) == elastic.bootstrap(program, after)
        before = after
    assert (recursion.account.dropped, recursion.account.not_tried) == (4, 7)


def test_rows_of_the_last_round_leave_with_a_mark() -> None:
    program = PROGRAMS["closure"]
    recursion = SparseRecursion(translated(program, last=3), Strategy.UPDATE)
    chain: set[Fact] = {("e", (a, a + 1)) for a in range(9)}
    [shown] = recursion.follow(changes_of(program, set(), chain)).variables
    first = dict(
        zip(zip(*(c.to_pylist() for c in shown.rows[:2]), strict=True), shown.rows[2].to_pylist(), strict=True)
    )
    assert first == {(a, a + d): d == 3 for a in range(9) for d in (1, 2, 3) if a + d <= 9}
    [shown] = recursion.follow(changes_of(program, chain, {*chain, ("e", (0, 3))})).variables
    moved = list(zip(*(c.to_pylist() for c in shown.rows), shown.diffs.tolist(), strict=True))
    assert sorted(moved) == [(0, 3, False, 1), (0, 3, True, -1), (0, 4, False, 1), (0, 5, True, 1)]
