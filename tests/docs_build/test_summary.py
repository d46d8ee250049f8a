"""The top of the page of benchmarks: what counts in it, and bars that lie where their ratios say."""

from __future__ import annotations

import doctest
import xml.etree.ElementTree as ET

from tests.docs_build import summary
from tests.docs_build.bars import Group, bars

ROW = {
    "name": "x",
    "unit": "ms",
    "ours": 5.0,
    "goal": 10.0,
    "met": True,
    "peer": None,
    "peer_value": None,
    "ratio": None,
}


def test_a_quoted_figure_does_not_count() -> None:
    beside = ROW | {"peer": "p", "peer_value": 6.0, "ratio": 2.0}
    rows = [beside, beside | {"ratio": 4.0}, beside | {"peer": "q (quoted, not measured here)", "ratio": 0.1}]
    assert summary.against_peer(rows) == {"p": 3.0}
    line = summary.section([("Bench", "make bench-x", "x", "5 ms", [*rows, ROW | {"met": False}])]).splitlines()[-1]
    assert line == "| Bench | x | 5 ms | 3 of 4 | 3.00 × p | `make bench-x` |"


def test_a_goal_of_nothing_and_no_goal_have_no_bar() -> None:
    assert summary.against_goal(ROW | {"goal": 0.0}) is None
    assert summary.against_goal(ROW | {"goal": None}) is None
    drawn = summary.picture([ROW, ROW | {"goal": 0.0}], {})
    assert drawn.count("<rect") == 1


def test_twice_as_good_and_half_as_good_are_as_long() -> None:
    drawn = ET.fromstring(bars([Group("a < b", [("good", 2.0), ("bad", 0.5), ("even", 1.0)])]))
    good, bad, even = [e for e in drawn if e.tag.endswith("rect")]
    assert good.get("width") == bad.get("width") != "0.0"
    assert float(bad.get("x", "")) < float(good.get("x", "")) == float(even.get("x", ""))
    assert (good.get("class"), bad.get("class"), even.get("width")) == ("good", "bad", "0.0")
    assert bars([]).startswith("<svg")


def test_its_examples_hold() -> None:
    assert doctest.testmod(summary).failed == 0
