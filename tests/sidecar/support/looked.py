"""A little shop in one process whose clock is the test's, with its board and the events that it tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.data_tests import Checks
from headrace.sidecar.process.checkups import Checkups
from headrace.sidecar.process.status_board import Board
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VIEWS, VISITS, Little

BEGIN = 2000.0
"""Seconds since 1970 when the little shop, whose commit times are its LSNs in µs, is looked at."""


class Looked:
    """A little shop with a clock, its board, and the events that it told."""

    def __init__(self, shop: Little) -> None:
        assert shop.running is not None
        self.shop, self.running, self.now = shop, shop.running, BEGIN
        self.running.runtime.parts.wall = lambda: self.now
        self.board = Board(
            self.running,
            ViewChanger(self.running, lambda: None),
            Checks(self.running),
            Checkups(tuple, self.running.metrics.registry),
        )
        self.running.metrics.on_render = self.board.changes.gauge
        self.frontier(BEGIN)

    def frontier(self, commit: float) -> None:
        """The sink holds what was committed then."""
        for writer in self.running.runtime.parts.writers:
            assert writer.frontier is not None
            at = {n: replace(s, commit_us=int(commit * 1e6)) for n, s in writer.frontier.sources.items()}
            writer.frontier = replace(writer.frontier, sources=at)

    def look(self) -> list[str]:
        self.board.write()
        return [
            f"{e['event']} {e.get('view') or e.get('table') or e.get('source') or ''}"
            for e in self.board.changes.look()
        ]

    def view(self, name: str) -> dict[str, Any]:
        return next(v for v in self.board.read()["views"] if v["name"] == name)


@contextmanager
def looking(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Looked]:
    """One of four views, of which `orders` declares how old it may become."""
    shop = Little(folder, patch)
    text = VIEWS.replace("{name: orders, key: [id],", "{name: orders, key: [id], freshness: {warn: 2, error: 5},")
    (shop.folder / "views" / "v.yaml").write_text(text)
    with shop.begun({CUSTOMERS: [(1, 5), (2, 5)], ORDERS: [(1, 1)], VISITS: []}):
        shop.turn(2)
        made = Looked(shop)
        made.look()
        yield made
