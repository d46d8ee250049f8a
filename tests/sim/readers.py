"""Workers that read the topics (`engine.intake: shards`), without threads: each reads when the driver hears of it, and now and
then before it does what the driver has said since. Their count changes while they read, as `headrace rescale` does it.

Always: the driver's side (`ShardSource`, `WorkerRows`, `Rescaling`, the assemblers over references) and the workers'
(`ShardReader`, `KeptRows`) are the program's own; only the sockets between them are two queues, and one dataflow takes in what
all of them keep.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.engine.batch.exchange_codec import Message
from headrace.engine.batch.updates import Upserts
from headrace.engine.errors import HeadraceError
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control import rescale
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.rescale import Rescaling, Successor
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.execution.workers import kept_run, messages, worker_rows
from headrace.sidecar.execution.workers.kept_rows import KeptRows, found_out
from headrace.sidecar.execution.workers.messages import Command, Question
from headrace.sidecar.execution.workers.worker_rows import WorkerRows
from headrace.sidecar.intake import shard_source
from headrace.sidecar.intake.shard_reader import ShardReader
from headrace.sidecar.transactions.references import HandedRuns, are_references
from headrace.sidecar.wiring import build, intakes, shard_intakes
from tests.sim.oracle import Wrong

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World

COUNT = 2
"""How many workers read at first."""
MAY_BE = {"apply", "control"}
"""Errors of a rescale that is refused as things stand."""


class End:
    """One end of a channel: what is put into it is at the other at once. `reader`: who serves the other end."""

    is_writing = False

    def __init__(self) -> None:
        self.arrived: deque[Message] = deque()
        self.other: End = self
        self.reader: Reader | None = None

    def put(self, body: Message) -> None:
        self.other.arrived.append([bytes(memoryview(part).cast("B")) for part in body])

    def write(self) -> None:
        """Nothing waits to be written."""

    def read(self) -> None:
        """What has come is there."""

    def close(self) -> None:
        """Who reads at the other end ends."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.source.close()


def pair() -> tuple[End, End]:
    one, other = End(), End()
    one.other, other.other = other, one
    return one, other


class Reader(ShardReader):
    """Reads when it is told to, and not by itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.now = 0.0
        self.clock = self._later

    def _later(self) -> float:
        self.now += 1.0  # whatever it has read, it says where it stands
        return self.now

    def serve(self) -> None:
        self.channel.other.reader = self  # type: ignore[attr-defined]

    def hear(self) -> None:
        """Know what the driver says."""
        self._do_all()

    def look(self, *, first: bool) -> None:
        """Do what the driver says, and read where it has asked; with `first` it reads before it hears what was said since."""
        if first and self._wanted:
            self._read()
        self._do_all()
        if self._wanted:
            self._read()


@dataclass
class Pool:
    """The driver's ends."""

    channels: Sequence[End]

    def close(self) -> None:
        for channel in self.channels:
            channel.close()


