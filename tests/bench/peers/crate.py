"""The peer's program: the crate in `differential`, built by cargo into build/, where it is looked for afterwards.

Always: nothing is downloaded or built while a session runs. `python -m tests.bench.peers.crate` builds it and says where.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

CRATE = Path(__file__).with_name("differential")
TARGET = Path("build/peers/differential")
BINARY = TARGET / "release" / "peer"
NAME = "differential-dataflow 0.25.1"


def build() -> Path | None:
    """The program, up to date, or None where there is no cargo or the crates cannot be had; stderr says which."""
    cargo = shutil.which("cargo")
    if cargo is None:
        sys.stderr.write("peer skipped: there is no cargo\n")
        return None
    command = [cargo, "build", "--release", "--quiet", "--target-dir", str(TARGET.resolve())]
    flags = {**os.environ, "RUSTFLAGS": "-C target-cpu=native"}
    if subprocess.run(command, cwd=CRATE, env=flags, check=False).returncode:
        sys.stderr.write("peer skipped: cargo could not build it\n")
        return None
    return BINARY.resolve()


if __name__ == "__main__":
    found = build()
    sys.stdout.write(f"{found}\n" if found else "")
    sys.exit(found is None and shutil.which("cargo") is not None)
