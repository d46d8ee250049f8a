"""Each run has a folder of its own, made from what the last one knew."""

from __future__ import annotations

import errno
import json
import os
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.sidecar.state.filesystem import LOCAL, LocalDisk
from headrace.sidecar.state.generation import (
    StateError,
    carry_over,
    numbers,
    predecessor,
    sweep_generations,
    take_generation,
)
from headrace.sidecar.state.spill import nameless
from tests.sim.disk import Disk, View

NAME = "b1" * 20


def test_generations_count_up_and_carry_state_over(tmp_path: Path) -> None:
    first, none = take_generation(tmp_path)
    assert none is None
    carry_over(first, None)
    (first.batches / NAME).write_bytes(b"batch")
    first.manifest.write_text(json.dumps({"arrangements": {"x": [{"file": NAME, "bytes": 5}]}}))
    first.log.write_bytes(b"line\n")
    second, previous = take_generation(tmp_path)
    assert previous is not None
    assert (second.number, previous.number) == (2, 1)
    carry_over(second, previous)
    assert second.log.read_bytes() == b"line\n"
    assert os.stat(second.batches / NAME).st_ino == os.stat(first.batches / NAME).st_ino
    (first.batches / NAME).unlink()
    assert (second.batches / NAME).read_bytes() == b"batch"


def test_a_generation_that_died_before_it_was_ready_is_passed_over(tmp_path: Path) -> None:
    first, _ = take_generation(tmp_path)
    carry_over(first, None)
    take_generation(tmp_path)
    third, previous = take_generation(tmp_path)
    assert third.number == 3
    assert previous is not None
    assert previous.number == 1


def test_who_was_overtaken_while_it_fenced_its_sinks_gives_way(tmp_path: Path) -> None:
    """Found by the simulator (seeds 1174 and 1220): of two starts at once each had one sink, and both wrote."""
    first, _ = take_generation(tmp_path)
    second, before = take_generation(tmp_path)
    assert before is None
    with pytest.raises(StateError, match="another run has begun meanwhile"):
        predecessor(first)
    with pytest.raises(StateError, match="another run has begun meanwhile"):
        carry_over(first, None)
    assert predecessor(second) is None, "the first is not ready, and will not be"


def test_what_was_swept_while_it_was_looked_at_is_not_taken_for_nothing(tmp_path: Path) -> None:
    """Found by the simulator (seed 226): the run went on with an empty state."""
    first, _ = take_generation(tmp_path)
    carry_over(first, None)
    second, _ = take_generation(tmp_path)

    class Swept(LocalDisk):
        """A later run takes its generation and sweeps the first while this one looks for what is ready."""

        def exists(self, path: Path) -> bool:
            if path == first.ready and not (tmp_path / "generations" / "000003").exists():
                take_generation(tmp_path)
                self.remove_folder(first.folder)
            return super().exists(path)

    with pytest.raises(StateError, match="another run has begun meanwhile"):
        predecessor(replace(second, disk=Swept()))


def test_what_is_swept_while_it_is_carried_over_is_not_half_a_state(tmp_path: Path) -> None:
    first, _ = take_generation(tmp_path)
    carry_over(first, None)
    second, _ = take_generation(tmp_path)
    LOCAL.remove_folder(first.folder)
    with pytest.raises(StateError, match="another run has swept"):
        carry_over(second, first)


def test_old_generations_are_swept(tmp_path: Path) -> None:
    for _ in range(4):
        take_generation(tmp_path)
    sweep_generations(tmp_path, 4, 1)
    assert numbers(tmp_path) == [3, 4]


def test_a_run_that_was_overtaken_does_not_sweep_what_later_ones_have_not_taken_over(tmp_path: Path) -> None:
    """Simulator, seed 1421: two later runs were killed before they had, and the state was lost."""
    before, _ = take_generation(tmp_path)
    carry_over(before, None)
    slow, previous = take_generation(tmp_path)
    carry_over(slow, previous)
    for _ in range(2):
        take_generation(tmp_path)
    sweep_generations(tmp_path, slow.number, 1)
    _, previous = take_generation(tmp_path)
    assert previous is not None
    assert previous.number == slow.number
    assert numbers(tmp_path) == [1, 2, 3, 4, 5]


def test_a_state_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot use the state folder"):
        take_generation(tmp_path / "file")


def test_a_damaged_manifest_of_the_generation_before_is_named(tmp_path: Path) -> None:
    first, _ = take_generation(tmp_path)
    carry_over(first, None)
    for text in (b"\x80", b"[]", b'{"arrangements": {"x": [{"file": "../../secret"}]}}', b"["):
        first.manifest.write_bytes(text)
        second, previous = take_generation(tmp_path)
        with pytest.raises(StateError, match="damaged"):
            carry_over(second, previous)


@pytest.mark.parametrize("step", range(1, 30))
def test_a_power_cut_leaves_a_generation_that_was_ready_whatever_befell_the_start_before(step: int) -> None:
    """Found by the simulator (seeds 3 and 12): the folders' own names were not on disk."""
    disk, state, left = Disk(), Path("/somewhere/state"), iter(range(step))

    def killed(_: str) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    for door in (killed, lambda _: None):
        with suppress(KeyboardInterrupt):
            view = View(disk, door, random.Random(step))
            fresh, previous = take_generation(state, disk=view)
            carry_over(fresh, previous)
    for seed in range(20):
        disk.forget(random.Random(seed))
        view = View(disk, lambda _: None, random.Random(seed))
        assert view.exists(fresh.ready)


def test_a_start_that_finds_no_room_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found on a tmpfs: each start that failed kept what it had copied, so that room that was made was gone again."""
    first, _ = take_generation(tmp_path)
    carry_over(first, None)
    first.log.write_bytes(b"x" * 1000)
    fresh, previous = take_generation(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StateError, match="No space left"):
            carry_over(fresh, previous)
    assert not fresh.log.exists()
    again, before = take_generation(tmp_path)
    carry_over(again, before)
    assert again.log.read_bytes() == b"x" * 1000


def test_a_manifest_leaves_what_is_written_at_this_moment(tmp_path: Path) -> None:
    run, _ = take_generation(tmp_path)
    carry_over(run, None)
    (run.batches / "left over").write_bytes(b"of an earlier manifest")

    def fill(file: pa.OSFile) -> None:
        file.write(b"rows")
        run.put_manifest(b"{}", set())

    assert bytes(nameless(run.batches / "spilling", fill)) == b"rows"
    assert os.listdir(run.batches) == []
