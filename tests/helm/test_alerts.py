"""Alerts and dashboard: their metrics exist, each alert has its runbook, and (by promtool) fires and clears as it should."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from headrace.sidecar.cli import app
from headrace.sidecar.cli.audit import AuditMetrics
from headrace.sidecar.telemetry.metrics import Metrics
from tests.helm.rendering import program

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/headrace.rules.yaml"
DASHBOARD = ROOT / "deploy/grafana/headrace.json"
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]

SIDECAR = '{job="headrace",instance="a:8088"}'
CASES = {
    "HeadraceDown": ("up", "", "0", "1"),
    "HeadraceViewStale": ("headrace_view_staleness_seconds", 'view="v",sink="s"', "61", "1"),
    "HeadraceViewLate": ("headrace_view_staleness_seconds", 'view="v",sink="s"', "11", "9"),
    "HeadraceViewDown": ("headrace_view_up", 'view="v"', "0", "1"),
    "HeadraceViewInError": ("headrace_view_errors", 'view="v"', "3", "0"),
    "HeadraceTableSuspended": ("headrace_table_suspended", 'table="public.t"', "1", "0"),
    "HeadraceSourceDown": ("headrace_source_up", 'source="shop"', "0", "1"),
    "HeadraceTransactionIncomplete": ("headrace_waiting_seconds", 'source="shop"', "31", "0"),
    "HeadraceSinkDetached": ("headrace_sink_detached", 'sink="s"', "1", "0"),
    "HeadraceSinkBacklog": ("headrace_sink_backlog_bytes", 'sink="s"', "50000000", "1000"),
    "HeadraceDeadLetters": ("headrace_dead_letters_total", 'source="shop"', "2", "0"),
    "HeadraceDataTestFails": ("headrace_data_test_failures", 'test="v.id.unique"', "4", "0"),
    "HeadraceAuditMismatch": ("headrace_audit_mismatches", 'view="v"', "1", "0"),
    "HeadraceMemoryOverBudget": ("headrace_resident_bytes", "", "2000", "900"),
    "HeadraceCheckpointOld": ("headrace_checkpoint_age_seconds", "", "301", "20"),
    "HeadraceWorkersMissing": ("headrace_workers", 'state="missing"', "2", "0"),
    "HeadraceWorkersLost": ("headrace_worker_restarts_total", "", "2", "1"),
}
"""Alert → the series that tells it, its labels, and a value at which it fires and one at which it does not."""


def exposed() -> set[str]:
    """Every name that a scrape of the sidecar, or of an audit, may hold."""
    names = {"up"}
    for registry in (Metrics().registry, AuditMetrics().registry):
        for family in registry.collect():
            kinds = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",)}
            names |= {family.name + suffix for suffix in kinds.get(family.type, ("",))}
    return names


def used(expression: str) -> set[str]:
    """The metrics of a query."""
    return set(re.findall(r"\b(?:headrace_\w+|up)\b", re.sub(r'"[^"]*"', '""', expression)))


def queries() -> list[str]:
    """All queries of the dashboard, those of its variables among them."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return found + [v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]


def test_the_files_are_those_of_the_chart() -> None:
    assert RULES.samefile(ROOT / "helm/headrace/files" / RULES.name), "make it a link again"
    assert DASHBOARD.samefile(ROOT / "helm/headrace/files" / DASHBOARD.name), "make it a link again"


@pytest.mark.parametrize("expression", [*(alert["expr"] for alert in ALERTS), *queries()])
def test_every_metric_exists(expression: str) -> None:
    assert used(expression)
    assert used(expression) <= exposed()


def test_the_dashboard_shows_every_metric_of_the_sidecar() -> None:
    shown = set().union(*(used(e) for e in queries()))
    for family in Metrics().registry.collect():
        assert any(name.startswith(family.name) for name in shown), family.name


def test_panels_are_told_apart_and_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & own, panel["title"]
        cells |= own
        assert panel["type"] == "row" or panel["description"]


