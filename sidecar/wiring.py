"""The composition root: the one place that names concrete parts and puts them together.

Always in this order (DECISIONS.md 15): take the generation, fence every sink and read its frontier, carry over what the
generation before knew, restore, and only then read. Called by the command and by tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from connectors.changes import Messages
from connectors.durable import Reached, unwatched
from connectors.sink import SinkState, SinkView
from connectors.source import check_topic_ids
from engine.schema import Schema
from sidecar.batches import BatchStore
from sidecar.beats import Beats
from sidecar.bindings import ReclockError
from sidecar.checkpoint import CheckpointStore, Manifest, check_tables, read_manifest, table_facts
from sidecar.config import Settings, SinkConfig, SourceConfig
from sidecar.disk import LOCAL, Disk
from sidecar.emit import Group
from sidecar.failpoints import failpoints
from sidecar.flow import Flow
from sidecar.generation import Generation, carry_over, check_newest, predecessor, sweep_generations, take_generation
from sidecar.ingest import Intake
from sidecar.injected import Injected
from sidecar.keeping import KeptDataflow
from sidecar.lost import Lost
from sidecar.making import (
    lettered,
    make_assembler,
    make_format,
    make_letters,
    make_lulls,
    make_memory,
    make_sink,
    make_source,
    make_spill,
    program,
    schema_policies,
    tables_at,
)
from sidecar.metrics import Metrics
from sidecar.parts import Parts
from sidecar.plans import Plans
from sidecar.preflight import check_connectors
from sidecar.reclock import Reclock, ReclockLog
from sidecar.recovery import reconcile, recover_errors
from sidecar.runtime import Runtime
from sidecar.stops import Stop
from sidecar.unread import Unread, unread
from sidecar.viewstate import ViewState
from sidecar.workers.driver import Workers
from sidecar.workers.serving import Task
from views import spec
from views.catalog import Catalog
from views.compile import CompiledView, compile_views
from views.document import ConfigError
from views.lineage import columns_named
from views.plan import Scan, walk
from views.strict import nearest

LEARN_SECONDS = 60.0
KEPT_GENERATIONS = 2


@dataclass(frozen=True)
class Topic:
    """One topic is to be read."""

    name: str

    def wants(self, topic: str) -> bool:
        """See `Wants`."""
        return topic == self.name


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


def read_topic(
    settings: Settings, source: SourceConfig, intake: Intake, topic: str, partition: int, start: int, stop: int
) -> list[Messages]:
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


def make_flow(settings: Settings, plans: Plans, generation: Generation, reached: Reached) -> Flow:
    """What runs the plans: one dataflow here, or as many workers as the configuration says."""
    workers = settings.config.engine.workers
    if workers == 1:
        flow = KeptDataflow(BatchStore(generation.batches, reached=reached, disk=generation.disk))
        flow.build(plans, plans.schemas)
        return flow
    task = Task(plans, generation.batches, partial(failpoints, dict(os.environ)))
    return Workers.start(workers, task, plans.tables, plans.schemas)


def tables_of(view: CompiledView) -> tuple[str, ...]:
    """The tables that a view's own SQL reads, by name; those of views it reads are theirs."""
    return tuple(sorted({node.table for node in walk(view.plan) if isinstance(node, Scan)}))


def kept_tables(settings: Settings) -> set[str]:
    """The tables that are read though no view may need them yet."""
    return {t.name for source in settings.config.sources for t in source.tables or () if t.keep}


def sink_view(view: CompiledView) -> SinkView:
    """A compiled view as sinks see it."""
    columns = {c.name: c.description for c in view.spec.columns if c.description}
    spec = view.spec
    return SinkView(
        view.name, view.schema, view.key, view.fingerprint, spec.description, columns, spec.indexes, spec.grants
    )


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


def _one_thread(name: str) -> Executor:
    return ThreadPoolExecutor(1, thread_name_prefix=name)


@dataclass(frozen=True)
class Machine:
    """What a run has of its machine, and a simulator has its own of: disk, clocks, and who does what the loop need not
    wait for. `executor`: one of that name, which does one thing after the other; `group`: makes a sink's group."""

    disk: Disk = LOCAL
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    executor: Callable[[str], Executor] = _one_thread
    group: Callable[..., Group] | None = None


@dataclass
class Running:
    """A runtime with everything that must be closed after it. `views`: those in force; `schemas`: of every table known."""

    runtime: Runtime
    metrics: Metrics
    views: Sequence[CompiledView]
    closers: ExitStack
    settings: Settings
    schemas: Mapping[str, Schema]
    generation: Generation
    reached: Reached = unwatched

    def close(self) -> None:
        """Close what was opened, the last first: all of it, whatever one of them raises, and once."""
        self.closers.close()


def build(understood: Understood, machine: Machine | None = None) -> Running:
    """Make a runtime, recovered and ready to turn. Raises HeadraceError; nothing is left open then."""
    with ExitStack() as closers:
        running = _build(understood, closers, machine or Machine())
        running.closers = closers.pop_all()
        return running


