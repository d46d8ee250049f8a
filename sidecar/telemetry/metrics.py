"""The metrics: what is counted and timed, for Prometheus, `status` and the freshness benchmark.

Invariant: each run has a registry of its own. The runtime and the sink writers write; the HTTP server reads.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from headrace.sidecar.execution.dataflow_host import ArrangementFacts, ExchangeFacts, WorkerFacts
from headrace.sidecar.execution.workers.process_facts import memory_of
from headrace.sidecar.state.objects import Counts
from headrace.sidecar.telemetry.batch_histogram import BatchHistogram

BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
REMEMBERED = 10_000
STAGES = ("debezium", "kafka", "kafka_queueing", "kafka_service", "intake", "engine", "sink", "sink_queueing", "sink_service",
          "own", "total")  # fmt: skip
RESTART_REASONS = ("died", "hangs", "cut")
RESTART_LEGS = ("end", "slots", "start", "recover", "catch up")
SILENT_SECONDS = 3.0
"""A worker of which its host has told nothing for so long is counted as silent."""


@dataclass(frozen=True, slots=True)
class LatencyStages:
    """One epoch's way, in seconds: commit → Kafka (Debezium), Kafka → polled, polled → bound, bound → stepped,
    stepped → visible in the sink. Queueing, while somebody is at work on what came before: in Kafka until the loop polls last
    before the step, and stepped until the sink begins to write. The rest of these two legs is service; the others are service
    alone."""

    debezium: float
    kafka: float
    intake: float
    engine: float
    sink: float
    kafka_queueing: float
    sink_queueing: float

    @property
    def kafka_service(self) -> float:
        """The loop polls → the event is here."""
        return self.kafka - self.kafka_queueing

    @property
    def sink_service(self) -> float:
        """The write begins → row visible."""
        return self.sink - self.sink_queueing

    @property
    def own(self) -> float:
        """Event in Kafka → row visible."""
        return self.kafka + self.intake + self.engine + self.sink

    @property
    def total(self) -> float:
        """Commit → row visible."""
        return self.debezium + self.own


class Metrics:
    """Counters, gauges and histograms of one run. `on_render`: called before each scrape, by the thread that answers it.

    `__init__` is long because it declares every metric in one place."""

    def __init__(self) -> None:
        r = self.registry = CollectorRegistry()
        self.build = Gauge("headrace_build_info", "1, with the program's version", ["version"], registry=r)
        self.view_staleness = Gauge(
            "headrace_view_staleness_seconds", "Now minus the commit that the sink reflects, however quiet the source is",
            ["view", "sink"], registry=r,
        )  # fmt: skip
        self.view_up = Gauge(
            "headrace_view_up", "1 while the view is kept up to date, 0 in error", ["view"], registry=r
        )
        self.view_late = Gauge(
            "headrace_view_late", "1 while a recursion of the view is evaluated between steps", ["view"], registry=r
        )
        self.view_late_round = Gauge(
            "headrace_view_late_round", "The round to which that evaluation has come, 0 for none", ["view"], registry=r
        )
        self.view_late_rows = Gauge(
            "headrace_view_late_rows", "The recursion's rows in that round, 0 for none", ["view"], registry=r
        )
        self.view_rows = Gauge("headrace_view_rows", "Rows of the view", ["view"], registry=r)
        self.table_suspended = Gauge(
            "headrace_table_suspended", "1 while a record of the table cannot be taken in", ["table"], registry=r
        )
        self.table_unproven = Gauge(
            "headrace_table_unproven",
            "1 while the catalog has the table otherwise than it is read",
            ["table"],
            registry=r,
        )
        self.source_up = Gauge(
            "headrace_source_up", "1 while Kafka answers and heartbeats arrive", ["source"], registry=r
        )
        self.clock_ahead = Gauge(
            "headrace_source_clock_ahead_seconds", "By how much, at least, the source's clock is ahead of this machine's",
            ["source"], registry=r,
        )  # fmt: skip
        self.dead_letters = Counter(
            "headrace_dead_letters", "Records set aside as dead letters", ["source"], registry=r
        )
        self.snapshot_rows = Gauge(
            "headrace_snapshot_missing_rows", "Rows of the source's snapshot still to come, as far as known", ["source"],
            registry=r,
        )  # fmt: skip
        self.process_cpu = Counter(
            "headrace_process_cpu_seconds", "Processor time of the sidecar's own process", registry=r
        )
        self.process_started = Gauge(
            "headrace_process_start_time_seconds", "When the process began, seconds since 1970", registry=r
        )
        self.process_files = Gauge("headrace_process_open_files", "Open file descriptors", registry=r)
        self.process_threads = Gauge("headrace_process_threads", "Threads", registry=r)
        self._began, self._cpu = time.time(), 0.0
        self._worker_cpu: dict[int, float] = {}
        self.on_render: Callable[[], None] = lambda: None
        self.events = Counter("headrace_events", "Messages taken in", ["source"], registry=r)
        self.epochs = Counter("headrace_epochs", "Epochs bound", ["source"], registry=r)
        self.epoch = Gauge("headrace_epoch", "The last epoch bound", registry=r)
        self.freshness = BatchHistogram(
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
        self.sink_backlog = Gauge(
            "headrace_sink_backlog_bytes",
            "Rows that a sink writes, and that wait for it",
            ["sink"],
            registry=r,
        )
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
        self.worker_seconds = Counter("headrace_worker_cpu_seconds", "Processor time used", ["worker"], registry=r)
        self.workers_by_state = Gauge(
            "headrace_workers", "Worker processes: running, silent for some seconds, or missing as a cluster has no slot",
            ["state"], registry=r,
        )  # fmt: skip
        self.worker_restarts = Counter(
            "headrace_worker_restarts", "Times that a worker died, hung or was cut off, and all were started anew",
            ["reason"], registry=r,
        )  # fmt: skip
        self.worker_restart_seconds = Gauge(
            "headrace_worker_restart_seconds", "The last restart of workers: until the old had ended, there were slots, the "
            "new had started, had recovered, and sinks had caught up", ["leg"], registry=r,
        )  # fmt: skip
        self.exchange_rounds = Counter(
            "headrace_exchange_rounds", "Rounds in which all workers met, as this one counts", ["worker"], registry=r
        )
        self.exchange_bytes = Counter(
            "headrace_exchange_bytes", "Bytes that one worker sent to another", ["worker", "to"], registry=r
        )
        self.exchange_wait = Counter(
            "headrace_exchange_wait_seconds", "Time in which a worker waited for others, by the last of them to answer",
            ["worker", "last"], registry=r,
        )  # fmt: skip
        self.checkpoint_age = Gauge(
            "headrace_checkpoint_age_seconds",
            "Since the last checkpoint that everything bound so far is not in",
            registry=r,
        )
        self.store_requests = Counter(
            "headrace_store_requests", "Requests to the store of the state, by all processes", ["outcome"], registry=r
        )
        self.store_bytes = Counter(
            "headrace_store_bytes",
            "Bytes read from the store of the state and written to it",
            ["direction"],
            registry=r,
        )
        self.workers: Callable[[], Sequence[WorkerFacts]] = tuple
        self.exchanges: Callable[[], Sequence[ExchangeFacts]] = tuple
        self.missing = 0
        self.store: Callable[[], Counts] = Counts
        self._stored = Counts()
        self._exchanged: Sequence[ExchangeFacts] = ()
        self._arrangements: set[str] = set()
        self._stages: dict[str, deque[LatencyStages]] = {}
        self._lock = threading.Lock()

    def restarted(self, reasons: Mapping[str, int], legs: Mapping[str, float]) -> None:
        """How often workers were lost in this process, and how long each part of the last restart took."""
        for reason in RESTART_REASONS:
            self.worker_restarts.labels(reason).inc(reasons.get(reason, 0))
        for leg in RESTART_LEGS:
            self.worker_restart_seconds.labels(leg).set(legs.get(leg, 0.0))

    def forget(self, view: str, sinks: Iterable[str]) -> None:
        """A view is dropped: nothing is told of it any more."""
        late = self.view_late, self.view_late_round, self.view_late_rows
        for gauge in (self.view_errors, self.view_up, self.view_rows, *late):
            with suppress(KeyError):
                gauge.remove(view)
        for sink in sinks:
            for of_sink in (self.freshness, self.view_staleness):
                with suppress(KeyError):
                    of_sink.remove(view, sink)

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

    def traced(self, sink: str, stages: Iterable[LatencyStages]) -> None:
        """Remember the latency stages of epochs that became visible in `sink`."""
        with self._lock:
            self._stages.setdefault(sink, deque(maxlen=REMEMBERED)).extend(stages)

    def quantiles(self) -> dict[str, dict[str, dict[str, float]]]:
        """sink → stage → {"p50", "p95", "p99"} in milliseconds, over the epochs remembered."""
        out: dict[str, dict[str, dict[str, float]]] = {}
        with self._lock:
            remembered = {sink: list(stages) for sink, stages in self._stages.items()}
        for sink, seen in remembered.items():
            out[sink] = {n: _quantiles([getattr(stage, n) for stage in seen]) for n in STAGES}
            out[sink]["count"] = {"epochs": float(len(seen))}
        return out

    def render(self) -> bytes:
        """Prometheus's text format."""
        workers = self.workers()
        self.resident.set(resident_bytes(w.memory for w in workers))
        for worker in workers:
            self.worker_resident.labels(str(worker.shard)).set(worker.memory.get("RssAnon", 0))
            with self._lock:
                used, before = worker.cpu_seconds or 0.0, self._worker_cpu.get(worker.shard, 0.0)
                self.worker_seconds.labels(str(worker.shard)).inc(max(0.0, used - before))
                self._worker_cpu[worker.shard] = max(used, before)
        silent = sum(w.heard_seconds > SILENT_SECONDS for w in workers)
        self.workers_by_state.labels("running").set(len(workers) - silent)
        self.workers_by_state.labels("silent").set(silent)
        self.workers_by_state.labels("missing").set(self.missing)
        self._count_store()
        self._count_exchanges()
        self.on_render()
        with self._lock:
            cpu = time.process_time()
            self.process_cpu.inc(max(0.0, cpu - self._cpu))
            self._cpu = max(cpu, self._cpu)
        self.process_started.set(self._began)
        self.process_threads.set(threading.active_count())
        with suppress(OSError):
            self.process_files.set(len(os.listdir("/proc/self/fd")))
        return without_created(self.registry)

    def _count_store(self) -> None:
        with self._lock:
            now, before = self.store(), self._stored
            self._stored = now
            for family, label, of, was in (
                (self.store_requests, "answered", now.requests - now.failed, before.requests - before.failed),
                (self.store_requests, "failed", now.failed, before.failed),
                (self.store_bytes, "read", now.read_bytes, before.read_bytes),
                (self.store_bytes, "written", now.written_bytes, before.written_bytes),
            ):
                family.labels(label).inc(max(0, of - was))  # workers that are new count from nothing

    def _count_exchanges(self) -> None:
        """What was added since the last look; workers that are new count from nothing."""
        with self._lock:
            now = self.exchanges()
            same = len(now) == len(self._exchanged) and all(
                a.rounds >= b.rounds for a, b in zip(now, self._exchanged, strict=True)
            )
            before = self._exchanged if same else [ExchangeFacts(0, [0] * len(now), [0.0] * len(now))] * len(now)
            self._exchanged = now
        for k, (after, was) in enumerate(zip(now, before, strict=True)):
            self.exchange_rounds.labels(str(k)).inc(after.rounds - was.rounds)
            for other in (o for o in range(len(now)) if o != k):
                self.exchange_bytes.labels(str(k), str(other)).inc(after.sent[other] - was.sent[other])
                self.exchange_wait.labels(str(k), str(other)).inc(max(0.0, after.waited[other] - was.waited[other]))


def without_created(registry: CollectorRegistry) -> bytes:
    """Prometheus's text format, without the moments at which counters and histograms were made."""
    lines = generate_latest(registry).splitlines(keepends=True)
    return b"".join(line for line in lines if not re.match(rb"(# (HELP|TYPE) )?headrace_\w+_created\b", line))


def _quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{q}": round(1000 * quantile(ordered, q / 100), 3) for q in (50, 95, 99)}


def quantile(ordered: list[float], q: float) -> float:
    """The value that a share `q` of the ascending values does not exceed; NaN of none."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def resident_bytes(others: Iterable[Mapping[str, int]] = ()) -> int:
    """Resident memory, mapped files apart (Linux's RssAnon), of this process and others; 0 where it cannot be told."""
    return memory(others).get("RssAnon", 0)


def memory(others: Iterable[Mapping[str, int]] = ()) -> Mapping[str, int]:
    """VmRSS, VmHWM, RssAnon, RssFile of this process and of others, of each of which they are given, in bytes."""
    found = [memory_of("self"), *others]
    return {name: sum(one.get(name, 0) for one in found) for name in found[0]}
