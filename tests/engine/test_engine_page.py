"""docs/engine.md is true: run as a program, its tables are what the engine did; the files that it names are there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headrace.engine.trace.spine import NotFaithful
from tests.engine.page.tables import TABLES
from tests.engine.page.walk import PAGE, ROOT, written

_EVERY_FILE = "## Every file"


@pytest.fixture(scope="module")
def anew() -> str:
    return written(PAGE.read_text(), TABLES)


def _sections(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True))


def test_every_table_is_what_the_engine_did(anew: str) -> None:
    # The list of files changes with every new file: `make docs` writes it, and only its names are checked, below.
    mine, fresh = (_sections(page.partition(_EVERY_FILE)[0]) for page in (PAGE.read_text(), anew))
    for title, section in mine.items():
        assert section == fresh[title], f"run make docs: {title}"


def test_every_table_that_can_be_made_is_shown(anew: str) -> None:
    assert set(re.findall(r"^<!-- ([\w ]+) -->$", anew, re.MULTILINE)) - {"end"} == set(TABLES)


def test_a_changed_figure_is_noticed() -> None:
    page = PAGE.read_text()
    wrong = page.replace("| Lyon | 110 | 20 | 2 | +1 |", "| Lyon | 111 | 20 | 2 | +1 |")
    assert wrong != page
    assert written(wrong, TABLES).partition(_EVERY_FILE)[0] == page.partition(_EVERY_FILE)[0]


def test_files_that_the_page_names_are_there() -> None:
    page = PAGE.read_text()
    found = re.findall(r"`((?:engine/)?(?:[a-z_]+/)*[a-z_]+\.py)`", page)
    assert len(found) > 40
    for name in found:
        assert (ROOT / "engine" / name.removeprefix("engine/")).is_file(), name


def test_the_picture_is_there_and_reads_in_dark_too() -> None:
    picture = ROOT / "docs" / "engine.svg"
    assert "](engine.svg)" in PAGE.read_text()
    text = picture.read_text()
    assert "prefers-color-scheme: dark" in text
    assert text.count("<text") > 10


def test_what_the_page_says_of_the_past_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the page's last block: a question before since is refused, and a dropped view lets go of what it held."""
    seen: dict[str, Any] = {}
    monkeypatch.setitem(TABLES, "files", lambda names: str(seen.update(names) or ""))
    written(PAGE.read_text(), TABLES)
    flow, late = seen["flow"], seen["late"]
    with pytest.raises(NotFaithful, match="compacted"):
        late.snapshot(1)
    output = late.output("late")
    readers = {name: len(a.readers) for name, a in flow.arrangements().items()}
    flow.drop(output)
    fewer = {name: len(a.readers) for name, a in flow.arrangements().items()}
    assert sum(readers.values()) - sum(fewer.values()) == 2
    for name in ("output", "reached", "closed"):
        flow.drop(seen[name])
    assert all(name.startswith(("orders-", "customers-", "knows-", "meets-")) for name in flow.arrangements())
