"""What the loop asks of a dataflow, whether it runs in this process or as several workers: one face, no special case.

Always: all of it is asked by one thread, between steps, but for what `hold` gives, which another thread may call while
steps go on. Implemented by `headrace.sidecar.execution.local` and `headrace.sidecar.execution.workers.coordinator`;
wiring chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headrace.engine.batch.updates import Updates, Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.recursion.late import Standing
from headrace.engine.schema import Schema
from headrace.sidecar.state.batch_store import Files
from headrace.sidecar.state.objects import Counts
from headrace.sidecar.transactions.references import HandedRuns

Sides = tuple[Updates, Updates]
"""Updates of rows and of errors."""

Build = Callable[[Dataflow], Mapping[str, Collection]]
"""Makes the same plans in every shard, in the same order; what is to be put out, by name. Another process may be sent it."""


NOTHING: Mapping[str, Schema] = {}


@dataclass(frozen=True)
class Change:
    """Other plans for a running dataflow: what `build` makes is put out, and nothing else any more.

    `views`: the columns of each; `stay`: those that are as they were, whose outputs go on; `tables_gone`: no longer fed;
    `tables_new`: fed from now on; `redeclared`: those that have other columns now, with what they hold.
    """

    build: Build
    views: Mapping[str, Schema]
    stay: Set[str]
    tables_gone: Sequence[str]
    tables_new: Mapping[str, Schema] = field(default_factory=dict)
    redeclared: Mapping[str, Schema] = field(default_factory=dict)


@dataclass(frozen=True)
class ArrangementFacts:
    """An arrangement, all shards of it together: updates and bytes held, who reads it (itself apart), for which views."""

    rows: int
    bytes: int
    readers: int
    views: Set[str]


@dataclass(frozen=True)
class LateFacts:
    """A recursive group that is late: how it stands, and the views that read it."""

    standing: Standing
    views: Set[str]


@dataclass(frozen=True)
class WorkerFacts:
    """A process beside this one.

    `cpu_seconds`: processor time used, None where the system does not tell; `memory`: VmRSS, VmHWM, RssAnon and RssFile in
    bytes; `executor`: who runs it on `host`, empty where we do; `attempt`: how many such sets of workers were started;
    `heard_seconds`: since its host last told of it.
    """

    shard: int
    pid: int
    cpu_seconds: float | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    host: str = ""
    executor: str = ""
    attempt: int = 1
    heard_seconds: float = 0.0


@dataclass(frozen=True)
class ExchangeFacts:
    """What one shard has exchanged with the others since it began, in step with them.

    `sent`: bytes, by other shard; `waited`: seconds, by the shard whose message was the last of a round to come.
    """

    rounds: int
    sent: Sequence[int]
    waited: Sequence[float]


class ViewOutput(Protocol):
    """A view's output. `schema`: its columns."""

    schema: Schema

    def take(self) -> Sides:
        """What was emitted since the last take: consolidated, by epoch, in the canonical order of rows."""

    def snapshot(self, as_of: int) -> Sides:
        """The view at `as_of`."""


class Flow(Protocol):
    """A dataflow in so many shards. Raises HeadraceError where a shard is lost."""

    @property
    def count(self) -> int:
        """How many shards."""

    @property
    def outputs(self) -> Mapping[str, ViewOutput]:
        """By view."""

    def build(self, build: Build, views: Mapping[str, Schema]) -> None:
        """Put out what `build` makes, whose columns are these; to be called once, and nothing is computed yet."""

    def hydrating(self) -> Iterator[tuple[int, int]]:
        """Compute what is built and not there yet, part by part: before each, how many updates of how many are done.

        What is left in the middle of it must not be used any more.
        """

    def beside(self, redeclared: Mapping[str, Schema] = NOTHING) -> Callable[[], Flow]:
        """A second dataflow over the same tables and arrangements, as of now, without outputs; made by what this gives, on
        any thread. It copies nothing but the tables `redeclared`, which have these columns there, disturbs nothing, and is
        closed by whoever has it."""

    def change(self, change: Change, beside: Flow | None) -> None:
        """Change the plans; `beside`, which stands at this very frontier, and at rest, has computed what they need."""

    def push(self, table: str, upserts: Upserts) -> None:
        """Changes of a table, of epochs that are not complete, in their order. Their rows may be references to what workers
        keep (`headrace.sidecar.transactions.references`); those of one table's step are all so, or none."""

    def rows_of(self, table: str, upserts: Upserts) -> Upserts:
        """The same changes with their rows in this process."""

    def hand_over(self, folder: Path) -> HandedRuns:
        """What its workers keep of rows that are referred to, in files of `folder` without a name. Raises SpillError."""

    def take_over(self, handed: HandedRuns) -> None:
        """Keep what another dataflow's workers have kept: references go on to mean the same rows. Raises SpillError."""

    def push_errors(self, table: str, errors: Mapping[str, int], epoch: int) -> None:
        """Changes of a table's own errors at `epoch`: message → change of multiplicity."""

    def step(self, upper: int) -> None:
        """Complete every epoch before `upper`, everywhere."""

    def limit_steps(self, work: int) -> None:
        """From the next step on, a recursive group leaves a step in which it does more counted work than this; 0: none does."""

    @property
    def is_late(self) -> bool:
        """Whether a recursive group is late."""

    def evaluate(self, work: int) -> bool:
        """Let each late group do so much counted work; whether any comes back with the next step."""

    def late_groups(self) -> Sequence[LateFacts]:
        """The recursive groups that are late."""

    def turned_behind(self, beside: Flow) -> Set[str]:
        """The views that `beside` puts out and that read a recursive group which became late here, or came back, since that
        began: they are not what they would be here."""

    def advance_since(self, epoch: int) -> None:
        """Give up questions about times before `epoch`."""

    def exert(self, fuel: int) -> None:
        """Merge while there is nothing else to do."""

    def give_back(self) -> None:
        """Return to the system what allocators keep of memory that is free, in this process and in the workers'."""

    def hold(self) -> Callable[[], Files]:
        """The state as of now, to be written later, while steps go on, by what this gives; one at a time."""

    def recover(self, frontier: int, files: Files, count: int) -> Set[str]:
        """Continue the checkpoint of `count` shards that is complete before `frontier`; the arrangements that resumed.

        Recover before the first step: arrangements that do not resume are computed from those that do. Raises CheckpointError.
        """

    def facts(self) -> Mapping[str, ArrangementFacts]:
        """Every arrangement, by its name."""

    def workers(self) -> Sequence[WorkerFacts]:
        """The processes that work beside this one."""

    def exchanges(self) -> Sequence[ExchangeFacts]:
        """What each shard has exchanged with the others, as of the last `facts`; nothing where there is one alone."""

    @property
    def slot_seconds(self) -> float:
        """How long the cluster took to have room for these processes."""

    def store(self) -> Counts:
        """What these processes have asked of the store that batches lie in."""

    def close(self) -> None:
        """Let everything go; no process is left."""
