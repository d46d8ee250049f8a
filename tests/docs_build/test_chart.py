"""Pictures of measured points: every point inside of its panel, at its place, and every switch marked."""

from __future__ import annotations

import doctest
import xml.etree.ElementTree as ET
from types import ModuleType

import pytest

from tests.docs_build import chart as module
from tests.docs_build import epochs_chart as epochs_module
from tests.docs_build.chart import Panel, chart
from tests.docs_build.epochs_chart import Series, epochs_chart


def test_points_lie_where_their_values_say_and_texts_are_escaped() -> None:
    drawn = ET.fromstring(chart([Panel("a < b", "rows", "s", [(0, 0), (5, 1), (10, 2)]), Panel("", "x", "", [])]))
    assert "a < b" in [e.text for e in drawn]
    first, second = [e.get("points", "") for e in drawn if e.tag.endswith("polyline")]
    places = [tuple(float(v) for v in p.split(",")) for p in first.split()]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == x2 - x1 > 0
    assert y0 - y1 == y1 - y2 > 0
    assert second == ""


def test_a_series_has_a_line_a_side_and_a_mark_a_switch() -> None:
    seconds = {"ours": [1.0, 0.01, 1.0], "Bootstraps alone": [1.0, 1.0, 1.0], "peer": [0.1, 10.0, 0.1]}
    drawn = ET.fromstring(epochs_chart([Series("a & b", seconds, ["bootstrap", "update", "dropped"])]))
    texts = [e.text for e in drawn]
    assert {"a & b", *seconds, "10 ms", "10 s"} <= set(texts)
    lines = [e for e in drawn if e.tag.endswith("polyline")][len(seconds) :]
    ours = next(e for e in lines if e.get("class") == "ours")
    points = [tuple(map(float, p.split(","))) for p in str(ours.get("points")).split()]
    marks = [(float(str(e.get("cx"))), float(str(e.get("cy")))) for e in drawn if e.tag.endswith("circle")][1:]
    assert marks == [points[0], points[2]]
    assert points[1][1] > points[0][1]
    assert len(lines) == len(seconds)


@pytest.mark.parametrize("of", [module, epochs_module])
def test_its_examples_hold(of: ModuleType) -> None:
    assert doctest.testmod(of).failed == 0
