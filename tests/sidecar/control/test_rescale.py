"""Another count of workers: steps go on while the new ones compute the views, and whatever fails meanwhile leaves the old."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.errors import HeadraceError
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.rescale import Rescaling, Successor
from headrace.sidecar.runtime.loop_tasks import LoopClosed
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.control.test_apply import check
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VISITS, Little
from tests.sidecar.support.process import wait

BEGINNING = {CUSTOMERS: [(1, 1), (2, 2), (3, 1)], ORDERS: [(1, 1), (2, 3)], VISITS: [(1, 1), (2, 1)]}
STEPS = 20
"""So many steps are made while the new workers compute the views."""


@pytest.fixture(params=["driver", "shards"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Little]:
    with Little(tmp_path, monkeypatch, workers=2, intake=request.param).begun(BEGINNING) as made:
        yield made


def rescaled(shop: Little, *, busy: bool = True) -> Any:
    assert shop.running is not None
    rescaling = Rescaling(shop.running, ViewChanger(shop.running))
    return meanwhile(shop, lambda: rescaling.rescale(3), busy=busy)


def test_steps_go_on_while_new_workers_compute_the_views(shop: Little, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no checkpoint is begun, whose files would be others than theirs."""
    assert shop.running is not None
    runtime, before = shop.running.runtime, shop.running.runtime.epoch
    hydrate, held = Successor.hydrate, list[tuple[int, int]]()

    def slow(self: Successor) -> None:
        begun = runtime.epoch
        wait(lambda: len(self._waiting) > STEPS, "the loop goes on")
        hydrate(self)
        held.append((self.epoch, runtime.epoch - begun))
        assert not runtime.checkpoints.due(runtime.epoch)

    monkeypatch.setattr(Successor, "hydrate", slow)
    done = rescaled(shop)
    [(first, steps)] = held
    assert before <= first < done["epoch"]
    assert steps >= STEPS
    assert done["workers"] == shop.running.runtime.parts.flow.count == 3
    assert not runtime.feeds
    check(shop)


def test_what_fails_while_new_workers_follow_leaves_the_old(shop: Little, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.running is not None
    runtime, old = shop.running.runtime, shop.running.runtime.parts.flow
    made: list[Successor] = []

    def broken(self: Successor) -> None:
        made.append(self)
        raise HeadraceError("the views cannot be computed")

    with monkeypatch.context() as patch:
        patch.setattr(Successor, "hydrate", broken)
        with pytest.raises(HeadraceError, match="cannot be computed"):
            rescaled(shop)
    assert runtime.parts.flow is old
    assert not runtime.feeds
    with pytest.raises(HeadraceError, match="stopped"):
        made[0].flow.step(runtime.epoch + 1)
    check(shop)
    rescaled(shop)
    check(shop)


def test_a_run_that_ends_while_new_workers_follow_writes_its_last_checkpoint(
    shop: Little, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shop.running is not None
    runtime, hydrate = shop.running.runtime, Successor.hydrate

    def ends(self: Successor) -> None:
        hydrate(self)
        runtime.tasks.close()

    monkeypatch.setattr(Successor, "hydrate", ends)
    with pytest.raises(LoopClosed, match="stopping"):
        rescaled(shop, busy=False)
    shop.transact((ORDERS, "c", (70, 1)))
    shop.show_all()
    shop.turn(3)
    runtime.checkpoints._suspended = True  # as if the end came in the middle of it
    assert not runtime.drain()
    assert runtime.checkpoints.epoch == runtime.epoch
    shop.end()
    shop.start()
    shop.turn(3)
    check(shop)