def _build(understood: Understood, closers: ExitStack, machine: Machine) -> Running:
    settings, metrics, disk = understood.settings, Metrics(), machine.disk
    check_connectors(settings)
    schemas = learn(settings, understood)
    compiled = understood.compile(schemas)
    used = {t for v in compiled for t in tables_of(v)} | kept_tables(settings)
    tables = {t: s for t, s in schemas.items() if t in used}

    reached = failpoints(os.environ)
    generation, _ = take_generation(settings.state, reached, disk)
    groups, states = _open_sinks(settings, compiled, closers, reached, machine.group or Group)
    carry_over(generation, predecessor(generation), reached)
    manifest = read_manifest(generation.manifest, disk)
    facts = table_facts(tables)
    check_tables(manifest, facts)

    plans = Plans.of(compiled, tables)
    flow = make_flow(settings, plans, generation, reached)
    closers.callback(flow.close)
    metrics.workers = flow.workers
    named = columns_named(compiled)
    views = [ViewState(sink_view(v), flow.outputs[v.name], v.spec.sinks, names=named[v.name]) for v in plans.put_out]
    epoch = manifest.epoch if manifest else 0
    store = CheckpointStore(generation, program(), reached)
    if manifest is not None:
        resumed = flow.recover(epoch + 1, manifest.arrangements, manifest.workers)
        recover_errors(views, manifest, flow, resumed)
    executor, syncing = (machine.executor(name) for name in ("checkpoint", "reclock"))
    for pool in (executor, syncing):
        closers.callback(pool.shutdown)
    try:
        log = ReclockLog(generation.log, syncing, reached, disk, epoch + 1)
    except ReclockError:
        check_newest(generation)
        raise
    closers.callback(log.close)
    reclock = Reclock(log, epoch + 1, Injected(generation.injected, reached, disk))
    intakes = _open_intakes(settings, schemas, tables, manifest, reclock, closers)
    for intake in intakes:
        intake.spill = make_spill(settings, generation.folder)
    bound = log.bound
    reclock.started()

    parts = Parts(
        settings.config.name, intakes, reclock, lambda: log.size, log.forget, flow, tables, views, groups, store, metrics,
        executor, {v.name: v.fingerprint for v in compiled}, settings.config.checkpoint.interval_seconds, program(),
        generation.number, facts, machine.clock, machine.wall, memory=make_memory(settings, flow), reached=reached,
    )  # fmt: skip
    runtime = Runtime(parts, manifest.sources if manifest else {}, epoch)
    runtime.pause()
    for group in groups:
        group.on_written(runtime.written)
    reconcile(runtime, states, manifest.sinks if manifest else {}, bound)
    sweep_generations(settings.state, KEPT_GENERATIONS, disk)
    reached("generation swept")
    return Running(runtime, metrics, compiled, closers, settings, schemas, generation, reached)


def _open_sinks(
    settings: Settings, compiled: Sequence[CompiledView], closers: ExitStack, reached: Reached,
    make: Callable[..., Group],
) -> tuple[list[Group], dict[str, SinkState]]:  # fmt: skip
    groups, states = [], {}
    for config in settings.config.sinks:
        views = [sink_view(v) for v in compiled if config.name in v.spec.sinks]
        if not views:
            continue
        group = make_group(settings, config, reached, make)
        closers.callback(group.close)
        states[config.name] = group.open(views)
        groups.append(group)
    return groups, states


def make_group(
    settings: Settings, config: SinkConfig, reached: Reached = unwatched, make: Callable[..., Group] = Group
) -> Group:
    """The group of a sink's views, not opened yet."""
    sink = make_sink(settings, config, reached)
    return make(sink, interval=config.interval_ms / 1000, limit=config.detach_seconds)


def _open_intakes(
    settings: Settings,
    schemas: Mapping[str, Schema],
    tables: Mapping[str, Schema],
    manifest: Manifest | None,
    reclock: Reclock,
    closers: ExitStack,
) -> list[Intake]:
    intakes = []
    for source in settings.config.sources:
        declared = (
            {t.name for t in source.tables} if source.tables is not None else schemas.keys() - _declared(settings)
        )
        mine = {n: s for n, s in tables.items() if n in declared}
        format_ = make_format(source, settings.path)
        transport = make_source(settings, source, format_)
        closers.callback(transport.close)
        lulls = make_lulls(source, transport)
        assembler = make_assembler(source, mine, lulls=lulls)
        intake = Intake(source.name, source.type, transport, format_, assembler, frozenset(mine))
        intake.tables_at, intake.lulls = tables_at(source), lulls
        intake.skip = frozenset((s.topic, s.partition, s.offset) for s in source.skip)
        intake.lettered = lettered(source, mine)
        intake.letters = make_letters(settings) if intake.lettered else None
        intake.schemas, intake.lost = mine, Lost(source.name, schema_policies(source, mine))
        intake.beats = Beats(source.name)
        assembler.follow(reclock.ahead(source.name))
        intake.known = reclock.passed(source.name)
        recovered = manifest.sources.get(source.name) if manifest else None
        if manifest is not None and recovered is not None:
            stops = [Stop.parse(s) for s in manifest.stopped.get(source.name, ()) if s["table"] in mine]
            bound = reclock.bound_transactions(source.name, reclock.frontier)
            assembler.resume(bound, stops, manifest.remembered.get(source.name))
            intake.resume_holds(recovered.positions)
            intake.lost.restore(manifest.lost.get(source.name, ()), mine)
            intake.beats.restore(manifest.beats.get(source.name, ()), recovered.lsn)
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
