"""A process that is stopped (SIGSTOP) while it writes, replaced, and woken up again (SIGCONT): not one stale write, neither
in a sink nor in the state folder of its successor."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.sidecar.state.checkpoint import Capture, CheckpointStore, read_manifest
from headrace.sidecar.state.generation import carry_over, open_generation, take_generation
from tests.contracts.sink import ORDERS, SinkHarness, changes, frontier, texts, whole
from tests.contracts.test_kafka_sink import KafkaHarness
from tests.contracts.test_postgres_sink import PostgresHarness
from tests.contracts.zombie import sink_of

PAUSE = float(os.environ.get("HEADRACE_ZOMBIE_SECONDS", "2"))


@pytest.fixture(params=["postgres", "kafka"])
def place(request: pytest.FixtureRequest, unique: str) -> Iterator[tuple[str, str, SinkHarness]]:
    kind: str = request.param
    address: str = request.getfixturevalue("database" if kind == "postgres" else "kafka")
    made: Any = PostgresHarness(address) if kind == "postgres" else KafkaHarness(address, f"{unique}.")
    yield kind, address, made
    made.close()


def test_a_stopped_writer_that_wakes_up_writes_nothing(
    place: tuple[str, str, Any], unique: str, tmp_path: Path
) -> None:
    kind, address, harness = place
    zombie = subprocess.Popen(
        [sys.executable, "-m", "tests.contracts.zombie", kind, address, unique, str(tmp_path)],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert zombie.stdout is not None
    try:
        for _ in range(5):
            json.loads(zombie.stdout.readline())
        zombie.send_signal(signal.SIGSTOP)
        heir = sink_of(kind, address, unique)
        generation, previous = take_generation(tmp_path)
        state = heir.open([ORDERS])
        carry_over(generation, previous)
        assert state.frontier is not None
        at = state.frontier.epoch + 1
        heir.write({ORDERS.name: whole(ORDERS, at, (1, None, "heir"))}, frontier(at))
        CheckpointStore(generation, "heir").write(Capture(epoch=at, write=dict))
        time.sleep(PAUSE)
        zombie.send_signal(signal.SIGCONT)
        told = zombie.communicate(timeout=60)[0].splitlines()
        assert json.loads(told[-1])["ended"] == "fenced", told[-3:]
        heir.write({ORDERS.name: changes(ORDERS, ((2, None, "heir"), at + 1, 1))}, frontier(at + 1))
        if kind == "kafka":
            harness.made.append(heir)
        assert harness.content(ORDERS) == texts(ORDERS, (1, None, "heir"), (2, None, "heir"))
        manifest = read_manifest(generation.manifest)
        assert manifest is not None
        assert (manifest.program, manifest.epoch) == ("heir", at)
        again, before = take_generation(tmp_path)
        assert before is not None
        assert before.number == generation.number
        assert open_generation(tmp_path, 1).manifest.exists(), "the zombie wrote, into its own folder alone"
        assert again.number == 3
        heir.close()
    finally:
        zombie.kill()
        zombie.wait()
