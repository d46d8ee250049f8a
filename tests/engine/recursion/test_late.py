"""A recursive group that takes more work than a step may: it leaves, goes on between steps, and comes back whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

import pytest

from headrace.engine.batch.updates import Updates
from headrace.engine.operators.delta import concat
from headrace.engine.recursion import update as update_module
from headrace.engine.recursion.late import Evaluation
from headrace.engine.recursion.portions import Portions
from headrace.engine.recursion.switching import Followed, SparseRecursion, Strategy
from tests.engine.recursion.histories import changes_of, histories, state_of, translated
from tests.reference import elastic
from tests.reference.elastic import PROGRAMS, Fact


def following(recursion: SparseRecursion, changes: Sequence[Mapping[int, Updates]]) -> Portions[Followed]:
    """All of them as one change."""
    relations = {relation for some in changes for relation in some}
    found = {r: concat([some[r] for some in changes if r in some]) for r in relations}
    return recursion.following({r: updates for r, updates in found.items() if updates is not None})


@pytest.mark.parametrize("strategy", [Strategy.AUTO, Strategy.BOOTSTRAP, Strategy.UPDATE])
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_done_in_portions_is_what_is_done_at_once(
    monkeypatch: pytest.MonkeyPatch, name: str, strategy: Strategy, *, small: bool
) -> None:
    """`small`: a change that is small enough is tried by the kernel first, and goes on in columns."""
    if not small:
        monkeypatch.setattr(update_module, "MOST_CHANGES", -1)
    program, left = PROGRAMS[name], Counter[str]()
    for seed in range(15):
        random = Random(seed)
        recursion = SparseRecursion(translated(program), strategy)
        recursion.most_work, before = 40, set[Fact]()
        shown: dict[tuple[int, tuple[int, ...]], int] = {}
        late: Evaluation[Mapping[int, Updates], Followed] | None = None
        for facts in histories(seed, 8):
            changes = changes_of(program, before, facts)
            before = facts
            one = late or Evaluation(partial(following, recursion))
            one.add(changes)
            if late is None and not one.advance(40, forecast=True):
                left["an Update" if recursion._updating else "Bootstrap"] += 1
                recursion.leave()
                late = one
            followed = one.followed
            if late is not None:
                for _ in range(random.randrange(6)):
                    late.advance(random.choice([1, 40, 300]))
                kept = {
                    (k, row): 1 for k in range(recursion.program.variables) for row in rows_of(recursion.content(k))
                }
                assert kept == shown, "what is shown of a late group does not change"
                if not late.ended and facts is not None and random.random() < 0.5:
                    continue
                late.advance(0)
                followed, late = recursion.returned(), None
            assert followed is not None
            for variable, some in enumerate(followed.variables):
                for row, diff in zip(rows_of(some), some.diffs.tolist(), strict=True):
                    shown[variable, row] = shown.get((variable, row), 0) + diff
            shown = {key: n for key, n in shown.items() if n}
            twin = elastic.bootstrap(program, facts)
            assert state_of(recursion, program) == twin
            assert len(shown) == len(twin)
            assert set(shown.values()) <= {1}
    assert left.total() > 20
    assert bool(left["an Update"]) == (strategy is not Strategy.BOOTSTRAP)


def rows_of(some: object) -> list[tuple[int, ...]]:
    return list(zip(*(c.to_pylist() for c in some.rows), strict=True))  # type: ignore[attr-defined]