def test_there_are_at_most_seventeen_alerts_each_with_its_runbook() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(names) == len(set(names)) <= 17
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE)
    assert headings == names, "one section an alert, in the order of the rules"
    for alert in ALERTS:
        assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{alert['alert'].lower()}"
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert alert["annotations"]["summary"]
        assert alert["annotations"]["description"]


def test_each_section_of_the_runbook_says_what_it_means_where_to_look_and_what_to_do() -> None:
    text = (ROOT / "docs/runbook.md").read_text()
    sections = re.split(r"^## \w+\n", text, flags=re.MULTILINE)[1:]
    assert len(sections) == len(ALERTS)
    for section in sections:
        for part in ("**Means.**", "**Look.**", "**Do.**"):
            assert part in section, section[:80]
        assert re.search(r"`headrace [a-z]+", section) or "```sh" in section, section[:80]


def test_the_runbooks_commands_are_ours() -> None:
    text = (ROOT / "docs/runbook.md").read_text()
    named = set(re.findall(r"(?:^|`)headrace ((?:deadletters )?[a-z]+)", text, re.MULTILINE))
    assert {"status", "resync", "deadletters replay"} <= named
    for words in named:
        done = CliRunner().invoke(app.app, [*words.split(), "--help"])
        assert done.exit_code == 0, words


def series(name: str, labels: str, state: str) -> list[dict[str, str]]:
    """Samples each 15 s for ten minutes, of one state of a metric."""
    values = f"{state}x40"
    more = f"{SIDECAR[:-1]}{',' if labels else ''}{labels}}}"
    found = [{"series": name + more, "values": values}]
    if name == "headrace_resident_bytes":
        found.append({"series": "headrace_memory_budget_bytes" + SIDECAR, "values": "1000x40"})
    return found


def scenario(alert: str, state: str, *, fires: bool) -> dict[str, Any]:
    """A test for promtool: whether the alert fires a minute after its fault is there."""
    name, labels, _, _ = CASES[alert]
    rule = next(one for one in ALERTS if one["alert"] == alert)
    wanted = dict(re.findall(r'(\w+)="([^"]*)"', f"{SIDECAR},{labels}")) | rule["labels"]
    return {
        "interval": "15s",
        "input_series": series(name, labels, state),
        "alert_rule_test": [
            {"eval_time": "60s", "alertname": alert, "exp_alerts": [{"exp_labels": wanted}] if fires else []}
        ],
    }


def promtool(folder: Path, tests: list[dict[str, Any]]) -> str:
    """What promtool says of the tests; it compares annotations too, so the rules are taken without."""
    bare = yaml.safe_load(RULES.read_text())
    for group in bare["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (folder / "rules.yaml").write_text(yaml.safe_dump(bare))
    whole = {"rule_files": ["rules.yaml"], "evaluation_interval": "10s", "tests": tests}
    (folder / "test.yaml").write_text(yaml.safe_dump(whole))
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(folder / "test.yaml")], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_each_alert_has_a_case() -> None:
    assert list(CASES) == [alert["alert"] for alert in ALERTS]


@pytest.mark.chart
def test_promtool_takes_the_rules() -> None:
    done = subprocess.run(
        [program("promtool"), "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.chart
@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_within_a_minute_and_only_then(alert: str, tmp_path: Path) -> None:
    _, _, bad, good = CASES[alert]
    assert promtool(tmp_path, [scenario(alert, bad, fires=True), scenario(alert, good, fires=False)]) == ""
    assert promtool(tmp_path, [scenario(alert, good, fires=True)]) != "", "this test can fail"


@pytest.mark.chart
@pytest.mark.parametrize("query", [q for q in queries() if not q.startswith("label_values")])
def test_promtool_takes_the_dashboards_queries(query: str, tmp_path: Path) -> None:
    rule = {"record": "x:y", "expr": query.replace("$job", "headrace").replace("$instance", ".*")}
    file = tmp_path / "query.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]}))
    done = subprocess.run(
        [program("promtool"), "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
