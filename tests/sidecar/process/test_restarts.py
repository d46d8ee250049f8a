"""Lost workers are replaced, five times in ten minutes at most."""

from __future__ import annotations

from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.workers.pool import CUT_OFF, SlotsMissing, WorkerLost
from headrace.sidecar.process.restarts import MOST, WITHIN_SECONDS, Restarts


def test_the_fifth_loss_in_ten_minutes_ends_it() -> None:
    now = [0.0]
    restarts = Restarts(lambda: now[0])
    for _ in range(MOST - 1):
        assert restarts.may_follow(WorkerLost("a worker died"))
        now[0] += 3
        assert restarts.running() == 3
        now[0] += WITHIN_SECONDS / MOST
    now[0] -= 20
    assert not restarts.may_follow(WorkerLost("a worker died"))
    assert restarts.count == MOST


def test_each_part_of_a_restart_is_told_once() -> None:
    now = [0.0]
    restarts = Restarts(lambda: now[0])
    restarts.starting()
    assert restarts.running() is None, "a first start is none"
    assert restarts.caught_up() is None
    assert restarts.may_follow(WorkerLost(CUT_OFF))
    now[0] = 2
    restarts.starting()
    now[0] = 10
    assert restarts.may_follow(SlotsMissing("too few"))
    restarts.starting()
    now[0] = 20
    assert restarts.running(slots=1, start=3) == 20
    now[0] = 24
    assert restarts.caught_up() == {"end": 2, "slots": 9, "start": 3, "recover": 6, "catch up": 4}
    assert restarts.caught_up() is None
    assert restarts.reasons == {"cut": 1}


def test_losses_long_past_do_not_count() -> None:
    now = [0.0]
    restarts = Restarts(lambda: now[0])
    for _ in range(3 * MOST):
        assert restarts.may_follow(WorkerLost("a worker died"))
        now[0] += WITHIN_SECONDS / (MOST - 1) + 1


def test_missing_slots_are_waited_for_and_what_is_no_loss_ends_it() -> None:
    restarts = Restarts(lambda: 0.0)
    assert all(restarts.may_follow(SlotsMissing("too few")) for _ in range(3 * MOST))
    assert restarts.count == 0
    assert not restarts.may_follow(HeadraceError("no room"))
