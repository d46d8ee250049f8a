"""A supervisor ends its worker with its driver, and not before the driver has come to it."""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from headrace.sidecar.execution.workers import supervisor
from headrace.sidecar.execution.workers.link import Listener, receive_frame, send_frame
from headrace.sidecar.execution.workers.supervisor import CONTROL, Shards, supervise
from headrace.sidecar.execution.workers.tls import Trust


def test_a_driver_that_hears_others_first_is_waited_for_and_one_that_falls_silent_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(supervisor, "REPORT_SECONDS", 0.1)

    def sleeping(*_: Any) -> subprocess.Popen[bytes]:
        made.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return made[-1]

    made: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(supervisor, "_spawn", sleeping)
    trust = Trust(secrets.token_bytes(32), "")
    listener = Listener("127.0.0.1", trust)
    shards = Shards(listener.address, trust, 1, 1, b"", {})
    supervising = threading.Thread(target=supervise, args=(shards, 0))
    supervising.start()
    try:
        found = listener.take(CONTROL, 0, 30)
        assert found is not None
        control, _ = found
        for _ in range(12):  # more than it may be silent for, while it hears others
            assert "exit" not in receive_frame(control)
        send_frame(control, {})
        said, told = time.monotonic(), receive_frame(control)
        while "exit" not in told:
            told = receive_frame(control)
        assert told["exit"] == -9
        assert time.monotonic() - said > 0.4, "it lived until the driver had fallen silent"
        control.close()
    finally:
        listener.close()
        supervising.join(30)
        for child in made:
            child.__exit__(None, None, None)  # its pipes
