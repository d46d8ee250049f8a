"""Times and frontiers by brute force over a small grid: the twin of `headrace.engine.lattice`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

Point = tuple[int, ...]

SIDE = 4


def grid(depth: int) -> list[Point]:
    """All points of a scope `depth` rounds deep."""
    return list(product(range(SIDE), repeat=depth + 1))


def below(a: Point, b: Point) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))


def beyond(points: Iterable[Point], depth: int) -> set[Point]:
    """The points of the grid that are ≥ one of `points`."""
    given = list(points)
    return {p for p in grid(depth) if any(below(g, p) for g in given)}


def minimal(points: set[Point]) -> set[Point]:
    return {p for p in points if not any(q != p and below(q, p) for q in points)}


def alike(a: Point, b: Point, points: Iterable[Point]) -> bool:
    """True if `a` and `b` compare alike with every one of `points`."""
    return all(below(a, p) == below(b, p) for p in points)
