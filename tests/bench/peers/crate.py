"""The peers' programs: the crates beside this file, built by cargo into build/, where they are looked for afterwards.

Always: nothing is downloaded or built while a session runs. `crates.lock` pins every crate by version and checksum; it is
cargo's own lock file without the lines that name a registry, which `build` puts back. `python -m tests.bench.peers.crate`
builds all and says where; with --pin it resolves anew and writes `crates.lock`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CRATE = Path(__file__).parent
PINNED = CRATE / "crates.lock"
LOCK = CRATE / "Cargo.lock"
TARGET = Path("build/peers/rust")
NAME = "differential-dataflow 0.25.1"
NAMES = {"peer": NAME, "flowlog": "FlowLog 0.7.0", "batch": "ascent 0.8.1 and datafrog 2.0.1"}
"""Package → what is measured with it."""

_SOURCE = re.compile(r"^source = .*\n", re.MULTILINE)


def build(package: str = "peer") -> Path | None:
    """A package's program, up to date, or None where there is no cargo or its crates cannot be had; stderr says which."""
    cargo = shutil.which("cargo")
    if cargo is None:
        sys.stderr.write(f"{NAMES[package]} skipped: there is no cargo\n")
        return None
    if not _lock(cargo):
        sys.stderr.write(f"{NAMES[package]} skipped: cargo could not find the registry's crates\n")
        return None
    command = [cargo, "build", "--release", "--quiet", "--locked", "--package", package]
    flags = {**os.environ, "RUSTFLAGS": "-C target-cpu=native"}
    ran = subprocess.run([*command, "--target-dir", str(TARGET.resolve())], cwd=CRATE, env=flags, check=False)
    if ran.returncode:
        sys.stderr.write(f"{NAMES[package]} skipped: cargo could not build it\n")
        return None
    return (TARGET / "release" / package).resolve()


def built(package: str = "peer") -> Path | None:
    """A package's program, if it was built from the sources as they are."""
    path = TARGET / "release" / package
    folder = {"peer": "differential"}.get(package, package)
    kinds = ("Cargo.toml", "*.rs", "*.dl")
    sources = [f for part in (folder, "shared") for kind in kinds for f in (CRATE / part).rglob(kind)]
    fresh = path.exists() and all(path.stat().st_mtime >= source.stat().st_mtime for source in sources)
    return path.resolve() if fresh else None


def pin() -> None:
    """Resolve all crates anew and write them down."""
    LOCK.unlink(missing_ok=True)
    subprocess.run(["cargo", "generate-lockfile"], cwd=CRATE, check=True)
    PINNED.write_text(_SOURCE.sub("", LOCK.read_text()))


def _lock(cargo: str) -> bool:
    """Write cargo's lock file of what is pinned, with the registry that cargo itself names; whether it could be."""
    if not LOCK.exists():
        ran = subprocess.run([cargo, "generate-lockfile", "--quiet"], cwd=CRATE, check=False)
        if ran.returncode:
            return False
    found = _SOURCE.search(LOCK.read_text())
    if found is None:
        return False
    wanted = re.sub(r"^(?=checksum = )", lambda _: found[0], PINNED.read_text(), flags=re.MULTILINE)
    if LOCK.read_text() != wanted:
        LOCK.write_text(wanted)
    return True


if __name__ == "__main__":
    if sys.argv[1:] == ["--pin"]:
        pin()
    paths = [build(package) for package in NAMES]
    sys.stdout.write("".join(f"{path}\n" for path in paths if path))
    sys.exit(None in paths and shutil.which("cargo") is not None)
