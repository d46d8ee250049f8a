"""Several lake tables as one source: a version is one instant of their common clock, the times of their commits.

Always: commits that follow each other closely, whichever table they are of, are one version, numbered by the last of their
times in ms. Every record tells at which version of its own its table stands, so that the topics tell where to go on. Invariant: a
table's versions are published in their order, none is left out: one that shows up later is in the next version. Called by the
command.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.connectors.formats.topic_names import table_topic
from headrace.connectors.spark import versions
from headrace.connectors.spark.envelope import Stamp, TableCounts
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.follow import replacing
from headrace.connectors.spark.kafka_producer import Wire
from headrace.connectors.spark.lake_changes import Change, Net, write_version
from headrace.connectors.spark.lake_feed import At, Feed
from headrace.connectors.spark.publisher_state import Manifest

LONGEST = 20
"""Commits that never pause are cut after so many times the pause that divides versions."""


@dataclass(frozen=True)
class Commit:
    """A version of one of the tables. `instant`: ms since 1970, never before the commits of its table that precede it.
    `is_late`: its own time was published already."""

    instant: int
    table: str
    at: At
    is_late: bool = False


@dataclass(frozen=True)
class Instant:
    """A version that is whole in Kafka. `of`: how the lake calls the version at which each table stands. `late`: what is in it
    though its time was published before, as "table@version"."""

    version: int
    attempt: int
    of: Mapping[str, str]
    tables: Mapping[str, TableCounts]
    snapshot: bool = False
    late: tuple[str, ...] = ()


def groups(commits: Sequence[Commit], pause: int) -> list[list[Commit]]:
    """The commits by their instants, divided where `pause` ms pass without one, or a group gets too long.

    >>> made = [Commit(i, "public.a", At(i, "")) for i in (0, 5, 30, 31)]
    >>> [[c.instant for c in group] for group in groups(made, 10)]
    [[0, 5], [30, 31]]
    """
    found: list[list[Commit]] = []
    for commit in sorted(commits, key=lambda c: (c.instant, c.table, c.at.version)):
        now = commit.instant
        if found and now - found[-1][-1].instant <= pause and now - found[-1][0].instant <= LONGEST * pause:
            found[-1].append(commit)
        else:
            found.append([commit])
    return found


@dataclass(frozen=True)
class _Standing:
    """What the topics tell: the versions, and the own version of each table that readers have (0: none)."""

    seen: versions.Seen
    own: Mapping[str, int]

    @property
    def unfinished(self) -> int | None:
        """The version that was begun last and is not whole."""
        return self.seen.begun[0] if self.seen.begun[0] > self.seen.completed else None


class CommonClock:
    """Follows `feeds` into the topics of one prefix; `pause`: the seconds without a commit that end a version. A table that was
    not followed before comes whole first.

    `loaded`: of each table the version of ours that readers have already. One thread uses it.
    """

    def __init__(
        self, feeds: Sequence[Feed], prefix: str, wire: Wire, *, pause: float, partitions: int = 4,
        source: str | None = None, loaded: Mapping[str, int] | None = None, clock: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self._feeds = {feed.table: feed for feed in feeds}
        if len(self._feeds) < len(feeds):
            raise PublishError("a table is named twice", tables=", ".join(feed.table for feed in feeds))
        if loaded and loaded.keys() != self._feeds.keys():
            raise PublishError(
                "--loaded must name each table or none", missing=", ".join(self._feeds.keys() - loaded.keys())
            )
        self._wire, self._source, self._clock, self._loaded = wire, source or prefix, clock, loaded or {}
        self._prefix, self._partitions, self._pause, self._waiting_since = prefix, partitions, int(pause * 1000), 0
        topics = {table: table_topic(prefix, table) for table in self._feeds}
        self._producer = wire.producer()
        self._topics = {table: (topic, wire.ensure(topic, partitions)) for table, topic in topics.items()}

    def follow(
        self, *, snapshot: bool = False, previous: Mapping[str, pa.Table] | None = None, until_now: bool = True,
        look: float = 1.0, sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[Instant]:  # fmt: skip
        """Publish each version that the topics lack, and give it. Where they have none, or `snapshot` is asked for, the tables as
        they are now come first, compared with the rows of `previous`, or else with their own versions that were published last.
        `until_now`: what is there now is complete, and the end. Raises PublishError.
        """
        asked = [t for t in self._feeds if snapshot or t in (previous or {})]
        while True:
            newest = {table: feed.newest() for table, feed in self._feeds.items()}
            standing = self._standing()
            whole = asked or [table for table, own in standing.own.items() if not own]
            if whole and (until_now or self._is_quiet(newest)):
                yield self._replace(standing, newest, whole, previous or {})
                whole = asked = []
            if not whole:
                yield from self._go_on(until_now=until_now)
            if until_now:
                return
            sleep(look)

    def _standing(self) -> _Standing:
        marks = {table: versions.marks(self._wire, *topic) for table, topic in self._topics.items()}
        seen = versions.told(self._judged(marks))
        own = {table: _own(table, found, seen.completed) for table, found in marks.items()}
        if not seen.completed and not any(own.values()):
            own |= self._loaded
        return _Standing(seen, own)

    def _judged(self, marks: Mapping[str, Sequence[versions.Mark | None]]) -> list[versions.Mark | None]:
        """The last records that tell whether the version begun last is whole: of the tables that it was of, as its ENDs say. A
        table that is followed only now has none of it."""
        there = [mark for found in marks.values() for mark in found if mark]
        begun = max(((m.version, m.attempt) for m in there), default=None)
        of = next((m.tables for m in there if m.is_end and (m.version, m.attempt) == begun), tuple(marks))
        judged: list[versions.Mark | None] = []
        for table in of:
            if table in marks:
                judged += marks[table]
            else:
                topic = table_topic(self._prefix, table)
                judged += versions.marks(self._wire, topic, self._wire.ensure(topic, self._partitions))
        return judged

    def _is_quiet(self, newest: Mapping[str, At]) -> bool:
        """Whether no table was written for a pause; tables that never pause are not waited for."""
        now = self._clock() // 1_000_000
        self._waiting_since = self._waiting_since or now
        last = max(self._feeds[table].instant(at) for table, at in newest.items())
        return now >= last + self._pause or now >= self._waiting_since + LONGEST * self._pause

    def _replace(
        self, standing: _Standing, newest: Mapping[str, At], whole: Sequence[str], previous: Mapping[str, pa.Table]
    ) -> Instant:
        """These tables as they are now; the others as they were published last."""
        self._waiting_since = 0
        stand = {t: newest[t] if t in whole else feed.at(standing.own[t]) for t, feed in self._feeds.items()}
        changes = {t: replacing(self._feeds[t], standing.own[t], newest[t], previous.get(t)) for t in whole}
        last = max(self._feeds[table].instant(newest[table]) for table in whole)
        return self._publish(standing, last, stand, changes, snapshot=True)

    def _go_on(self, *, until_now: bool) -> Iterator[Instant]:
        while group := self._next(standing := self._standing(), until_now=until_now):
            nets = {commit.table: Net() for commit in group}
            for commit in group:
                feed = self._feeds[commit.table]
                nets[commit.table].add(feed, feed.changes(commit.at))
            stand = {t: self._feeds[t].at(own) for t, own in standing.own.items() if t not in nets}
            stand |= {commit.table: commit.at for commit in group}
            late = tuple(f"{c.table}@{c.at.name}" for c in group if c.is_late)
            changes = {table: net.changes() for table, net in nets.items()}
            yield self._publish(standing, group[-1].instant, stand, changes, late=late)

    def _next(self, standing: _Standing, *, until_now: bool) -> list[Commit]:
        """The commits of the next version; none where it is not there yet, or may still get more."""
        commits = []
        for table, feed in self._feeds.items():
            instant = standing.seen.completed
            for at in feed.after(standing.own[table]):
                made = feed.instant(at)
                # one that shows up late, or was made by a slow clock, takes the time of what was before it
                instant = max(instant, made)
                commits.append(Commit(instant, table, at, is_late=made <= standing.seen.completed))
        found = groups(commits, self._pause)
        if not found or (
            len(found) == 1 and not until_now and self._clock() // 1_000_000 < found[0][-1].instant + self._pause
        ):
            return []
        return found[0]

    def _publish(
        self, standing: _Standing, instant: int, stand: Mapping[str, At], changes: Mapping[str, Sequence[Change]], *,
        snapshot: bool = False, late: tuple[str, ...] = (),
    ) -> Instant:  # fmt: skip
        """Write a version of all tables; one that was begun and is not whole is written again under its own number, as two that
        are not whole could not be told apart."""
        version = standing.unfinished or max(instant, standing.seen.completed + 1)
        chosen = versions.choose(version, Manifest(), standing.seen)
        assert chosen is not None, "it is beyond what is completed"
        lake = {table: (standing.own[table], at.version) for table, at in stand.items()}
        stamp = Stamp(self._source, *chosen, self._clock() // 1000, lake=lake)
        counts = write_version(self._producer, stamp, self._topics, changes)
        return Instant(*chosen, {table: at.name for table, at in stand.items()}, counts, snapshot, late)


def _own(table: str, marks: Sequence[versions.Mark | None], completed: int) -> int:
    """The table's own version that readers have, as the last records of its topic tell. Raises PublishError."""
    there = [mark for mark in marks if mark]
    if not there:
        return 0
    last = max(there, key=lambda mark: (mark.version, mark.attempt))
    if last.lake is None:
        raise PublishError("the topic was published without a common clock", table=table, version=last.version,
                           hint="follow the tables by a common clock under another prefix")  # fmt: skip
    is_whole = last.version <= completed and all(m and m.is_end and m.version == last.version for m in marks)
    return last.lake[1] if is_whole else last.lake[0]
