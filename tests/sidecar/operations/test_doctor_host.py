"""The doctor on this machine: limits that are real where they can be set, and measured by a stand-in where they cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.sidecar.config.config import Settings, load
from headrace.sidecar.operations.doctor.examine import Examination, examine
from headrace.sidecar.operations.doctor.findings import Finding, Severity, Subject
from headrace.sidecar.operations.doctor.host import Machine
from headrace.sidecar.state.generation import take_generation
from tests.sidecar.operations.doctor_commands import checks, one, typed

PLENTY = Machine(lambda _: 1 << 40, lambda: 1 << 20, lambda: 8 << 30)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    body = """\
version: 1
name: shop
kafka: {bootstrap.servers: "127.0.0.1:9"}
sources: [{name: shop, type: debezium, topic_prefix: shop, tables: []}]
sinks: [{name: warehouse, type: postgres, url: "postgresql://u:hush@127.0.0.1:1/d"}]
"""
    (tmp_path / "headrace.yaml").write_text(body)
    return tmp_path / "headrace.yaml"


def look(settings: Settings, machine: Machine = PLENTY) -> list[Finding]:
    return examine(settings, Examination((Subject.SELF,), machine=machine))


def test_a_budget_is_named_and_fits_the_cgroup(config: Path, tmp_path: Path) -> None:
    typed(one(look(load(config, {})), "memory_budget").command, tmp_path)
    assert look(load(config, {})) == []
    small = Machine(PLENTY.free, PLENTY.files, lambda: 1 << 30)
    found = one(look(load(config, {}), small), "memory_limit")
    assert found.severity is Severity.REFUSED
    typed(found.command, tmp_path)
    assert look(load(config, {}), small) == []
    assert load(config, {}).config.memory.budget_mib == 682


def test_little_disk_is_told_with_what_the_state_holds(config: Path) -> None:
    full = Machine(lambda _: 1 << 20, PLENTY.files, PLENTY.memory)
    assert "1 MiB are free" in one(look(load(config, {}), full), "disk").what


def test_a_state_of_another_version_is_refused_and_put_aside(config: Path, tmp_path: Path) -> None:
    settings = load(config, {})
    generation, _ = take_generation(settings.state)
    generation.ready.touch()
    generation.manifest.write_text(json.dumps({"format": 1, "program": "0.0.1"}))
    typed(one(look(settings), "state_version").command, tmp_path)
    assert "state_version" not in checks(look(settings))


def test_the_command_under_a_small_limit_of_open_files(config: Path) -> None:
    words = f"{sys.executable} -m headrace.sidecar.cli.app doctor --self --json --config {config}"

    def told(before: str) -> tuple[int, list[dict[str, str]]]:
        done = subprocess.run(["sh", "-c", f"{before}; {words}"], capture_output=True, text=True, check=False)
        found: list[dict[str, str]] = json.loads(done.stdout)["findings"]
        return done.returncode, [f for f in found if f["check"] == "files"]

    code, found = told("ulimit -n 512")
    assert code in (1, 2)
    assert told(found[0]["command"])[1] == []


def test_servers_that_do_not_answer_are_findings_each_and_the_code_is_2(config: Path) -> None:
    words = [sys.executable, "-m", "headrace.sidecar.cli.app", "doctor", "--kafka", "--sink", "--config", str(config)]
    (config.parent / "views").mkdir()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "no broker answers" in done.stdout
    assert "the database does not answer" in done.stdout
    assert "hush" not in done.stdout + done.stderr
    assert "mend: " in done.stdout
