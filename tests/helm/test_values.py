"""Every value is documented and checked, and what is written of them is current. No helm is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.helm import generate
from tests.helm.rendering import CASES, values_of

SCHEMA: dict[str, Any] = json.loads((generate.CHART / "values.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)


def refusals(values: dict[str, Any]) -> list[str]:
    """The places that the schema refuses."""
    return [".".join(map(str, error.absolute_path)) for error in VALIDATOR.iter_errors(values)]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The values of the minimal case with one more."""
    whole = values_of("minimal")
    inner: Any = whole
    *folders, last = path.split("/")
    for name in folders:
        inner = inner[int(name)] if isinstance(inner, list) else inner.setdefault(name, {})
    inner[last] = value
    return whole


def test_the_readme_and_the_schema_are_current() -> None:
    hint = "run `make docs`"
    assert (generate.CHART / "README.md").read_text() == generate.readme(), hint
    assert (generate.CHART / "values.schema.json").read_text() == generate.schema(), hint


def test_every_value_is_documented() -> None:
    documented = [path for path, _, _ in generate.documented()]
    assert generate.leaves() == documented


def test_the_schema_knows_every_value_and_no_other() -> None:
    def known(schema: dict[str, Any], path: str = "") -> list[str]:
        found = []
        for name, one in schema["properties"].items():
            place = f"{path}.{name}" if path else name
            if place in leaves or "properties" not in one:
                found.append(place)
            else:
                assert one["additionalProperties"] is False, place
                found += known(one, place)
        return found

    leaves = set(generate.leaves())
    assert SCHEMA["additionalProperties"] is False
    assert set(known(SCHEMA)) - {"global"} == leaves


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_takes_the_defaults_and_every_case() -> None:
    assert refusals(generate.values()) == []
    for case in CASES:
        assert refusals(values_of(case)) == [], case


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("replicas", 2, "replicas"),
        ("replica", 1, ""),
        ("image/digest", "sha256:abc", "image.digest"),
        ("image/pullPolicy", "Sometimes", "image.pullPolicy"),
        ("config/state", "/tmp", "config"),
        ("config/http", None, "config"),
        ("config/engine", {"workers": 0}, "config.engine.workers"),
        ("config/sources/0/tables/0/columns/0/data_typ", "text", "config.sources.0.tables"),
        ("views/files/orders.txt", "", "views.files"),
        ("views/files/.orders.yaml", "", "views.files"),
        ("views/files/orders.yaml", {"version": 1, "views": [{"nam": "x"}]}, "views.files.orders.yaml.views.0"),
        ("http/port", 80, "http.port"),
        ("persistence/size", "10 GB", "persistence.size"),
        ("persistence/whenDeleted", "Recycle", "persistence.whenDeleted"),
        ("terminationGracePeriodSeconds", 5, "terminationGracePeriodSeconds"),
        ("podDisruptionBudget/maxUnavailable", "50%", "podDisruptionBudget.maxUnavailable"),
        ("serviceMonitor/interval", "15", "serviceMonitor.interval"),
        ("extraEnv", [{"value": "x"}], "extraEnv.0"),
        ("probes/readiness/periodSecond", 1, "probes.readiness"),
        ("existingSecret", "Not A Name", "existingSecret"),
    ],
)
def test_a_mistake_is_refused_at_its_place(path: str, value: Any, place: str) -> None:
    assert place in refusals(changed(path, value))
