"""A worker: a dataflow that is one shard of the whole, doing what the driver says.

Always: what changes the dataflow is done in the order in which it was said, which is the same for all workers; the first
failure is the last answer. What is held for a checkpoint is written beside it, by a thread that the driver's other
channel commands; dataflows that begin beside it are served by threads of their own, over channels of their own, which
come through a door: what fails there ends nothing else. Called by processes that the crew starts, and by tests in threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol, assert_never

from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.batch.exchange_codec import Message, received, sent
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.shard import Shard
from headrace.engine.errors import HeadraceError, InvariantBroken
from headrace.engine.schema import Schema
from headrace.sidecar.execution.dataflow_host import Build
from headrace.sidecar.execution.local import Held, KeptDataflow
from headrace.sidecar.execution.workers import messages
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed, moved
from headrace.sidecar.execution.workers.kept_rows import KeptRows, exchanged, found_out
from headrace.sidecar.execution.workers.late import late_in
from headrace.sidecar.execution.workers.protocol import (
    Head,
    files_in,
    files_out,
    message,
    sides_out,
    unpacked,
    upserts_in,
)
from headrace.sidecar.execution.workers.shard_port import SocketPort
from headrace.sidecar.state.batch_places import Batches
from headrace.sidecar.state.batch_store import BatchStore, StoreAway

Reply = tuple[messages.Answer, Sequence[Message]]
READER_SECONDS = 2.0
"""How long a worker that ends waits for a source to be closed: its process must not end in the middle of that."""


def nobody() -> Reached:
    """Whom a worker tells of its durable steps, unless it is told."""
    return unwatched


@dataclass(frozen=True)
class Task:
    """What every worker is started with. `batches`: where the batches of checkpoints go, a folder or a store.

    `watcher`: makes, in the worker, what is told of durable steps.
    """

    build: Build
    batches: Path | Batches
    watcher: Callable[[], Reached] = nobody


class Door(Protocol):
    """Where a worker gets further channels."""

    def take(self, name: str, others: Sequence[int]) -> tuple[Channel, dict[int, Channel]]:
        """The channels of this name to the driver and to these other workers, all of whom take theirs. Raises ChannelClosed."""

    def close(self) -> None:
        """Take no more."""


class Ends(NamedTuple):
    """A worker's ends of its channels: from the driver, to the others, and from the driver to the thread that writes.

    `door`: through it come the ends of what is to be served beside.
    """

    driver: Channel
    others: Mapping[int, Channel]
    aside: Channel
    door: Door


class Serving:
    """One worker's dataflow, or one beside it. Single writer: the loop in `serve`, or that of `serve_beside`."""

    def __init__(self, flow: KeptDataflow) -> None:
        self.flow = flow
        self.held: Held = {}
        self._hydrating: Iterator[tuple[int, int]] | None = None

    def do(self, told: messages.Told, parts: Sequence[Message]) -> Reply | None:
        """What one message asks for; None where nothing is to be answered."""
        flow = self.flow
        match told:
            case messages.Push(table, columns):
                flow.push(table, upserts_in(columns, parts, flow.schema_of(table).arrow))
            case messages.PushErrors(table, errors, epoch):
                flow.push_errors(table, errors, epoch)
            case messages.Step(upper):
                flow.step(upper)
            case messages.LimitSteps(work):
                flow.limit_steps(work)
            case messages.AdvanceSince(epoch):
                flow.advance_since(epoch)
            case messages.Exert(fuel):
                flow.exert(fuel)
            case messages.TrimMemory():
                flow.give_back()
            case messages.Build():
                flow.build(unpacked(parts[0]), {})
            case messages.Take():
                return self._taken()
            case messages.Snapshot(view, as_of):
                return messages.Done(), sides_out(flow.outputs[view].snapshot(as_of))
            case messages.LookUp(table):
                asked = received(parts[0], flow.schema_of(table).arrow)
                found: Updates | None = None if asked is None else flow.look_up(table, asked.rows)
                return messages.Done(), [sent(found)]
            case messages.Hydrate():
                self._hydrating = self._hydrating or flow.hydrating()
                return messages.Hydrated(next(self._hydrating, None)), []
            case messages.Facts():
                return self._facts(), []
            case messages.Recover(frontier, files, count):
                names = sorted(flow.recover(frontier, files_in(files), count))
                return messages.Resumed(names, late_in(flow)), []
            case messages.Evaluate(work):
                flow.evaluate(work)
                return messages.Evaluated(late_in(flow)), []
            case messages.TurnedSince(frontier):
                return messages.Named(sorted(flow.turned_since(frontier))), []
            case messages.ReadersOf(fingerprints):
                return messages.Named(sorted(flow.readers_of(set(fingerprints)))), []
            case messages.Hold():
                self.held = flow.held()
                return messages.Held(sorted(self.held)), []
            case (
                messages.BeginBeside()
                | messages.BeginIntake()
                | messages.TakeIn()
                | messages.RowsOf()
                | messages.HandOver()
                | messages.TakeOver()
                | messages.Forget()
                | messages.Change()
            ):
                raise InvariantBroken("only the dataflow that a worker keeps does this", told=type(told).__name__)
            case _:
                assert_never(told)
        return None

    def _taken(self) -> Reply:
        """What every view emitted since the last take; that every shard has stepped is known then."""
        names, out = [], []
        for name, output in self.flow.outputs.items():
            rows, errors = output.take()
            if len(rows) or len(errors):
                names.append(name)
                out += sides_out((rows, errors))
        return messages.Taken(names, self.flow.frontier, time.process_time(), late_in(self.flow)), out

    def _facts(self) -> messages.FactsTold:
        return messages.FactsTold(
            {n: [f.rows, f.bytes, f.readers, sorted(f.views)] for n, f in self.flow.facts().items()}
        )

    def write(self, names: Sequence[str], number: int) -> messages.Written:
        """Write those of the arrangements held; called on another thread, while nothing else is held.

        A store that is away ends nothing: the driver is told.
        """
        held, self.held = self.held, {}
        try:
            files = files_out(self.flow.write({name: held[name] for name in names}, number))
        except StoreAway as away:
            return messages.Written(astuple(self.flow.asked()), away=away.as_json())
        return messages.Written(astuple(self.flow.asked()), files=files)


