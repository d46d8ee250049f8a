"""The composition root: the one place that names concrete parts and puts them together.

Always in this order (DECISIONS.md 15): take the generation, fence every sink and read its frontier, carry over what the
generation before knew, restore, and only then read. Called by the command and by tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from connectors.changes import Format
from connectors.durable import Reached, unwatched
from connectors.formats.debezium import DebeziumFormat
from connectors.formats.spark import SparkFormat
from connectors.formats.tables import TableSpec
from connectors.formats.topics import table_topic
from connectors.formats.wire import declared_precision
from connectors.kafka.sink import KafkaSink
from connectors.kafka.source import KafkaSource
from connectors.postgres.sink import PostgresSink
from connectors.sink import Sink, SinkState, SinkView
from connectors.source import Source, check_topic_ids
from engine.dataflow import Dataflow
from engine.schema import Schema
from sidecar import VERSION
from sidecar.assembler import TransactionAssembler
from sidecar.budget import Memory
from sidecar.checkpoint import CheckpointStore, Manifest, check_tables, load_batches, read_manifest, table_facts
from sidecar.config import PostgresSinkConfig, Settings, SinkConfig, SourceConfig, kafka_settings
from sidecar.emit import Group, ViewState
from sidecar.failpoints import failpoints
from sidecar.generation import carry_over, sweep_generations, take_generation
from sidecar.ingest import Intake
from sidecar.metrics import Metrics
from sidecar.preflight import check_connectors, encodings_of
from sidecar.reclock import Reclock, ReclockLog
from sidecar.recovery import reconcile, recover_errors
from sidecar.runtime import Parts, Runtime
from sidecar.stops import Stop
from sidecar.transactions import Assembler
from sidecar.unread import Unread, unread
from sidecar.versions import VersionAssembler
from views import spec
from views.catalog import Catalog
from views.compile import CompiledView, compile_views
from views.plan import Scan, walk
from views.render import render
from views.strict import ConfigError, nearest

LEARN_SECONDS = 60.0
KEPT_GENERATIONS = 2


def program() -> str:
    """Name and version, as manifests and `--version` give it."""
    return f"headrace {VERSION}"


@dataclass(frozen=True)
class Understood:
    """Configuration and views after everything that can be known without a server is known."""

    settings: Settings
    specs: tuple[spec.ViewSpec, ...]
    tables: Mapping[str, Schema]
    unknown: tuple[str, ...]

    def compile(self, tables: Mapping[str, Schema] | None = None) -> tuple[CompiledView, ...]:
        """The views over these tables. Raises ViewError."""
        return compile_views(self.specs, Catalog(dict(self.tables if tables is None else tables)))


def understand(settings: Settings) -> Understood:
    """Read the views and the declared tables. `unknown`: sources or tables whose schema only messages tell."""
    specs = spec.load(settings.views)
    sinks = {s.name for s in settings.config.sinks}
    for view in specs:
        for name in view.sinks:
            if name not in sinks and sinks:
                raise ConfigError(f"view {view.name} names a sink that is not declared", file=view.file, line=view.line,
                                  field="sinks", value=name, hint=nearest(name, sinks))  # fmt: skip
    tables: dict[str, Schema] = {}
    unknown: list[str] = []
    for source in settings.config.sources:
        for table in source.tables or ():
            schema = table.schema_of()
            if schema is None:
                unknown.append(table.name)
            elif table.name in tables:
                raise ConfigError("two sources declare the same table", file=settings.path, field="sources",
                                  value=table.name, hint="leave it out of one of them")  # fmt: skip
            else:
                tables[table.name] = schema
        if source.tables is None:
            unknown.append(f"{source.topic_prefix}.*")
    return Understood(settings, specs, tables, tuple(unknown))


def table_specs(source: SourceConfig) -> dict[str, TableSpec] | None:
    """What a format is told of its tables; None where messages tell their columns."""
    out = {}
    for table in source.tables or ():
        schema = table.schema_of()
        if schema is None:
            return None
        precisions = {c.name: p for c in table.columns or () if (p := declared_precision(c.data_type)) != 6}
        out[table.name] = TableSpec(table.name, schema, tuple(table.partitions), precisions)
    return out or None


def make_format(source: SourceConfig, path: Path) -> Format:
    """The decoder of a source's messages. Raises ConfigError for a Spark source that does not declare its tables."""
    specs = table_specs(source)
    if source.type == "spark":
        if specs is None:
            raise ConfigError("a spark source must declare its tables with their columns", file=path, source=source.name,
                              hint="`headrace-publish --describe` prints them")  # fmt: skip
        return SparkFormat(source.name, source.topic_prefix, specs)
    return DebeziumFormat(
        source.name,
        source.topic_prefix,
        specs,
        encodings=encodings_of(source),
        notification_topic=source.notifications or f"{source.topic_prefix}.notifications",
        carried=specs is None,
    )


