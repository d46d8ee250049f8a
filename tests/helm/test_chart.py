"""The chart by helm itself: it lints, renders as the golden files say, and each value changes something.

`make chart` runs these: helm is built once from its Go module, which takes some two minutes.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from tests.helm import generate
from tests.helm.generate import CHART
from tests.helm.rendering import CASES, GOLDEN, HERE, VERSIONS, HelmError, helm, render, values_of

pytestmark = pytest.mark.chart


def without(values: dict[str, Any], path: str) -> dict[str, Any] | None:
    """The values less what stands at the path; None where nothing does."""
    whole = copy.deepcopy(values)
    inner = whole
    *folders, last = path.split(".")
    for name in folders:
        inner = inner.get(name, {})
    if last not in inner:
        return None
    del inner[last]
    return whole


def test_the_chart_lints_without_values() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("case", CASES)
def test_the_chart_lints(case: str) -> None:
    said = helm("lint", "--strict", str(CHART), "--values", str(HERE / "values" / f"{case}.yaml"))
    assert "[WARNING]" not in said
    assert "[ERROR]" not in said


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_the_golden_files_are_what_helm_renders(case: str, version: str) -> None:
    rendered = render(values_of(case), version)
    assert rendered == (GOLDEN / f"{case}.yaml").read_text(), "look at the difference, then `make chart-golden`"


@pytest.mark.parametrize("path", generate.leaves())
def test_every_value_has_an_effect_in_a_golden_file(path: str) -> None:
    """Without it, one of the cases that set it renders otherwise, or is refused."""
    tried = 0
    for case in CASES:
        values = without(values_of(case), path)
        if values is None:
            continue
        tried += 1
        try:
            rendered = render(values)
        except HelmError:
            return
        if rendered != (GOLDEN / f"{case}.yaml").read_text():
            return
    assert tried, f"no file in tests/helm/values sets {path}"
    pytest.fail(f"{path} changes nothing in any golden file")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"existingConfigMap": "other"}, "both set"),
        ({"config": {}}, "there is no configuration"),
        ({"terminationGracePeriodSeconds": 20, "config": {"shutdown": {"seconds": 25}}}, "must be less than"),
        ({"replicas": 3}, "/replicas"),
        ({"config": {"engin": {}}}, "'engin' not allowed"),
    ],
)
def test_what_cannot_run_is_refused(change: dict[str, Any], what: str) -> None:
    values = values_of("minimal")
    for name, value in change.items():
        values[name] = {**values.get(name, {}), **value} if value and isinstance(value, dict) else value
    with pytest.raises(HelmError, match=what):
        render(values)


def test_a_new_view_restarts_the_pod_unless_it_is_applied() -> None:
    def checksums(case: str, text: str) -> list[str]:
        values = values_of(case)
        values["views"]["files"]["more.yaml"] = text
        return [line for line in render(values).splitlines() if "checksum/" in line]

    assert checksums("minimal", "version: 1\nviews: []\n") != checksums("minimal", "version: 1\n")
    assert checksums("live-views", "version: 1\nviews: []\n") == checksums("live-views", "version: 1\n")


def test_sql_and_braces_come_through_untouched() -> None:
    sql = "  -- {{ .Release.Name }} ${env:X} $1 'it''s' \"q\" \\d\n\tselect 1\n"
    values = values_of("minimal")
    values["views"]["files"] = {"a.sql": sql}
    found = [one for one in yaml.safe_load_all(render(values)) if "a.sql" in one.get("data", {})]
    assert found[0]["data"]["a.sql"] == sql
