"""docs/sql.md says what the corpus and the catalogue say."""

from __future__ import annotations

from tests.views.docs import COMMAND, PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"run {COMMAND}"
