"""State folders that earlier programs wrote: each is resumed without a refill, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.state.checkpoint import FORMAT, CheckpointError
from tests.doubles.memory import MemorySink
from tests.fixtures.states import CURRENT, STATES, read
from tests.sidecar.support.little import CUSTOMERS, ORDERS, answers

FOLDERS = sorted(p for p in STATES.iterdir() if p.is_dir())


def test_the_format_of_today_has_a_fixture() -> None:
    assert CURRENT in FOLDERS, "run python -m tests.fixtures.make"
    assert sum(f.stat().st_size for f in CURRENT.rglob("*") if f.is_file()) < 200_000


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_a_state_folder_is_resumed_without_a_refill_or_refused_by_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = read(folder, tmp_path, monkeypatch)
    recovered: list[tuple[frozenset[str], frozenset[str]]] = []
    whole: list[str] = []
    recover, written = KeptDataflow.recover, MemorySink.write

    def recording(self: KeptDataflow, *args: object) -> frozenset[str]:
        found = recover(self, *args)  # type: ignore[arg-type]
        recovered.append((found, frozenset(self.registry.arrangements())))
        return found

    def watched(self: MemorySink, changes: object, *args: object, **named: object) -> None:
        whole.extend(n for n, c in changes.items() if c.whole)  # type: ignore[attr-defined]
        written(self, changes, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(KeptDataflow, "recover", recording)
    monkeypatch.setattr(MemorySink, "write", watched)
    try:
        try:
            shop.start()
        except CheckpointError as error:
            if folder == CURRENT or "was written by another version" not in str(error):
                raise
            return
        assert shop.running is not None
        runtime = shop.running.runtime
        (found, wanted), epoch = recovered[0], runtime.epoch
        assert found == wanted, "an arrangement was not found in the checkpoint"
        at = shop.store.frontier
        assert at is not None
        assert epoch == at.epoch > 0
        shop.turn(2)
        assert runtime.epoch == epoch, "records were read again"
        shop.transact((ORDERS, "c", (9, 2)), (CUSTOMERS, "u", (2, 7)))
        shop.show_all()
        shop.turn(3)
        expected = answers(shop.state)
        assert {v: shop.rows(v) for v in expected} == expected
        assert whole == [], "a view was filled anew"
        assert runtime.epoch == epoch + 1
    finally:
        shop.close()


def test_a_state_folder_of_another_format_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = read(CURRENT, tmp_path, monkeypatch)
    monkeypatch.setattr("headrace.sidecar.state.checkpoint.FORMAT", FORMAT + 1)
    with pytest.raises(CheckpointError, match="was written by another version"):
        shop.start()
    shop.close()
