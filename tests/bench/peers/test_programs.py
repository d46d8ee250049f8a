"""Recursive programs of all sides on tiny data against naive twins: what each relation holds after each epoch.

A peer takes minutes to compile, so nothing is compiled here: `make bench-peers` builds them, and then these tests use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.bench.peers.contest import Side, Told
from tests.bench.peers.crate import built
from tests.bench.peers.program_data import GENERATORS, Changes, Data, Relation, chain, grid, tree, unique
from tests.bench.peers.programs import PROGRAMS, STRATEGIES
from tests.bench.peers.sessions import SESSIONS
from tests.bench.peers.test_columns import WORD, checksum_naive, mixed_naive
from tests.reference.datalog import evaluate

Rows = set[tuple[int, ...]]
Given = Mapping[str, Rows]
Ask = Callable[[Path], Told]

IN_SQL = {
    "closure": "path(x, y) :- edge(x, y). path(x, z) :- path(x, y), edge(y, z). .output path",
    "generation": "same(x, y) :- edge(p, x), edge(p, y), x != y. "
    "same(x, y) :- same(p, q), edge(p, x), edge(q, y). .output same",
    "reach": "reached(x) :- root(x). reached(y) :- reached(x), edge(x, y). .output reached",
}
"""Of programs that are views in SQL the rules."""

QUESTIONS = {"closure_from": ("closure", 0), "closure_to": ("closure", 1), "generation_of": ("generation", 0)}
"""Question → the program that it is of, and the column that is asked."""


def whole(program: str, given: Given) -> list[Rows]:
    """The relations that a program puts out, by the naive twin."""
    if program in IN_SQL:
        inputs = "".join(f".input {name} = public.{name}\n" for name in PROGRAMS[program].relations)
        text, names = inputs + IN_SQL[program], IN_SQL[program].split()[-1:]
    else:
        text, names = PROGRAMS[program].text, list(PROGRAMS[program].outputs)
    found = evaluate(text, {name: set(rows) for name, rows in given.items()})
    return [found[name] for name in names]  # type: ignore[misc]


def distances(given: Given) -> list[Rows]:
    """(node, distance) from node 0."""
    found = {0: 0}
    for distance in range(1, 100):
        for a, b in given["edge"]:
            if found.get(a, distance) < distance:
                found.setdefault(b, distance)
    return [set(found.items())]


def components(given: Given) -> list[Rows]:
    """Edges whose ends reach each other."""
    [paths] = whole("closure", given)
    return [{(a, b) for a, b in given["edge"] if a == b or (b, a) in paths}]


def expected(session: str, given: Given) -> list[Rows]:
    """What a session's relations hold."""
    if session in QUESTIONS:
        program, column = QUESTIONS[session]
        [rows] = whole(program, {"edge": given["edge"]})
        return [{row for row in rows if (row[column],) in given["asked"]}]
    by_hand = {"distances": distances, "components": components}.get(session)
    return by_hand(given) if by_hand else whole(session, given)


def data_of(session: str) -> Data:
    """Relations small enough for the twin."""
    if session in GENERATORS:
        return GENERATORS[session](120 if session == "editor" else 30)
    edges = unique(*np.random.default_rng(3).integers(0, 12, (2, 30)))
    if session == "generation_of":
        edges = tree(25)["edge"].facts
    asked = {"asked": Relation(np.arange(0, 12, 2).reshape(-1, 1))} if session in QUESTIONS else {}
    return {"edge": Relation(edges), **asked}


class Expected:
    """The chain of checksums of what a session holds after each epoch."""

    def __init__(self, session: str, data: Data, changes: Changes) -> None:
        self._session = session
        self._data = data
        self._changes = changes
        self._chain = 0

    def after(self) -> str:
        """One more epoch is over."""
        there = self._changes.there
        given = {name: set(map(tuple, r.facts[there[name]].tolist())) for name, r in self._data.items()}
        total = 0
        for number, rows in enumerate(expected(self._session, given)):
            total += checksum_naive([(number, *row) for row in rows], [1] * len(rows))
        self._chain = mixed_naive((self._chain + total) % WORD)
        return f"{self._chain:016x}"


@pytest.fixture(params=["ours", "peer", "flowlog", "ascent", "datafrog"])
def start(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Ask]]:
    """Starts a session of a side."""
    if request.param == "ours":

        def here(session: str) -> Ask:
            run = SESSIONS[session]().commands()["run"]
            return lambda prefix: Told(**run(str(prefix), 1).line())

        yield here
        return
    library = request.param if request.param in ("ascent", "datafrog") else ""
    binary = built("batch" if library else request.param)
    if binary is None:
        pytest.skip("the peer is not built: make bench-peers")
    sides: list[Side] = []

    def there(session: str) -> Ask:
        if request.param != "peer" and session not in GENERATORS:
            pytest.skip("only differential-dataflow has it")
        sides.append(Side([str(binary), *([library] if library else []), session]))
        return lambda prefix: sides[-1].ask("run", prefix)

    yield there
    for side in sides:
        side.close()


@pytest.mark.long
@pytest.mark.parametrize("session", [*PROGRAMS, "distances", "components"])
def test_each_epoch_holds_what_the_twin_says(start: Callable[[str], Ask], tmp_path: Path, session: str) -> None:
    data = data_of(session)
    changes = Changes(tmp_path / "some", data)
    ask, want = start(session), Expected(session, data, changes)
    assert ask(changes.first()).checksum == want.after()
    for size in (1, 1, 4, 9):
        assert ask(changes.next(size)).checksum == want.after()


@pytest.mark.long
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_holds_the_same(tmp_path: Path, strategy: str) -> None:
    data = data_of("points_to")
    changes = Changes(tmp_path / "some", data)
    run = SESSIONS["points_to" if strategy == "auto" else f"points_to/{strategy}"]().commands()["run"]
    want = Expected("points_to", data, changes)
    assert Told(**run(str(changes.first()), 1).line()).checksum == want.after()
    answer = run(str(changes.next(6)), 1)
    assert Told(**answer.line()).checksum == want.after()
    assert answer.ways in {"bootstrap": [["bootstrap"]], "history": [[""]]}.get(
        strategy, [["update"], ["dropped"], ["bootstrap"]]
    )


def test_facts_leave_one_by_one_and_come_back(tmp_path: Path) -> None:
    data = chain(9)
    changes = Changes(tmp_path / "some", data, whole=True)
    run, want = SESSIONS["closure"]().commands()["run"], Expected("closure", data, changes)
    run(str(changes.first()), 1)
    want.after()
    left = run(str(changes.take_out("edge", [2, 5])), 1)
    assert (left.rows, len(left.cpu)) == (2, 2)
    back = run(str(changes.put_back("edge", [2, 5])), 1)
    assert (back.rows, len(back.cpu)) == (2, 1)
    assert left.checksum != back.checksum


def test_changes_are_of_the_size_that_is_asked_and_change_something(tmp_path: Path) -> None:
    changes = Changes(tmp_path / "some", grid(12))
    total = changes.size
    changes.first()
    for size in (1, 1, 2, 50, 3):
        before = changes.there["edge"].copy()
        changes.next(size)
        assert (before != changes.there["edge"]).sum() == size
    assert abs(changes.size - total) <= 1
