"""Metrics are named as Prometheus names them, have bounded labels, and tell no moments at which they were made."""

from __future__ import annotations

import re

from headrace.sidecar.cli.audit import AuditMetrics
from headrace.sidecar.telemetry.metrics import Metrics
from tests.docs_build.telemetry_pages import families

BOUNDED = {
    "source", "table", "view", "sink", "topic", "partition", "arrangement", "worker", "test", "version", "direction", "outcome",
    "state", "reason", "leg", "to", "last",
}  # fmt: skip
UNITS = ("_seconds", "_bytes", "_rows")


def test_names_kinds_and_labels() -> None:
    seen = [*families(Metrics().registry), *families(AuditMetrics().registry)]
    assert len({name for name, *_ in seen}) == len(seen) > 40
    for name, kind, labels, meaning in seen:
        assert re.fullmatch(r"headrace_[a-z]+(_[a-z]+)*", name), name
        assert name.endswith("_total") == (kind == "counter"), name
        assert not re.search(r"_(ms|millis|mib|kb)\b", name), "base units"
        assert kind != "histogram" or name.endswith(UNITS), name
        assert set(labels) <= BOUNDED, name
        assert meaning[:1].isupper() or meaning[:1].isdigit(), name
        assert not meaning.endswith("."), name


def test_a_scrape_has_no_created_lines_and_counters_only_grow() -> None:
    metrics = Metrics()
    metrics.events.labels("shop").inc()
    metrics.freshness.labels("v", "s").observe(0.1)
    first, second = metrics.render().decode(), metrics.render().decode()
    assert 'headrace_events_total{source="shop"} 1.0' in first
    assert 'headrace_view_freshness_seconds_count{sink="s",view="v"} 1.0' in first
    assert "_created" not in first
    assert "# TYPE headrace_events_total counter" in first or "# TYPE headrace_events counter" in first
    cpu = [float(re.findall(r"^headrace_process_cpu_seconds_total (\S+)", t, re.MULTILINE)[0]) for t in (first, second)]
    assert 0 < cpu[0] <= cpu[1]


def test_a_dropped_view_is_told_no_more() -> None:
    metrics = Metrics()
    for gauge in (metrics.view_up, metrics.view_rows, metrics.view_errors):
        gauge.labels("v").set(1)
    metrics.view_staleness.labels("v", "s").set(1)
    metrics.forget("v", ["s"])
    assert 'view="v"' not in metrics.render().decode()
