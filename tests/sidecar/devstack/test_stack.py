"""The embedded stack: a row's way through it, warm restarts on the same ports, no end that leaves a process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer

from headrace.sidecar.devstack import cli
from headrace.sidecar.devstack.errors import DevstackError
from headrace.sidecar.devstack.stack import Stack, read_state
from headrace.sidecar.devstack.stale_processes import is_ours
from headrace.sidecar.devstack.warm_cache import training_connector
from tests.containers import ContainerStack

pytestmark = pytest.mark.servers

END_SECONDS = 10.0


@contextmanager
def owner(folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A process that owns a running stack in `folder`, and what it says about it."""
    command = [sys.executable, "-m", "tests.sidecar.devstack.owner", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def pids_of(state: dict[str, Any]) -> list[int]:
    return [part["pid"] for part in state["parts"].values()]


def seconds_until_gone(pids: list[int], folder: Path) -> float:
    begin = time.monotonic()
    while left := [pid for pid in pids if is_ours(pid, folder)]:
        assert time.monotonic() - begin < END_SECONDS, f"still running: {left}"
        time.sleep(0.02)
    return time.monotonic() - begin


def read_topic(bootstrap: str, topic: str, count: int) -> list[dict[str, Any]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "t", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + 30
    while len(rows) < count and time.monotonic() < end:
        message = consumer.poll(0.1)
        value = message.value() if message is not None and message.error() is None else None
        if value is not None:
            rows.append(json.loads(value))
    consumer.close()
    return rows


def test_a_row_goes_from_postgres_to_kafka(stack: Stack | ContainerStack, unique: str) -> None:
    with psycopg.connect(stack.postgres.url(), autocommit=True) as admin:
        admin.execute(f"create role {unique} login superuser password 'secret'")
        admin.execute(f"create database {unique}")
    with psycopg.connect(stack.postgres.url(unique), autocommit=True) as client:
        client.execute("create table orders (id int primary key, total numeric(12,2))")
        client.execute("insert into orders values (1, 1.50)")
        stack.connect.put(unique, training_connector(stack.postgres_address, unique, unique, "secret"))
        stack.connect.wait_running(unique, slot=unique)
        client.execute("update orders set total = 2.50")
    rows = read_topic(stack.kafka.bootstrap, f"{unique}.public.orders", 2)
    stack.connect.delete(unique)
    assert [(row["op"], row["after"]) for row in rows] == [
        ("r", {"id": 1, "total": "1.50"}),
        ("u", {"id": 1, "total": "2.50"}),
    ]


def test_a_connector_that_fails_says_why(stack: Stack | ContainerStack, unique: str) -> None:
    config = training_connector(stack.postgres_address, "postgres", "postgres", "wrong")
    with pytest.raises(DevstackError, match="password authentication failed"):
        stack.connect.put(unique, config)


def test_the_owner_killed_leaves_nothing_and_the_next_start_at_once_has_the_same_ports(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, state):
        assert state["ready"]
        process.kill()
        process.wait()
        begin = time.monotonic()
        with Stack(tmp_path) as stack:
            assert not any(is_ours(pid, tmp_path) for pid in pids_of(state)), (
                "the old ones end before the new ones start"
            )
            assert stack.postgres.port == state["postgres"]["port"]
            assert stack.kafka.bootstrap == state["kafka"]
            assert stack.connect.url == state["connect"]
            assert stack.connect.ready()
            waited = time.monotonic() - begin - stack.timings["connect"]
            assert waited < END_SECONDS / 2, "they end by themselves, not by the new owner's patience"
            one_folder_has_one_owner(tmp_path)
            a_part_can_be_killed_and_started_again(stack)


def one_folder_has_one_owner(folder: Path) -> None:
    with pytest.raises(DevstackError, match=f"another process runs a stack.*pid={os.getpid()}"):
        Stack(folder)
    assert cli.status(folder)["ready"], "the refused owner must not disturb the first"


def a_part_can_be_killed_and_started_again(stack: Stack) -> None:
    assert stack.connect.child is not None
    stack.connect.child.kill()
    with pytest.raises(DevstackError, match="connect ended by itself"):
        stack.check_alive()
    assert not cli.status(stack.folder)["ready"]
    stack.connect.start()
    stack.check_alive()
    assert stack.connect.ready()
    assert cli.status(stack.folder)["ready"], "what is written down knows the new process"


def test_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, state):
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_SECONDS) == 0
        assert not any(is_ours(pid, tmp_path) for pid in pids_of(state))
    assert cli.status(tmp_path) == {"running": False, "ready": False, "folder": str(tmp_path)}


def test_ctrl_c_during_the_start_ends_it_too(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sidecar.devstack.owner", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 30
        while read_state(tmp_path) is None and time.monotonic() < end:
            time.sleep(0.01)
        state = read_state(tmp_path)
        assert state is not None
        process.send_signal(signal.SIGINT)
        assert process.wait(END_SECONDS) == 0
    assert not any(is_ours(pid, tmp_path) for pid in pids_of(state))


def test_a_part_that_dies_ends_the_owner_with_an_error_that_names_it(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, state):
        os.kill(state["parts"]["kafka"]["pid"], signal.SIGKILL)
        assert process.wait(END_SECONDS) != 0
        seconds_until_gone(pids_of(state), tmp_path)


def test_detached_it_runs_until_down(tmp_path: Path) -> None:
    states: list[dict[str, Any]] = []
    cli.up(tmp_path, detach=True, ready=states.append)
    state = cli.status(tmp_path)
    try:
        assert state["ready"]
        assert states[0]["pid"] == state["pid"] != os.getpid()
        assert set(state["parts"]) == {"postgres", "kafka", "connect"}
        assert all(part["memory_mb"] > 5 for part in state["parts"].values())
    finally:
        assert cli.down(tmp_path)
    assert not any(is_ours(pid, tmp_path) for pid in pids_of(state))
    assert not cli.status(tmp_path)["running"]
    assert not cli.down(tmp_path)


def test_a_detached_start_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text('{"postgres": 1, "kafka": 1, "controller": 1, "connect": 1}')
    (tmp_path / "postgres").write_text("not a folder")
    with pytest.raises(DevstackError, match="did not start"):
        cli.up(tmp_path, detach=True)
    assert not cli.status(tmp_path)["running"]
