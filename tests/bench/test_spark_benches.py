"""The benchmarks of workers on Spark run on tiny data, with workers in threads; what they make of figures is right."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.bench import bench_spark_freshness, bench_spark_scaling, bench_spark_streaming
from tests.bench.bench_spark_scaling import COUNTS, Side, contest, counting, joining
from tests.bench.bench_spark_streaming import Pace, Seen, ours
from tests.bench.freshness_contest import Outcome
from tests.bench.peers import structured_streaming
from tests.sidecar.execution.workers.threads import Threads


@pytest.mark.parametrize("made", [counting, joining])
def test_one_two_and_four_workers_take_turns(made: type, tmp_path: Path) -> None:
    session = made(0.002)
    rows, used = contest(Threads, session, tmp_path)
    assert rows == 8_000
    assert {count: len(some) for count, some in used.items()} == {count: count for count in COUNTS}
    found = list(bench_spark_scaling.measured(session.name, rows, used))
    assert [r["goal"] is not None for r in found] == [True, False, True, False]


def test_different_outputs_are_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    take = Side.take
    monkeypatch.setattr(Side, "take", lambda self, *given: f"{take(self, *given)} {self.count}")
    with pytest.raises(AssertionError, match="the views differ after transaction 0"):
        contest(Threads, counting(0.002), tmp_path)


def test_our_turn_beside_structured_streaming_has_the_right_views(tmp_path: Path) -> None:
    found = ours(Threads, tmp_path, Pace(rows=40, gap=0.002, count=60, warm=10))
    assert len(found["joined"].latencies) == 50
    assert found["joined"].rate > 0


def test_goals_are_beside_the_better_state_store() -> None:
    def turn(rate: float, latency: float) -> list[dict[str, Seen]]:
        return [dict.fromkeys(("joined", "summed"), Seen(rate, [latency]))]

    turns = {"two workers": turn(100, 0.01), "default state store": turn(4, 0.4), "RocksDB": turn(5, 0.3)}
    rows = list(bench_spark_streaming.measured(Pace(8, 0.004, 10, 2), turns))
    goals = {(r["name"], r["peer"]): r["goal"] for r in rows if r["goal"] is not None}
    assert set(goals.values()) == {50.0, 30.0}
    assert {peer for _, peer in goals} == {"Structured Streaming, RocksDB"}
    assert all(r["met"] for r in rows if r["goal"] is not None)


def test_freshness_on_spark_is_beside_that_of_local_workers() -> None:
    here, there = (Outcome(load=1.0, latencies=[second], states=9) for second in (0.010, 0.011))
    rows = bench_spark_freshness.measured({"local workers": [here], "workers on Spark": [there]}, 200)
    assert [(r["ours"], r["goal"]) for r in rows[:3]] == [(11.0, 12.0), (11.0, None), (11.0, 13.0)]


def test_its_examples_hold() -> None:
    for module in (bench_spark_streaming, structured_streaming):
        assert doctest.testmod(module).failed == 0
