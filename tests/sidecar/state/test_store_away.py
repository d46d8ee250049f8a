"""The store of the state goes away while the sidecar runs: steps go on, the last checkpoint stands, the next one is tried."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.sidecar.epochs.reclock import ReclockLog
from headrace.sidecar.process.status_board import status
from headrace.sidecar.state.checkpoint import manifest_of
from headrace.sidecar.state.object_generation import kept_run
from headrace.sidecar.state.objects import FolderObjects
from headrace.sidecar.wiring import build as wiring
from tests.sidecar.execution.workers.test_run import BEGINNING, Shared
from tests.sidecar.support.process import wait


class Stored(Shared):
    """Its state in a store of objects; its log of epochs in a file beside, which survives like a topic."""

    @property
    def objects(self) -> Path:
        """A link, so that the store goes and comes in one step, whatever is written meanwhile."""
        return self.folder / "objects"

    def leads_to(self, path: Path) -> None:
        link = self.folder / "objects.new"
        link.symlink_to(path)
        os.replace(link, self.objects)

    def configure(self) -> dict[str, Any]:
        if not self.objects.is_symlink():
            (self.folder / "kept").mkdir()
            self.back()
        return {**super().configure(), "state": f"file://{self.objects}", "reclock": "kafka"}

    def away(self) -> None:
        """The store does not answer, to no process."""
        (self.folder / "no folder").touch()
        self.leads_to(self.folder / "no folder")

    def back(self) -> None:
        self.leads_to(self.folder / "kept")


@pytest.fixture(params=[1, 2])
def shop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stored]:
    log = tmp_path / "epochs"
    log.mkdir()
    monkeypatch.setattr(
        wiring,
        "make_epoch_log",
        lambda _, __, executor, reached, before: ReclockLog(log / "log", executor, reached, before=before),
    )
    made = Stored(tmp_path, monkeypatch, workers=request.param)
    made.snapshot(BEGINNING)
    made.show_all()
    made.start()
    made.turn()
    yield made
    made.close()


def checkpoint(shop: Stored) -> Any:
    assert shop.running is not None
    return status(shop.running)["checkpoint"]


def until(shop: Stored, holds: Callable[[Any], bool]) -> Any:
    """Turn until it holds of the checkpoint, which a thread writes beside."""

    def turned() -> bool:
        shop.turn()
        return holds(checkpoint(shop))

    wait(turned, "the checkpoint is as it should be", 30)
    return checkpoint(shop)


def test_steps_go_on_without_the_store_and_checkpoints_come_back_with_it(shop: Stored) -> None:
    draw = random.Random(2)
    shop.go_on(draw, 3)
    before = until(shop, lambda found: found["epoch"] > 0)
    assert before["error"] is None

    shop.away()
    shop.go_on(draw, 4)
    gone = until(shop, lambda found: found["error"] is not None)
    assert "the store of the state does not answer" in gone["error"]
    assert gone["since"] is not None
    assert shop.running is not None
    assert shop.running.runtime.epoch > gone["epoch"]

    shop.back()
    shop.go_on(draw, 3)
    after = until(shop, lambda found: found["error"] is None and found["epoch"] > gone["epoch"])
    manifest = manifest_of(kept_run(FolderObjects(shop.objects), shop.folder))
    assert manifest is not None
    assert manifest.epoch == after["epoch"]
    counts = shop.running.metrics.store()
    assert counts.failed == 0, "a folder has no requests without an answer"
    assert counts.written_bytes > 0


def test_another_machine_goes_on_from_the_store(shop: Stored) -> None:
    draw = random.Random(3)
    shop.go_on(draw, 4)
    assert shop.running is not None
    last = shop.running.runtime.epoch
    at = until(shop, lambda found: found["epoch"] == last)["epoch"]
    shop.end()
    shutil.rmtree(shop.folder / "state")
    shop.start()
    assert shop.running is not None
    assert shop.running.runtime.epoch == at
    assert shop.running.generation.number == 2
    shop.go_on(draw, 3)