Reads = Callable[[Channel, KeptRows, Path], None]
"""Reads this shard's part of a source until its channel closes, and keeps what it decodes, in a folder what is too much."""


class Worker(Serving):
    """The dataflow that a worker keeps, and what is served beside it. Single writer: the loop in `serve`.

    `kept`: rows that were decoded here; `reading`: the threads that do.
    """

    def __init__(self, shard: Shard, task: Task, door: Door, port: SocketPort | None = None) -> None:
        store = BatchStore(task.batches, shard.index, task.watcher())
        super().__init__(KeptDataflow(store, shard))
        self.flow.build(task.build, {})
        self.kept, self._store = KeptRows(shard.index, shard.count), store
        self.reading: list[threading.Thread] = []
        self._door, self._port = door, port
        self._beside: dict[int, Serving] = {}

    def do(self, told: messages.Told, parts: Sequence[Message]) -> Reply | None:
        """See `Serving.do`."""
        match told:
            case messages.BeginBeside(number):
                self._begin_beside(number, unpacked(parts[0]))
                return messages.Done(), []
            case messages.BeginIntake(name):
                self._begin_intake(name, unpacked(parts[0]))
                return messages.Done(), []
            case messages.TakeIn(tables):
                self._take_in(tables, parts)
            case messages.RowsOf(table):
                columns, found = found_out(self.kept, self.flow.schema_of(table), parts[0])
                return messages.RowsFound(columns), found
            case messages.HandOver(runs):
                return messages.Done(), self.kept.files_of(runs)
            case messages.TakeOver(runs, last):
                self.kept.take_over(runs, parts, last, self._store.place.scratch)
                return messages.Done(), []
            case messages.Forget(runs):
                self.kept.forget(runs)
            case messages.Change(beside, names):
                held = {} if beside is None else self._beside[beside].held
                self.flow.changed(unpacked(parts[0]), {name: held[name] for name in names})
                return messages.Done(), []
            case _:
                return super().do(told, parts)
        return None

    def _facts(self) -> messages.FactsTold:
        return replace(super()._facts(), exchanged=None if self._port is None else astuple(self._port.facts()))

    def _begin_beside(self, number: int, redeclared: Mapping[str, Schema]) -> None:
        """Serve another dataflow over what is there now, on a thread of its own."""
        shard = self.flow.shard
        others = [k for k in range(shard.count) if k != shard.index]
        channels = self._door.take(f"beside {number}", others)
        begin = self.flow.beside(redeclared, Shard(shard.index, shard.count, _port(*channels)))

        def run() -> None:
            try:
                _serve(*channels, lambda: self._beside.setdefault(number, Serving(begin())))
            finally:
                self._beside.pop(number, None)

        threading.Thread(target=run, name=f"beside-{number}", daemon=True).start()

    def _begin_intake(self, name: str, reads: Reads) -> None:
        """Read a part of a source, on a thread of its own."""
        shard = self.flow.shard
        driver, others = self._door.take(name, [k for k in range(shard.count) if k != shard.index])
        for channel in others.values():
            channel.close()

        def run() -> None:
            try:
                reads(driver, self.kept, self._store.place.scratch)
            except ChannelClosed:
                pass
            except BaseException as error:
                _say_why(driver, _told(error))
            finally:
                driver.close()

        self.reading.append(threading.Thread(target=run, name=name, daemon=True))
        self.reading[-1].start()

    def _take_in(self, tables: Sequence[str], parts: Sequence[Message]) -> None:
        """Rows that were decoded are of epochs now: each goes to the shard of its key."""
        schemas = {table: self.flow.schema_of(table) for table in tables}
        for table, rows in exchanged(self.flow.shard, self.kept, schemas, parts).items():
            self.flow.push(table, rows)


