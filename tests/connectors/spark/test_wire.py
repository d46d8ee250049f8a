"""Reading the end of a topic that has no leader yet."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.spark import wire


class Reader:
    """Fails with each code in turn, then answers."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def get_watermark_offsets(self, at: Any, timeout: float) -> tuple[int, int]:
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return 3, 7


def test_a_leader_that_is_not_there_yet_is_waited_for() -> None:
    reader = Reader(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert wire._watermarks(reader, None) == (3, 7)


def test_other_errors_are_raised_at_once() -> None:
    with pytest.raises(KafkaException):
        wire._watermarks(Reader(KafkaError.TOPIC_AUTHORIZATION_FAILED, 0), None)


def test_the_wait_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_TIMEOUT", 0.0)
    with pytest.raises(KafkaException):
        wire._watermarks(Reader(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 9), None)
