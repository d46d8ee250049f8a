"""`headrace replay`: the views over recorded topics, with no server at all, deterministically.

Always: the order of the file is the order of emission; each whole transaction is one epoch, the snapshot is epoch 1. The
same engine, formats and assembler as `run` uses; only the transport is a file. Called by the command and by tests.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.connectors.changes import Decoded, Format, MessageBatch
from headrace.connectors.formats.recording import Record, RecordingError, read_records
from headrace.engine.batch.updates import Updates
from headrace.engine.dataflow import Collection, Dataflow, Output
from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.intake.source_intake import UndecodableError
from headrace.sidecar.intake.table_upserts import upserts
from headrace.sidecar.transactions.model import Assembler, Transaction
from headrace.sidecar.wiring.factories import make_assembler, make_format
from headrace.sidecar.wiring.project import read_project, tables_of
from headrace.views.compile import CompiledView
from headrace.views.lineage import columns_named
from headrace.views.render import render

WINDOW = 20_000
"""Records decoded together."""


class ReplayError(HeadraceError):
    """A view is in error at the end of the recording."""

    code = "view"


@dataclass
class _Door:
    config: SourceConfig
    format: Format
    assembler: Assembler
    tables: frozenset[str]


@dataclass(frozen=True)
class ViewOutput:
    """The changes of one view in one step: rows in (epoch, canonical) order, and errors."""

    view: CompiledView
    rows: Updates
    errors: Updates


class Replay:
    """A run of the views over recordings. `steps` gives each step's outputs; `final` what is there at the end."""

    def __init__(self, settings: Settings, recordings: Sequence[Path]) -> None:
        self._recordings = recordings
        project = read_project(settings)
        schemas = dict(project.tables)
        if project.unknown:
            schemas = self._learn(settings, schemas)
        self.views = project.compile(schemas)
        self._named = columns_named(self.views)
        used = {t for v in self.views for t in tables_of(v)}
        self._tables = {t: s for t, s in schemas.items() if t in used}
        self._flow = Dataflow()
        for name in sorted(self._tables):
            self._flow.table(name, self._tables[name])
        rendered: dict[str, Collection] = {}
        self._outputs: list[tuple[CompiledView, Output]] = []
        for view in self.views:
            rendered[view.name] = collection = render(view, self._flow, rendered)
            self._outputs.append((view, collection.output(view.name)))
        self._doors = [self._door(settings, source, schemas) for source in settings.config.sources]
        self.epoch = 0

    def _door(self, settings: Settings, source: SourceConfig, schemas: Mapping[str, Schema]) -> _Door:
        declared = {t.name for t in source.tables} if source.tables is not None else set(schemas)
        mine = {n: s for n, s in schemas.items() if n in declared}
        return _Door(
            source, make_format(source, settings.path), make_assembler(source, mine, in_order=True), frozenset(mine)
        )

    def _learn(self, settings: Settings, schemas: dict[str, Schema]) -> dict[str, Schema]:
        """The schemas that messages carry, from a first reading. Each table's first schema counts."""
        learners = [(s, make_format(s, settings.path)) for s in settings.config.sources]
        for messages in _windows(self._recordings):
            for source, format_ in learners:
                if format_.wants(messages.topic):
                    named = {t.name for t in source.tables} if source.tables is not None else None
                    for table, schema in format_.decode(messages).schemas.items():
                        if named is None or table in named:
                            schemas.setdefault(table, schema)
        return schemas

    def steps(self) -> Iterator[list[ViewOutput]]:
        """Run; gives, step by step, what every view did. Raises UndecodableError for a record of a table in use."""
        for window in itertools.chain(_grouped(self._recordings), [None]):
            bound: list[tuple[int, Transaction]] = []
            for door in self._doors:
                for messages in window or ():
                    if door.format.wants(messages.topic):
                        self._take(door, messages)
                if window is None:
                    door.assembler.finish()
                bound += [(self.epoch + 1 + i, t) for i, t in enumerate(door.assembler.complete(), len(bound))]
            if bound:
                yield self._step(bound)

    def _take(self, door: _Door, messages: MessageBatch) -> None:
        decoded: Decoded = door.format.decode(messages)
        for bad in decoded.undecodable:
            if bad.table is None or bad.table in self._tables:
                raise UndecodableError(bad.reason, table=bad.table, topic=bad.topic, record=bad.offset, hint=bad.hint)
        for lost in decoded.lost:
            if any((lost.table, lost.column) in named for named in self._named.values()):
                raise UndecodableError(
                    lost.reason, table=lost.table, topic=lost.topic, record=lost.offset, hint=lost.hint
                )
        door.assembler.accept(decoded)

    def _step(self, bound: list[tuple[int, Transaction]]) -> list[ViewOutput]:
        for table, changes in upserts(bound, self._tables).items():
            self._flow.push(table, changes)
        self.epoch = bound[-1][0]
        self._flow.step(self.epoch + 1)
        out = [ViewOutput(view, *output.take()) for view, output in self._outputs]
        self._flow.advance_since(self.epoch)
        return out

    def final(self) -> list[ViewOutput]:
        """Every view's rows and errors after the last step."""
        return [ViewOutput(view, *output.snapshot(self.epoch)) for view, output in self._outputs]


def _windows(recordings: Iterable[Path]) -> Iterator[MessageBatch]:
    for window in _grouped(recordings):
        yield from window


def _grouped(recordings: Iterable[Path]) -> Iterator[list[MessageBatch]]:
    """The records in windows, each window as runs of one topic partition.

    The offset of a message is its number in the order of emission over all files, which is what order means here.
    """
    number = itertools.count(1)
    for path in recordings:
        records = _read(path)
        while window := list(itertools.islice(records, WINDOW)):
            groups: dict[tuple[str, int], list[tuple[int, Record]]] = {}
            for record in window:
                groups.setdefault((record.topic, record.partition), []).append((next(number), record))
            yield [_messages(topic, partition, found) for (topic, partition), found in groups.items()]


def _read(path: Path) -> Iterator[Record]:
    try:
        yield from read_records(path)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RecordingError(
            f"cannot read the recording: {reason}", file=path, hint="name a file of JSON lines, plain or gzipped"
        ) from None


def _messages(topic: str, partition: int, found: Sequence[tuple[int, Record]]) -> MessageBatch:
    records = [r for _, r in found]
    return MessageBatch(
        topic,
        partition,
        np.fromiter((n for n, _ in found), np.int64, len(found)),
        [r.key for r in records],
        [r.value for r in records],
        np.fromiter((r.timestamp for r in records), np.int64, len(records)),
    )


def refuse_errors(outputs: Iterable[ViewOutput]) -> None:
    """Raise ReplayError for the first view with a live error."""
    for out in outputs:
        if len(out.errors):
            text = out.errors.rows.column(0)[0].as_py()
            raise ReplayError(text, view=out.view.name, errors=len(out.errors), hint="mend the data or the view's SQL")
