"""The judge: every view, rebuilt from the Kafka sink at an exact position and read from the Postgres sink at its own
frontier, against what Postgres answers there to the same SQL.

Always: a comparison is of whole multisets; a difference is kept and told. Called by the demo and by end-to-end tests.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson
from confluent_kafka import Consumer, TopicPartition

from headrace.connectors.commit_place import KINDS, place_of
from headrace.connectors.kafka.frontier_record import FrontierRecord, decode
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Column, Kind
from headrace.sidecar.operations.postgres_at_lsn import Answer, Row, normal, read_sink, with_views
from headrace.views.compile import CompiledView

__all__ = ["DemoFailed", "Mirror", "Verdict", "json_row", "normal", "read_sink", "with_views"]


class DemoFailed(HeadraceError):
    """The channel did not do what it should."""

    code = "demo"


_FLOATS = (Kind.REAL, Kind.DOUBLE)


@dataclass(frozen=True)
class _Change:
    epoch: int
    key: bytes
    row: Row | None
    count: int


@dataclass
class _Topic:
    """A view as its topic tells it: applied up to an epoch, the rest waiting."""

    view: CompiledView
    rows: dict[bytes, tuple[Row, int]] = field(default_factory=dict)
    waiting: deque[_Change] = field(default_factory=deque)

    def row(self, body: Mapping[str, object]) -> Row:
        """Of a record. Raises DemoFailed for one that a run before this one has written, whose view had other columns."""
        missing = [c.name for c in self.view.schema.columns if c.name not in body]
        if missing:
            what = "the folder holds an earlier run's records of a view that has other columns now"
            raise DemoFailed(what, view=self.view.name, missing=", ".join(missing), hint="start with --fresh")
        return json_row(self.view.schema.columns, body)

    def advance(self, epoch: int) -> Counter[Row]:
        while self.waiting and self.waiting[0].epoch <= epoch:
            change = self.waiting.popleft()
            if change.row is None:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = (change.row, change.count)
        found: Counter[Row] = Counter()
        for row, count in self.rows.values():
            found[row] += count
        return found


class Mirror:
    """The views as a reader of the Kafka sink sees them, at any epoch not before the last one asked for."""

    def __init__(self, bootstrap: str, prefix: str, views: Sequence[CompiledView]) -> None:
        self._topics = {f"{prefix}{v.name}": _Topic(v) for v in views}
        self._frontier = f"{prefix}frontier"
        self._ahead: deque[FrontierRecord] = deque()
        self._marks: list[tuple[int, str, int]] = []
        self.epoch = 0
        self.places: dict[str, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"demo-{uuid.uuid4().hex[:8]}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(t, 0, 0) for t in (*self._topics, self._frontier)])

    def poll(self, timeout: float) -> int:
        """Take in what arrived; how many records. A frontier counts once every record before its ends is here."""
        messages = self._consumer.consume(5000, timeout)
        for message in messages:
            if message.error() is not None:
                continue
            if message.topic() == self._frontier:
                self._ahead.append(decode(orjson.loads(message.value() or b"")))
            else:
                self._take(self._topics[message.topic() or ""], message)
        self._reach()
        return len(messages)

    def _reach(self) -> None:
        if not self._ahead:
            return
        asked = self._consumer.position([TopicPartition(t, 0) for t in self._topics])
        here = {p.topic: p.offset for p in asked}
        while self._ahead and all(here[t] >= ends.get(0, 0) for t, ends in self._ahead[0].ends.items() if t in here):
            self._take_frontier(self._ahead.popleft())

    def _take_frontier(self, standing: FrontierRecord) -> None:
        if standing.frontier is not None:
            self.epoch = max(self.epoch, standing.frontier.epoch)
            for source, at in standing.frontier.sources.items():
                self.places[source] = at.place.order
                self._marks.append((standing.frontier.epoch, source, at.place.order))

    def _take(self, topic: _Topic, message: object) -> None:
        told = message.headers()  # type: ignore[attr-defined]  # confluent_kafka has no types
        headers = {name: value.decode() for name, value in told}
        epoch = int(headers["epoch"])
        if headers.keys() & KINDS.keys():
            self._marks.append((epoch, headers["source"], place_of(headers).order))
        value = message.value()  # type: ignore[attr-defined]
        body = None if value is None else orjson.loads(value)
        count = 1
        if body is not None and topic.view.key is None:
            body, count = body["row"], body["count"]
        row = None if body is None else topic.row(body)
        topic.waiting.append(_Change(epoch, message.key(), row, count))  # type: ignore[attr-defined]

    def cut(self, source: str, lsn: int) -> int | None:
        """The last epoch that belongs to `source`'s commits up to `lsn`, once something later was seen; else None."""
        if self.places.get(source, 0) <= lsn:
            return None
        return min(epoch for epoch, name, at in self._marks if name == source and at > lsn) - 1

    def version_at(self, source: str, epoch: int) -> int:
        """The last version (LSN) of `source` bound at or before `epoch`; 0 for none."""
        return max((at for e, name, at in self._marks if name == source and e <= epoch), default=0)

    def rows(self, epoch: int) -> dict[str, Counter[Row]]:
        """Every view's rows at `epoch`, which must not go back."""
        return {t.view.name: t.advance(epoch) for t in self._topics.values()}

    def close(self) -> None:
        """Let go."""
        self._consumer.close()


def json_row(columns: Sequence[Column], body: Mapping[str, object]) -> Row:
    """A JSON row of the Kafka sink as the texts that Postgres's ::text gives."""
    return tuple(_text(c, body[c.name]) for c in columns)


def _text(column: Column, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if column.type.kind in _FLOATS:
        return repr(float(value))  # type: ignore[arg-type]  # a JSON number, or NaN and the infinities by name
    text = str(value)
    if column.type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        return text.replace("T", " ").replace("+00:00", "+00")
    return text


@dataclass
class Verdict:
    """What was compared and what differed."""

    comparisons: int = 0
    frontiers: int = 0
    differences: list[str] = field(default_factory=list)

    def compare(self, where: str, view: CompiledView, ours: Counter[Row], theirs: Counter[Row]) -> None:
        """One view at one place."""
        self.comparisons += 1
        theirs = normal(view.schema.columns, theirs)
        if ours != theirs:
            extra, lack = list((ours - theirs).items()), list((theirs - ours).items())
            self.differences.append(
                f"{view.name} at {where}: {len(extra)} rows too many {_short(extra)}, {len(lack)} missing {_short(lack)}"
            )

    def compare_all(
        self, where: str, views: Sequence[CompiledView], ours: Mapping[str, Counter[Row]], theirs: Mapping[str, Answer]
    ) -> None:
        """Every view that both sides have."""
        self.frontiers += 1
        for view in views:
            if view.name in ours and view.name in theirs:
                self.compare(where, view, ours[view.name], theirs[view.name].rows)


def _short(rows: list[tuple[Row, int]]) -> str:
    return "[" + ", ".join(str(tuple((c or "NULL")[:40] for c in row)) for row, _ in rows[:3]) + "]"
