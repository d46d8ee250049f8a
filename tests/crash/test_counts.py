"""The page of proofs says what the proofs counted, and no figure in it was typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.crash import counts


def test_the_page_is_as_the_kept_counts_make_it() -> None:
    text = counts.PAGE.read_text()
    assert counts.page(text) == text, "run `make proofs`"


def test_counts_of_a_run_come_onto_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROOFS", "KEPT", "PAGE"):
        monkeypatch.setattr(counts, name, tmp_path / name.lower())
    counts.write("fuzz", {"seed": 3, "records": 12_345, "kinds": {"row": 1}})
    counts.PAGE.write_text(f"before {counts.BEGIN} old {counts.END} after")
    counts.main()
    assert "| `make fuzz` |" in counts.PAGE.read_text()
    assert "records 12,345" in counts.PAGE.read_text()
    assert "`make crash` | not run yet" in counts.PAGE.read_text()
    assert counts.PAGE.read_text().startswith("before <!--")
    assert counts.PAGE.read_text().endswith("--> after")
    assert json.loads((counts.KEPT / "fuzz.json").read_text())["seed"] == 3
