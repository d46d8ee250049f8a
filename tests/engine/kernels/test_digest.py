"""The cache of machine code follows the sources: a kernel's digest changes with every file that it is compiled from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.engine import kernels
from headrace.engine.errors import InvariantBroken
from headrace.engine.kernels import compiler

HERE = Path(kernels.__file__).parent
MODULES = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("__init__", "compiler"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def changed(folder: Path, module: str) -> Path:
    """A copy of the folder, in which one file says something more."""
    made = folder.with_name(f"{module} changed")
    shutil.copytree(folder, made)
    with (made / f"{module}.py").open("a") as file:
        file.write("\n_MORE = 1\n")
    return made


def test_a_change_of_a_called_kernel_changes_its_callers_digest(copy: Path) -> None:
    """`lookup` calls what stands in `consolidate`, which calls `sort`; it does not call `gather`."""
    before = kernels.digest("lookup", "c", copy)
    assert kernels.digest("lookup", "c", changed(copy, "sort")) != before
    assert kernels.digest("lookup", "c", changed(copy, "compiler")) != before
    assert kernels.digest("lookup", "c", changed(copy, "gather")) == before
    assert kernels.digest("lookup", "another compiler", copy) != before


@pytest.mark.parametrize("module", MODULES)
def test_every_import_of_a_neighbour_is_found(module: str) -> None:
    """By the text alone, which may say too much (in a comment) and never too little."""
    text = (HERE / f"{module}.py").read_text()
    named = {m for m in (p.stem for p in HERE.glob("*.py")) if f"headrace.engine.kernels.{m} import" in text}
    assert named
    assert named <= kernels.imported(module)


def test_modules_that_are_compiled_without_bounds_checks_are_there() -> None:
    assert set(MODULES) >= compiler._RAW


@pytest.mark.parametrize(
    "line",
    [
        "from headrace.engine.kernels import sort",
        "from headrace.engine.kernels import (\n    sort as order,\n)",
        "from headrace.engine.kernels.sort import (\n    before,\n)",
        "import headrace.engine.kernels.sort as order",
        "from . import sort",
        "from .sort import before",
    ],
)
def test_an_import_is_found_however_it_is_written(copy: Path, line: str) -> None:
    (copy / "new.py").write_text(f"import numpy\n{line}\n")
    assert kernels.imported("new", copy) == {"sort"}


def test_a_module_whose_imports_are_not_understood_has_no_digest(copy: Path) -> None:
    (copy / "new.py").write_text("from kernels.compiler import kernel\n")
    with pytest.raises(InvariantBroken, match="does not import their compiler"):
        kernels.digest("new", "c", copy)
    (copy / "newer.py").write_text(
        "from headrace.engine.kernels.compiler import kernel\nfrom headrace.engine.kernels import gone\n"
    )
    with pytest.raises(InvariantBroken, match="no file of its folder"):
        kernels.digest("newer", "c", copy)