def serve(ends: Ends, index: int, task: Task) -> None:
    """Do what the driver says until its channel closes, or anything fails, of which it hears."""
    driver, others, aside, door = ends
    writing: list[threading.Thread] = []
    reading: list[list[threading.Thread]] = []

    def begun() -> Serving:
        port = _port(driver, others)
        worker = Worker(Shard(index, len(others) + 1, port), task, door, port)
        reading.append(worker.reading)
        writing.append(threading.Thread(target=_write_aside, args=(aside, worker), name="checkpoint", daemon=True))
        writing[0].start()
        return worker

    try:
        _serve(driver, others, begun)
    finally:
        door.close()
        if not writing:
            aside.close()
        for thread in (thread for threads in reading for thread in threads):
            thread.join(READER_SECONDS)


def _port(driver: Channel, others: Mapping[int, Channel]) -> SocketPort | None:
    """Over which a shard meets the others, and tells the driver of whom it waits for; None where there is no other."""

    def waiting(shards: Sequence[int]) -> None:
        driver.put(message({"waits": list(shards)}))
        driver.write()

    return SocketPort(len(others) + 1, others, waiting) if others else None


def _serve(driver: Channel, others: Mapping[int, Channel], begun: Callable[[], Serving]) -> None:
    """Serve what is `begun`, and close all channels in the end."""
    try:
        serving = begun()
        _tell(driver, vars(messages.Done()))
        while True:
            moved([driver], lambda: not driver.arrived, lambda: None)
            told, parts = messages.read_as(driver.arrived.popleft())
            assert not isinstance(told, messages.Write), "it goes to the thread that writes"
            if isinstance(told, messages.Exert) and _more_waits(driver):
                continue
            reply = serving.do(told, parts)
            if reply is not None:
                _tell(driver, vars(reply[0]), reply[1])
    except ChannelClosed as error:
        _say_why(driver, error.as_json())
    except BaseException as error:
        _say_why(driver, _told(error))
        raise
    finally:
        for channel in (driver, *others.values()):
            channel.close()


def _more_waits(driver: Channel) -> bool:
    """True if there is something else to do already."""
    driver.read()
    return bool(driver.arrived)


def _write_aside(aside: Channel, serving: Serving) -> None:
    """Write what is held when told to, until the channel closes."""
    try:
        while True:
            moved([aside], lambda: not aside.arrived, lambda: None)
            told, _ = messages.read_as(aside.arrived.popleft())
            assert isinstance(told, messages.Write), "the thread that writes is told nothing else"
            _tell(aside, vars(serving.write(told.names, told.number)))
    except ChannelClosed:
        return
    except HeadraceError as error:
        _say_why(aside, error.as_json())
    except BaseException as error:
        _say_why(aside, _told(error))
        raise
    finally:
        aside.close()


def _tell(driver: Channel, head: Head, parts: Sequence[Message] = ()) -> None:
    driver.put(message(head, parts))
    moved([driver], lambda: False, lambda: None)


def _told(error: BaseException) -> Mapping[str, object]:
    if isinstance(error, HeadraceError):
        return error.as_json()
    return {"code": "internal", "what": f"{type(error).__name__}: {error}", "where": {}, "hint": ""}


def _say_why(driver: Channel, error: Mapping[str, object]) -> None:
    """The driver may be gone itself."""
    try:
        _tell(driver, {"error": error})
    except ChannelClosed:
        return