def make_assembler(source: SourceConfig, tables: Mapping[str, Schema], *, in_order: bool = False) -> Assembler:
    """What makes whole transactions of a source's changes."""
    if source.type == "spark":
        return VersionAssembler({n: s.key or () for n, s in tables.items()})
    return TransactionAssembler(subscribed(source, tables), in_order=in_order)


def subscribed(source: SourceConfig, tables: Mapping[str, Schema]) -> dict[str, str]:
    """Each name by which the source counts events → the table it belongs to."""
    names = {name: name for name in tables}
    for table in source.tables or ():
        names |= dict.fromkeys(table.partitions, table.name)
    return names


def tables_at(source: SourceConfig) -> dict[str, frozenset[str]]:
    """Topic → the declared tables whose records stand in it (names are sanitised, so there may be several)."""
    found: dict[str, set[str]] = {}
    for table in source.tables or ():
        for name in (table.name, *table.partitions):
            found.setdefault(table_topic(source.topic_prefix, name), set()).add(table.name)
    return {topic: frozenset(tables) for topic, tables in found.items()}


def make_source(settings: Settings, source: SourceConfig, format_: Format) -> Source:
    """The transport of a source."""
    kafka = kafka_settings(settings.config.kafka)
    return KafkaSource(kafka, wants=format_.wants, name=source.name, group=f"headrace.{settings.config.name}")


def make_sink(settings: Settings, sink: SinkConfig, reached: Reached = unwatched) -> Sink:
    """One sink, not opened yet. `reached`: told each durable step."""
    if isinstance(sink, PostgresSinkConfig):
        return PostgresSink(sink.name, sink.url.get_secret_value(), sink.schema_, program=program(), reached=reached)
    kafka = kafka_settings(sink.kafka or settings.config.kafka)
    return KafkaSink(
        sink.name, kafka, sink.topic_prefix, sidecar=settings.config.name, format=sink.format, program=program(),
        reached=reached,
    )  # fmt: skip


def make_memory(settings: Settings) -> Memory:
    """The budget."""
    mib = settings.config.memory.budget_mib
    return Memory(None if mib is None else mib << 20)


def tables_of(view: CompiledView) -> tuple[str, ...]:
    """The tables that a view's own SQL reads, by name; those of views it reads are theirs."""
    return tuple(sorted({node.table for node in walk(view.plan) if isinstance(node, Scan)}))


def sink_view(view: CompiledView) -> SinkView:
    """A compiled view as sinks see it."""
    columns = {c.name: c.description for c in view.spec.columns if c.description}
    return SinkView(view.name, view.schema, view.key, view.fingerprint, view.spec.description, columns)


def learn(settings: Settings, understood: Understood, seconds: float = LEARN_SECONDS) -> dict[str, Schema]:
    """The schemas of tables that the configuration leaves to the messages, from the first messages of each.

    Raises ConfigError naming what could not be learnt in time.
    """
    tables = dict(understood.tables)
    if not understood.unknown:
        return tables
    for source in settings.config.sources:
        named = {t.name for t in source.tables or ()}
        if source.tables is not None and named <= tables.keys():
            continue
        format_ = make_format(source, settings.path)
        transport = make_source(settings, source, format_)
        transport.open({})
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                polled = transport.poll(0.5)
                for messages in polled:
                    tables |= {t: s for t, s in format_.decode(messages).schemas.items() if not named or t in named}
                if (named and named <= tables.keys()) or (not named and not polled and tables):
                    break
        finally:
            transport.close()
        missing = named - tables.keys()
        if missing:
            raise ConfigError("no message tells these tables' columns", file=settings.path, tables=", ".join(sorted(missing)),
                              hint="declare their columns, or let the connector send schemas")  # fmt: skip
    return tables


@dataclass
class Running:
    """A runtime with everything that must be closed after it."""

    runtime: Runtime
    metrics: Metrics
    views: Sequence[CompiledView]
    closers: Sequence[Callable[[], None]]

    def close(self) -> None:
        """Close what was opened, the last first."""
        for close in reversed(self.closers):
            close()


def build(understood: Understood) -> Running:
    """Make a runtime, recovered and ready to turn. Raises HeadraceError; nothing is left open then."""
    closers: list[Callable[[], None]] = []
    try:
        return _build(understood, closers)
    except BaseException:
        for close in reversed(closers):
            close()
        raise


