"""A worker: a dataflow that is one shard of the whole, doing what the driver says.

Always: what changes the dataflow is done in the order in which it was said, which is the same for all workers; the first
failure is the last answer. Called by processes that the crew starts, and by tests in threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.batch.updates import Updates
from engine.batch.wire import Message, received, sent
from engine.dataflow import Dataflow, Output
from engine.dataflow.exchange import Shard
from engine.errors import HeadraceError
from engine.schema import Schema
from sidecar.workers.channel import Channel, ChannelClosed, moved
from sidecar.workers.messages import Head, message, opened, sides_out, upserts_in
from sidecar.workers.port import SocketPort

Build = Callable[[Dataflow], Mapping[str, Output]]
"""Makes the same plans in every worker, in the same order; the outputs by name."""

Answer = tuple[Head, Sequence[Message]]


class Serving:
    """One worker's dataflow. Single writer: the loop in `serve`."""

    def __init__(self, shard: Shard, build: Build) -> None:
        self.flow = Dataflow(shard)
        self.outputs = build(self.flow)

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
        arrangements = {name: [len(a), a.nbytes] for name, a in self.flow.registry.arrangements().items()}
        return {"arrangements": arrangements, "cpu": time.process_time()}, []


def serve(driver: Channel, others: Mapping[int, Channel], index: int, build: Build) -> None:
    """Do what the driver says until its channel closes, or anything fails, of which it hears."""
    channels = [driver, *others.values()]

    def waiting(shards: Sequence[int]) -> None:
        driver.put(message({"waits": list(shards)}))
        driver.write()

    try:
        count = len(others) + 1
        port = SocketPort(count, others, waiting) if others else None
        serving = Serving(Shard(index, count, port), build)
        _tell(driver, ({"ready": True}, []))
        while True:
            moved([driver], lambda: not driver.arrived, lambda: None)
            head, parts = opened(driver.arrived.popleft())
            answer = serving.do(head, parts)
            if answer is not None:
                _tell(driver, answer)
    except ChannelClosed as error:
        _say_why(driver, error.as_json())
    except BaseException as error:
        _say_why(driver, _told(error))
        raise
    finally:
        for channel in channels:
            channel.close()


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
