"""A worker's part of a source: reads its share of the partitions, decodes them, and keeps the rows.

Invariant: an answer's positions are those behind its runs; one answer is made ahead of the driver, and no more. What a record
becomes is what the driver's intake would make of it, or an error. Called by a worker, on a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from headrace.connectors.changes import Decoded, Format, MessageBatch, MissingColumn, TableChanges, Undecodable
from headrace.connectors.source import Positions, Source, SourceError
from headrace.engine.batch.exchange_codec import Message
from headrace.engine.batch.redeclared_rows import redeclared, redeclared_masks
from headrace.engine.batch.updates import Int64s
from headrace.engine.schema import Schema
from headrace.sidecar.execution.workers.channel import Channel, ChannelClosed, moved
from headrace.sidecar.execution.workers.kept_rows import KeptRows, hashes_of
from headrace.sidecar.execution.workers.protocol import message, opened, unpacked
from headrace.sidecar.intake.enum_labels import undeclared
from headrace.sidecar.intake.schema_drift import fitted
from headrace.sidecar.intake.shard_answers import Places, RunHead, Standing, answer_out, run_out
from headrace.sidecar.state.spill import Spill

IDLE_SECONDS, LOOKING_SECONDS = 0.005, 0.001
"""How long one poll waits: while nothing is asked, and while the driver waits for what was asked."""
TELL_SECONDS = 0.05
"""How often a worker that reads nothing says where it stands."""


def reader_of(topic: str, partition: int, count: int) -> int:
    """Which of `count` workers reads a partition: the same in all of them, without a word between them.

    >>> [reader_of("shop.public.orders", p, 2) for p in range(4)]
    [0, 1, 0, 1]
    """
    return (crc32(topic.encode()) + partition) % count


@dataclass
class ShardReader:
    """`source` reads this shard's partitions; `schemas`: of all tables that may be read; `spill`: what is kept beyond its limit
    lies on disk. Single writer: its thread."""

    channel: Channel
    source: Source
    format: Format
    schemas: dict[str, Schema]
    kept: KeptRows
    spill: Spill
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self._wanted = False
        self._looks: dict[int, Callable[[], bool]] = {}
        self._told, self._told_at = Standing(), float("-inf")
        self._left_out: dict[str, dict[str, str]] = {}
        self._others: frozenset[str] = frozenset()
        self.kept.emptied.append(self.spill.nothing_waits)

    def serve(self) -> None:
        """Read until the channel closes. Raises ChannelClosed."""
        try:
            while True:
                self._heed()
                if self._wanted:
                    self._read()
        except ChannelClosed:
            self._do_all()  # the last positions that are safe
            raise
        finally:
            self.kept.emptied.remove(self.spill.nothing_waits)
            self.source.close()

    def _heed(self) -> None:
        """Do what the driver says; with nothing to read for, wait for it."""
        if self._wanted:
            self.channel.read()
        else:
            moved([self.channel], lambda: not self.channel.arrived, lambda: None)
        self._do_all()

    def _do_all(self) -> None:
        while self.channel.arrived:
            head, parts = opened(self.channel.arrived.popleft())
            match head["do"]:
                case "open":
                    self._open(self._mine(head["positions"]))
                case "poll":
                    self._wanted = True
                case "look":
                    self._looks[head["number"]] = self.source.look(head["topic"])
                case "commit":
                    self.source.commit(self._mine(head["positions"]))
                case "add_table":
                    name, schema, partitions, precisions = unpacked(parts[0])
                    self.schemas[name] = schema
                    self.format.add_table(name, schema, partitions, precisions)
                case "add_partition":
                    self.format.add_partition(head["partition"], head["table"])

    def _mine(self, positions: Mapping[str, Mapping[str, int]]) -> Positions:
        """Those of this shard's partitions; JSON has their numbers as texts."""
        count, shard = self.kept.count, self.kept.shard
        here = {
            t: {int(p): o for p, o in ps.items() if reader_of(t, int(p), count) == shard} for t, ps in positions.items()
        }
        return {topic: partitions for topic, partitions in here.items() if partitions}

    def _open(self, positions: Positions) -> None:
        try:
            self.source.open(positions)
        except SourceError as error:
            self._tell([], Standing(failed=error.as_json()))
        else:
            self._tell([], self._standing([]))

    def _read(self) -> None:
        """One poll, and an answer where there is anything to say."""
        failed: SourceError | None = None
        polled = []
        try:
            polled = list(self.source.poll(LOOKING_SECONDS if self._looks else IDLE_SECONDS))
        except SourceError as error:
            failed = error
        runs = [self._run(messages) for messages in polled]
        if not (runs or failed or self._looks or self.clock() - self._told_at >= TELL_SECONDS):
            return
        looked = [number for number, passed in self._looks.items() if passed()]
        if not (runs or failed or looked or self.clock() - self._told_at >= TELL_SECONDS):
            return
        for number in looked:
            del self._looks[number]
        standing = self._standing(looked)
        standing.failed = None if failed is None else failed.as_json()
        self._wanted = False
        self._tell(runs, standing)

    def _tell(self, runs: list[tuple[RunHead, Message]], standing: Standing) -> None:
        self._told_at = self.clock()
        self.channel.put(message({}, answer_out(runs, standing)))
        moved([self.channel], lambda: False, lambda: None)

    def _standing(self, looked: list[int]) -> Standing:
        """Where it stands, as far as that is new."""
        source, before = self.source, self._told
        now = Standing(_plain(source.positions()), _plain(source.high_watermarks()), dict(source.topic_ids()))
        self._told = now
        others, left_out = source.others(), {t: dict(c) for t, c in self.format.left_out.items()}
        told_others, told_left = others != self._others, left_out != self._left_out
        self._others, self._left_out = others, left_out
        return Standing(
            _changed(now.positions, before.positions), _changed(now.ends, before.ends),
            {topic: id_ for topic, id_ in now.ids.items() if before.ids.get(topic) != id_},
            sorted(others) if told_others else None, left_out if told_left else None,
            source.at_end(), source.silent_for(), looked,
        )  # fmt: skip

    def _run(self, messages: MessageBatch) -> tuple[RunHead, Message]:
        started = self.clock()
        decoded = self.format.decode(messages).timed(messages)
        changes, lost, unfit = self._fitted(decoded)
        kept = [self._keep(one) for one in changes]
        decoded = replace(decoded, changes=changes, lost=[*decoded.lost, *lost])
        return run_out(messages, decoded, kept, unfit, self.clock() - started)

    def _fitted(self, decoded: Decoded) -> tuple[list[TableChanges], list[MissingColumn], list[Undecodable]]:
        """The changes without what does not fit their tables."""
        out, lost, unfit = [], list[MissingColumn](), list[Undecodable]()
        for changes in decoded.changes:
            schema = self.schemas.get(changes.table)
            if schema is None:
                continue
            fit, columns, broken = fitted(changes, schema)
            lost += columns
            unfit += [broken] if broken is not None else []
            if any(c.type.labels for c in schema.columns) and (found := list(undeclared(fit, schema))):
                unfit += [bad for _, bad in found]
                fit = fit.take(np.setdiff1d(np.arange(len(fit)), [row for row, _ in found]))
            if len(fit):
                out.append(_under(fit, schema))
        return out, lost, unfit

    def _keep(self, changes: TableChanges) -> tuple[int, Int64s, Int64s]:
        hashes, checks = hashes_of(changes, self.schemas[changes.table])
        return self.kept.keep(self.spill.take(changes), hashes), hashes, checks


def _under(changes: TableChanges, schema: Schema) -> TableChanges:
    """A run in the lanes of its table."""
    before = changes.rows.schema
    if before.equals(schema.arrow):
        return changes
    unchanged = redeclared_masks(changes.unchanged, before, schema)
    return replace(changes, rows=redeclared(changes.rows, schema), unchanged=unchanged)


def _plain(positions: Positions) -> Places:
    return {topic: dict(partitions) for topic, partitions in positions.items()}


def _changed(now: Places, before: Mapping[str, Mapping[int, int]]) -> Places:
    out = {}
    for topic, partitions in now.items():
        known = before.get(topic, {})
        if found := {p: o for p, o in partitions.items() if known.get(p) != o}:
            out[topic] = found
    return out
