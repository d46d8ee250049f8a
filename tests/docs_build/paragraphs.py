"""`python -m tests.docs_build.paragraphs PACKAGE`: draws paragraphs of a package's docstrings at random, for somebody to read.

What has to be read twice is rewritten. The same seed draws the same paragraphs of the same text, so that a second reader can
look at them again.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.docs_build.words import ROOT

SHORTEST = 60
"""Characters that a paragraph has at least: shorter ones say one thing."""


def paragraphs(package: Path) -> Iterator[tuple[str, int, str]]:
    """File, line and text of each paragraph of a docstring in the package, examples apart."""
    for module in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
                continue
            text = node.value.value
            if isinstance(text, str):
                at = node.lineno
                for part in re.split(r"(\n\s*\n)", text):
                    if part.strip() and ">>>" not in part and len(part.strip()) >= SHORTEST:
                        yield str(module.relative_to(ROOT)), at + len(part) - len(part.lstrip("\n")), part.strip()
                    at += part.count("\n")


def drawn(package: Path, seed: int, count: int) -> list[tuple[str, int, str]]:
    """So many of them, or all where there are fewer, in the order of the text."""
    found = list(paragraphs(package))
    return sorted(random.Random(seed).sample(found, min(count, len(found))))


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", type=Path, help="engine/dataflow, sidecar/intake …")
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--count", type=int, default=20)
    chosen = parser.parse_args()
    for file, line, text in drawn((ROOT / chosen.package).resolve(), chosen.seed, chosen.count):
        sys.stdout.write(f"{file}:{line}\n    {text}\n\n")


if __name__ == "__main__":
    main()