def _build(understood: Understood, closers: list[Callable[[], None]]) -> Running:
    settings, metrics = understood.settings, Metrics()
    check_connectors(settings)
    schemas = learn(settings, understood)
    compiled = understood.compile(schemas)
    used = {t for v in compiled for t in tables_of(v)}
    tables = {t: s for t, s in schemas.items() if t in used}

    reached = failpoints(os.environ)
    generation, previous = take_generation(settings.state, reached)
    groups, states = _open_sinks(settings, compiled, closers, reached)
    carry_over(generation, previous, reached)
    manifest = read_manifest(generation.manifest)
    facts = table_facts(tables)
    check_tables(manifest, facts)

    flow = Dataflow()
    views = _render(compiled, tables, flow)
    epoch = manifest.epoch if manifest else 0
    store = CheckpointStore(generation, program(), reached)
    if manifest is not None:
        layouts = {name: arranged.layout for name, arranged in flow.registry.arrangements().items()}
        batches, files = load_batches(manifest, generation, layouts)
        store.adopt(batches, files)
        flow.restore(epoch + 1, batches)
        recover_errors(views, manifest, flow)
    executor, syncing = (ThreadPoolExecutor(1, thread_name_prefix=name) for name in ("checkpoint", "reclock"))
    closers += [executor.shutdown, syncing.shutdown]
    log = ReclockLog(generation.log, syncing, reached)
    closers.append(log.close)
    reclock = Reclock(log, epoch + 1)
    intakes = _open_intakes(settings, schemas, tables, manifest, reclock, closers)
    newest = log.bindings[-1].first + len(log.bindings[-1].stamps) - 1 if log.bindings else epoch
    reclock.started()

    parts = Parts(
        settings.config.name, intakes, reclock, lambda: log.size, log.forget, flow, tables, views, groups, store, metrics,
        executor, {v.name: v.fingerprint for v in compiled}, settings.config.checkpoint.interval_seconds, program(),
        generation.number, facts, memory=make_memory(settings), reached=reached,
    )  # fmt: skip
    runtime = Runtime(parts, manifest.sources if manifest else {}, epoch)
    for group in groups:
        group.on_written(runtime.written)
    reconcile(runtime, states, manifest.sinks if manifest else {}, newest)
    sweep_generations(settings.state, KEPT_GENERATIONS)
    reached("generation swept")
    return Running(runtime, metrics, compiled, closers)


def _open_sinks(
    settings: Settings, compiled: Sequence[CompiledView], closers: list[Callable[[], None]], reached: Reached
) -> tuple[list[Group], dict[str, SinkState]]:
    groups, states = [], {}
    for config in settings.config.sinks:
        views = [sink_view(v) for v in compiled if config.name in v.spec.sinks]
        if not views:
            continue
        sink = make_sink(settings, config, reached)
        group = Group(sink, interval=config.interval_ms / 1000, limit=config.detach_seconds)
        closers.append(group.close)
        states[config.name] = group.open(views)
        groups.append(group)
    return groups, states


def _render(compiled: Sequence[CompiledView], tables: Mapping[str, Schema], flow: Dataflow) -> list[ViewState]:
    for name in sorted(tables):
        flow.table(name, tables[name])
    rendered: dict[str, Any] = {}
    states = []
    for view in compiled:
        rendered[view.name] = render(view, flow, rendered)
        if view.spec.sinks:
            states.append(ViewState(sink_view(view), rendered[view.name].output(view.name), view.spec.sinks))
    return states


def _open_intakes(
    settings: Settings,
    schemas: Mapping[str, Schema],
    tables: Mapping[str, Schema],
    manifest: Manifest | None,
    reclock: Reclock,
    closers: list[Callable[[], None]],
) -> list[Intake]:
    intakes = []
    for source in settings.config.sources:
        declared = (
            {t.name for t in source.tables} if source.tables is not None else schemas.keys() - _declared(settings)
        )
        mine = {n: s for n, s in tables.items() if n in declared}
        format_ = make_format(source, settings.path)
        assembler = make_assembler(source, mine)
        transport = make_source(settings, source, format_)
        closers.append(transport.close)
        intake = Intake(source.name, source.type, transport, format_, assembler, frozenset(mine))
        intake.tables_at = tables_at(source)
        intake.skip = frozenset((s.topic, s.partition, s.offset) for s in source.skip)
        recovered = manifest.sources.get(source.name) if manifest else None
        if manifest is not None and recovered is not None:
            stops = [Stop.parse(s) for s in manifest.stopped.get(source.name, ()) if s["table"] in mine]
            bound = reclock.bound_transactions(source.name, reclock.frontier)
            assembler.resume(bound, stops, reclock.mended(source.name))
            intake.resume_holds(recovered.positions)
        transport.open(recovered.positions if recovered else {})
        if manifest is not None:
            check_topic_ids(source.name, manifest.topic_ids.get(source.name, {}), transport.topic_ids())
        intake.unread = partial(_unread, settings, source, intake, declared)
        intakes.append(intake)
    return intakes


def _unread(settings: Settings, source: SourceConfig, intake: Intake, tables: Set[str]) -> Sequence[Unread]:
    others, left_out = intake.source.others(), intake.format.left_out
    return unread(settings, source, others, tables, intake.subscribed, left_out)


def _declared(settings: Settings) -> set[str]:
    return {t.name for s in settings.config.sources for t in s.tables or ()}
