"""Dead letters in a compacted topic of one partition: the record's place is the key, a null value discards it.

Invariant: as of `CompactedTopic`. Called by the intake (keep) and by `headrace deadletters`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from headrace.connectors.dead_letters import DeadLetter, DeadLetterError
from headrace.connectors.kafka.compacted import CompactedTopic


class KafkaDeadLetterQueue:
    """`topic`: made when the first letter is kept. `patience`: seconds within which the broker must answer."""

    def __init__(self, config: Mapping[str, Any], topic: str, *, patience: float = 30.0) -> None:
        self._kept = CompactedTopic(config, topic, "dead letters", DeadLetterError, patience=patience)

    def keep(self, letters: Sequence[DeadLetter]) -> None:
        """See `DeadLetterQueue.keep`."""
        self._kept.put([(letter.id, orjson.dumps(letter.json())) for letter in letters])

    def discard(self, ids: Collection[str]) -> None:
        """See `DeadLetterQueue.discard`."""
        if self._kept.is_there():
            self._kept.put([(id_, None) for id_ in sorted(ids)])

    def read(self) -> Sequence[DeadLetter]:
        """See `DeadLetterQueue.read`."""
        found: dict[str, DeadLetter] = {}
        for key, value in self._kept.read():
            if value is None:
                found.pop(key, None)
                continue
            try:
                letter = DeadLetter.parse(orjson.loads(value))
            except (ValueError, KeyError, TypeError):
                continue  # somebody else's record
            found.setdefault(key, letter)
        return list(found.values())
