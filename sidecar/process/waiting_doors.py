"""The HTTP address and the control socket while the sidecar has no workers: alive, not ready, and why.

Invariant: they answer from the loss of the workers until the runtime's own doors open, so that an orchestrator does not kill
a sidecar that waits for a cluster, and nobody takes it for ready. Opened and closed by `serve`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from headrace.engine.errors import HeadraceError
from headrace.sidecar import VERSION
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control.protocol import SOCKET
from headrace.sidecar.execution.workers.pool import SlotsMissing
from headrace.sidecar.process.restarts import Restarts
from headrace.sidecar.telemetry.http_server import Answer, HttpError, HttpServer, Probe, Request, Served
from headrace.sidecar.telemetry.metrics import Metrics


class WaitingDoors:
    """Single writer: `serve`; the servers' threads read. Metrics are of the whole time in which there are no workers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._doors: list[HttpServer] = []
        self._why, self._since = "", 0.0
        self._metrics = Metrics()
        self._missing: tuple[object, object] | None = None

    @property
    def are_open(self) -> bool:
        """Whether the addresses are taken by these."""
        return bool(self._doors)

    def open(self, error: HeadraceError, restarts: Restarts) -> bool:
        """From now on tell of this error; whether it is another than before."""
        slots = (error.where.get("wanted"), error.where.get("free")) if isinstance(error, SlotsMissing) else None
        new, self._missing = not self._doors or slots != self._missing, slots
        self._why = str(error)
        if not self._doors:
            self._since, self._metrics = time.time(), Metrics()
            self._metrics.build.labels(VERSION).set(1)
            self._metrics.restarted(restarts.reasons, restarts.legs)
            self._listen()
        self._metrics.missing = _missing(self._settings, slots)
        return new

    def _listen(self) -> None:
        served = Served(self._ready, self._metrics.render, self._status, _refuse, lambda: self._ready({}))
        with suppress(HttpError):  # the next try says so itself
            self._doors.append(HttpServer(self._settings.state / SOCKET, served))
            if self._settings.config.http is not None:
                self._doors.append(HttpServer(self._settings.config.http, served))
        for door in self._doors:
            door.start()

    def close(self) -> None:
        """Leave the addresses to others."""
        for door in self._doors:
            door.close()
        self._doors = []

    def _ready(self, query: Mapping[str, str]) -> Probe:  # noqa: ARG002
        return Probe.of(False, f"there are no workers: {self._why}", why=self._why, started=False, views=[])

    def _status(self) -> Mapping[str, Any]:
        """As `Board.read`, of which nothing is known now but why."""
        return {
            "name": self._settings.config.name, "ready": False, "epoch": None, "generation": None, "views": [], "sources": [],
            "sinks": [], "arrangements": [], "workers": [], "data_tests": [], "checkpoint": {},
            "waits": {"why": self._why, "since": round(self._since, 3)},
        }  # fmt: skip


def _missing(settings: Settings, slots: tuple[object, object] | None) -> int:
    """How many workers the cluster has no slot for; all of them while the next set is being started."""
    if slots is None or not isinstance(slots[0], int) or not isinstance(slots[1], int):
        return settings.config.engine.workers
    return max(1, slots[0] - slots[1])


def _refuse(request: Request) -> Answer:  # noqa: ARG001
    body = {"code": "control", "what": "there are no workers now", "where": {}, "hint": "`headrace status` says why"}
    return Answer(503, {"error": body})
