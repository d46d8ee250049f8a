"""A picture of measured points: every point inside of its panel, at its place."""

from __future__ import annotations

import doctest
import xml.etree.ElementTree as ET

from sidecar.docs import chart as module
from sidecar.docs.chart import Panel, chart


def test_points_lie_where_their_values_say_and_texts_are_escaped() -> None:
    drawn = ET.fromstring(chart([Panel("a < b", "rows", "s", [(0, 0), (5, 1), (10, 2)]), Panel("", "x", "", [])]))
    assert "a < b" in [e.text for e in drawn]
    first, second = [e.get("points", "") for e in drawn if e.tag.endswith("polyline")]
    places = [tuple(float(v) for v in p.split(",")) for p in first.split()]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == x2 - x1 > 0
    assert y0 - y1 == y1 - y2 > 0
    assert second == ""


def test_its_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0
