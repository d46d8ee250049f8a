"""Seeds of a test that plays at random: the first third in `make test`, all of them in `make proof`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(count: int) -> list[Any]:
    """What to parametrize a test by, to play `count` seeds: those after the first third (and the first two) are marked `long`."""
    few = max(count // 3, 2)
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(few, count))]
