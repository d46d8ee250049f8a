"""What the peers are built from: exact crates, no registry's name, and a word where the machine cannot build one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.peers import crate
from tests.bench.peers.crate import CRATE, FOLDERS, MAIN, NAMES, WORKSPACES


@pytest.mark.parametrize("space", [MAIN, *WORKSPACES.values()])
def test_locks_pin_every_crate_and_name_no_registry(space: crate.Workspace) -> None:
    text = space.pinned.read_text()
    assert "://" not in text
    crates = [part for part in text.split("[[package]]")[1:] if "checksum = " in part]
    assert len(crates) > 40
    assert all(re.search(r'^checksum = "[0-9a-f]{64}"$', part, re.MULTILINE) for part in crates)
    own = [part for part in text.split("[[package]]")[1:] if "checksum = " not in part]
    assert len(own) == len({*re.findall(r'^name = "(.*)"$', "".join(own), re.MULTILINE)} & {*NAMES, "shared"})


def test_versions_are_those_that_are_pinned() -> None:
    for package, crates in {"peer": NAMES["peer"], "dbsp-peer": NAMES["dbsp-peer"]}.items():
        name, version = crates.split(" ")
        space = WORKSPACES.get(package, MAIN)
        assert f'name = "{name}"\nversion = "{version}"\n' in space.pinned.read_text()
        assert f'"={version}"' in (CRATE / FOLDERS[package] / "Cargo.toml").read_text()


def test_an_older_rust_leaves_a_package_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, said in (("cargo", "cargo 1.92.0"), ("rustc", "rustc 1.92.1 (0123456 2025-12-11)")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{said}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv("RUSTC", raising=False)
    assert crate.build("dbsp-peer") is None
    assert capsys.readouterr().err == "dbsp 0.349.0 skipped: it needs Rust 1.93.1 or newer, and here is 1.92.1\n"
    assert not crate.lacking("peer")
    (tmp_path / "cargo").unlink()
    assert crate.lacking("peer") == crate.lacking("dbsp-peer") == "there is no cargo"
