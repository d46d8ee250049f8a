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
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.batch.exchange_codec import Message, received, sent
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow.shard import Shard
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema
from headrace.sidecar.execution.dataflow_host import Build
from headrace.sidecar.execution.local import Held, KeptDataflow
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed, moved
from headrace.sidecar.execution.workers.kept_rows import KeptRows, exchanged, found_out
from headrace.sidecar.execution.workers.protocol import (
    Head,
    files_in,
    files_out,
    message,
    opened,
    sides_out,
    unpacked,
    upserts_in,
)
from headrace.sidecar.execution.workers.shard_port import SocketPort
from headrace.sidecar.state.batch_places import Batches
from headrace.sidecar.state.batch_store import BatchStore, StoreAway

Answer = tuple[Head, Sequence[Message]]
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

    def do(self, head: dict[str, Any], parts: Sequence[Message]) -> Answer | None:
        """What one command asks for; None where nothing is to be answered."""
        found: Answer | None = getattr(self, f"_{head['do']}")(head, parts)
        return found

    def _schema(self, table: str) -> Schema:
        return self.flow.schema_of(table)

    def _push(self, head: Head, parts: Sequence[Message]) -> None:
        table = head["table"]
        self.flow.push(table, upserts_in(head["columns"], parts, self._schema(table).arrow))

    def _push_errors(self, head: Head, parts: Sequence[Message]) -> None:  # noqa: ARG002
        self.flow.push_errors(head["table"], head["errors"], head["epoch"])

    def _step(self, head: Head, parts: Sequence[Message]) -> None:  # noqa: ARG002
        self.flow.step(head["upper"])

    def _since(self, head: Head, parts: Sequence[Message]) -> None:  # noqa: ARG002
        self.flow.advance_since(head["epoch"])

    def _exert(self, head: Head, parts: Sequence[Message]) -> None:  # noqa: ARG002
        self.flow.exert(head["fuel"])

    def _give_back(self, head: Head, parts: Sequence[Message]) -> None:  # noqa: ARG002
        self.flow.give_back()

    def _take(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        """What every view emitted since the last take; that every shard has stepped is known then."""
        names, out = [], []
        for name, output in self.flow.outputs.items():
            rows, errors = output.take()
            if len(rows) or len(errors):
                names.append(name)
                out += sides_out((rows, errors))
        return {"names": names, "frontier": self.flow.frontier, "cpu": time.process_time()}, out

    def _snapshot(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        return {}, sides_out(self.flow.outputs[head["view"]].snapshot(head["as_of"]))

    def _look_up(self, head: Head, parts: Sequence[Message]) -> Answer:
        """The rows of a table that stand under some keys."""
        asked = received(parts[0], self._schema(head["table"]).arrow)
        found: Updates | None = None if asked is None else self.flow.look_up(head["table"], asked.rows)
        return {}, [sent(found)]

    def _build(self, head: Head, parts: Sequence[Message]) -> None:  # noqa: ARG002
        self.flow.build(unpacked(parts[0]), {})

    def _hydrate(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        """The next part of what is to be computed, and how far it is before it."""
        self._hydrating = self._hydrating or self.flow.hydrating()
        at = next(self._hydrating, None)
        return {"at": at}, []

    def _facts(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        facts = {n: [f.rows, f.bytes, f.readers, sorted(f.views)] for n, f in self.flow.facts().items()}
        return {"arrangements": facts}, []

    def _recover(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        resumed = self.flow.recover(head["frontier"], files_in(head["files"]), head["count"])
        return {"resumed": sorted(resumed)}, []

    def _hold(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        """What is there now stays there until it is written."""
        self.held = self.flow.held()
        return {"names": sorted(self.held)}, []

    def write(self, names: Sequence[str], number: int) -> Head:
        """Write those of the arrangements held; called on another thread, while nothing else is held.

        A store that is away ends nothing: the driver is told.
        """
        held, self.held = self.held, {}
        try:
            files = files_out(self.flow.write({name: held[name] for name in names}, number))
        except StoreAway as away:
            return {"away": away.as_json(), "store": astuple(self.flow.asked())}
        return {"files": files, "store": astuple(self.flow.asked())}


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

    def _facts(self, head: Head, parts: Sequence[Message]) -> Answer:
        told, out = super()._facts(head, parts)
        return {**told, "exchanged": None if self._port is None else astuple(self._port.facts())}, out

    def _begin_beside(self, head: Head, parts: Sequence[Message]) -> Answer:
        """Serve another dataflow over what is there now, on a thread of its own."""
        shard = self.flow.shard
        others = [k for k in range(shard.count) if k != shard.index]
        channels = self._door.take(f"beside {head['number']}", others)
        begin = self.flow.beside(unpacked(parts[0]), Shard(shard.index, shard.count, _port(*channels)))
        number = head["number"]

        def run() -> None:
            try:
                _serve(*channels, lambda: self._beside.setdefault(number, Serving(begin())))
            finally:
                self._beside.pop(number, None)

        threading.Thread(target=run, name=f"beside-{number}", daemon=True).start()
        return {}, []

    def _begin_intake(self, head: Head, parts: Sequence[Message]) -> Answer:
        """Read a part of a source, on a thread of its own."""
        shard = self.flow.shard
        driver, others = self._door.take(head["name"], [k for k in range(shard.count) if k != shard.index])
        for channel in others.values():
            channel.close()
        reads: Reads = unpacked(parts[0])

        def run() -> None:
            try:
                reads(driver, self.kept, self._store.place.scratch)
            except ChannelClosed:
                pass
            except BaseException as error:
                _say_why(driver, _told(error))
            finally:
                driver.close()

        self.reading.append(threading.Thread(target=run, name=head["name"], daemon=True))
        self.reading[-1].start()
        return {}, []

    def _take_in(self, head: Head, parts: Sequence[Message]) -> None:
        """Rows that were decoded are of epochs now: each goes to the shard of its key."""
        schemas = {table: self._schema(table) for table in head["tables"]}
        for table, rows in exchanged(self.flow.shard, self.kept, schemas, parts).items():
            self.flow.push(table, rows)

    def _rows_of(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        """Rows that were decoded, for the driver."""
        columns, found = found_out(self.kept, parts[0])
        return {"columns": columns}, found

    def _forget(self, head: Head, parts: Sequence[Message]) -> None:  # noqa: ARG002
        self.kept.forget(head["runs"])

    def _change(self, head: Head, parts: Sequence[Message]) -> Answer:
        """Other plans, of which what is held beside is computed."""
        held = {} if head["beside"] is None else self._beside[head["beside"]].held
        self.flow.changed(unpacked(parts[0]), {name: held[name] for name in head["names"]})
        return {}, []


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
        _tell(driver, ({"ready": True}, []))
        while True:
            moved([driver], lambda: not driver.arrived, lambda: None)
            head, parts = opened(driver.arrived.popleft())
            if head["do"] == "exert" and _more_waits(driver):
                continue
            answer = serving.do(head, parts)
            if answer is not None:
                _tell(driver, answer)
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
            head, _ = opened(aside.arrived.popleft())
            _tell(aside, (serving.write(head["names"], head["number"]), []))
    except ChannelClosed:
        return
    except HeadraceError as error:
        _say_why(aside, error.as_json())
    except BaseException as error:
        _say_why(aside, _told(error))
        raise
    finally:
        aside.close()


def _tell(driver: Channel, answer: Answer) -> None:
    driver.put(message(*answer))
    moved([driver], lambda: False, lambda: None)


def _told(error: BaseException) -> Mapping[str, object]:
    if isinstance(error, HeadraceError):
        return error.as_json()
    return {"code": "internal", "what": f"{type(error).__name__}: {error}", "where": {}, "hint": ""}


def _say_why(driver: Channel, error: Mapping[str, object]) -> None:
    """The driver may be gone itself."""
    try:
        _tell(driver, ({"error": error}, []))
    except ChannelClosed:
        return
