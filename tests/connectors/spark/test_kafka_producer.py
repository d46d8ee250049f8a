"""Reading the end of a topic that has no leader yet."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.connectors.spark import kafka_producer
from headrace.connectors.spark.errors import PublishError


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
    assert kafka_producer._watermarks(reader, None) == (3, 7)


def test_other_errors_are_raised_at_once() -> None:
    with pytest.raises(KafkaException):
        kafka_producer._watermarks(Reader(KafkaError.TOPIC_AUTHORIZATION_FAILED, 0), None)


def test_the_wait_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_producer, "_TIMEOUT", 0.0)
    with pytest.raises(KafkaException):
        kafka_producer._watermarks(Reader(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 9), None)


def test_more_records_than_the_queue_holds_all_arrive() -> None:
    """On the broker that librdkafka simulates: what is refused for want of room is given again."""
    producer = kafka_producer._KafkaProducer(
        {
            "bootstrap.servers": "none",
            "test.mock.num.brokers": "1",
            "queue.buffering.max.messages": "50",
            "log_level": "0",
        }
    )
    for partition in range(2):
        producer.produce_batch("t", partition, [(b"%d" % i, b"x") for i in range(500)])
    producer.flush()
    assert len(producer._producer) == 0


def test_a_record_that_cannot_be_written_is_an_error() -> None:
    producer = kafka_producer._KafkaProducer(
        {"bootstrap.servers": "none", "test.mock.num.brokers": "1", "message.max.bytes": "1000", "log_level": "0"}
    )
    with pytest.raises(PublishError, match="did not take a record"):
        producer.produce_batch("t", 0, [(b"small", b"x"), (b"large", b"x" * 5000)])
