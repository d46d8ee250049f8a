"""The doctor's rounds beside a running sidecar: counted, shown, and gone when they are over."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from headrace.engine.errors import HeadraceError
from headrace.sidecar.operations.doctor.findings import Finding, Subject, advice, refused
from headrace.sidecar.process.checkups import Checkups
from tests.sidecar.support.process import wait


def test_findings_are_counted_and_shown_and_go_again() -> None:
    registry = CollectorRegistry()
    rounds: list[list[Finding] | None] = [
        None,
        [advice(Subject.SINK, "a", "w", "x", "y"), refused(Subject.SINK, "b", "w", "x", "y")],
        [],
    ]
    at = 0

    def look() -> list[Finding]:
        found = rounds[at]
        if found is None:
            raise HeadraceError("no answer")
        return found

    def gauge(severity: str) -> float | None:
        return registry.get_sample_value("headrace_doctor_findings", {"subject": "sink", "severity": severity})

    made = Checkups(look, registry, 0.01)
    assert made.status() is None
    made.start()
    at = 1
    wait(lambda: gauge("advice") == 1 and gauge("refused") == 1, "they are counted", 10)
    assert [f["check"] for f in made.status() or ()] == ["a", "b"]
    at = 2
    wait(lambda: gauge("refused") == 0 and made.status() == [], "they are gone", 10)
    made.close()
