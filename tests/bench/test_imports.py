"""What no test runs is imported at least: benchmarks and proofs follow the names of what they measure."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/bench", "tests/crash", "tests/hostile", "tests/sim", "tests/oracle", "tests/alerts", "examples/demo")
MODULES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
    for folder in FOLDERS
    for path in (ROOT / folder).glob("*.py")
    if not path.name.startswith(("__", "test_"))
)


def test_there_are_some() -> None:
    assert len(MODULES) > 60


@pytest.mark.parametrize("module", MODULES)
def test_it_can_be_imported(module: str) -> None:
    importlib.import_module(module)
