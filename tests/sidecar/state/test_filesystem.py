"""A disk that is full at whatever step: named, nothing published that is lost, and the next start goes on.

`python -m tests.sidecar.state.test_filesystem FOLDER HOW` is a sidecar on a true disk that is too small: `mounted`, a
file system of MOUNTED_BYTES at FOLDER/state, or `limited`, where no such can be made, a limit to the size of files.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.errors import HeadraceError
from tests.sidecar.support.little import KEYS, Little, answers

MOUNTED_BYTES = 2 << 20
ROUNDS = 12
MOUNT = 'mkdir -p "$1/state" && mount -t tmpfs -o size=$2 none "$1/state"'


class Full:
    """Lets `left` calls pass, then there is no room; of a write, half may be there."""

    def __init__(self, real: Any, left: int, *, half: bool = False) -> None:
        self.real, self.left, self.half = real, left, half
        self.refused = 0

    def __call__(self, *args: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            return self.real(*args)
        self.refused += 1
        if self.half:
            self.real(args[0], args[1][: len(args[1]) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def go_on(shop: Little, draw: random.Random, turns: int = 60) -> None:
    for _ in range(turns):
        shop.random(draw)
        shop.show_all()
        shop.turn()


@pytest.mark.parametrize("call", ["write", "half", "fdatasync", "fsync", "replace"])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_step_finds_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, seed: int) -> None:
    draw = random.Random(seed)
    shop = Little(tmp_path, monkeypatch)
    shop.snapshot({t: [(i, draw.randrange(1, 6)) for i in range(1, 5)] for t in KEYS})
    shop.start()
    name = "write" if call == "half" else call
    full = Full(getattr(os, name), draw.randrange(1, 12), half=call == "half")
    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with pytest.raises(HeadraceError, match=r"No space left|written in part") as failure:
            go_on(shop, draw)
        assert full.refused
        assert "free disk space" in str(failure.value)
        with suppress(HeadraceError):
            shop.end()
    if shop.store.frontier is not None:
        wanted = answers(shop.states[shop.store.frontier.sources["shop"].place.order])
        assert {v: shop.rows(v) for v in wanted} == wanted
    shop.start()
    shop.show_all()
    shop.turn(60)
    wanted = answers(shop.state)
    assert {v: shop.rows(v) for v in wanted} == wanted
    assert shop.in_error() == set()
    shop.end()


def test_a_file_system_without_room(tmp_path: Path) -> None:
    """A tmpfs in namespaces of its own, which takes no rights; where even that is forbidden, a limit to files' sizes."""
    enclosed, arguments = ["unshare", "--user", "--map-root-user", "--mount"], [str(tmp_path), str(MOUNTED_BYTES)]
    try:
        tried = subprocess.run([*enclosed, "sh", "-c", MOUNT, "sh", *arguments], capture_output=True, check=False)
        mounted = tried.returncode == 0
    except FileNotFoundError:
        mounted = False
    command = [
        sys.executable,
        "-m",
        "tests.sidecar.state.test_filesystem",
        str(tmp_path),
        "mounted" if mounted else "limited",
    ]
    if mounted:
        command = [*enclosed, "sh", "-c", f'{MOUNT} && shift 2 && exec "$@"', "sh", *arguments, *command]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert told.returncode == 0, told.stdout + told.stderr
    kinds = Counter(told.stdout.split())
    assert {"reclock", "state"} <= kinds.keys(), f"of {ROUNDS} disks none was full in the log, or at a start: {kinds}"


def main(folder: Path, how: str) -> None:
    """Let the disk be full after some bytes more, make room again, and go on; the kind of each error on a line."""
    draw = random.Random(1)
    with pytest.MonkeyPatch.context() as patch:
        shop = Little(folder, patch)
        shop.snapshot({t: [(i, draw.randrange(1, 6)) for i in range(1, 5)] for t in KEYS})
        for _ in range(ROUNDS):
            room = draw.choice([0, draw.randrange(60_000)])
            shop.every_turn = draw.random() < 0.5
            fill(folder / "state", room, how)
            told: list[HeadraceError] = []
            try:
                shop.start()
                go_on(shop, draw, 25)
                shop.end(drained=True)
            except HeadraceError as error:
                told.append(error)
            with suppress(HeadraceError):
                shop.close()
            for error in told:
                assert error.code in ("state", "checkpoint", "reclock"), error
                assert "free disk space" in str(error), error
                print(error.code)
            if shop.store.frontier is not None:
                wanted = answers(shop.states[shop.store.frontier.sources["shop"].place.order])
                assert {v: shop.rows(v) for v in wanted} == wanted
            fill(folder / "state", None, how)
            shop.start()
            shop.show_all()
            shop.turn(25)
            wanted = answers(shop.state)
            assert {v: shop.rows(v) for v in wanted} == wanted
            assert shop.in_error() == set()
            shop.end()


def fill(state: Path, room: int | None, how: str) -> None:
    """Leave so many bytes; None: make room."""
    if how == "limited":
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard if room is None else room // 10, hard))
        return
    ballast = state / "ballast"
    ballast.unlink(missing_ok=True)
    if room is not None:
        found = os.statvfs(state)
        ballast.write_bytes(b"x" * max(0, found.f_bavail * found.f_frsize - room))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
