"""Errors of a Kafka sink: what the broker said, which sink it concerns, and what to do. The sink raises them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from headrace.connectors.kafka.client import Reasons
from headrace.connectors.kafka.transactional_producer import TooLarge
from headrace.connectors.sink import Frontier, SinkAway, SinkError


def unreachable(failure: KafkaException, reasons: Reasons, sink: str, config: Mapping[str, Any]) -> SinkAway:
    """No broker answers, or it refuses the connection."""
    reason = reasons.describe() or f": {failure.args[0].str()}"
    return SinkAway(
        f"Kafka does not take it{reason}",
        hint="start Kafka, or correct bootstrap.servers and the security settings; nothing is lost meanwhile",
        sink=sink,
        brokers=config.get("bootstrap.servers", ""),
    )


def not_taken(reason: object, sink: str) -> SinkAway:
    """A write did not come through in time."""
    return SinkAway(f"the broker does not take the write: {reason}", hint="is Kafka in order?", sink=sink)


def too_large(failure: TooLarge, sink: str, at: Frontier | None) -> SinkError:
    """A record is larger than the topic takes."""
    return SinkError(
        "a row is larger than a message may be",
        hint="raise max.message.bytes of the topic and message.max.bytes of the sink's `kafka:`", sink=sink,
        topic=failure.topic, bytes=failure.bytes, epoch=None if at is None else at.epoch,
    )  # fmt: skip
