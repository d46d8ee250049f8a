"""Comparisons in the course of a run: Postgres is asked at a position of its own choosing, and both sinks must agree.

Always: each answer is compared with the views at exactly that position, rebuilt from the Kafka sink; the Postgres sink is then
read in one snapshot and compared with the Kafka sink at the same epoch. Called by the demo and by end-to-end tests.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg

from examples.demo import oracle
from examples.demo.compare import DemoFailed, Mirror, Verdict, read_sink, with_views
from headrace.views.compile import CompiledView

PATIENCE = 60.0


@dataclass
class Judge:
    """Asks Postgres, waits until both sinks have passed, compares. `settle` is called often; nothing blocks for long."""

    source_url: str
    sink_url: str
    views: tuple[CompiledView, ...]
    mirror: Mirror
    verdict: Verdict = field(default_factory=Verdict)
    pending: list[tuple[int, int, dict[str, oracle.Answer]]] = field(default_factory=list)

    def ask(self) -> None:
        """Postgres's answers at a position of its own choosing: now."""
        name = f"oracle_{random.randrange(10**9)}"  # noqa: S311
        version = self.mirror.places.get("lake", 0)
        with oracle.snapshot(self.source_url, name) as (lsn, db):
            queries = with_views(self.views)
            found = oracle.answers(db, lsn, queries, {"headrace.lake_version": str(version)})
        self.pending.append((lsn, version, found))

    def settle(self) -> None:
        """Compare the answers whose position both sinks have passed."""
        self.mirror.poll(0.0)
        while self.pending:
            lsn, version, found = self.pending[0]
            epoch = self.mirror.cut("shop", lsn)
            if epoch is None:
                return
            self.pending.pop(0)
            if version != self.mirror.version_at("lake", epoch):
                continue
            where = f"LSN {lsn} (epoch {epoch})"
            ours = self.mirror.rows(epoch)
            self.verdict.compare_all(where, self.bus_views(), ours, found)
            if not self.pending:  # the warehouse is ahead of what was asked: the mirror must not pass that yet
                self.read_warehouse(epoch)

    def bus_views(self) -> tuple[CompiledView, ...]:
        """The views of the Kafka sink."""
        return tuple(v for v in self.views if "bus" in v.spec.sinks)

    def read_warehouse(self, after: int) -> None:
        """The Postgres sink at its own frontier against the Kafka sink at the same epoch."""
        with psycopg.connect(self.sink_url) as db:
            epoch, _, rows = read_sink(db, "headrace", "warehouse", self.bus_views())
        end = time.monotonic() + PATIENCE
        while self.mirror.epoch < epoch:
            if time.monotonic() > end:
                raise DemoFailed("the Kafka sink did not reach the Postgres sink's epoch", epoch=epoch)
            self.mirror.poll(0.05)
        if epoch < after:
            return
        ours = self.mirror.rows(epoch)
        for view in self.bus_views():
            self.verdict.compare(f"both sinks at epoch {epoch}", view, rows[view.name], ours[view.name])

    def final(self) -> None:
        """Writer stopped: both sinks against Postgres itself."""
        with oracle.snapshot(self.source_url, "oracle_final") as (lsn, db):
            with psycopg.connect(self.sink_url) as sink:
                _, lsns, rows = self._await(sink, lsn)
            version = str(lsns.get("lake", 0))
            found = oracle.answers(db, lsn, with_views(self.views), {"headrace.lake_version": version})
        self.verdict.compare_all(f"the end, LSN {lsn}", self.views, rows, found)
        self.mirror.close()

    def _await(self, sink: psycopg.Connection, lsn: int) -> tuple[int, dict[str, int], dict[str, Any]]:
        """The Postgres sink once it has passed `lsn` (heartbeats move it on)."""
        end = time.monotonic() + PATIENCE
        while True:
            self.mirror.poll(0.05)
            epoch, lsns, rows = read_sink(sink, "headrace", "warehouse", self.views)
            if lsns.get("shop", 0) >= lsn:
                return epoch, lsns, rows
            if time.monotonic() > end:
                raise DemoFailed("the sink did not reach the last commit", lsn=lsn, sink_lsn=lsns.get("shop", 0))
