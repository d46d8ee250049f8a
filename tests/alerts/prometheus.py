"""A Prometheus as a child process that scrapes one sidecar by the alerts that we ship, and says which of them fire."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from headrace.sidecar.devstack.ports import pick
from tests.helm.rendering import program
from tests.sidecar.support.process import wait

RULES = Path(__file__).parents[2] / "deploy/prometheus/headrace.rules.yaml"


class Prometheus:
    """One that runs; `alerts` are those that fire, by name, each with the labels of one of its series; `fired`: those that
    ever did when it was asked."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.fired: set[str] = set()

    def ask(self, path: str) -> Any:
        """The data of an answer of its interface."""
        with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def alerts(self) -> dict[str, dict[str, str]]:
        """Those that fire now."""
        found = (a for a in self.ask("alerts")["alerts"] if a["state"] == "firing")
        firing = {a["labels"]["alertname"]: a["labels"] for a in found}
        self.fired |= firing.keys()
        return firing


@contextmanager
def scraping(http: str, folder: Path, **others: str) -> Iterator[Prometheus]:
    """A Prometheus that asks `http` (host:port) every two seconds, and `others`, by the names of their jobs. Raises HelmError
    where it was not fetched."""
    folder.mkdir()
    address = f"127.0.0.1:{pick(1)[0]}"
    body = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]}
            for job, target in {"headrace": http, **others}.items()
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(body))
    line = [
        program("prometheus"), f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(line, stdout=log, stderr=log) as process:
        try:
            made = Prometheus(address)
            wait(lambda: _answers(made), "Prometheus answers", 60)
            yield made
        finally:
            process.terminate()


def _answers(made: Prometheus) -> bool:
    try:
        return bool(made.ask("rules")["groups"])
    except OSError:
        return False
