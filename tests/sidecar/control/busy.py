"""A loop that turns, with transactions going on or not, while something is asked of it on another thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from headrace.engine.errors import HeadraceError
from tests.sidecar.support.little import Little


def turning(work: Callable[[], Any], turn: Callable[[], None]) -> Any:
    """Do `work` on a thread, and `turn` over and over until it has ended; its result, or what it raised."""
    ended: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((work(), None))
        except HeadraceError as failure:
            ended.append((None, failure))

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        turn()
    result, failure = ended[0]
    if failure is not None:
        raise failure
    return result


def meanwhile(little: Little, work: Callable[[], Any], *, busy: bool = True) -> Any:
    """Do `work` on a thread while the loop turns; its result, or what it raised."""
    draw = random.Random(3)

    def turn() -> None:
        if busy:
            little.random(draw)
            little.show_all()
        little.turn()

    try:
        return turning(work, turn)
    finally:
        little.turn(2)
