"""Workers as tasks of one long Spark job in barrier mode: placed by Spark, supervised there, joined by our own sockets.

Always: all workers are placed or none; each is heard of every second, and one of which nothing is heard is named as cut
off, one that was killed by its signal; after `close` or `kill` no worker is left and the job has ended. The session is
not ours. Called by the driver; wiring makes the cluster.
"""

from __future__ import annotations

import os
import pickle
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from headrace.sidecar.execution.dataflow_host import WorkerFacts
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed
from headrace.sidecar.execution.workers.identity import difference
from headrace.sidecar.execution.workers.link import Facts, Listener, receive_frame, send_frame
from headrace.sidecar.execution.workers.pool import (
    CUT_OFF,
    ENDING_SECONDS,
    Guests,
    SlotsMissing,
    WorkerLost,
    WorkerPool,
)
from headrace.sidecar.execution.workers.process_facts import cpu_of, is_runnable, named_exit
from headrace.sidecar.execution.workers.spark_worker import ASIDE, DRIVER
from headrace.sidecar.execution.workers.supervisor import CONTROL, REPORT_SECONDS, SILENT_SECONDS, Shards
from headrace.sidecar.execution.workers.tls import End, Trust, certificate

SLOT_SECONDS = 8.0
"""How long executors may take to offer enough slots; what is missing is named after it."""

MEETING_SECONDS = 90.0
REASON_SECONDS = 10.0
"""How long Spark may take to tell why an executor ended."""

_CUT = "cut off"
GONE = 1
"""The exit code of a worker that ended because another did, as nobody tells."""

_LOST_EXECUTOR = re.compile(r"ExecutorLostFailure \(executor (\S+) exited[^)]*\) Reason: ([^\n]*)")
_SIGNALLED = re.compile(r"exit(?:ed with)? code:? (\d+)", re.IGNORECASE)


@dataclass
class SparkCluster:
    """Where pools are started: `session` gives the running session; `name`: of the sidecar; `generation`: of its state;
    `renew` ends the session, where it is ours, so that the next is another.

    `host`: on which the driver listens; `environment`: variables that executors take unless they have their own; `tls`:
    whether connections are encrypted.
    """

    session: Callable[[], Any]
    name: str
    generation: int
    host: str = "127.0.0.1"
    ports: Sequence[int] = (0,)
    environment: Mapping[str, str] = field(default_factory=dict)
    tls: bool = False
    slot_seconds: float = SLOT_SECONDS
    renew: Callable[[], bool] = lambda: False
    attempts: int = 0

    def __call__(self, count: int, task: object) -> SparkPool:
        """As `Maker`. Raises SlotsMissing, WorkerLost, LinkRefused."""
        begun = time.monotonic()
        context = self._await_slots(count)
        self.attempts += 1
        return SparkPool(self, context, count, task, time.monotonic() - begun)

    def _await_slots(self, count: int) -> Any:
        """The context, once it has slots for so many. Raises SlotsMissing."""
        context = self.session().sparkContext
        until = time.monotonic() + self.slot_seconds
        while (there := slots(context)).free < count:
            if (
                there.total == 0
                and time.monotonic() > until - self.slot_seconds / 2
                and _is_forgotten(context)
                and self.renew()
            ):
                context, until = self.session().sparkContext, time.monotonic() + self.slot_seconds
            if time.monotonic() > until:
                raise SlotsMissing("the cluster has too few slots for the workers", wanted=count, free=there.free,
                                   master=context.master,
                                   hint="add executors or cores, or ask for fewer workers: each takes one slot")  # fmt: skip
            time.sleep(0.2)
        return context


class Slots(NamedTuple):
    """How many tasks can run at once, and how many more than those that run."""

    total: int
    free: int


def slots(context: Any) -> Slots:
    """Those of the cluster now; none where it has ended the application. Raises WorkerLost."""
    with _answering():
        scala = context._jsc.sc()
        if scala.isStopped():
            return Slots(0, 0)
        total = int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))
        busy = sum(int(executor.numRunningTasks()) for executor in scala.statusTracker().getExecutorInfos())
        return Slots(total, max(total - busy, 0))


def _is_forgotten(context: Any) -> bool:
    """Whether executors that the application had are gone, though the cluster may be well.

    A master that was restarted does not know the application, ends its executors, and starts no others for it.
    """
    with _answering():
        scala = context._jsc.sc()
        return bool(scala.isStopped()) or int(scala.statusStore().executorList(False).size()) > 1  # the driver is one


@contextmanager
def _answering() -> Iterator[None]:
    """What is asked of the session's JVM. Raises WorkerLost where that is gone."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (Py4JError, OSError) as error:
        raise WorkerLost("the JVM of the Spark session does not answer", error=_first_line(error)) from error


@dataclass
class _Worker:
    """What its supervisor told of a worker. Single writer: the thread that hears it; read under the pool's lock."""

    control: End
    host: str
    executor: str
    pid: int = 0
    report: Facts = field(default_factory=dict)
    heard: float = 0.0
    code: int | None = None
    lines: Sequence[str] = ()
    how: str = ""


