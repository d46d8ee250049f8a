"""The intakes of a run, one a source: each with its transport, format and assembler, opened where the last checkpoint stood.

Always: an intake is made whole; only tables and columns that `apply` adds later change it. Called by `build`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.connectors.changes import Format
from headrace.connectors.source import Source, check_topic_ids
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.epochs.reclock import Reclock
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.intake.heartbeats import HeartbeatChain
from headrace.sidecar.intake.passed_records import PassedRecords
from headrace.sidecar.intake.schema_drift import SchemaDrift
from headrace.sidecar.intake.shard_source import Begin, ShardFormat, at_once
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.intake.unused_data import Unread, unread
from headrace.sidecar.state.checkpoint import Manifest
from headrace.sidecar.state.command_log import CommandLog
from headrace.sidecar.transactions.model import Assembler
from headrace.sidecar.transactions.pg_snapshot import LOADED, Loaded
from headrace.sidecar.transactions.suspended_tables import SuspendedTable
from headrace.sidecar.wiring.factories import (
    lettered,
    make_assembler,
    make_barrier,
    make_dead_letters,
    make_format,
    make_source,
    make_spill,
    schema_policies,
    tables_at,
    with_partitions,
)
from headrace.sidecar.wiring.shard_intakes import make_shard_source


@dataclass(frozen=True, kw_only=True)
class IntakeMaker:
    """Makes the intakes. `schemas`: of every table that the configuration or the topics tell; `tables`: of those that are read;
    `changed`: those that begin empty; `manifest`: of the checkpoint that is resumed; `folder`: for what waits on disk; `begin`:
    who has workers begin to read, where another thread than the loop makes the intakes."""

    settings: Settings
    schemas: Mapping[str, Schema]
    tables: Mapping[str, Schema]
    manifest: Manifest | None
    reclock: Reclock
    commands: CommandLog
    changed: Collection[str]
    flow: Flow
    folder: Path
    begin: Begin = at_once

    def all(self, closers: ExitStack) -> list[Intake]:
        """One for each source, opened; `closers` get what closes their transports. Raises SourceError, CheckpointError."""
        return [self.one(source, closers) for source in self.settings.config.sources]

    def one(self, configured: SourceConfig, closers: ExitStack) -> Intake:
        """The intake of one source, opened."""
        settings, source = self.settings, with_partitions(configured, self.commands)
        declared = self._declared_by(source)
        mine = {n: s for n, s in self.tables.items() if n in declared}
        transport, format_ = self._transport(source, declared)
        closers.callback(transport.close)
        barrier = make_barrier(source, transport)
        assembler = make_assembler(source, mine, barrier=barrier)
        aside = lettered(source, mine)
        anew = "headrace load" if source.type == "spark" else "headrace resync"
        lost = SchemaDrift(source.name, schema_policies(source, mine), anew=anew)
        beats = HeartbeatChain(source.name)
        assembler.follow(self.reclock.ahead(source.name))
        manifest = self.manifest
        recovered = manifest.sources.get(source.name) if manifest else None
        loaded = None
        if manifest is not None and recovered is not None:
            loaded = self._resume(assembler, manifest, source.name, mine)
            lost.restore(manifest.lost.get(source.name, ()), mine)
            beats.restore(manifest.beats.get(source.name, ()), recovered.place.order)
        for table, version in self.commands.filled(source.name).items():
            if table in mine and (manifest is None or table in self.changed):
                assembler.filled(table, version)
        intake = Intake(
            source.name, source.type, transport, format_, assembler, frozenset(mine), tables_at=tables_at(source),
            over=self._passed_over(source, transport), prefix=source.topic_prefix, schemas=mine, lost=lost,
            beats=beats, letters=make_dead_letters(settings) if aside else None, lettered=aside,
            barrier=barrier, spill=make_spill(settings, self.folder), loaded=loaded, unread=_unread(settings, source, declared),
        )  # fmt: skip
        if recovered is not None:
            intake.resume_holds(recovered.positions)
        transport.open(recovered.positions if recovered else {})
        if manifest is not None:
            check_topic_ids(source.name, manifest.topic_ids.get(source.name, {}), transport.topic_ids())
        return intake

    def _passed_over(self, source: SourceConfig, transport: Source) -> PassedRecords:
        """The records of a source that are passed over."""
        return PassedRecords(
            source.name, transport.topic_ids, self.commands,
            skip=frozenset((s.topic, s.partition, s.offset) for s in source.skip),
            before=self.commands.skips(source.name), known=self.reclock.passed(source.name),
        )  # fmt: skip

    def _declared_by(self, source: SourceConfig) -> Collection[str]:
        """The tables of a source: those that it declares, else all that no source declares."""
        if source.tables is not None:
            return {t.name for t in source.tables}
        return self.schemas.keys() - {t.name for s in self.settings.config.sources for t in s.tables or ()}

    def _transport(self, source: SourceConfig, declared: Collection[str]) -> tuple[Source, Format]:
        """How messages come and are decoded: here, or on the workers."""
        settings, format_ = self.settings, make_format(source, self.settings.path)
        if settings.config.engine.intake != "shards":
            return make_source(settings, source, format_), format_
        schemas = {n: s for n, s in self.schemas.items() if n in declared}
        shards = make_shard_source(settings, source, schemas, self.flow, self.begin)
        return shards, ShardFormat(format_, shards)

    def _resume(
        self, assembler: Assembler, manifest: Manifest, source: str, mine: Mapping[str, Schema]
    ) -> Loaded | None:  # fmt: skip
        """Have an assembler go on after what is bound; from which snapshot its tables were filled, where they were."""
        stood = (s for s in manifest.stopped.get(source, ()) if s["table"] in mine)
        # those that begin empty are read from their source
        stops = [SuspendedTable.parse(s) for s in stood if s["table"] not in self.changed]
        assembler.begin_late(mine.keys() & set(self.changed))
        known: dict[str, Any] = dict(manifest.remembered.get(source, {}))
        loaded = Loaded.of(known.pop(LOADED, None))
        assembler.resume(self.reclock.bound_transactions(source, self.reclock.frontier), stops, known or None)
        return loaded


def _unread(
    settings: Settings, source: SourceConfig, declared: Collection[str]
) -> Callable[[Intake], Sequence[Unread]]:
    """What of a source's data no table takes, asked of its intake."""

    def found(intake: Intake) -> Sequence[Unread]:
        others, left_out = intake.source.others(), intake.format.left_out
        return unread(settings, source, others, set(declared), intake.subscribed, left_out)

    return found
