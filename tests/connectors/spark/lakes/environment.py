"""Spark 4.1 with Java 17, and the jars of Delta and Iceberg: an environment of its own, before the usual one on Python's path.

Always: it is fetched once into the cache, pinned by hashes, and complete where its folder is there. `make lakes` runs the tests
of this folder with it: `PYTHONPATH=$(python -m tests.connectors.spark.lakes.environment)`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from headrace.sidecar.devstack.cache import cache_folder
from headrace.sidecar.devstack.jars import jars_folder

PINNED = Path(__file__).with_name("requirements.lock")
JARS = Path(__file__).with_name("jars.lock")


def packages() -> Path:
    """The folder of pyspark 4.1 and its Java; fetched now where the cache has it not (a minute)."""
    target = cache_folder() / "spark41" / hashlib.sha256(PINNED.read_bytes()).hexdigest()[:12]
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    arriving = Path(tempfile.mkdtemp(prefix="arriving-", dir=target.parent))
    print(f"headrace: fetching Spark 4.1 and Java 17 into {target}", file=sys.stderr, flush=True)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--require-hashes",
    ]
    try:
        subprocess.run([*command, "--target", arriving, "--requirement", PINNED], check=True, stdout=sys.stderr)
        arriving.chmod(0o755)
        arriving.rename(target)
    finally:
        shutil.rmtree(arriving, ignore_errors=True)
    return target


def jars() -> str:
    """The jars of Delta and Iceberg, as `spark.jars` wants them."""
    return ",".join(str(jar) for jar in sorted(jars_folder(lock=JARS).glob("*.jar")))


if __name__ == "__main__":
    jars()
    print(packages())
