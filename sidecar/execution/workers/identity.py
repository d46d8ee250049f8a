"""What two processes must have in common to be shards of one dataflow: program, Python, numba, machine code, byte order.

Always: what differs is named with both values. Told in the first words of a connection, before anything is unpickled.
Called by the driver and by workers on other hosts.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import headrace

PROGRAM = "program digest"


@cache
def identity() -> Mapping[str, str]:
    """Of this process."""
    return {
        PROGRAM: program_digest(Path(headrace.__file__).parent),
        "Python": platform.python_version(),
        "numba": version("numba"),
        "CPU model of the kernels": os.environ.get("NUMBA_CPU_NAME") or f"host {platform.machine()} {_processor()}",
        "byte order": sys.byteorder,
    }


def program_digest(package: Path) -> str:
    """A digest of all sources of the package, by their names and bytes."""
    found = hashlib.sha256()
    for folder in sorted(one.resolve() for one in package.iterdir() if one.is_dir() and one.name != "__pycache__"):
        for source in sorted(folder.rglob("*.py")):
            found.update(f"{folder.name}/{source.relative_to(folder)}".encode() + b"\0" + source.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def difference(theirs: Mapping[str, str]) -> str | None:
    """Why a process that says this of itself is refused; None where it is as this one."""
    for what, mine in identity().items():
        if theirs.get(what) != mine:
            return f"a worker's {what} differs: {theirs.get(what)} there, {mine} here"
    return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
