"""A disk that is full at whatever step: named, nothing published that is lost, and the next start goes on."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from engine.errors import HeadraceError
from tests.sidecar.little import KEYS, Little, answers


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


def go_on(shop: Little, draw: random.Random) -> None:
    for _ in range(60):
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
        try:
            shop.end()
        except HeadraceError:
            shop.running = None
    if shop.store.frontier is not None:
        wanted = answers(shop.states[shop.store.frontier.sources["shop"].lsn])
        assert {v: shop.rows(v) for v in wanted} == wanted
    shop.start()
    shop.show_all()
    shop.turn(60)
    wanted = answers(shop.state)
    assert {v: shop.rows(v) for v in wanted} == wanted
    assert shop.in_error() == set()
    shop.end()
