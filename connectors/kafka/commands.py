"""The command log in a compacted topic of one partition, beside the dead letters.

Invariant: as of `CompactedTopic`. Made by wiring; the intake, the control jobs and the catalog watch keep commands in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from headrace.connectors.commands import Command, CommandsError, as_json, parse
from headrace.connectors.kafka.compacted import CompactedTopic


class KafkaCommands:
    """`topic`: made when the first command is kept. `patience`: seconds within which the broker must answer."""

    def __init__(self, config: Mapping[str, Any], topic: str, *, patience: float = 30.0) -> None:
        self._kept = CompactedTopic(config, topic, "commands", CommandsError, patience=patience)

    def keep(self, commands: Sequence[Command]) -> None:
        """See `Commands.keep`."""
        self._kept.put([(c.key, orjson.dumps(as_json(c))) for c in commands])

    def read(self) -> Sequence[Command]:
        """See `Commands.read`."""
        found: dict[str, Command] = {}
        for key, value in self._kept.read():
            if value is None:
                found.pop(key, None)
                continue
            try:
                body = orjson.loads(value)
            except ValueError:
                body = None
            found[key] = parse(key, body)
        return list(found.values())

    def forget(self, keys: Collection[str]) -> None:
        """See `Commands.forget`."""
        if keys and self._kept.is_there():
            self._kept.put([(key, None) for key in sorted(keys)])
