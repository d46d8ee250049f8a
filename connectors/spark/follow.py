"""`headrace-publish follow`: a lake table's own changes, one version of the table as one version of ours.

Always: the number that a version of the table has among ours is told by the table alone, so that the topic's last records tell
where to go on, and nothing else is kept. A version is published whole, or again as a further attempt. Called by the command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.connectors.formats.topic_names import table_topic
from headrace.connectors.spark import versions
from headrace.connectors.spark.envelope import Stamp, TableCounts
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.kafka_producer import Producer, Wire
from headrace.connectors.spark.lake_changes import Change, Net, between, images, write_version
from headrace.connectors.spark.lake_feed import At, Feed
from headrace.connectors.spark.publisher_state import Manifest


@dataclass(frozen=True)
class Followed:
    """One version of the table that is whole in Kafka. `of`: how the lake calls it. `snapshot`: it holds all rows, as nothing was
    published before."""

    version: int
    attempt: int
    of: str
    counts: TableCounts
    snapshot: bool = False


def follow(
    feed: Feed, prefix: str, wire: Wire, *, partitions: int = 4, source: str | None = None, snapshot: bool = False,
    previous: pa.Table | None = None, loaded: int | None = None, until_now: bool = True, pause: float = 1.0,
    clock: Callable[[], int] = time.time_ns, sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Followed]:  # fmt: skip
    """Publish each version that the topic lacks, and give it. Where the topic has none, or `snapshot` is asked for, the table as
    it is now comes first; it is compared with `previous`, or else with the table's own version that was published last.
    `loaded`: readers have this version of ours already, so that it goes on after it. `until_now`: end at the table's newest
    version. Raises PublishError.
    """
    topic = table_topic(prefix, feed.table)
    count = wire.ensure(topic, partitions)
    producer, whole = wire.producer(), snapshot or previous is not None
    while True:
        now = feed.newest()
        found = versions.seen(wire, [(topic, count)])
        if any(mark.lake for mark in found.marks):
            raise PublishError("the topic was published by a common clock", table=feed.table, topic=topic,
                               hint="give --common-clock and all of its tables, or another prefix")  # fmt: skip
        if loaded is not None and not found.completed:
            found = replace(found, completed=loaded)
        if whole or not found.completed:
            if found.completed < now.version:
                changes = replacing(feed, found.completed, now, previous)
                yield _publish(
                    feed, topic, count, producer, found, now, changes, source or prefix, clock, snapshot=True
                )
                found = versions.seen(wire, [(topic, count)])
            whole = False
        for at in feed.after(found.completed):
            net = Net()
            net.add(feed, feed.changes(at))
            seen = versions.seen(wire, [(topic, count)])
            yield _publish(feed, topic, count, producer, seen, at, net.changes(), source or prefix, clock)
        if until_now:
            return
        sleep(pause)


def replacing(feed: Feed, completed: int, newest: At, previous: pa.Table | None) -> list[Change]:
    """The whole table as changes; where versions were published, also what these had and it has no more."""
    now, before = images(feed, feed.snapshot(newest)), dict[bytes, bytes]()
    if completed:
        before = images(feed, feed.snapshot(feed.at(completed)) if previous is None else previous)
    return between(before, now)


def _publish(
    feed: Feed, topic: str, partitions: int, producer: Producer, found: versions.Seen, at: At, changes: Sequence[Change],
    source: str, clock: Callable[[], int], *, snapshot: bool = False,
) -> Followed:  # fmt: skip
    chosen = versions.choose(at.version, Manifest(), found)
    if chosen is None:
        raise PublishError("the version is in the topic already", table=feed.table, version=at.version)
    stamp = Stamp(source, *chosen, clock() // 1000)
    counts = write_version(producer, stamp, {feed.table: (topic, partitions)}, {feed.table: changes})
    return Followed(*chosen, at.name, counts[feed.table], snapshot)