class Keeping(KeptDataflow):
    """One dataflow, whose rows some workers have read."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self._told: list[tuple[Any, list[Message]]] = []
        self.spread(COUNT)

    def spread(self, count: int) -> None:
        """So many read; before any does."""
        self._stores = [KeptRows(shard, count) for shard in range(count)]
        self.rows = WorkerRows(count, self._tell, self._answers)

    def begin_intake(self, name: str, reads: Any) -> Pool:
        ends = [pair() for _ in self._stores]
        for (_, worker), kept in zip(ends, self._stores, strict=True):
            reads(worker, kept, Path())
        return Pool([driver for driver, _ in ends])

    def _tell(self, shard: int, said: Command | Question[Any], parts: Sequence[Message] = ()) -> None:
        kept = self._stores[shard]
        match said:
            case messages.Forget(runs):
                kept.forget(runs)
            case messages.RowsOf(table):
                columns, found = found_out(kept, self.schema_of(table), parts[0])
                self._told.append((messages.RowsFound(columns), found))
            case messages.HandOver(runs):
                self._told.append((messages.Done(), kept.files_of(runs)))
            case messages.TakeOver(runs, last):
                kept.take_over(runs, parts, last, Path())
                self._told.append((messages.Done(), []))
            case _:
                raise AssertionError(f"nobody says {said} to them")

    def _answers(self, question: Question[Any]) -> list[tuple[Any, list[Message]]]:
        told, self._told = self._told, []
        return told

    def rows_of(self, table: str, upserts: Upserts) -> Upserts:
        return self.rows.of(table, upserts, self.schema_of(table)) if are_references(upserts) else upserts

    def hand_over(self, folder: Path) -> HandedRuns:
        return self.rows.hand_over(folder)

    def take_over(self, handed: HandedRuns) -> None:
        self.rows.take_over(handed)

    def push(self, table: str, upserts: Upserts) -> None:
        super().push(table, self.rows_of(table, upserts))

    def step(self, upper: int) -> None:
        super().step(upper)
        self.rows.let_go()


@dataclass
class Readers:
    """`late`: how often a worker does not answer a poll; `ahead`: how often it reads before it hears what was said; `rescales`:
    how often their count changes, a step."""

    draw: random.Random
    late: float
    ahead: float
    rescales: float
    ends_of: Counter[str] = field(default_factory=Counter)

    def begin(self, world: World) -> None:
        """See `Fate`."""
        world.tell(shards=True)
        world.patches.append(self._in_place)

    def _in_place(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(build, "KeptDataflow", Keeping)
        patch.setattr(shard_intakes, "Workers", Keeping)
        patch.setattr(shard_intakes, "ShardReader", Reader)
        patch.setattr(shard_intakes, "Spill", lambda *of: intakes.make_spill(*of))
        patch.setattr(shard_intakes, "make_format", lambda *of: intakes.make_format(*of))
        patch.setattr(shard_source._Reading, "hear", self._heard())
        patch.setattr(rescale, "Workers", Keeping)
        for module in (kept_run, worker_rows):
            patch.setattr(module, "put_aside", lambda data, _: pa.py_buffer(bytes(data)))
        patch.setattr(rescale, "make_flow", self._made)

    def _made(self, settings: Settings, *more: Any) -> Keeping:
        flow: Any = build.make_flow(settings.with_workers(1), *more)
        assert isinstance(flow, Keeping)
        flow.spread(settings.config.engine.workers)
        return flow

    def _rescale(self, process: Process) -> None:
        """A rescale, with some turns of the loop in it. Raises Wrong."""
        running: Any = process.running
        rescaling, count = Rescaling(running, ViewChanger(running)), self.draw.randrange(2, 5)
        process.world.trace.append(f"{process.number} is to have {count} readers")
        try:
            self._followed(process, rescaling, count)
        except HeadraceError as error:
            self.ends_of[f"{error.code}: {error.what}"] += 1
            if not process.dead and error.code not in MAY_BE | process.excuses:
                raise Wrong(f"the count of workers cannot be changed: {error}") from error
            return
        self.ends_of["rescaled"] += 1

    def _followed(self, process: Process, rescaling: Rescaling, count: int) -> None:
        """As `Rescaling._followed`, on one thread."""
        runtime, successor = rescaling._running.runtime, Successor(rescaling._begun(count))
        try:
            while not rescaling._begin(count, successor):
                process.work()
            for act in self.draw.sample([successor.hydrate, process.turn, process.turn], 3):
                act()
            successor.catch_up()
            rescaling._switch(count, successor)
        finally:
            successor.end(runtime)

    def _heard(self) -> Callable[[Any, float | None], None]:
        def hear(reading: Any, seconds: float | None) -> None:
            for channel in reading.channels:
                if seconds is None or self.draw.random() >= self.late:
                    channel.reader.look(first=self.draw.random() < self.ahead)
                else:
                    channel.reader.hear()

        return hear

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""
        for process in world.ready():
            if self.draw.random() < self.rescales and all(strand.done for strand in process.strands):
                world._run(process, lambda process=process: self._rescale(process))  # type: ignore[misc]

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """It is no cause of any."""
        return False

    def mend(self, world: World) -> None:
        """See `Fate`."""


def drawn_readers(draw: random.Random) -> Readers | None:
    """Of one life, if it has this."""
    reads = draw.choice([False, False, False, True])
    late, ahead, rescales = draw.choice([0.0, 0.3, 0.7]), draw.choice([0.0, 0.5]), draw.choice([0.0, 0.0, 0.1])
    return Readers(draw, late, ahead, rescales) if reads else None
