"""Ranges on the real parts: a topic of steps read by its frontier records alone, under load, shows what Postgres answered as of
their LSNs; and an audit of views that change all the time finds them equal, as each transaction is known while it asks."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from examples.demo.compare import Verdict
from headrace.sidecar.cli.audit import prepare
from headrace.sidecar.config.config import load
from tests.sidecar.support.channel import Channel, channel
from tests.sidecar.support.steps import AnsweringWriter, FrontierReader


@pytest.fixture
def shop(stack: Any, tmp_path: Path, unique: str) -> Iterator[Channel]:
    with channel(stack, tmp_path, unique) as made:
        made.configure(sinks=[
            {"name": "warehouse", "type": "postgres", "url": made.sink_url, "schema": "headrace"},
            {"name": "bus", "type": "kafka", "topic_prefix": f"{made.name}.views."},
        ])  # fmt: skip
        yield made


class Stuttering:
    """Freezes the sidecar now and then, so that transactions wait and are taken in together."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._ends = channel, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        process = self._channel.process
        assert process is not None
        while not self._ends.wait(0.6):
            process.send_signal(signal.SIGSTOP)
            self._ends.wait(0.9)
            process.send_signal(signal.SIGCONT)

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


@pytest.mark.timeout(400)
def test_a_topic_of_steps_shows_postgres_answers_at_its_frontiers(shop: Channel) -> None:
    shop.start()
    reader = FrontierReader(shop.stack.kafka.bootstrap, f"{shop.name}.views.", shop.bus)
    writer = AnsweringWriter(shop.source_url, 5, shop.views)
    verdict, sizes, before, epoch = Verdict(), [], 0, 0

    def look(timeout: float) -> None:
        nonlocal before, epoch
        for standing, rows in reader.frontiers(timeout):
            at = standing.frontier
            assert at is not None
            lsn = at.sources["shop"].place.order
            verdict.compare_all(f"epoch {at.epoch}, LSN {lsn}", shop.bus, rows, writer.answers_at(lsn))
            assert standing.first == min(epoch + 1, at.epoch), "frontiers follow one another without a gap"
            sizes.append(writer.commits_between(before, lsn))
            before, epoch = lsn, at.epoch

    with Stuttering(shop):
        end = time.monotonic() + 15
        while time.monotonic() < end:
            writer.transact()
            look(0.0)
    settled = time.monotonic() + 60
    while before < writer.last:
        look(0.1)
        assert time.monotonic() < settled, f"the sink stays at {before}, before {writer.last}"
    assert verdict.differences == []
    assert verdict.comparisons > 5 * len(shop.bus)
    assert max(sizes) > 3, "several transactions became one range"
    for headers in reader.headers:
        assert int(headers["first_epoch"]) <= int(headers["epoch"])
    assert any(int(h["first_epoch"]) + 3 < int(h["epoch"]) for h in reader.headers)
    with psycopg.connect(shop.sink_url) as sink:
        [row] = sink.execute("select first_epoch <= epoch, first_epoch > 0 from headrace.frontier").fetchall()
    assert row == (True, True)
    reader.close()
    audited_under_load(shop, writer)
    writer.close()


def audited_under_load(shop: Channel, writer: AnsweringWriter) -> None:
    """No view is unsettled, though all of them change with every transaction."""
    audit = prepare(load(shop.config, {}), [], "warehouse", shop.source_url)
    ends = threading.Event()

    def write() -> None:
        while not ends.is_set():
            writer.transact()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(3):
            audit.attempts = 1
            found = audit.run()
            assert {f.view: f.state for f in found} == {v.name: "equal" for v in audit.views}
        assert shop.status()["each_transaction"]["ranges"] > 0, "it has asked for each transaction"
    finally:
        ends.set()
        thread.join()
    shop.until(lambda: shop.status()["each_transaction"]["asked_by"] == [], "it asks no more")
