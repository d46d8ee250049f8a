"""Which Java is taken, what it is told, and that an archive is used only by what wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.sidecar.devstack.cache import cache_folder
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.java import Java, find_java
from headrace.sidecar.devstack.jvm import Toolbox


def runtime(folder: Path, version: str) -> Path:
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.touch(mode=0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return launcher


def test_the_machines_java_is_new_enough() -> None:
    java = find_java()
    assert java.major >= 17
    assert java.launcher.exists()


def test_a_named_java_wins_and_must_be_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_JAVA", str(runtime(tmp_path / "new", "21.0.4")))
    assert find_java() == Java(tmp_path / "new/bin/java", "21.0.4")
    monkeypatch.setenv("HEADRACE_JAVA", str(runtime(tmp_path / "old", "11.0.2")))
    with pytest.raises(DevstackError, match=r"older than 17.*version=11"):
        find_java()


def test_no_java_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sidecar.devstack.java._candidates", list)
    monkeypatch.delenv("HEADRACE_JAVA", raising=False)
    with pytest.raises(DevstackError, match="HEADRACE_JAVA"):
        find_java()


@pytest.mark.parametrize(("version", "reads", "writes"), [
    ("25.0.2", "-XX:AOTCache=", "-XX:AOTCacheOutput="),
    ("17.0.15", "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="),
])  # fmt: skip
def test_the_archive_is_used_where_it_is_there(tmp_path: Path, version: str, reads: str, writes: str) -> None:
    java = Java(tmp_path / "java", version)
    archive = tmp_path / "archive"
    assert java.archive_flags(archive, training=False) == []
    assert java.archive_flags(archive, training=True) == [f"{writes}{archive}"]
    archive.touch()
    assert java.archive_flags(archive, training=False) == [f"{reads}{archive}"]


def test_another_java_has_another_archive_and_a_training_run_keeps_its_own(tmp_path: Path) -> None:
    first, second = (Toolbox(Java(tmp_path / "java", version), tmp_path, tmp_path) for version in ("25.0.2", "25.0.3"))
    assert first.archive("kafka") != second.archive("kafka") != second.archive("connect")
    training = Toolbox(first.java, tmp_path, tmp_path, training=True)
    command = " ".join(training.command("kafka", 256, "Main", [], tmp_path / "log4j2.properties"))
    arriving = first.archive("kafka").with_suffix(".arriving")
    assert f"AOTCacheOutput={arriving}" in command
    arriving.touch()
    training.keep_archive("kafka")
    assert first.archive("kafka").exists()
    assert not first.trained
    arriving.touch()
    training.keep_archive("kafka")
    first.archive("connect").touch()
    assert first.trained


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named"
    monkeypatch.delenv("HEADRACE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "headrace"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "headrace"
