"""Renders the chart with the `helm` of the cache, for tests/helm/test_chart.py and to write the golden files anew.

`python -m tests.helm.rendering` writes `golden/NAME.yaml` for each `values/NAME.yaml`. The dashboard, which is a file of the
repository as it stands, is left out of them by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes_validate.utils import all_versions

from tests.helm.generate import CHART

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
CASES = sorted(file.stem for file in (HERE / "values").glob("*.yaml"))
VERSIONS: list[str] = list(dict.fromkeys(reversed(all_versions())))[:3]
"""The three newest versions of Kubernetes whose schemas are here, the newest first."""
DASHBOARD = (CHART / "files" / "headrace.json").read_text()
LEFT_OUT = "    (deploy/grafana/headrace.json)\n"


class HelmError(Exception):
    """What helm says when it fails."""


def cache() -> Path:
    """The folder of built programs, which `make chart` fills."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
    return Path(os.environ.get("HEADRACE_CACHE") or default) / "bin"


def program(name: str) -> str:
    """The path of helm or promtool. Raises HelmError where `make chart` has not brought it."""
    found = sorted(cache().glob(f"{name}-*"))
    if not found:
        raise HelmError(f"no {name} in {cache()}: run `make chart`, which builds it once")
    return str(found[-1])


def helm(*words: str) -> str:
    """The output of helm."""
    done = subprocess.run([program("helm"), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def values_of(case: str) -> dict[str, Any]:
    """The values of one case."""
    loaded: dict[str, Any] = yaml.safe_load((HERE / "values" / f"{case}.yaml").read_text())
    return loaded


def render(values: Mapping[str, Any], version: str = VERSIONS[0], *options: str) -> str:
    """The chart's objects with these values, as the release `shop` in the namespace `data`."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(values), file, sort_keys=False)
        file.flush()
        text = helm("template", "shop", str(CHART), "--namespace", "data", "--kube-version", version,
                    "--values", file.name, *options)  # fmt: skip
    dashboard = "".join(f"    {line}\n" for line in DASHBOARD.splitlines())
    return text.replace(dashboard, LEFT_OUT)


def main() -> None:
    """Write the golden files."""
    GOLDEN.mkdir(exist_ok=True)
    for file in GOLDEN.glob("*.yaml"):
        if file.stem not in CASES:
            file.unlink()
    for case in CASES:
        (GOLDEN / f"{case}.yaml").write_text(render(values_of(case)))


if __name__ == "__main__":
    sys.exit(main())
