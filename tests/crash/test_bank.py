"""Kills of a run of the bank: nothing lost, doubled or torn; and the checks themselves notice what is wrong."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from headrace.sidecar.wiring.failpoints import STEPS
from tests.crash import counts, spark_acts
from tests.crash import run as crash_run
from tests.crash.bank import ACCOUNTS, TOTAL, Faults, Sums
from tests.crash.run import ONCE, UNREACHED, Act, play, run
from tests.crash.spark_acts import Life


@pytest.mark.servers
@pytest.mark.timeout(900)
def test_kills_lose_double_and_tear_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "PROOFS", tmp_path / "proof")
    line, problems = run(4, 20, tmp_path / "scene", servers=False, seconds=60.0)
    assert problems == []
    assert line.startswith("crash: ok"), line


@pytest.mark.servers
@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_sources_in_one_view_show_one_commit_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills of the sidecar, of Connect, of the broker and of one source: each frontier is a commit of either source."""
    monkeypatch.setattr(counts, "PROOFS", tmp_path / "proof")
    acts = [
        Act(seconds=1.0), Act(seconds=0.5, server="connect"), Act(("reclock written:2",)), Act(seconds=0.5, server="kafka"),
        Act(("postgres committed:2",)), Act(seconds=0.5, server="second"), Act(seconds=0.3, early=True),
    ]  # fmt: skip
    monkeypatch.setattr(crash_run, "play", lambda *_, **__: iter(acts))
    line, problems = run(100, 20, tmp_path / "scene", rate=12.0, sources=2)
    assert problems == []
    assert line.startswith("crash: ok"), line
    assert "servers=3" in line


@pytest.mark.servers
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_kills_of_all_that_spark_runs_lose_double_and_tear_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part once, two at a time, and the driver after each pair."""
    monkeypatch.setattr(counts, "PROOFS", tmp_path / "proof")
    pairs = [
        ("executor", "worker"),
        ("supervisor", "executor"),
        ("machine", "executor"),
        ("master", "frozen supervisor"),
    ]
    lives = [Life([(one, 0.5), (other, 1.0)], 0.5) for one, other in pairs]
    monkeypatch.setattr(spark_acts, "lives", lambda _: iter(lives))
    line, problems = run(100, 21, tmp_path / "scene", rate=12.0, host="spark")
    assert problems == []
    assert line.startswith("crash: ok"), line
    assert "kills=12" in line


def sums(**changes: object) -> Sums:
    """What a whole state with five transfers gives."""
    whole: dict[str, object] = {
        "accounts": TOTAL, "moves": 10, "total": (TOTAL, 10, ACCOUNTS), "wealth": TOTAL, "entries": (5, 1, 5),
    }  # fmt: skip
    return Sums(**{**whole, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "counted"),
    [
        (sums(), (0, 0, 0)), (sums(entries=(4, 1, 5), moves=8, total=(TOTAL, 8, ACCOUNTS)), (1, 0, 0)),
        (sums(entries=(6, 1, 5), moves=12, total=(TOTAL, 12, ACCOUNTS)), (0, 1, 0)),
        (sums(entries=(3, 3, 5)), (0, 0, 0)), (sums(entries=(2, 3, 5), moves=8, total=(TOTAL, 8, ACCOUNTS)), (1, 0, 0)),
        (sums(entries=(3, 2, 5), moves=8, total=(TOTAL, 8, ACCOUNTS)), (1, 0, 0)), (sums(accounts=TOTAL - 7), (0, 0, 1)),
        (sums(moves=9), (0, 0, 1)), (sums(wealth=0), (0, 0, 1)), (sums(together=(TOTAL, 10)), (0, 0, 0)),
        (sums(together=(TOTAL, 8)), (0, 0, 1)), (sums(together=(TOTAL - 1, 10)), (0, 0, 1)),
        (sums(total=(TOTAL, 8, ACCOUNTS)), (0, 0, 1)),
    ],
)  # fmt: skip
def test_what_is_lost_doubled_or_torn_is_counted(found: Sums, counted: tuple[int, int, int]) -> None:
    faults = Faults()
    faults.check("here", found)
    assert (faults.lost, faults.doubled, faults.torn) == counted
    assert bool(faults.told) == any(counted)


def test_a_long_play_comes_to_every_step_alone_twice_in_a_row_and_after_another() -> None:
    acts = list(islice(play(random.Random(1), servers=True), 700))
    steps = [tuple(s.partition(":")[0] for s in a.steps) for a in acts if a.steps]
    wanted = set(STEPS) - UNREACHED
    assert {s[0] for s in steps if len(s) == 1} == wanted
    assert {s[0] for s in steps if len(s) == 2 and s[0] == s[1]} == wanted
    assert {s[0] for s in steps if len(s) == 2 and s[0] != s[1]}
    assert all(s.endswith(":1") for a in acts for s in a.steps if s.partition(":")[0] in ONCE)
    assert {a.server for a in acts} == {"", "warehouse", "postgres", "kafka", "connect"}
    assert {a.cut[0] for a in acts if a.cut} == {"to_sink", "to_kafka", "to_source"}
    first, again = (list(islice(play(random.Random(3), servers=True), 50)) for _ in range(2))
    assert first == again
