"""A soak notices what grows, and what it sampled becomes a picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tests.crash.counts import picture
from tests.crash.soak import KEPT, Sample, grown, thinned


def samples(**slopes: float) -> list[Sample]:
    """A run of an hour: levels with noise, which rise by so much over it; it warms up with a jump."""
    noise = np.random.default_rng(1).normal(size=(720, 3))
    levels = {"memory_mib": (340.0, 4.0), "files": (60.0, 0.5), "threads": (30.0, 0.0)}
    return [
        {"at": 5.0 * i, **{
            name: level + spread * noise[i, k] + slopes.get(name, 0.0) * i / 720 + (50.0 if i < 100 else 0.0)
            for k, (name, (level, spread)) in enumerate(levels.items())
        }}
        for i in range(720)
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "rise"), [("memory_mib", 60.0), ("files", 5.0), ("threads", 2.0)])
def test_what_grows_is_named_and_what_is_flat_is_not(name: str, rise: float) -> None:
    assert grown(samples()) == []
    assert grown(samples(**{name: -rise})) == []
    [told] = grown(samples(**{name: rise}))
    assert told.startswith(f"{name} rose by ")


def test_samples_become_a_picture() -> None:
    kept = thinned(samples())
    assert KEPT <= len(kept) <= KEPT + 1
    assert kept[-1]["at"] == samples()[-1]["at"]
    drawn = ET.fromstring(picture(kept))
    lines = [e.get("points", "").split() for e in drawn if e.tag.endswith("polyline")]
    assert [len(points) for points in lines] == [len(kept)] * 3
