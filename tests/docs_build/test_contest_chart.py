"""The picture of the freshness contest: every system in every panel, each bar as long as its figure says."""

from __future__ import annotations

import re

from tests.bench.report import row
from tests.docs_build.contest_chart import PANELS, contest_chart, systems
from tests.docs_build.figures import numbers

ROWS = [
    row("commit → visible, p50", "ms", 5.0),
    row("Headrace, one sink: commit → visible, p50", "ms", 20.0),
    row("Headrace, one sink: states that never were, one view", "states", 0.0, note="of 400 states read"),
    row("Flink: commit → visible, p50", "ms", 80.0),
    row("Flink: states that never were, one view", "states", 100.0, note="of 400 states read"),
]


def test_each_system_has_a_bar_of_its_length_in_each_panel() -> None:
    assert systems(ROWS) == ["Headrace, one sink", "Flink"]
    drawn = contest_chart(ROWS)
    assert drawn.count(">Flink<") == len(PANELS)
    found = re.findall(r'<rect class="(\w+)" x="\d+" y="\d+" width="([\d.]+)"', drawn)
    assert found == [("ours", "50.0"), ("theirs", "200.0"), ("ours", "1.0"), ("theirs", "200.0")]
    assert ">25<" in drawn, "wrong states are shown as a share of those that were read"


def test_readme_shows_it_where_it_was_measured() -> None:
    assert "contest.svg" in numbers({"freshness": ROWS})
    assert "contest.svg" not in numbers({"freshness": ROWS[:1]})
