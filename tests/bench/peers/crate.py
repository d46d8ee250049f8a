"""The peers' programs: the crates beside this file, built by cargo into build/, where they are looked for afterwards.

Always: nothing is downloaded or built while a session runs. Two workspaces, dbsp one of its own; each has a `crates.lock`, which
pins every crate by version and checksum; it is cargo's own lock file without the lines that name a registry, which
`build` puts back. `python -m tests.bench.peers.crate` builds all and says where, or the packages that are named; with --pin it
resolves their workspaces anew first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

CRATE = Path(__file__).parent
TARGET = Path("build/peers/rust")
NAME = "differential-dataflow 0.25.1"
DBSP = "dbsp 0.349.0"
NAMES = {"peer": NAME, "flowlog": "FlowLog 0.7.0", "batch": "ascent 0.8.1 and datafrog 2.0.1", "dbsp-peer": DBSP}
"""Package → what is measured with it."""

FOLDERS = {"peer": "differential", "dbsp-peer": "dbsp"}
"""Package → its folder, where that has another name."""

_SOURCE = re.compile(r"^source = .*\n", re.MULTILINE)


class Workspace(NamedTuple):
    """Crates with one lock file. `least`: the oldest Rust that compiles them."""

    folder: Path
    target: Path
    least: tuple[int, ...] = (1, 85, 0)

    @property
    def pinned(self) -> Path:
        """What is pinned."""
        return self.folder / "crates.lock"

    @property
    def lock(self) -> Path:
        """Cargo's own file."""
        return self.folder / "Cargo.lock"


MAIN = Workspace(CRATE, TARGET)
WORKSPACES = {"dbsp-peer": Workspace(CRATE / "dbsp", TARGET / "dbsp", (1, 93, 1))}
"""Package → its workspace, where that is not `MAIN`."""


def build(package: str = "peer") -> Path | None:
    """A package's program, up to date, or None where it cannot be had; stderr says why."""
    if why := lacking(package) or _failure(package):
        sys.stderr.write(f"{NAMES[package]} skipped: {why}\n")
        return None
    return _program(package).resolve()


def lacking(package: str) -> str:
    """What the machine has not that a package is built with; nothing where it has all."""
    if shutil.which("cargo") is None:
        return "there is no cargo"
    space = WORKSPACES.get(package, MAIN)
    if (found := _rust(space)) >= space.least:
        return ""
    wanted, there = (".".join(map(str, version)) for version in (space.least, found))
    return f"it needs Rust {wanted} or newer, and here is {there or 'none'}"


def built(package: str = "peer") -> Path | None:
    """A package's program, if it was built from the sources as they are."""
    path = _program(package)
    kinds = ("Cargo.toml", "*.rs", "*.dl")
    folders = (FOLDERS.get(package, package), "shared")
    sources = [f for part in folders for kind in kinds for f in (CRATE / part).rglob(kind)]
    fresh = path.exists() and all(path.stat().st_mtime >= source.stat().st_mtime for source in sources)
    return path.resolve() if fresh else None


def pin(space: Workspace) -> None:
    """Resolve all crates of a workspace anew and write them down."""
    space.lock.unlink(missing_ok=True)
    subprocess.run(["cargo", "generate-lockfile"], cwd=space.folder, check=True)
    space.pinned.write_text(_SOURCE.sub("", space.lock.read_text()))


def _program(package: str) -> Path:
    return WORKSPACES.get(package, MAIN).target / "release" / package


def _failure(package: str) -> str:
    """Have cargo build a package; what failed, or nothing."""
    space = WORKSPACES.get(package, MAIN)
    if not _lock(space):
        return "cargo could not find the registry's crates"
    command = ["cargo", "build", "--release", "--quiet", "--locked", "--package", package]
    flags = {**os.environ, "RUSTFLAGS": "-C target-cpu=native"}
    ran = subprocess.run(
        [*command, "--target-dir", str(space.target.resolve())], cwd=space.folder, env=flags, check=False
    )
    return "cargo could not build it" if ran.returncode else ""


def _rust(space: Workspace) -> tuple[int, ...]:
    """The version of Rust that cargo compiles with in a workspace; nothing where there is no compiler."""
    compiler = os.environ.get("RUSTC") or shutil.which("rustc")
    if compiler is None:
        return ()
    ran = subprocess.run([compiler, "--version"], cwd=space.folder, capture_output=True, text=True, check=False)
    return version_of(ran.stdout)


def version_of(said: str) -> tuple[int, ...]:
    """The version in what a compiler says about itself.

    >>> version_of("rustc 1.95.0 (59807616e 2026-03-16)"), version_of("")
    ((1, 95, 0), ())
    """
    found = re.match(r"rustc (\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def _lock(space: Workspace) -> bool:
    """Write cargo's lock file of what is pinned, with the registry that cargo itself names; whether it could be."""
    if not space.lock.exists():
        ran = subprocess.run(["cargo", "generate-lockfile", "--quiet"], cwd=space.folder, check=False)
        if ran.returncode:
            return False
    found = _SOURCE.search(space.lock.read_text())
    if found is None:
        return False
    wanted = re.sub(r"^(?=checksum = )", lambda _: found[0], space.pinned.read_text(), flags=re.MULTILINE)
    if space.lock.read_text() != wanted:
        space.lock.write_text(wanted)
    return True


def main(arguments: Sequence[str]) -> int:
    """Build what is named, or all; 1 where something could not be built that this machine has all for."""
    packages = [one for one in arguments if one != "--pin"] or list(NAMES)
    if "--pin" in arguments:
        for space in dict.fromkeys(WORKSPACES.get(package, MAIN) for package in packages):
            pin(space)
    paths = {package: build(package) for package in packages}
    sys.stdout.write("".join(f"{path}\n" for path in paths.values() if path))
    return int(any(path is None and not lacking(package) for package, path in paths.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
