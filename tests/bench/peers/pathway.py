"""Pathway as a peer: an environment of its own in build/, where it is looked for, and its program run once a figure.

Always: it is no dependency of ours; nothing is installed while a benchmark runs, and where it is not built its figures are
left out. `python -m tests.bench.peers.pathway` installs it (1.6 GB) and says where.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

VERSION = "0.33.0"
NAME = f"Pathway {VERSION}"
FOLDER = Path("build/peers/pathway")
PYTHON = FOLDER / "bin" / "python"


class Told(NamedTuple):
    """What one run came to: rows fed, processor seconds, and what is there in the end."""

    rows: int
    cpu: float
    answer: list[list[int | str]]


def build() -> Path:
    """Install it. Raises CalledProcessError where it cannot be had."""
    venv.create(FOLDER, with_pip=True, clear=True)
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", f"pathway=={VERSION}"], check=True)
    return PYTHON.absolute()


def ask(folder: Path, query: str, size: int) -> Told | None:
    """A query over the columns in `folder`, so many rows a transaction; None where it is not built."""
    if not PYTHON.exists():
        return None
    command = [PYTHON, "-m", "tests.bench.peers.pathway_session", folder, query, str(size)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if said.returncode:
        raise RuntimeError(f"Pathway could not answer {query}: {said.stderr[-2000:]}")
    return Told(**json.loads(said.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
