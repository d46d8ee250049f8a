"""Work that is done in portions: generators that stop between two pieces of it, and tell how far it has come.

Invariant: where the work stops, and for how long, changes nothing of what it gives. Bootstrap and `switching` are such work; who
wants it in one go calls `whole`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Progress(NamedTuple):
    """How far it has come: the counted work so far, the round, and the rows that the relations have in it.

    `expected`: how much work it is going to be, where that is known before it begins.
    """

    work: int
    round: int
    rows: int
    expected: int = 0


Portions = Generator[Progress, None, T]
"""Stops after each piece, and gives its result at the end."""


def whole(work: Portions[T]) -> T:
    """All of it at once."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: T = end.value
            return found


__all__ = ["Portions", "Progress", "whole"]
