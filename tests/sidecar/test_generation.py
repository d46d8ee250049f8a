"""Each run has a folder of its own, made from what the last one knew."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sidecar.generation import StateError, carry_over, numbers, sweep_generations, take_generation

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


def test_old_generations_are_swept(tmp_path: Path) -> None:
    for _ in range(4):
        take_generation(tmp_path)
    sweep_generations(tmp_path, 2)
    assert numbers(tmp_path) == [3, 4]


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
