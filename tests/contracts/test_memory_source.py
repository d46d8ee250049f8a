"""The source contract on the source in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.contracts.source import SourceContract, SourceHarness
from tests.doubles.memory import MemoryLog, MemorySource


class MemoryHarness:
    prefix = "shop."

    def __init__(self) -> None:
        self.log = MemoryLog()

    def make(self, topics: Sequence[str] | None = None) -> MemorySource:
        wants = None if topics is not None else (lambda topic: topic.startswith(self.prefix))
        return MemorySource(self.log, wants=wants, topics=topics)

    def create(self, topic: str, partitions: int = 1) -> None:
        self.log.create(topic, partitions)

    def append(self, topic: str, *values: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
        for value in values:
            self.log.append(topic, value, partition=partition, key=key)

    def gap(self, topic: str, partition: int = 0) -> None:
        self.log.skip(topic, partition, 2)

    def begin(self, topic: str, *values: bytes) -> None:
        self.log.hold(topic)
        self.append(topic, *values)

    def commit(self, topic: str) -> None:
        self.log.release(topic)

    def forget(self, topic: str, partition: int, low: int) -> None:
        self.log.truncate(topic, partition, low)

    def unreachable(self) -> MemorySource:
        log = MemoryLog()
        log.reachable = False
        return MemorySource(log)


class TestMemorySource(SourceContract):
    @pytest.fixture
    def harness(self) -> SourceHarness:
        return MemoryHarness()