class SparkPool:
    """`count` workers, each of which serves `task`, as tasks of one job."""

    def __init__(
        self, cluster: SparkCluster, context: Any, count: int, task: object, slot_seconds: float = 0.0
    ) -> None:
        self.slot_seconds = slot_seconds
        self.channels: list[Channel] = []
        self.asides: list[Channel] = []
        self._count, self._context, self.attempt = count, context, cluster.attempts
        self._group = f"headrace {cluster.name} generation {cluster.generation} attempt {self.attempt}"
        self._changed = threading.Condition()
        self._workers: list[_Worker] = []
        self._ends: list[End] = []
        self._ending = False
        self._job_error: BaseException | None = None
        self._ended = threading.Event()
        trust = Trust(secrets.token_bytes(32), certificate() if cluster.tls else "")
        self._listener = Listener(cluster.host, trust, ports=cluster.ports, check=_check)
        task_of_all = Shards(
            self._listener.address, trust, count, self.attempt, pickle.dumps(task), cluster.environment, cluster.ports
        )
        self._job = threading.Thread(target=self._run, args=(task_of_all,), name="spark job", daemon=True)
        self._job.start()
        try:
            self._meet()
        except BaseException:
            self.kill()
            for end in self._ends:
                end.close()
            raise

    def _run(self, shards: Shards) -> None:
        """The job, until all its tasks have ended."""
        try:
            self._context.setJobGroup(self._group, "workers of headrace, one a task", interruptOnCancel=True)
            numbers = self._context.parallelize(range(self._count), self._count)
            numbers.barrier().mapPartitions(shards).collect()
        except BaseException as error:
            self._job_error = error
        finally:
            self._ended.set()
            with self._changed:
                self._changed.notify_all()

    def _meet(self) -> None:
        """Take every worker's connections, and tell each where the others are. Raises WorkerLost, LinkRefused."""
        for shard in range(self._count):
            control, hello = self._taken(CONTROL, shard)
            worker = _Worker(control, hello["host"], hello["executor"], heard=time.monotonic())
            control.settimeout(SILENT_SECONDS)
            self._workers.append(worker)
            for target in (self._hear, self._speak):
                threading.Thread(target=target, args=(shard, worker), name=f"worker {shard}", daemon=True).start()
        mains = [self._taken(DRIVER, shard) for shard in range(self._count)]
        addresses = [hello["address"] for _, hello in mains]
        for shard, (end, hello) in enumerate(mains):
            self._workers[shard].pid = self._workers[shard].pid or hello["pid"]
            send_frame(end, {"addresses": addresses})
        self.asides = [Channel(self._taken(ASIDE, shard)[0], shard) for shard in range(self._count)]
        self.channels = [Channel(end, shard) for shard, (end, _) in enumerate(mains)]

    def _taken(self, name: str, shard: int) -> tuple[End, Facts]:
        """A connection of a worker that is being started."""
        until = time.monotonic() + MEETING_SECONDS
        while True:
            found = self._listener.take(name, shard, 0.1)
            if found is not None:
                self._ends.append(found[0])
                return found
            if self._listener.refused is not None:
                raise self._listener.refused
            if any(worker.code is not None for worker in self._workers):
                k = next(k for k, worker in enumerate(self._workers) if worker.code is not None)
                raise self.lost(k, "a worker ended before it had begun")
            if self._ended.is_set() or time.monotonic() > until:
                raise WorkerLost("a worker did not start", shard=shard, job=self._group, seconds=MEETING_SECONDS,
                                 spark=_first_line(self._job_error),
                                 hint="the executors' logs say more: can they import headrace, and reach the driver at "
                                 f"{self._listener.address[0]}:{self._listener.address[1]}?")  # fmt: skip

    def _hear(self, shard: int, worker: _Worker) -> None:
        """What the supervisor says, until it is gone, silent, or tells the end."""
        how = ""
        try:
            while True:
                found = receive_frame(worker.control)
                with self._changed:
                    worker.heard = time.monotonic()
                    if "exit" in found:
                        worker.code, worker.lines = int(found["exit"]), found["lines"]
                        return
                    worker.pid, worker.report = found["pid"], found
        except TimeoutError:
            how = f"{_CUT}: nothing was heard for {SILENT_SECONDS:g} s"
        except (OSError, ValueError, KeyError):
            how = "its executor is gone"
        finally:
            with self._changed:
                if worker.code is None:  # only the first tells why: the others end because of it
                    first = all(other.how == "" for other in self._workers)
                    worker.code, worker.how = (-9 if first and not self._ending else GONE), how
                self._changed.notify_all()
            if how:
                self._cut(shard)

    def _cut(self, shard: int) -> None:
        """Have whoever waits for this worker see that it is gone."""
        for channels in (self.channels, self.asides):
            if shard < len(channels):
                with suppress(OSError, ValueError), socket.socket(fileno=_copy(channels[shard])) as end:
                    end.shutdown(socket.SHUT_RDWR)

    def _speak(self, shard: int, worker: _Worker) -> None:  # noqa: ARG002
        """Let the supervisor hear that we live."""
        with suppress(OSError):
            while worker.code is None and not self._ending:
                send_frame(worker.control, {})
                with self._changed:
                    self._changed.wait(REPORT_SECONDS)

    def beside(self, name: str) -> Callable[[], WorkerPool]:
        """As `WorkerPool.beside`: each worker dials once it is told to."""
        return partial(self._guests, name)

    def _guests(self, name: str) -> WorkerPool:
        channels = []
        for shard in range(self._count):
            found = self._listener.take(name, shard, MEETING_SECONDS)
            if found is None:
                raise ChannelClosed("a worker does not dial", shard=shard, channel=name)
            channels.append(Channel(found[0], shard))
        return Guests(self, channels)

    def members(self) -> Sequence[WorkerFacts]:
        """As `WorkerPool.members`."""
        now = time.monotonic()
        with self._changed:
            return [
                WorkerFacts(
                    k, w.pid, cpu_of(w.report.get("stat", ())), w.report.get("memory", {}), w.host, w.executor, self.attempt,
                    now - w.heard,
                )
                for k, w in enumerate(self._workers)
            ]  # fmt: skip

    def lost(self, shard: int, what: str, *, seconds: float | None = None, by: str | None = None) -> WorkerLost:
        """The error that names a worker, its executor and host, and how it ended."""
        worker = self._workers[shard]
        executor, ended = worker.executor, named_exit(worker.code)
        if worker.how:
            ended = worker.how
            if worker.how.startswith(_CUT):
                what = CUT_OFF
            self._ended.wait(0 if what == CUT_OFF else REASON_SECONDS)
            told = _LOST_EXECUTOR.search(str(self._job_error))
            if told is not None:
                code = _SIGNALLED.search(told[2])
                number = int(code[1]) - 128 if code and int(code[1]) > 128 else None
                executor, ended = told[1], f"its executor ended by {named_exit(-number)}" if number else told[2].strip()
        tail = "\n".join(worker.lines)
        hint = "all workers were stopped; start anew from the last checkpoint"
        if worker.code and tail:
            hint += f"\nits last lines:\n{tail}"
        return WorkerLost(what, shard=shard, pid=worker.pid, exit=ended, executor=executor, host=worker.host,
                          attempt=self.attempt, seconds=seconds, by=by, hint=hint)  # fmt: skip

    def cpu_seconds(self, shard: int) -> float | None:
        """As `WorkerPool.cpu_seconds`, as of its last report."""
        return cpu_of(self._workers[shard].report.get("stat", ()))

    def is_kept_waiting(self, shard: int) -> bool:
        """As `WorkerPool.is_kept_waiting`, as of its last report."""
        return is_runnable(self._workers[shard].report.get("stat", ()))

    def codes(self) -> Sequence[int | None]:
        """As `WorkerPool.codes`."""
        with self._changed:
            return [worker.code for worker in self._workers]

    def await_end(self, codes: Sequence[int | None], seconds: float) -> None:
        """As `WorkerPool.await_end`."""
        until = time.monotonic() + seconds
        with self._changed:
            while [worker.code for worker in self._workers] == list(codes):
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def close(self) -> None:
        """As `WorkerPool.close`."""
        self._close_channels()
        until = time.monotonic() + ENDING_SECONDS
        with self._changed:
            while any(worker.code is None for worker in self._workers) and time.monotonic() < until:
                self._changed.wait(0.1)
        self.kill()
        for aside in self.asides:
            aside.close()

    def kill(self) -> None:
        """As `WorkerPool.kill`."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._close_channels()
        for worker in self._workers:
            with suppress(OSError):
                send_frame(worker.control, {"end": True})
        until = time.monotonic() + ENDING_SECONDS
        with self._changed:
            while any(worker.code is None for worker in self._workers) and time.monotonic() < until:
                self._changed.wait(0.1)
        self._listener.close()
        can_end = len(self._workers) == self._count and not any(w.how.startswith(_CUT) for w in self._workers)
        if not self._ended.wait(ENDING_SECONDS if can_end else 0.0):
            with suppress(Exception):  # the session may be gone: then so is the job
                self._context.cancelJobGroup(self._group)
            self._ended.wait(2 * ENDING_SECONDS)
        for worker in self._workers:
            worker.control.close()

    def _close_channels(self) -> None:
        for channel in self.channels:
            channel.close()


def _check(hello: Facts) -> str | None:
    return difference(hello.get("identity", {})) if hello.get("name") == DRIVER else None


def _first_line(error: BaseException | None) -> str | None:
    """Of what Spark's errors say, the line that says something."""
    if error is None:
        return None
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() if java is not None else error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    return (named or lines or [type(error).__name__])[0][:300]


def _copy(channel: Channel) -> int:
    return os.dup(channel.fileno())
