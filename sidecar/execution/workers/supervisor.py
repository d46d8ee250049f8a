"""A Spark task that supervises one worker: starts it as a child, tells the driver of it, and ends it when it must end.

Always: the child does not outlive this process, nor a driver that was silent for `SILENT_SECONDS` since its first word; the
driver hears every second how the child is, and in the end its exit code or signal and its last lines. Called by Spark, in an
executor.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.sidecar.execution.workers.link import Address, dial, receive_frame, send_frame
from headrace.sidecar.execution.workers.process_facts import memory_of, stat_of
from headrace.sidecar.execution.workers.tls import Trust

SILENT_SECONDS = 10.0
"""A driver, or a supervisor, of whom nothing was heard for so long is taken for gone."""

MEETING_SECONDS = 90.0
"""How long a driver's first word may take: it hears one supervisor after the other, and some of them may start late."""

REPORT_SECONDS = 1.0
LINES = 100
"""Of what a worker wrote last, kept for its error."""

CONTROL = "control"


@dataclass(frozen=True)
class Shards:
    """The task of all shards. `trust`: of the run; `task`: pickled, opened by the worker alone, once it knows the driver.

    `environment`: variables of the driver that executors take unless they have their own.
    """

    driver: Address
    trust: Trust
    count: int
    attempt: int
    task: bytes
    environment: Mapping[str, str]
    ports: Sequence[int] = (0,)

    def __call__(self, shards: Iterable[int]) -> Iterator[str]:
        """What Spark calls in an executor, with the number of its shard."""
        for shard in shards:
            supervise(self, shard)
        return iter(())


def supervise(shards: Shards, shard: int) -> None:
    """Run one worker until it ends, or is to end."""
    host, executor = platform.node(), _executor()
    hello = {"name": CONTROL, "shard": shard, "host": host, "executor": executor, "pid": os.getpid()}
    control = dial(shards.driver, shards.trust, hello)
    control.settimeout(MEETING_SECONDS)
    child = _spawn(shards, shard)
    told: deque[str] = deque(maxlen=LINES)
    ended = threading.Event()
    log = threading.Thread(target=_relay, args=(child, told, f"[shard {shard} attempt {shards.attempt}] "), daemon=True)
    for thread in (log, threading.Thread(target=_await, args=(child, ended), daemon=True)):
        thread.start()
    listening = threading.Thread(target=_obey, args=(control, child), daemon=True)
    listening.start()
    try:
        while not ended.wait(REPORT_SECONDS):
            report = {"pid": child.pid, "stat": stat_of(child.pid), "memory": memory_of(child.pid), "at": time.time()}
            send_frame(control, report)
        log.join(1)
        send_frame(control, {"exit": child.returncode, "lines": list(told)})
        listening.join(SILENT_SECONDS)
    except OSError:
        pass  # the driver is gone
    finally:
        child.kill()
        child.wait()
        control.close()


def _executor() -> str:
    """The executor's name: where its master does not tell, the folder that a standalone worker gave it is its number."""
    return os.environ.get("SPARK_EXECUTOR_ID") or os.environ.get("SPARK_EXECUTOR_POD_NAME") or Path.cwd().name


def _spawn(shards: Shards, shard: int) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-m", "headrace.sidecar.execution.workers.spark_worker"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env={**shards.environment, **os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    head = {
        "driver": shards.driver, "secret": shards.trust.secret.hex(), "certificate": shards.trust.pem, "shard": shard,
        "count": shards.count, "parent": os.getpid(), "size": len(shards.task), "ports": list(shards.ports),
    }  # fmt: skip
    assert child.stdin is not None
    try:
        child.stdin.write(json.dumps(head).encode() + b"\n" + shards.task)
        child.stdin.flush()  # and it stays open: its end ends the child
    except OSError:
        pass  # it has ended, which is told
    return child


def _await(child: subprocess.Popen[bytes], ended: threading.Event) -> None:
    child.wait()
    ended.set()


def _relay(child: subprocess.Popen[bytes], told: deque[str], prefix: str) -> None:
    """Put the child's lines into the executor's log."""
    assert child.stdout is not None
    for line in child.stdout:
        text = line.decode(errors="replace").rstrip()
        told.append(text)
        sys.stderr.write(f"{prefix}{text}\n")
        sys.stderr.flush()


def _obey(control: Any, child: subprocess.Popen[bytes]) -> None:
    """Hear the driver: each word says that it lives; once it says so, is silent or gone, the child ends."""
    try:
        while not receive_frame(control).get("end"):
            control.settimeout(SILENT_SECONDS)
    except OSError:
        pass
    child.kill()
