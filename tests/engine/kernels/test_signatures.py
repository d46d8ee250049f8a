"""The shape of kernels: no more than eight arguments, and each compiled for one signature."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

import headrace.engine.kernels
from headrace.engine.kernels.compiler import JIT_OFF

MOST = 8
MODULES = sorted(path for path in Path(headrace.engine.kernels.__file__).parent.glob("*.py") if path.stem != "__init__")


def functions(path: Path, decorator: str) -> list[ast.FunctionDef]:
    """The functions of a module that are decorated so."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            names = {ast.unparse(d).partition("(")[0] for d in node.decorator_list}
            if decorator in names:
                found.append(node)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_no_kernel_has_more_than_eight_arguments(path: Path) -> None:
    many = {f.name: len(f.args.args) for f in functions(path, "kernel") if len(f.args.args) > MOST}
    assert not many


def test_there_are_kernels_to_look_at() -> None:
    assert sum(len(functions(path, "kernel")) for path in MODULES) > 20


@pytest.mark.skipif(JIT_OFF, reason="nothing is compiled")
@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_each_kernel_has_one_signature_and_takes_no_other(path: Path) -> None:
    headrace.engine.kernels.warm()
    module: Any = importlib.import_module(f"headrace.engine.kernels.{path.stem}")
    for function in functions(path, "kernel"):
        dispatcher = getattr(module, function.name)
        assert len(dispatcher.nopython_signatures) == 1, function.name
        assert not dispatcher._can_compile, f"{function.name} would compile itself anew for other types"
