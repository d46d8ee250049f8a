"""docs/metrics.md and docs/events.md: written from the registries and from the list of events."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from headrace.sidecar.cli.audit import AuditMetrics
from headrace.sidecar.process.checkups import Checkups
from headrace.sidecar.process.events import EVENTS
from headrace.sidecar.telemetry.metrics import Metrics
from tests.docs_build.markdown import table

_METRICS = """# Metrics

<!-- Written by `make docs` from sidecar/telemetry/metrics.py and sidecar/cli/audit.py: do not edit. -->

What `/metrics` gives, in Prometheus's text format. Labels are names of sources, tables, views, sinks, topics, arrangements and
workers, never values of rows: their number is bounded by the configuration. Alerts over them are in
[headrace.rules.yaml](../deploy/prometheus/headrace.rules.yaml), each with its section in the [runbook](runbook.md).

"""
_EVENTS = """# Events of the log

<!-- Written by `make docs` from sidecar/process/events.py: do not edit. -->

`headrace run` writes one line an event to standard error: `time=… level=… event=… name=value …`, or a JSON object with `--json`.
Times are UTC. A value with a space, `=` or a quote is a JSON string, and so is text that would be read as a number. This list
is closed: no other `event` is written. Lines of librdkafka and of other libraries are written once a minute where they differ
in numbers only.

"""


def metrics() -> str:
    """docs/metrics.md."""
    of_a_run = Metrics().registry
    Checkups(tuple, of_a_run)
    parts = [_section("Of a run", of_a_run), _section("Of `headrace audit --http`", AuditMetrics().registry)]
    return _METRICS + "\n".join(parts)


def _section(title: str, registry: CollectorRegistry) -> str:
    rows = [(f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), text)
            for name, kind, labels, text in families(registry)]  # fmt: skip
    return f"## {title}\n\n{table(('metric', 'kind', 'labels', 'meaning'), rows)}"


def families(registry: CollectorRegistry) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name as it is scraped, kind, labels and meaning of each metric."""
    for collector in sorted(registry._collector_to_names, key=lambda c: str(getattr(c, "_name", ""))):
        assert isinstance(collector, MetricWrapperBase), "we register no other"
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield name, family.type, tuple(collector._labelnames), family.documentation


def events() -> str:
    """docs/events.md."""
    rows = [(f"`{name}`", event.level, event.meaning, f"`{event.ends}`" if event.ends else "")
            for name, event in EVENTS.items()]  # fmt: skip
    return _EVENTS + table(("event", "level", "meaning", "ended by"), rows)
