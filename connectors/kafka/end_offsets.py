"""End offsets: how far partitions reached at a moment, asked for without waiting.

Invariant: the offsets are those of a moment after the question was made. What the broker refuses, or does not answer, is
asked again. The source makes it, and asks it on its thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

_SECONDS = 5.0
"""How long a broker has for an answer."""


class Ends:
    """The ends of `places`, of what is in open transactions too."""

    def __init__(self, admin: AdminClient, places: Iterable[tuple[str, int]]) -> None:
        self._admin, self._places = admin, tuple(places)
        self._answers: Mapping[TopicPartition, Future[Any]] | None = None
        self._ask()

    def _ask(self) -> None:
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): spec for topic, partition in self._places}
        level = IsolationLevel.READ_UNCOMMITTED
        try:
            self._answers = (
                self._admin.list_offsets(asked, isolation_level=level, request_timeout=_SECONDS) if asked else {}
            )
        except KafkaException:
            self._answers = None

    def told(self) -> Mapping[tuple[str, int], int] | None:
        """(topic, partition) → its end; None while there is no answer."""
        if self._answers is not None and all(answer.done() for answer in self._answers.values()):
            try:
                return {(tp.topic, tp.partition): answer.result().offset for tp, answer in self._answers.items()}
            except KafkaException:
                self._answers = None
        if self._answers is None:
            self._ask()
        return None
