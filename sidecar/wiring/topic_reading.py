"""Reads a part of one topic again, by a transport of its own, while the sidecar goes on reading.

Always: the running transport and its positions stay as they are. Called by repairs of a running sidecar.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.connectors.changes import MessageBatch, VersionEnd
from headrace.connectors.formats.spark import version_ends
from headrace.connectors.formats.topic_names import table_topic
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


@dataclass(frozen=True)
class PublishedVersions:
    """What the topic of a publisher's table says of its versions. `ends`: of all that are there; `cut`: by partition whose first
    records are gone, the last version before which some may be missing, None where nobody can tell."""

    ends: tuple[VersionEnd, ...]
    cut: tuple[int | None, ...] = ()

    def tells_all(self, after: int) -> bool:
        """Whether no version > `after` can have been there that is gone."""
        return all(first is not None and first <= after for first in self.cut)


def published_versions(settings: Settings, source: SourceConfig, table: str) -> PublishedVersions:
    """The versions of a table that a publisher has written, as far as its topic still has them. Raises SourceError."""
    topic = table_topic(source.topic_prefix, table)
    transport = make_source(settings, source, Topic(topic))
    ends: list[VersionEnd] = []
    transport.open({})
    try:
        begins = transport.positions().get(topic, {})
        while True:
            polled = transport.poll(0.2)
            ends += [end for run in polled for end in version_ends(run)]
            if not polled and transport.at_end():
                break
    finally:
        transport.close()
    firsts = (min((e.version for e in ends if e.partition == p), default=None) for p, at in begins.items() if at > 0)
    return PublishedVersions(tuple(ends), tuple(firsts))
