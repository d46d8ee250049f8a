"""A worker: a dataflow that is one shard of the whole, doing what the driver says.

Always: what changes the dataflow is done in the order in which it was said, which is the same for all workers; the first
failure is the last answer. What is held for a checkpoint is written beside it, by a thread that the driver's other
channel commands. Called by processes that the crew starts, and by tests in threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from connectors.durable import Reached, unwatched
from engine.batch import Batch
from engine.batch.updates import Updates
from engine.batch.wire import Message, received, sent
from engine.dataflow import Dataflow, Output
from engine.dataflow.exchange import Shard
from engine.errors import HeadraceError
from engine.schema import Schema
from sidecar.batches import BatchStore
from sidecar.keeping import KeptDataflow
from sidecar.workers.channel import Channel, ChannelClosed, moved
from sidecar.workers.messages import Head, files_in, files_out, message, opened, sides_out, upserts_in
from sidecar.workers.port import SocketPort

Build = Callable[[Dataflow], Mapping[str, Output]]
"""Makes the same plans in every worker, in the same order; the outputs by name."""

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
    folder: Path = Path()
    watcher: Callable[[], Reached] = nobody


class Ends(NamedTuple):
    """A worker's ends of its channels: from the driver, to the others, and from the driver to the thread that writes."""

    driver: Channel
    others: Mapping[int, Channel]
    aside: Channel


class Serving:
    """One worker's dataflow. Single writer: the loop in `serve`."""

    def __init__(self, shard: Shard, task: Task) -> None:
        self.flow = KeptDataflow(BatchStore(task.folder, shard.index, task.watcher()), shard)
        self.outputs = task.build(self.flow)
        self.held: Mapping[str, Sequence[Batch]] = {}

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

    def _take(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        """What every view emitted since the last take; that every shard has stepped is known then."""
        names, out = [], []
        for name, output in self.outputs.items():
            rows, errors = output.take()
            if len(rows) or len(errors):
                names.append(name)
                out += sides_out((rows, errors))
        return {"names": names, "frontier": self.flow.frontier, "cpu": time.process_time()}, out

    def _snapshot(self, head: Head, parts: Sequence[Message]) -> Answer:  # noqa: ARG002
        return {}, sides_out(self.outputs[head["view"]].snapshot(head["as_of"]))

    def _look_up(self, head: Head, parts: Sequence[Message]) -> Answer:
        """The rows of a table that stand under some keys."""
        asked = received(parts[0], self._schema(head["table"]).arrow)
        found: Updates | None = None if asked is None else self.flow.look_up(head["table"], asked.rows)
        return {}, [sent(found)]

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


def serve(ends: Ends, index: int, task: Task) -> None:
    """Do what the driver says until its channel closes, or anything fails, of which it hears."""
    driver, others, aside = ends

    def waiting(shards: Sequence[int]) -> None:
        driver.put(message({"waits": list(shards)}))
        driver.write()

    writing: threading.Thread | None = None
    try:
        count = len(others) + 1
        port = SocketPort(count, others, waiting) if others else None
        serving = Serving(Shard(index, count, port), task)
        writing = threading.Thread(target=_write_aside, args=(aside, serving), name="checkpoint", daemon=True)
        writing.start()
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
        if writing is None:
            aside.close()


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
