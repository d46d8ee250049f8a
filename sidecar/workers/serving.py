"""A worker: a dataflow that is one shard of the whole, doing what the driver says.

Always: what changes the dataflow is done in the order in which it was said, which is the same for all workers; the first
failure is the last answer. What is held for a checkpoint is written beside it, by a thread that the driver's other
channel commands; dataflows that begin beside it are served by threads of their own, over channels of their own, which
come through a door: what fails there ends nothing else. Called by processes that the crew starts, and by tests in threads.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from connectors.durable import Reached, unwatched
from engine.batch.updates import Updates
from engine.batch.wire import Message, received, sent
from engine.dataflow.exchange import Shard
from engine.errors import HeadraceError
from engine.schema import Schema
from sidecar.batches import BatchStore
from sidecar.flow import Build
from sidecar.keeping import Held, KeptDataflow
from sidecar.workers.channel import Channel, ChannelClosed, moved
from sidecar.workers.messages import Head, files_in, files_out, message, opened, sides_out, unpacked, upserts_in
from sidecar.workers.port import SocketPort

Answer = tuple[Head, Sequence[Message]]


def nobody() -> Reached:
    """Whom a worker tells of its durable steps, unless it is told."""
    return unwatched


@dataclass(frozen=True)
class Task:
    """What all workers are given to begin with. `folder`: where batches of checkpoints go.

    `watcher`: makes, in the worker, what is told of durable steps.
    """

    build: Build
    folder: Path
    watcher: Callable[[], Reached] = nobody


class Ends(NamedTuple):
    """A worker's ends of its channels: from the driver, to the others, and from the driver to the thread that writes.

    `door`: through it come the ends of what is to be served beside.
    """

    driver: Channel
    others: Mapping[int, Channel]
    aside: Channel
    door: socket.socket


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

    def write(self, names: Sequence[str]) -> Head:
        """Write those of the arrangements held; called on another thread, while nothing else is held."""
        held, self.held = self.held, {}
        return {"files": files_out(self.flow.write({name: held[name] for name in names}))}


class Worker(Serving):
    """The dataflow that a worker keeps, and what is served beside it. Single writer: the loop in `serve`."""

    def __init__(self, shard: Shard, task: Task, door: socket.socket) -> None:
        super().__init__(KeptDataflow(BatchStore(task.folder, shard.index, task.watcher()), shard))
        self.flow.build(task.build, {})
        self._door = door
        self._beside: dict[int, Serving] = {}

    def _begin_beside(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        """Serve another dataflow over what is there now, on a thread of its own."""
        shard = self.flow.shard
        _, found, _, _ = socket.recv_fds(self._door, 1, shard.count)
        driver, *rest = (socket.socket(fileno=end) for end in found)
        others = {
            k: Channel(end, k) for k, end in zip((k for k in range(shard.count) if k != shard.index), rest, strict=True)
        }
        channels = Channel(driver, -1), others
        begin = self.flow.beside(_shard(shard.index, *channels))
        number = head["number"]

        def run() -> None:
            try:
                _serve(*channels, lambda: self._beside.setdefault(number, Serving(begin())))
            finally:
                self._beside.pop(number, None)

        threading.Thread(target=run, name=f"beside-{number}", daemon=True).start()
        return {}, []

    def _change(self, head: Head, parts: Sequence[Message]) -> Answer:
        """Other plans, of which what is held beside is computed."""
        held = {} if head["beside"] is None else self._beside[head["beside"]].held
        self.flow.changed(unpacked(parts[0]), {name: held[name] for name in head["names"]})
        return {}, []


def serve(ends: Ends, index: int, task: Task) -> None:
    """Do what the driver says until its channel closes, or anything fails, of which it hears."""
    driver, others, aside, door = ends
    writing: list[threading.Thread] = []

    def begun() -> Serving:
        worker = Worker(_shard(index, driver, others), task, door)
        writing.append(threading.Thread(target=_write_aside, args=(aside, worker), name="checkpoint", daemon=True))
        writing[0].start()
        return worker

    try:
        _serve(driver, others, begun)
    finally:
        door.close()
        if not writing:
            aside.close()


def _shard(index: int, driver: Channel, others: Mapping[int, Channel]) -> Shard:
    """The shard that meets the others over these channels, and tells the driver of whom it waits for."""

    def waiting(shards: Sequence[int]) -> None:
        driver.put(message({"waits": list(shards)}))
        driver.write()

    count = len(others) + 1
    return Shard(index, count, SocketPort(count, others, waiting) if others else None)


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
            _tell(aside, (serving.write(head["names"]), []))
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
