"""Our sessions, and the peers' where these are built, on tiny data against dictionaries.

The peers take minutes to compile, so nothing is compiled here: `make bench-peers` builds them, and then these tests use them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.bench.peers.columns import texts, write
from tests.bench.peers.contest import Contest, Side, Told, Unequal, lap, rate
from tests.bench.peers.crate import built
from tests.bench.peers.laps import Answer
from tests.bench.peers.sessions import QUERIES, SESSIONS
from tests.bench.peers.test_columns import WORD, checksum_naive

Row = tuple[int, ...]
Update = tuple[Row, int, int]
Ask = Callable[[str, "Path | str", int], Told]


def told(answer: Answer) -> Told:
    return Told(**answer.line())


SECOND = ("count", "distinct", "join")
"""The sessions here that dbsp has too."""


@pytest.fixture(params=["ours", "peer", "dbsp-peer"])
def start(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Ask]]:
    """Starts a session of a side."""
    if request.param == "ours":

        def here(session: str) -> Ask:
            commands = SESSIONS[session]().commands()
            return lambda verb, prefix, number: told(commands[verb](str(prefix), number))

        yield here
        return
    binary = built(request.param)
    if binary is None:
        pytest.skip("the peer is not built: make bench-peers")
    sides: list[Side] = []

    def there(session: str) -> Ask:
        if request.param == "dbsp-peer" and session not in SECOND:
            pytest.skip("dbsp is no peer of this session")
        sides.append(Side([str(binary), session]))
        return sides[-1].ask

    yield there
    for side in sides:
        side.close()


def window(seed: int, keys: int = 12, size: int = 30, epochs: int = 20) -> list[Update]:
    """Records that come and go: `size` at epoch 0, then a delete and an insert an epoch."""
    random = np.random.default_rng(seed)
    records = random.integers(0, keys, size + epochs).tolist()
    found: list[Update] = [((k,), 0, 1) for k in records[:size]]
    for e in range(1, epochs + 1):
        found += [((records[e - 1],), e, -1), ((records[size + e - 1],), e, 1)]
    return found


def written(path: Path, updates: Sequence[Update], names: Sequence[str] = ("key", "value")) -> Path:
    lanes = {name: np.array([row[k] for row, _, _ in updates]) for k, name in enumerate(names[: len(updates[0][0])])}
    return write(path, **lanes, epoch=np.array([t for _, t, _ in updates]), diff=np.array([d for *_, d in updates]))


def sum_of(updates: Sequence[Update], *, timed: bool = True) -> tuple[int, str]:
    """How many updates remain when equal ones are added up, and their checksum."""
    total: Counter[Row] = Counter()
    for row, time, diff in updates:
        total[(*row, time) if timed else row] += diff
    rows = [row for row, diff in total.items() if diff]
    return len(rows), f"{checksum_naive([[w % WORD for w in r] for r in rows], [total[r] for r in rows]):016x}"


def changes_of(updates: Sequence[Update], view: Callable[[Counter[Row]], Counter[Row]]) -> list[Update]:
    """What a view of the collection sends at each epoch."""
    standing: Counter[Row] = Counter()
    before: Counter[Row] = Counter()
    sent: list[Update] = []
    for time in sorted({t for _, t, _ in updates}):
        for row, t, diff in updates:
            if t == time:
                standing[row] += diff
        after = view(standing)
        rows = before.keys() | after.keys()
        sent += [(row, time, after[row] - before[row]) for row in rows if after[row] != before[row]]
        before = after
    return sent


def counted(standing: Counter[Row]) -> Counter[Row]:
    return Counter({(*row, n): 1 for row, n in standing.items() if n > 0})


def once(standing: Counter[Row]) -> Counter[Row]:
    return Counter({row: 1 for row, n in standing.items() if n > 0})


@pytest.mark.parametrize("epochs", [1, 7, 50])
@pytest.mark.parametrize(("session", "view"), [("count", counted), ("distinct", once)])
def test_reduce_sends_what_the_dictionary_says(
    start: Callable[[str], Ask], tmp_path: Path, session: str, view: Callable[[Counter[Row]], Counter[Row]], epochs: int
) -> None:
    ask = start(session)
    updates = window(3)
    found = ask("run", written(tmp_path / "window", updates), epochs)
    assert (found.rows, found.out, found.checksum) == (len(updates), *sum_of(changes_of(updates, view)))
    assert len(found.cpu) == len(found.wall) == -(-21 // epochs)


@pytest.mark.parametrize("session", ["count", "distinct"])
def test_both_forms_of_the_peer_send_the_same(tmp_path: Path, session: str) -> None:
    binary = built()
    if binary is None:
        pytest.skip("the peer is not built: make bench-peers")
    path = written(tmp_path / "window", window(4))
    sides = {form: Side([str(binary), form]) for form in (session, f"{session}_total")}
    try:
        assert len(Contest(sides).ask("run", path, 5)) == 2
    finally:
        for side in sides.values():
            side.close()


@pytest.mark.parametrize("epochs", [1, 6])
def test_an_arrangement_adds_up(start: Callable[[str], Ask], tmp_path: Path, epochs: int) -> None:
    ask = start("pairs")
    updates = [((row[0], row[0] * 3), t, d) for row, t, d in window(5)]
    ask("run", written(tmp_path / "window", updates), epochs)
    assert ask("content", "", 1).checksum == sum_of(updates, timed=False)[1]
    ask = start("keys")
    ask("run", written(tmp_path / "window", window(5)), epochs)
    assert ask("content", "", 1).checksum == sum_of(window(5), timed=False)[1]


def test_an_arrangement_of_texts_adds_up(start: Callable[[str], Ask], tmp_path: Path) -> None:
    some = texts(40, 1)
    ask = start("texts")
    ask("run", write(tmp_path / "texts", key=np.arange(40), text=some), 1)
    rows = [(k, *np.frombuffer(text, "<u8").tolist()) for k, text in enumerate(some.tolist())]
    assert ask("content", "", 1).checksum == sum_of([(row, 0, 1) for row in rows], timed=False)[1]


def test_join_sends_each_pair_once_at_the_later_epoch(start: Callable[[str], Ask], tmp_path: Path) -> None:
    ask = start("join")
    rows = [(k, 100 + k) for k in range(50)]
    found = ask("run", write(tmp_path / "rows", key=np.arange(50), value=np.arange(100, 150)), 1)
    assert found.out == 0
    asked = [((k,), 1 + e, 1) for e, k in enumerate([3, 49, 60, 7])]
    found = ask("query", written(tmp_path / "asked", asked), 1)
    wanted = [(rows[k], t, 1) for (k,), t, _ in asked if k < 50]
    assert (found.out, found.checksum) == sum_of(wanted)


def test_install_answers_and_drops(start: Callable[[str], Ask], tmp_path: Path) -> None:
    ask = start("install")
    ask("run", write(tmp_path / "rows", key=np.arange(50), value=np.arange(100, 150)), 1)
    keys = [3, 7, 11, 3, 60, 9]
    found = ask("install", write(tmp_path / "asked", key=np.array(keys)), 3)
    updates = [((k, 100 + k), 0, 1) for k in keys if k < 50]
    assert found.checksum == f"{checksum_naive([r for r, _, _ in updates], [1] * len(updates)):016x}"
    assert len(found.cpu) == 4


@pytest.mark.parametrize("session", ["shared", "private"])
def test_queries_follow_changes(start: Callable[[str], Ask], tmp_path: Path, session: str) -> None:
    ask = start(session)
    size = 30
    keys = np.concatenate([np.arange(k, k + 4) for k in range(QUERIES)])
    ask("query", write(tmp_path / "asked", key=keys), 4)
    found = ask("run", write(tmp_path / "rows", key=np.arange(size), value=np.zeros(size, np.int64)), 1)
    many = Counter(keys.tolist())
    assert found.checksum == sum_of([((k, 0), 0, n) for k, n in many.items()])[1]
    changes = [((5, 0), 1, -1), ((5, 1), 1, 1), ((5, 1), 2, -1), ((5, 2), 2, 1), ((29, 0), 2, -1), ((29, 1), 2, 1)]
    found = ask("run", written(tmp_path / "renewed", changes), 1)
    assert found.checksum == sum_of([(r, t, d * many[r[0]]) for r, t, d in changes if many[r[0]]])[1]


def reached(hops: int, edges: Counter[Row], pairs: Counter[Row]) -> Counter[Row]:
    """(from, to, node) → how many paths."""
    found: Counter[Row] = Counter()
    twice = Counter({(a, b, d): 0 for a, b in edges for c, d in edges if b == c})
    for a, b in edges:
        for c, d in edges:
            if b == c:
                twice[a, b, d] += edges[a, b] * edges[c, d]
    for (start, end), n in pairs.items():
        if hops == 1:
            for (a, b), m in edges.items():
                found[start, end, b] += n * m * (a == start)
            continue
        for (a, _, d), m in twice.items():
            if hops == 2:
                found[start, end, d] += n * m * (a == start)
                continue
            for (e, _, f), k in twice.items():
                # Each pair is asked on both sides of the meeting, and so its multiplicity counts twice.
                found[start, end, d] += n * n * m * k * (a == start and e == d and f == end)
    return found


@pytest.mark.parametrize(("session", "hops"), [("hop1", 1), ("hop2", 2), ("path4", 4)])
def test_paths_are_those_of_the_dictionary(
    start: Callable[[str], Ask], tmp_path: Path, session: str, hops: int
) -> None:
    random = np.random.default_rng(9)
    edges: list[Update] = [((a, b), 0, 1) for a, b in random.integers(0, 5, (12, 2)).tolist()]
    ask = start(session)
    assert ask("run", written(tmp_path / "edges", edges), 1).out == 0
    pairs = [((1, 2), 1, 1), ((3, 3), 1, 1), ((1, 2), 2, -1), ((0, 4), 2, 1), ((3, 3), 3, -1)]
    found = ask("query", written(tmp_path / "pairs", pairs), 2)
    graph: Counter[Row] = Counter(row for row, _, _ in edges)
    wanted = changes_of(pairs, lambda standing: reached(hops, graph, standing))
    assert found.checksum == sum_of(wanted)[1]
    edge = edges[0][0]
    found = ask("run", written(tmp_path / "more", [(edge, 9, -1), ((4, 4), 9, 1)]), 20)
    after = Counter(graph)
    after.subtract([edge])
    after[4, 4] += 1
    standing: Counter[Row] = Counter({(0, 4): 1})
    old, new = reached(hops, graph, standing), reached(hops, +after, standing)
    assert found.checksum == sum_of([(row, 9, new[row] - old[row]) for row in old.keys() | new.keys()])[1]


def test_edges_and_pairs_change_at_epochs_of_their_own(start: Callable[[str], Ask], tmp_path: Path) -> None:
    edges: list[Update] = [((1, 2), 0, 1), ((2, 3), 0, 1), ((1, 4), 2, 1), ((1, 2), 4, -1)]
    pairs: list[Update] = [((1, 9), 1, 1), ((2, 9), 3, 1), ((1, 9), 5, -1)]
    written(tmp_path / "all-edges", edges)
    written(tmp_path / "all-asked", pairs)
    found = start("hop1")("both", tmp_path / "all", 1)
    wanted = [((1, 9, 2), 1, 1), ((1, 9, 4), 2, 1), ((2, 9, 3), 3, 1), ((1, 9, 2), 4, -1), ((1, 9, 4), 5, -1)]
    assert (found.rows, len(found.cpu), found.checksum) == (7, 6, sum_of(wanted)[1])


class _Parrot:
    """A side that always answers alike."""

    def __init__(self, answer: Told) -> None:
        self._answer = answer

    def ask(self, verb: str, prefix: object, number: int) -> Told:
        return self._answer


def test_a_contest_refuses_unequal_sides_and_takes_medians() -> None:
    one = Told(10, [2.0, 4.0], [1.0, 3.0], "aa", 5, 0)
    rounds = [Contest({"ours": _Parrot(one), "peer": _Parrot(one)}).ask("run")]  # type: ignore[dict-item]
    assert rate(rounds, "peer", 8) == 2.0
    assert rate(rounds, "absent", 8) is None
    assert lap(rounds, "ours", 0.99, "wall") == 4e6
    for other in (one._replace(checksum="ab"), one._replace(rows=9)):
        sides = Contest({"ours": _Parrot(one), "peer": _Parrot(other)})  # type: ignore[dict-item]
        with pytest.raises(Unequal):
            sides.ask("run")
