"""What the chart makes, by its golden files: valid for Kubernetes, `restricted`, and whole. No helm is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import ValidationError, validate

from tests.helm.rendering import CASES, GOLDEN, VERSIONS, values_of

ROOT = Path(__file__).parents[2]
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, for which Kubernetes has no schema."""
ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
GIVEN = {"shop-headrace", "shop-views", "finance-views", "company-ca"}
"""ConfigMaps that the values name, and others make."""


def objects(case: str) -> list[dict[str, Any]]:
    """The objects of a golden file."""
    return [one for one in yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text()) if one]


def the(case: str, kind: str) -> dict[str, Any]:
    """The one object of its kind."""
    (found,) = (one for one in objects(case) if one["kind"] == kind)
    return found


def pods(case: str) -> Iterator[dict[str, Any]]:
    """The specs of all pods, those of tests among them."""
    for one in objects(case):
        if one["kind"] == "StatefulSet":
            yield one["spec"]["template"]["spec"]
        elif one["kind"] == "Pod":
            yield one["spec"]


def test_there_is_a_golden_file_for_each_case() -> None:
    assert sorted(file.stem for file in GOLDEN.glob("*.yaml")) == CASES
    assert len(CASES) >= 12


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_kubernetes_knows_every_object(case: str, version: str) -> None:
    checked = 0
    for one in objects(case):
        if one["kind"] not in CUSTOM:
            validate(one, version, strict=True)
            checked += 1
    assert checked >= 3


def test_the_check_can_fail() -> None:
    wrong = the("minimal", "StatefulSet")
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(ValidationError):
        validate(wrong, VERSIONS[0], strict=True)


@pytest.mark.parametrize("case", CASES)
def test_every_pod_satisfies_restricted(case: str) -> None:
    for pod in pods(case):
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        whole = pod["securityContext"]
        assert whole["runAsNonRoot"] is True
        assert whole["runAsUser"] > 0
        assert whole["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost")
        for volume in pod["volumes"]:
            assert set(volume) - {"name"} <= ALLOWED_VOLUMES, volume
        for container in pod["containers"] + pod.get("initContainers", []):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"]["drop"] == ["ALL"]
            assert "add" not in own["capabilities"]
            assert own["readOnlyRootFilesystem"] is True
            assert all("hostPort" not in port for port in container.get("ports", []))


@pytest.mark.parametrize("case", CASES)
def test_what_is_mounted_is_there(case: str) -> None:
    made = {one["metadata"]["name"] for one in objects(case) if one["kind"] == "ConfigMap"}
    for pod in pods(case):
        claims = {"state"} if values_of(case).get("persistence", {}).get("enabled", True) else set()
        volumes = {volume["name"] for volume in pod["volumes"]} | claims
        for container in pod["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
        for volume in pod["volumes"]:
            sources = volume.get("projected", {}).get("sources", [volume])
            named = {source["configMap"]["name"] for source in sources if "configMap" in source}
            assert named <= made | GIVEN


@pytest.mark.parametrize("case", CASES)
def test_selectors_find_the_sidecars_pod_and_no_test_pod(case: str) -> None:
    pod_labels = the(case, "StatefulSet")["spec"]["template"]["metadata"]["labels"].items()
    tests = [one["metadata"]["labels"].items() for one in objects(case) if one["kind"] == "Pod"]
    service = the(case, "Service")
    selectors = [service["spec"]["selector"], the(case, "StatefulSet")["spec"]["selector"]["matchLabels"]]
    for kind, key in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        selectors += [one["spec"][key]["matchLabels"] for one in objects(case) if one["kind"] == kind]
    for selector in selectors:
        assert selector.items() <= pod_labels
        assert not any(selector.items() <= labels for labels in tests)
    for one in objects(case):
        if one["kind"] == "ServiceMonitor":
            assert one["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
            assert service["metadata"]["labels"][one["spec"]["jobLabel"]] == "headrace"


@pytest.mark.parametrize("case", CASES)
def test_one_sidecar_is_asked_at_its_own_port(case: str) -> None:
    whole = the(case, "StatefulSet")["spec"]
    assert whole["replicas"] in (0, 1)
    (container,) = whole["template"]["spec"]["containers"]
    (port,) = container["ports"]
    for probe, path in (("startupProbe", "/startupz"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    service = the(case, "Service")
    assert whole["serviceName"] == service["metadata"]["name"]
    config = [one["data"]["headrace.yaml"] for one in objects(case) if "headrace.yaml" in one.get("data", {})]
    for text in config:
        loaded = yaml.safe_load(text)
        assert loaded["http"] == f"0.0.0.0:{port['containerPort']}"
        assert loaded["shutdown"]["seconds"] < whole["template"]["spec"]["terminationGracePeriodSeconds"]
    for one in objects(case):
        if one["metadata"]["name"].endswith("-test-status"):
            asked = f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
            assert one["spec"]["containers"][0]["args"] == ["status", "--url", asked]


def as_mounted(folder: Path, files: dict[str, str]) -> None:
    """Files as Kubernetes mounts a ConfigMap."""
    real = folder / "..2026_11_25_00_00_00.1"
    real.mkdir(parents=True)
    (folder / "..data").symlink_to(real.name)
    for name, text in files.items():
        (real / name).write_text(text)
        (folder / name).symlink_to(f"..data/{name}")


@pytest.mark.parametrize(("case", "views"), [("minimal", ["big_orders"]), ("live-views", ["order_count", "totals"])])
def test_the_sidecar_takes_what_the_chart_mounts(case: str, views: list[str], tmp_path: Path) -> None:
    found = {name: text for one in objects(case) if one["kind"] == "ConfigMap" for name, text in one["data"].items()}
    config = found.pop("headrace.yaml").replace("/etc/headrace", str(tmp_path))
    as_mounted(tmp_path / "config", {"headrace.yaml": config})
    as_mounted(tmp_path / "views", found)
    file = tmp_path / "config" / "headrace.yaml"
    done = subprocess.run(
        [sys.executable, "-m", "headrace.sidecar.cli.app", "validate", "--config", str(file), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert [view["name"] for view in yaml.safe_load(done.stdout)["views"]] == views


def test_the_alerts_are_those_of_the_rules_file_with_the_runbook_of_the_values() -> None:
    groups = yaml.safe_load((ROOT / "deploy/prometheus/headrace.rules.yaml").read_text())["groups"]
    runbook = values_of("monitoring")["prometheusRule"]["runbook"]
    for group in groups:
        for rule in group["rules"]:
            rule["annotations"]["runbook_url"] = rule["annotations"]["runbook_url"].replace("docs/runbook.md", runbook)
    assert the("monitoring", "PrometheusRule")["spec"]["groups"] == groups
