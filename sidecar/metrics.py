"""What is counted and timed while running, for Prometheus, for `status`, and for the freshness benchmark.

Always: one registry a run, no global one. The runtime and the sink groups write; the HTTP door reads.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sidecar.flow import ArrangementFacts, WorkerFacts

BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Legs:
    """One epoch's way, in seconds: commit → Kafka (Debezium), Kafka → polled, polled → bound, bound → stepped,
    stepped → visible in the sink."""

    debezium: float
    kafka: float
    intake: float
    engine: float
    sink: float

    @property
    def own(self) -> float:
        """Event in Kafka → row visible."""
        return self.kafka + self.intake + self.engine + self.sink

    @property
    def total(self) -> float:
        """Commit → row visible."""
        return self.debezium + self.own


class Metrics:
    """Counters, gauges and histograms of one run."""

    def __init__(self) -> None:
        r = self.registry = CollectorRegistry()
        self.events = Counter("headrace_events", "Messages taken in", ["source"], registry=r)
        self.epochs = Counter("headrace_epochs", "Epochs bound", ["source"], registry=r)
        self.epoch = Gauge("headrace_epoch", "The last epoch bound", registry=r)
        self.freshness = Histogram(
            "headrace_view_freshness_seconds", "Commit at the source to visible in the sink, of each epoch",
            ["view", "sink"], buckets=BUCKETS, registry=r,
        )  # fmt: skip
        self.view_errors = Gauge("headrace_view_errors", "Errors alive in a view", ["view"], registry=r)
        self.data_tests = Gauge("headrace_data_test_failures", "Rows that break a data test", ["test"], registry=r)
        self.rows = Gauge("headrace_arrangement_rows", "Updates held", ["arrangement"], registry=r)
        self.bytes = Gauge("headrace_arrangement_bytes", "Bytes held", ["arrangement"], registry=r)
        self.readers = Gauge("headrace_arrangement_readers", "Operators that read it", ["arrangement"], registry=r)
        self.sink_seconds = Histogram(
            "headrace_sink_write_seconds", "One write of a sink", ["sink"], buckets=BUCKETS, registry=r
        )
        self.sink_epoch = Gauge("headrace_sink_epoch", "The epoch a sink reflects", ["sink"], registry=r)
        self.sink_detached = Gauge("headrace_sink_detached", "1 while a sink is detached", ["sink"], registry=r)
        self.sink_detachments = Counter("headrace_sink_detachments", "Times a sink was detached", ["sink"], registry=r)
        self.sink_backlog = Gauge("headrace_sink_backlog_bytes", "Rows that wait for a sink", ["sink"], registry=r)
        self.waiting = Gauge(
            "headrace_waiting_seconds", "Since when the oldest incomplete transaction waits", ["source"], registry=r
        )
        self.budget = Gauge("headrace_memory_budget_bytes", "What the configuration allows, 0 for no bound", registry=r)
        self.paused = Counter("headrace_intake_paused_seconds", "Time that memory held the intake up", registry=r)
        self.step_seconds = Histogram("headrace_step_seconds", "One step of the engine", buckets=BUCKETS, registry=r)
        self.lag = Gauge("headrace_consumer_lag", "Messages not read yet", ["source", "topic", "partition"], registry=r)
        self.checkpoints = Counter("headrace_checkpoints", "Checkpoints completed", registry=r)
        self.checkpoint_seconds = Gauge("headrace_checkpoint_seconds", "The last checkpoint's duration", registry=r)
        self.resident = Gauge("headrace_resident_bytes", "Resident memory, of all workers together", registry=r)
        self.worker_resident = Gauge("headrace_worker_resident_bytes", "Resident memory", ["worker"], registry=r)
        self.worker_seconds = Gauge("headrace_worker_cpu_seconds", "Processor time used", ["worker"], registry=r)
        self.workers: Callable[[], Sequence[WorkerFacts]] = tuple
        self._arrangements: set[str] = set()
        self._legs: dict[str, deque[Legs]] = {}
        self._lock = threading.Lock()

    def forget(self, view: str, sinks: Iterable[str]) -> None:
        """A view is dropped: nothing is told of it any more."""
        with suppress(KeyError):
            self.view_errors.remove(view)
        for sink in sinks:
            with suppress(KeyError):
                self.freshness.remove(view, sink)

    def observed(self, live: Mapping[str, ArrangementFacts], lags: Mapping[str, Mapping[tuple[str, int], int]]) -> None:
        """What arrangements hold, and how many messages of each source's partitions are not read yet.

        Of arrangements that are gone nothing is told any more.
        """
        for gone in self._arrangements - live.keys():
            for gauge in (self.rows, self.bytes, self.readers):
                gauge.remove(gone)
        self._arrangements = set(live)
        for name, facts in live.items():
            self.rows.labels(name).set(facts.rows)
            self.bytes.labels(name).set(facts.bytes)
            self.readers.labels(name).set(facts.readers)
        for source, of_source in lags.items():
            for (topic, partition), lag in of_source.items():
                self.lag.labels(source, topic, str(partition)).set(lag)

    def walked(self, sink: str, legs: Iterable[Legs]) -> None:
        """Remember the legs of epochs that became visible in `sink`."""
        with self._lock:
            self._legs.setdefault(sink, deque(maxlen=REMEMBERED)).extend(legs)

    def quantiles(self) -> dict[str, dict[str, dict[str, float]]]:
        """sink → leg → {"p50", "p95", "p99"} in milliseconds, over the epochs remembered."""
        out: dict[str, dict[str, dict[str, float]]] = {}
        with self._lock:
            remembered = {sink: list(legs) for sink, legs in self._legs.items()}
        for sink, seen in remembered.items():
            names = ("debezium", "kafka", "intake", "engine", "sink", "own", "total")
            out[sink] = {n: _quantiles([getattr(leg, n) for leg in seen]) for n in names}
            out[sink]["count"] = {"epochs": float(len(seen))}
        return out

    def render(self) -> bytes:
        """Prometheus's text format."""
        workers = self.workers()
        self.resident.set(resident_bytes(w.pid for w in workers))
        for worker in workers:
            self.worker_resident.labels(str(worker.shard)).set(memory_of(worker.pid).get("RssAnon", 0))
            self.worker_seconds.labels(str(worker.shard)).set(worker.cpu_seconds or 0.0)
        return generate_latest(self.registry)


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{q}": round(1000 * quantile(ordered, q / 100), 3) for q in (50, 95, 99)}


def quantile(ordered: list[float], q: float) -> float:
    """The value that a share `q` of the ascending values does not exceed; NaN of none."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def resident_bytes(others: Iterable[int] = ()) -> int:
    """Resident memory, mapped files apart (Linux's RssAnon), of this process and others; 0 where it cannot be told."""
    return memory(others).get("RssAnon", 0)


def memory(others: Iterable[int] = ()) -> Mapping[str, int]:
    """VmRSS, VmHWM, RssAnon, RssFile of this process and others together, in bytes."""
    found = [memory_of("self"), *map(memory_of, others)]
    return {name: sum(one.get(name, 0) for one in found) for name in found[0]}


def memory_of(process: int | str) -> Mapping[str, int]:
    """As `memory`, of one process by its id; nothing where the system does not tell."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as status:
            lines = dict(line.split(":", 1) for line in status if ":" in line)
    except OSError:
        return {}
    wanted = ("VmRSS", "VmHWM", "RssAnon", "RssFile")
    return {name: int(lines[name].split()[0]) * 1024 for name in wanted if name in lines}
