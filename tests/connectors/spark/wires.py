"""A wire that writes to a folder: one JSON line a record, in files that never collide. It can be told to fail."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.kafka_producer import Producer, Record


@dataclass(frozen=True)
class FolderWire:
    """Topics are folders. `fail_ends`: END markers beyond the first so many are refused. `flaky`: each topic's data
    producers fail once, at their flush, after all was written: Spark then runs the task again."""

    folder: Path
    fail_ends: int | None = None
    flaky: bool = False
    fail_data: bool = False

    def ensure(self, topic: str, partitions: int) -> int:
        path = self.folder / topic
        path.mkdir(parents=True, exist_ok=True)
        held = path / "partitions"
        if not held.exists():
            held.write_text(str(partitions))
        return int(held.read_text())

    def records(self, topic: str) -> list[dict[str, object]]:
        """Every record of a topic, oldest first by file."""
        found = []
        for path in sorted((self.folder / topic).glob("*.jsonl")):
            found += [json.loads(line) for line in path.read_text().splitlines()]
        return found

    def tails(self, topic: str, partitions: int) -> Sequence[Record | None]:
        last: dict[int, Record] = {}
        for r in self.records(topic):
            key, value = r["key"], r["value"]
            last[int(str(r["partition"]))] = (str(key).encode(), str(value).encode())
        return [last.get(p) for p in range(partitions)]

    def producer(self) -> Producer:
        return _FolderProducer(self)


class _FolderProducer:
    def __init__(self, wire: FolderWire) -> None:
        self.wire = wire
        self.held: list[tuple[str, dict[str, object]]] = []
        self.ends = 0

    def produce(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        if b'"headrace":"end"' in value:
            self.ends += 1
            if self.wire.fail_ends is not None and self.ends > self.wire.fail_ends:
                return
        self.held.append((topic, {"partition": partition, "key": key.decode(), "value": value.decode()}))

    def produce_batch(self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            self.produce(topic, partition, key, value)

    def flush(self) -> None:
        import time

        for topic in sorted({t for t, _ in self.held}):
            path = self.wire.folder / topic / f"{time.time_ns():020d}-{os.getpid()}-{uuid.uuid4().hex}.jsonl"
            path.write_text("".join(json.dumps(r) + "\n" for t, r in self.held if t == topic))
        held, self.held = self.held, []
        if self.wire.fail_ends is not None and self.ends > self.wire.fail_ends:
            raise PublishError("told to fail")
        if self.ends == 0 and held and self.wire.fail_data:
            raise PublishError("told to fail")
        if self.ends == 0 and held and self.wire.flaky:
            once = self.wire.folder / (held[0][0] + ".failed")
            if not once.exists():
                once.touch()
                raise PublishError("told to fail once")
