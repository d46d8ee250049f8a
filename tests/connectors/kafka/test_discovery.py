"""What a broker says while a leader moves is waited out; anything else is told."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.kafka.discovery import offsets


class Broker:
    """Refuses with each of `codes` once, and then answers with an offset."""

    def __init__(self, *codes: int) -> None:
        self.codes = deque(codes)

    def list_offsets(self, asked: dict[Any, Any], **_: object) -> dict[Any, Any]:
        code = self.codes.popleft() if self.codes else None

        def result() -> Any:
            if code is not None:
                raise KafkaException(KafkaError(code))
            return SimpleNamespace(offset=7)

        return {at: SimpleNamespace(result=result) for at in asked}


def test_a_leader_that_moves_is_waited_for() -> None:
    """Found by freezing sidecars: a start on a busy broker ended with "Leader epoch is older than broker epoch"."""
    broker: Any = Broker(
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,
    )
    assert offsets(broker, [("t", 0)], end=True, timeout=5.0) == {("t", 0): 7}


@pytest.mark.parametrize(
    ("code", "timeout"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, 5.0), (KafkaError.FENCED_LEADER_EPOCH, 0.0)]
)
def test_what_does_not_pass_is_told(code: int, timeout: float) -> None:
    broker: Any = Broker(*[code] * 3)
    with pytest.raises(KafkaException):
        offsets(broker, [("t", 0)], end=True, timeout=timeout)
