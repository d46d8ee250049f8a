"""The documentation says what the code says: generated pages are fresh, links lead somewhere, commands exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sidecar.cli import app
from sidecar.docs import figures, misses, reference
from sidecar.docs.__main__ import pages, stale
from sidecar.docs.markdown import between

ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_generated_pages_are_fresh() -> None:
    assert stale(ROOT) == [], "run make docs"


def test_a_stale_page_is_named() -> None:
    text = pages(ROOT)["docs/configuration.md"]
    assert "checkpoint" in text
    told = subprocess.run(
        [sys.executable, "-m", "sidecar.docs", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (0, "")


def test_every_field_of_the_models_is_in_the_page() -> None:
    page = reference.configuration()
    for schema in reference.schemas().values():
        body = json.loads(schema)
        for model in (body, *body.get("$defs", {}).values()):
            for name in model.get("properties", {}):
                assert f"| `{name}` |" in page


def test_examples_of_the_page_are_complete_yaml() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", reference.configuration(), re.DOTALL)
    assert [next(iter(yaml.safe_load(b))) for b in blocks] == ["version", "version"]
    for block in blocks:
        named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", block)
        assert named is not None
        assert (ROOT / "docs" / named[1]).is_file()


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: p.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not re.match(r"\w+:|#", link):
            assert (page.parent / link.partition("#")[0]).exists(), f"{page.name}: {link}"


def commands(text: str) -> set[str]:
    """The words after `headrace` in code, as far as they are words."""
    found = re.findall(r"(?:^|`)headrace((?: [a-z]+)+)(?=[ `\n])", text, re.MULTILINE)
    return {" ".join(words.split()) for words in found}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: p.name)
def test_commands_in_the_pages_exist(page: Path) -> None:
    found = commands(page.read_text())
    if page.name == "README.md":
        assert {"validate", "run", "status"} <= {c.split()[0] for c in found}
    names = {c.name or (c.callback.__name__ if c.callback else "") for c in app.registered_commands}
    groups = {group.name for group in app.registered_groups}
    for command in found:
        words = command.split()
        known = words[:2] if words[0] in groups and len(words) > 1 else words[:1]
        assert words[0] in names | groups, f"{page.name}: headrace {command}"
        told = CliRunner().invoke(app, [*known, "--help"])
        assert told.exit_code == 0, f"{page.name}: headrace {command}"


def test_targets_of_make_in_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+)[%:]", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in WRITTEN:
        for line in re.findall(r"`make ([a-z][a-z -]*)`", page.read_text()):
            for target in line.split():
                assert target in targets or target.startswith("bench-"), f"{page.name}: make {target}"


def test_figures_are_taken_over_and_those_of_other_benchmarks_stay(tmp_path: Path) -> None:
    built, kept = tmp_path / "build", tmp_path / "kept"
    built.mkdir()
    kept.mkdir()
    row = {
        "name": "x",
        "unit": "ms",
        "ours": 12.0,
        "peer": "p",
        "peer_value": 6.0,
        "ratio": 0.5,
        "goal": 10.0,
        "met": False,
    }
    (kept / "old.json").write_text(json.dumps([row]))
    (built / "new.json").write_text(json.dumps([row | {"name": "y|z", "peer_value": None, "ratio": None}]))
    assert figures.take_over(built, kept) == ["new"]
    page = figures.benchmarks(figures.read(kept))
    assert "| x | 12 ms | ≤ 10 ms: missed | 6 ms, p | 0.50 |" in page
    assert "| y\\|z | 12 ms | ≤ 10 ms: missed |  |  |" in page
    assert figures.take_over(tmp_path / "nowhere", kept) == []


def test_missed_goals_stand_with_their_reasons_worst_first() -> None:
    row = {"unit": "µs", "peer": "p", "peer_value": 6.0, "ratio": 0.5, "met": False}
    rows = [
        row | {"name": "slow", "ours": 15.0, "goal": 10.0},
        row | {"name": "slower", "unit": "rows/s", "ours": 2.0, "goal": 8.0},
        row | {"name": "endless", "ours": 3.0, "goal": 0.0},
        row | {"name": "fast", "ours": 9.0, "goal": 10.0, "met": True},
        row | {"name": "shown", "ours": 9.0, "goal": None, "met": None},
    ]
    name, why = next(iter(misses.REASONS.items()))
    found = misses.section({name: rows, "no such bench": rows})
    told = found[found.index("| missed goal | factor |") :]
    assert told.startswith(
        "| missed goal | factor |\n| --- | --- |\n| endless | — |\n| slower | 4.00 |\n| slow | 1.50 |\n\n"
    )
    assert why in told
    assert not misses.section({name: rows[3:]})
    assert misses.section({name: rows}) in figures.benchmarks({name: rows})


def test_every_benchmark_beside_the_peer_that_misses_a_goal_has_a_reason() -> None:
    kept = figures.read(ROOT / "docs" / "figures")
    beside = ("arrange", "reduce", "join", "sharing", "graph", "recursion", "tpch", "workers")
    assert [name for name in beside if misses.missed(kept.get(name, ())) and not misses.REASONS.get(name)] == []


def test_a_page_without_its_marker_is_refused() -> None:
    with pytest.raises(AssertionError, match="marker"):
        between("text\n", "<!-- a -->", "<!-- b -->", "x")
