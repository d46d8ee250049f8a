"""What the doctor's tests share: a shell in which the commands that findings name are typed, as a reader would."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from headrace.sidecar.devstack.jvm import Toolbox
from headrace.sidecar.devstack.postgres import binaries
from headrace.sidecar.operations.doctor.findings import Finding


def typed(command: str, folder: Path, **variables: str) -> None:
    """Run a finding's command in a shell that has psql and Kafka's tools; fails where it does."""
    tools = folder / "tools"
    if not tools.exists():
        tools.mkdir()
        box = Toolbox.find()
        for name, main in (("kafka-configs.sh", "kafka.admin.ConfigCommand"),):
            words = " ".join(f"'{word}'" for word in box.tool(main, []))
            (tools / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (tools / name).chmod(0o755)
    path = f"{tools}:{binaries()}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)


def checks(found: Iterable[Finding]) -> set[str]:
    return {f.check for f in found}


def one(found: Iterable[Finding], check: str) -> Finding:
    """The only finding of this name; it says all that a finding must say."""
    (named,) = [f for f in found if f.check == check]
    assert named.what
    assert named.where
    assert named.why
    return named
