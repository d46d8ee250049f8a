"""Reads a part of one topic again, by a transport of its own, while the sidecar goes on reading.

Always: the running transport and its positions stay as they are. Called by repairs of a running sidecar.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.connectors.changes import MessageBatch
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.wiring.factories import make_source


@dataclass(frozen=True)
class Topic:
    """One topic is to be read."""

    name: str

    def wants(self, topic: str) -> bool:
        """See `Wants`."""
        return topic == self.name


def read_topic(
    settings: Settings, source: SourceConfig, intake: Intake, topic: str, partition: int, start: int, stop: int
) -> list[MessageBatch]:
    """The messages of a partition from `start` on and before `stop`, by a transport of their own. Raises SourceError."""
    here = {p: o for p, o in intake.source.positions().get(topic, {}).items() if p != partition}
    transport = make_source(settings, source, Topic(topic))
    found = []
    transport.open({topic: {**here, partition: start}})
    try:
        while transport.positions().get(topic, {}).get(partition, 0) < stop:
            found += [run.before(stop) for run in transport.poll(0.1) if run.partition == partition]
    finally:
        transport.close()
    return found
