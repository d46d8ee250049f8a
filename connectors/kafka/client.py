"""What all our Kafka clients share: configuration, logs, and what errors mean.

Invariant: a key that we must own is refused when the user sets it otherwise. No message shows a configuration value except
the brokers' addresses. Source and sink call it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.engine.errors import HeadraceError

Raise = Callable[..., HeadraceError]


class _WithoutWarnings(logging.Filter):
    """Drops librdkafka's note that a consumer's key means nothing to another client: keys pass through to all."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (isinstance(record.args, tuple) and record.args and record.args[0] == "CONFWARN")


LOGGER = logging.getLogger("headrace.kafka")
LOGGER.addFilter(_WithoutWarnings())


def merged(
    config: Mapping[str, Any], owned: Mapping[str, Any], defaults: Mapping[str, Any], error: Raise
) -> dict[str, Any]:
    """The configuration of a client: defaults, then the user's keys, then ours. Raises `error` for an owned key."""
    for key, value in owned.items():
        if key in config and str(config[key]).lower() != str(value).lower():
            raise error(
                "this setting is Headrace's own", hint=f"remove it: it is always {str(value).lower()}", setting=key
            )
    return {"bootstrap.servers": "", **defaults, **config, **owned}


def client(make: Callable[..., Any], settings: Mapping[str, Any], error: Raise) -> Any:
    """Make a client of librdkafka. Raises `error` for a setting that it refuses; the message names key and value."""
    if not settings.get("bootstrap.servers"):
        raise error("bootstrap.servers is not set", hint="name at least one broker as host:port")
    try:
        return make(dict(settings), logger=LOGGER)
    except KafkaException as failure:
        detail = failure.args[0]
        text = detail.str() if isinstance(detail, KafkaError) else str(detail)
        key = next((k for k in settings if f'"{k}"' in text), None)
        if key is not None and str(settings[key]) in text:
            text = f"librdkafka refuses the value of {key}"  # the value may be a secret
        raise error(text, hint="see librdkafka's CONFIGURATION.md for its settings", setting=key) from None


def admin(settings: Mapping[str, Any], error: Raise, on_error: Callable[[KafkaError], None]) -> AdminClient:
    """An administrative client with the same connection settings."""
    made: AdminClient = client(AdminClient, {**settings, "error_cb": on_error}, error)
    return made


def kafka_error(failure: KafkaException) -> KafkaError:
    """The KafkaError within an exception."""
    error: KafkaError = failure.args[0]
    return error


class Reasons:
    """Remembers what librdkafka last complained of, so that a time-out can say why. Written by its callbacks."""

    def __init__(self) -> None:
        self.last = ""

    def __call__(self, error: KafkaError) -> None:
        """Take one complaint; that all brokers are down says less than why."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.last:
            self.last = error.str()

    def describe(self) -> str:
        """`: reason`, or nothing."""
        return f": {self.last}" if self.last else ""
