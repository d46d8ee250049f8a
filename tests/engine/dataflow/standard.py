"""The tests that every operator has to pass: in any cut, in long steps, over a restart, made late, asked about the past.

Always: an operator's test file gives its shapes (views over tables) and its draws (a world of a shape and a seed), and
`passes` makes a test of them and one of the checks here. Called by the tests here and of the workers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.dataflow.pairs import Shape, World, cuts_of


def seeds(examples: int = 8) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test that is asked with so many drawn seeds, its argument `seed`."""

    def drawn(test: Callable[..., None]) -> Callable[..., None]:
        asked: Callable[..., None] = given(seed=st.integers(0, 2**32))(test)
        return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])(asked)

    return drawn


Make = Callable[[Shape, int], tuple[World, random.Random]]
"""A world of a shape and a seed, and what chooses further."""
Check = Callable[[World, random.Random], None]


def passes(check: Check, shapes: Mapping[str, Shape], make: Make, examples: int = 8) -> Callable[..., None]:
    """The test that worlds of every shape pass the check."""

    @pytest.mark.parametrize("shape", shapes)
    @seeds(examples)
    def test(shape: str, seed: int) -> None:
        check(*make(shapes[shape], seed))

    return test


def any_cut(made: World, rng: random.Random) -> None:
    """Each epoch's changes and the last content are the twin's, however epochs are cut into steps and merges run."""
    made.build()
    made.run(cuts_of(rng, made.end), rng=rng)
    made.check_changes()
    made.check_snapshots([made.end - 1])


def long_steps(made: World, rng: random.Random) -> None:
    """As in any cut, with as many epochs in a step as there are."""
    made.build()
    made.run(sorted({1 + rng.randrange(made.end), made.end}), rng=rng)
    made.check_changes()
    made.check_snapshots([made.end - 1])


def restart(made: World, rng: random.Random) -> None:
    """A new process goes on from what a checkpoint holds as if nothing had been."""
    made.build()
    cuts = cuts_of(rng, made.end)
    made.run(cuts, restart_after=rng.choice(cuts), rng=rng)
    made.check_changes()
    made.check_snapshots([made.end - 1])


def made_late(made: World, rng: random.Random) -> None:
    """A view made over live arrangements begins with their content and goes on, in small steps or one, over a restart or not."""
    made.tables()
    middle = rng.randrange(1, made.end + 1)
    made.run(cuts_of(rng, middle), rng=rng)
    made.build()
    made.check_snapshots([middle - 1])
    rest = rng.choice([range(middle + 1, made.end + 1), [made.end] if middle < made.end else []])
    made.run(rest, start=middle, restart_after=rng.choice([None, *rest]))
    made.check_changes(middle)
    made.check_snapshots([made.end - 1])


def leaves_its_steps(made: World, rng: random.Random) -> None:
    """What takes more work than a step has is marked, keeps what it had, and comes back whole; over restarts, in any portions."""
    step_work = rng.choice([1, 10_000])
    made.build()
    made.flow.late.step_work = step_work
    last = since = 0
    for upper in cuts_of(rng, made.end):
        made.push(last, upper)
        made.step(upper)
        last = upper
        if rng.random() < 0.3:
            made.restart()
            made.flow.late.step_work, since = step_work, upper - 1
            made.flow.hydrate()
        made.flow.late.go_on(rng.choice([1, 1, 10_000, 100_000]))
        made.check_unless_late(range(since, upper))
        if rng.random() < 0.5:
            since = max(since, rng.randrange(upper))
            made.compact(since)
    made.flow.late.go_on(0)
    assert made.flow.late.ended or not made.flow.late
    for upper in (made.end + 1, made.end + 2):
        made.step(upper)
    assert not made.flow.late
    made.check_unless_late(range(made.end, made.end + 2), made.end - 1)


def asked_about_the_past(made: World, rng: random.Random) -> None:
    """The content of every epoch and the changes since any, read from the traces, where nothing or some was given up before
    anything was asked; then those not given up yet."""
    made.build()
    made.run(rng.choice([cuts_of(rng, made.end), [made.end]]))
    first = rng.choice([0, rng.randrange(max(made.end - 1, 1))])
    made.flow.advance_since(first)
    made.check_snapshots(range(first, made.end))
    lower = rng.randrange(min(first, 1) + first, made.end)
    made.seen = {name: [view.real.changes(lower, made.end)] for name, view in made.views.items()}
    made.check_changes(lower)
    since = rng.randrange(first, made.end)
    made.flow.advance_since(since)
    made.check_snapshots(range(since, made.end))
