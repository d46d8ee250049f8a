"""What a driver asks of the processes that are its workers, wherever they run.

Always: each worker has channels to the driver and to each other worker; after `close` or `kill` none is left. Who asks
does not know which host it is. Implemented by `local_pool` and `spark_pool`; wiring chooses the maker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headrace.engine.errors import HeadraceError
from headrace.sidecar.execution.dataflow_host import WorkerFacts
from headrace.sidecar.execution.workers.channel import Channel
from headrace.sidecar.execution.workers.worker import Ends

ENDING_SECONDS = 5.0
"""How long a worker that was told to end may take before it is killed."""

Work = Callable[[Ends, int, Any], None]
"""What a worker does: see `worker.serve`."""


CUT_OFF = "the network to a worker was cut: nothing arrives from it, and its process did not end"
HANGS = "a worker hangs"


class WorkerLost(HeadraceError):
    """A worker died, hangs or is cut off, so that the whole dataflow is to be built anew."""

    code = "worker"

    @property
    def reason(self) -> str:
        """Which of them, in a word for metrics."""
        return {CUT_OFF: "cut", HANGS: "hangs"}.get(self.what, "died")


class SlotsMissing(WorkerLost):
    """The cluster has fewer free slots than workers; it may have more later."""


class WorkerPool(Protocol):
    """The workers of one dataflow, by shard. `asides`: channels to the threads that write checkpoints; `slot_seconds`: how
    long room for them was waited for."""

    slot_seconds: float

    @property
    def channels(self) -> Sequence[Channel]:
        """The driver's ends, by shard."""

    @property
    def asides(self) -> Sequence[Channel]:
        """The driver's ends of the channels to the threads that write."""

    def beside(self, name: str) -> Callable[[], WorkerPool]:
        """Further channels, which every worker asks its door for by `name`.

        Each worker must be told to next; the pool that this gives is to be asked for once all have answered.
        """

    def members(self) -> Sequence[WorkerFacts]:
        """What is known of each worker; nothing of what is not a process."""

    def lost(self, shard: int, what: str, *, seconds: float | None = None, by: str | None = None) -> WorkerLost:
        """The error that names a worker; `by`: who noticed, where it was not the driver alone."""

    def cpu_seconds(self, shard: int) -> float | None:
        """Processor time that a worker has used; None where the system does not tell, or it is stopped."""

    def is_kept_waiting(self, shard: int) -> bool:
        """True while a worker would go on at once if the machine let it: it has no processor, or waits for a disk."""

    def codes(self) -> Sequence[int | None]:
        """Exit codes by shard, those of signals negative; None of a worker that runs."""

    def await_end(self, codes: Sequence[int | None], seconds: float) -> None:
        """Wait until one more has ended than when `codes` were these, or so long."""

    def close(self) -> None:
        """End all: those that do not by themselves, now that their channels are closed, are killed."""

    def kill(self) -> None:
        """End all at once. The channels aside stay: a thread that waits there sees that nothing comes any more."""


Maker = Callable[[int, object], WorkerPool]
"""Starts so many workers, each of which does a task, which is pickled."""


class Guests:
    """Threads beside the dataflow of a pool, one in each worker, with channels of their own: to end them leaves the pool as
    it is."""

    def __init__(self, pool: WorkerPool, channels: Sequence[Channel]) -> None:
        self.channels = channels
        self.asides: Sequence[Channel] = ()
        self.slot_seconds = 0.0
        self._pool = pool
        self.lost, self.cpu_seconds, self.is_kept_waiting = pool.lost, pool.cpu_seconds, pool.is_kept_waiting
        self.codes, self.await_end, self.members, self.beside = pool.codes, pool.await_end, pool.members, pool.beside

    def close(self) -> None:
        """Let them end."""
        for channel in self.channels:
            channel.close()

    kill = close
