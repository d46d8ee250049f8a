"""The doctor's checks beside a running sidecar: once a minute, on a thread of their own, for status and metrics.

Always: the loop never waits for them, and whatever fails in them ends nothing. The first round is a minute after the start.
Started and closed by `serve`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Gauge

from headrace.engine.errors import HeadraceError
from headrace.sidecar.operations.doctor.findings import Finding, Severity, Subject

SECONDS = 60.0
LOGGER = logging.getLogger("headrace.doctor")


class Checkups:
    """Looks again and again. Single writer of `findings`: its thread; None until the first round is over."""

    def __init__(
        self, look: Callable[[], Sequence[Finding]], registry: CollectorRegistry, seconds: float = SECONDS
    ) -> None:
        self.findings: Sequence[Finding] | None = None
        self._look, self._seconds = look, seconds
        self._gauge = Gauge(
            "headrace_doctor_findings", "What the doctor found last", ["subject", "severity"], registry=registry
        )
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="doctor", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """No further round begins; one that is under way is not waited for."""
        self._closed.set()

    def status(self) -> list[dict[str, str]] | None:
        """As `headrace status --json` shows them."""
        return None if self.findings is None else [f.as_json() for f in self.findings]

    def _run(self) -> None:
        while not self._closed.wait(self._seconds):
            try:
                found = tuple(self._look())
            except (HeadraceError, OSError) as error:
                LOGGER.warning("the doctor could not look: %s", error)
                continue
            counts = Counter((f.subject, f.severity) for f in found)
            for subject in Subject:
                for severity in Severity:
                    self._gauge.labels(subject.value, severity.value).set(counts[subject, severity])
            self.findings = found
