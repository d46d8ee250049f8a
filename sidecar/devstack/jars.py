"""The jars of broker, Connect and Debezium: a pinned list in the repository, fetched once, verified, kept in the cache.

`jars.lock` holds one `group:artifact:version sha256:…` a line, complete (nothing is resolved at fetch time) and without
any address: Maven or Ivy, whichever the machine has, knows where its repositories are. It always holds that a folder
`jars/<digest of the list>` in the cache is complete and every file in it has the hash the list states.
Called by the stack (`jars_folder`), and as a program: `python -m headrace.sidecar.devstack.jars [--lock]`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.sidecar.devstack import jar_fetch
from headrace.sidecar.devstack.cache import cache_folder
from headrace.sidecar.devstack.errors import DevstackError

LOCK = Path(__file__).with_name("jars.lock")

ROOTS = (
    "org.apache.kafka:kafka_2.13:4.3.0",
    "org.apache.kafka:connect-runtime:4.3.0",
    "org.apache.kafka:connect-json:4.3.0",
    "io.debezium:debezium-connector-postgres:3.6.3.Final",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # without it Kafka logs nothing at all
)

_HEADER = "# group:artifact:version and the jar's hash, complete; written by `make lock-jars` from jars.py beside it\n"


@dataclass(frozen=True, order=True)
class Jar:
    """One pinned jar: Maven coordinates and the SHA-256 of the file, in hex."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in a flat folder; the group is part of it, as two groups may share an artifact's name."""
        return f"{self.group}.{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        """`group:artifact:version`."""
        return f"{self.group}:{self.artifact}:{self.version}"


def read_lock(lock: Path = LOCK) -> tuple[Jar, ...]:
    """The pinned jars, sorted; DevstackError names the line that is not of the stated form."""
    jars: list[Jar] = []
    for number, line in enumerate(lock.read_text().splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        places = words[0].split(":")
        if len(words) != 2 or len(places) != 3 or not words[1].startswith("sha256:") or len(words[1]) != 7 + 64:
            raise DevstackError(
                "not 'group:artifact:version sha256:…'", file=lock, line=number, hint="run make lock-jars"
            )
        jars.append(Jar(places[0], places[1], places[2], words[1].removeprefix("sha256:")))
    return tuple(sorted(jars))


def lock_digest(lock: Path = LOCK) -> str:
    """Twelve hex digits that name this list: the folder of jars and the class archives carry them."""
    text = "\n".join(f"{jar.coordinates} {jar.sha256}" for jar in read_lock(lock))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def verify(folder: Path, jars: Sequence[Jar]) -> None:
    """Raise DevstackError unless `folder` holds every jar with its hash."""
    for jar in jars:
        file = folder / jar.file_name
        if not file.exists():
            raise DevstackError(
                "a pinned jar was not fetched", jar=jar.coordinates, hint="try again, or check its version"
            )
        found = _hash(file)
        if found != jar.sha256:
            raise DevstackError(
                "a fetched jar is not the pinned one",
                jar=jar.coordinates,
                expected=jar.sha256,
                found=found,
                hint="the repository it came from may have been tampered with; nothing was installed",
            )


def jars_folder(cache: Path | None = None, lock: Path = LOCK) -> Path:
    """The complete, verified folder of a list's jars; fetched now if the cache does not hold it (half a minute)."""
    cache = cache_folder() if cache is None else cache
    target = cache / "jars" / lock_digest(lock)
    if target.exists():
        return target
    jars = read_lock(lock)
    target.parent.mkdir(parents=True, exist_ok=True)
    arriving = Path(tempfile.mkdtemp(prefix="arriving-", dir=target.parent))
    try:
        print(f"headrace: fetching {len(jars)} jars into {target}", file=sys.stderr, flush=True)  # noqa: T201
        jar_fetch.fetch([jar.coordinates for jar in jars], arriving, cache)
        verify(arriving, jars)
        arriving.chmod(0o755)
        _move_into_place(arriving, target)
    finally:
        shutil.rmtree(arriving, ignore_errors=True)
    return target


def write_lock(lock: Path = LOCK) -> int:
    """Resolve ROOTS anew with Maven and write `lock`; returns the number of jars."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        resolved = jar_fetch.resolve(ROOTS, folder)
        lines = [
            f"{coordinates} sha256:{_hash(folder / _file_name(coordinates))}\n" for coordinates in sorted(resolved)
        ]
    lock.write_text(_HEADER + "".join(lines))
    return len(lines)


def _file_name(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return Jar(group, artifact, version, sha256="").file_name


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _move_into_place(arriving: Path, target: Path) -> None:
    """Only complete folders get the name; where another process was quicker, its folder is as good as ours."""
    try:
        os.rename(arriving, target)
    except OSError:
        if not target.exists():
            raise


def main() -> None:
    """`--lock` writes the list anew; without it the jars are fetched if need be."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace.sidecar.devstack.jars", description="the embedded stack's jars"
    )
    parser.add_argument("--lock", action="store_true", help="resolve the roots anew and write jars.lock")
    if parser.parse_args().lock:
        print(f"{LOCK.name}: {write_lock()} jars")  # noqa: T201
    else:
        print(jars_folder())  # noqa: T201


if __name__ == "__main__":
    main()
