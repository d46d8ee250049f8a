"""A loop that turns, with transactions going on or not, while something is asked of it on another thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from headrace.engine.errors import HeadraceError
from tests.sidecar.support.little import Little


def meanwhile(little: Little, work: Callable[[], Any], *, busy: bool = True) -> Any:
    """Do `work` on a thread while the loop turns; its result, or what it raised."""
    ended: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((work(), None))
        except HeadraceError as failure:
            ended.append((None, failure))

    thread, draw = threading.Thread(target=run), random.Random(3)
    thread.start()
    while thread.is_alive():
        if busy:
            little.random(draw)
            little.show_all()
        little.turn()
    little.turn(2)
    result, failure = ended[0]
    if failure is not None:
        raise failure
    return result
