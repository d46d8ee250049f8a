"""The documentation says what the code says: generated pages are fresh, links lead somewhere, commands exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from typer.testing import CliRunner

from headrace.sidecar.cli.app import app
from tests.docs_build import figures, misses, reference, words
from tests.docs_build.__main__ import pages, stale
from tests.docs_build.markdown import between

ROOT = Path(__file__).parents[2]
WRITTEN = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CODE = ("engine", "views", "connectors", "sidecar", "tests", "examples")


def test_generated_pages_are_fresh() -> None:
    assert stale(ROOT) == [], "run make docs"


def test_a_stale_page_is_named() -> None:
    text = pages(ROOT)["docs/configuration.md"]
    assert "checkpoint" in text
    told = subprocess.run(
        [sys.executable, "-m", "tests.docs_build", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
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


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made of their texts."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not re.match(r"\w+:", link):
            name, _, anchor = link.partition("#")
            there = page.parent / name if name else page
            assert there.exists(), f"{page.name}: {link}"
            if anchor and there.suffix == ".md":
                assert anchor in anchors(there), f"{page.name}: {link}"


TAUGHT = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]


def taught_views() -> list[tuple[str, str]]:
    """Page and text of every view that the pages for beginners show."""
    shown = re.compile(r"^ *```yaml\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    blocks = [(page.name, textwrap.dedent(text)) for page in TAUGHT for text in shown.findall(page.read_text())]
    return [(name, text) for name, text in blocks if "\nviews:\n" in text]


def test_views_in_the_pages_are_right_over_the_shop(tmp_path: Path) -> None:
    """They compile, and the unit tests that they show pass; README's is the one that the shop has."""
    found = taught_views()
    assert {"README.md", "tutorial.md", "declare-a-view.md"} <= {name for name, _ in found}
    config = tmp_path / "headrace.yaml"
    config.write_text((ROOT / "examples" / "shop" / "headrace.yaml").read_text())
    (tmp_path / "views").mkdir()
    for name, block in found:
        (tmp_path / "views" / "a.yaml").write_text(block)
        for command in ("validate", "test"):
            told = CliRunner().invoke(app, [command, "--config", str(config), "--json"])
            assert told.exit_code == 0, f"{name}: headrace {command}: {told.output}"
        if name == "README.md":
            own = yaml.safe_load((ROOT / "examples" / "shop" / "views" / "shop.yaml").read_text())
            assert yaml.safe_load(block) == own
        if "tests:" in block:
            assert json.loads(told.output)["passed"] >= 1


def test_files_that_pages_name_are_there() -> None:
    """But for the log of the development, which names files as they were, and files that are made later."""
    for page in WRITTEN:
        if page.name not in ("development-log.md", "proofs.md"):
            for name in re.findall(r"`((?:" + "|".join(CODE) + r")/[\w/.-]+)`", page.read_text()):
                assert name.endswith((".lock", ".json", ".yaml", ".properties")) or (ROOT / name).exists(), (
                    f"{page.name}: {name}"
                )


def test_the_forms_of_a_record_are_as_they_are_drawn() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## The forms of a record")[2].partition("\n## ")[0]
    forms = re.findall(r"^\| .* \| `(\w+)` \| `(\S+)` \|$", section, re.MULTILINE)
    assert len(forms) == 10, "a record has ten forms: draw another one, or untie it"
    for name, path in forms:
        assert re.search(rf"^class {name}\b", (ROOT / path).read_text(), re.MULTILINE), f"{path} has no {name}"
    drawn = re.findall(r'class="c b"[^>]*>(\w+)<', (ROOT / "docs" / "pictures" / "record.svg").read_text())
    assert drawn == [name for name, _ in forms]


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda p: p.name)
def test_pictures_are_shown_somewhere_and_need_nothing_else(picture: Path) -> None:
    text = picture.read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert not re.search(r"href=|url\((?!#)|@import", text)
    assert any(f"{picture.name})" in page.read_text() for page in WRITTEN), "no page shows it"


def test_decisions_that_code_cites_have_a_page_and_are_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    pages = {int(p.name[:4]): p for p in folder.glob("[0-9]*.md")}
    for number, page in pages.items():
        assert f"]({page.name})" in index, f"{page.name} is not in the index"
        heads = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
        assert page.read_text().startswith(f"# Decision {number}: ")
        assert heads == ["What", "Why", "What it costs", "What would overturn it"], page.name
    cited = {
        int(number)
        for package in CODE
        for module in (ROOT / package).rglob("*.py")
        for number in re.findall(r"\bdecision (\d+)", module.read_text())
    }
    assert cited
    assert cited <= pages.keys()


def test_no_coinage_is_read_by_anybody(tmp_path: Path) -> None:
    assert words.found(ROOT) == []
    assert len(words.COINAGES) <= 40
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).write_text("")
    (tmp_path / "docs" / "a.md").write_text("fine\nThe table stands still.\n")
    (tmp_path / "sidecar").mkdir()
    (tmp_path / "sidecar" / "b.py").write_text('"""One.\n\nIt waits for a lull.\n"""\nlulls = 1\n')
    assert [line.partition(": say")[0] for line in words.found(tmp_path)] == [
        "docs/a.md:2: `stands still`",
        "sidecar/b.py:3: `lull`",
    ]


def test_openings_are_short(tmp_path: Path) -> None:
    assert words.long_openings(ROOT) == []
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "a.py").write_text('"""One. Two. `x. y. z`. Four.\n\nFive. Six.\n"""\n')
    (tmp_path / "engine" / "b.py").write_text('"""One. Two. Three. Four. `five.a.b`.\n"""\n')
    assert words.long_openings(tmp_path) == ["engine/a.py:1: its opening has 6 sentences, at most 5"]


def test_long_subjects_are_named(tmp_path: Path) -> None:
    assert words.long_subjects(tmp_path) == []
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([*git, "init", "--quiet"], cwd=tmp_path, check=True)
    for subject in ("x" * words.SUBJECT, "y" * (words.SUBJECT + 1)):
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", subject], cwd=tmp_path, check=True)
    (line,) = words.long_subjects(tmp_path)
    assert "73 characters" in line
    assert "yyy" in line


def commands(text: str) -> set[str]:
    """The words after `headrace` in code, as far as they are words."""
    found = re.findall(r"(?:^|`)headrace((?: [a-z]+)+)(?=[ `\n])", text, re.MULTILINE)
    return {" ".join(words.split()) for words in found}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_in_the_pages_exist(page: Path) -> None:
    found = commands(page.read_text())
    if page == ROOT / "README.md":
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
    beside = ("arrange", "reduce", "join", "sharing", "graph", "recursion", "datalog", "tpch", "workers")
    assert [name for name in beside if misses.missed(kept.get(name, ())) and not misses.REASONS.get(name)] == []


def test_a_page_without_its_marker_is_refused() -> None:
    with pytest.raises(AssertionError, match="marker"):
        between("text\n", "<!-- a -->", "<!-- b -->", "x")
