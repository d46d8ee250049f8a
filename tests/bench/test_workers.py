"""The benchmark of two workers runs each of its sessions, on tiny data and with workers in threads."""

from __future__ import annotations

import pytest

from tests.bench.bench_workers import SESSIONS, contest
from tests.bench.workers import Work
from tests.sidecar.execution.workers.threads import Threads


@pytest.mark.parametrize("session", sorted({session for session, *_ in SESSIONS}))
def test_one_worker_and_two_take_turns(session: str) -> None:
    found = contest(session, 300, 900, 2, Threads)
    assert {clock: {count: len(rounds) for count, rounds in of.items()} for clock, of in found.items()} == {
        "cpu": {1: 2, 2: 2}, "wall": {1: 2, 2: 2}
    }  # fmt: skip


def test_different_outputs_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Work.answer

    def wrong(self: Work) -> tuple[int, int]:
        checksum, rows = answer(self)
        return checksum + self.shard.index, rows

    monkeypatch.setattr(Work, "answer", wrong)
    with pytest.raises(AssertionError, match="one worker and two differ"):
        contest("join", 300, 900, 1, Threads)
