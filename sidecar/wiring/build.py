"""The composition root: the one place that names concrete parts and puts them together.

Always in this order (decision 15): take a generation, fence every sink and read its frontier, carry over what the previous
generation knew, restore the state, and only then read from the sources. Called by the command and by tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.connectors.commands import Added
from headrace.connectors.commit_place import Lsn
from headrace.connectors.sink import SinkState
from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import KafkaSinkConfig, Settings, SinkConfig
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.delivery.sink_writer import SinkWriter
from headrace.sidecar.delivery.view_state import ViewState
from headrace.sidecar.epochs.epoch_binding import ReclockError
from headrace.sidecar.epochs.log_index import EpochLog
from headrace.sidecar.epochs.reclock import Reclock, ReclockLog
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.execution.local import KeptDataflow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.pool import Maker
from headrace.sidecar.execution.workers.worker import Task
from headrace.sidecar.intake.connector_preflight import check_connectors
from headrace.sidecar.runtime.components import RuntimeComponents
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.runtime.recovery import reconcile, recover_errors
from headrace.sidecar.state.batch_store import BatchStore
from headrace.sidecar.state.checkpoint import (
    CheckpointStore,
    Manifest,
    changed_tables,
    manifest_of,
    refuse_change,
    refuse_published,
    table_facts,
)
from headrace.sidecar.state.command_log import CommandLog
from headrace.sidecar.state.filesystem import LOCAL, Disk
from headrace.sidecar.state.generation import Generation, RunState, sweep_generations, take_generation
from headrace.sidecar.state.object_generation import take_run
from headrace.sidecar.state.synthetic_transactions import Injected
from headrace.sidecar.telemetry.metrics import Metrics
from headrace.sidecar.wiring.factories import (
    begun_sources,
    make_commands,
    make_epoch_log,
    make_format,
    make_memory,
    make_sink,
    make_source,
    program,
)
from headrace.sidecar.wiring.failpoints import failpoints
from headrace.sidecar.wiring.intakes import IntakeMaker
from headrace.sidecar.wiring.project import Project, kept_tables, sink_view, tables_of
from headrace.sidecar.wiring.run_states import objects_of
from headrace.sidecar.wiring.worker_pools import make_pool
from headrace.views.compile import CompiledView
from headrace.views.lineage import rests_on
from headrace.views.yaml_reader import ConfigError

LEARN_SECONDS = 60.0
KEPT_GENERATIONS = 1
"""Beside our own: those before it."""


def make_flow(settings: Settings, plans: Plans, generation: RunState, reached: Reached, maker: Maker) -> Flow:
    """The dataflow that runs the plans: one in this process, or the configured number of workers on the configured host."""
    engine = settings.config.engine
    flow: Flow
    if engine.workers == 1 and engine.host == "local":
        flow = KeptDataflow(BatchStore(generation.place, reached=reached))
        flow.build(plans, plans.schemas)
    else:
        task = Task(plans, generation.place, partial(failpoints, dict(os.environ)))
        flow = Workers.start(engine.workers, task, plans.tables, plans.schemas, maker=maker)
    flow.limit_steps(engine.step_work)
    return flow


def learn(settings: Settings, project: Project, seconds: float = LEARN_SECONDS) -> dict[str, Schema]:
    """The schemas of tables that the configuration leaves to the messages, from the first messages of each.

    Raises ConfigError naming what could not be learnt in time.
    """
    tables = dict(project.tables)
    if not project.unknown:
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
    wait for. `executor`: one of that name, which does one thing after the other; `writer`: makes a sink's group."""

    disk: Disk = LOCAL
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    executor: Callable[[str], Executor] = _one_thread
    writer: Callable[..., SinkWriter] | None = None


@dataclass
class Running:
    """A runtime with everything that must be closed after it. `views`: those in force; `schemas`: of every table known;
    `started_seconds`: how long its workers took to start."""

    runtime: Runtime
    metrics: Metrics
    views: Sequence[CompiledView]
    closers: ExitStack
    settings: Settings
    schemas: Mapping[str, Schema]
    generation: RunState
    maker: Maker
    reached: Reached = unwatched
    started_seconds: float = 0.0

    def close(self) -> None:
        """Close everything that was opened, in reverse order and once, even where closing one part raises."""
        self.closers.close()


def build(project: Project, machine: Machine | None = None) -> Running:
    """Make a runtime, recovered and ready to turn. Raises HeadraceError; nothing is left open then."""
    with ExitStack() as closers:
        running = _build(project, closers, machine or Machine())
        running.closers = closers.pop_all()
        return running


def _build(project: Project, closers: ExitStack, machine: Machine) -> Running:
    """One function, since the order is what matters: sinks fence earlier runs before the generation begins, state is recovered
    before the log is opened, and the log before sources are."""
    settings, metrics, disk = project.settings, Metrics(), machine.disk
    check_connectors(settings, partial(begun_sources, settings, disk))
    schemas = learn(settings, project)
    compiled = project.compile(schemas)
    used = {t for v in compiled for t in tables_of(v)} | kept_tables(settings)
    tables = {t: s for t, s in schemas.items() if t in used}

    reached = failpoints(os.environ)
    generation = _take(settings, reached, disk)
    writers, states = _open_sinks(settings, compiled, closers, reached, machine.writer or SinkWriter)
    generation.begin(reached)
    manifest = manifest_of(generation)
    facts = table_facts(tables)
    commands = _open_commands(settings, tables, manifest)
    changed = _changed(settings, manifest, facts, commands)
    commands.begins_empty(changed.keys() & {t for s in settings.config.sources for t in commands.filled(s.name)})

    plans = Plans.of(compiled, tables)
    maker = make_pool(settings, generation.number)
    asked = machine.clock()
    flow = make_flow(settings, plans, generation, reached, maker)
    started = machine.clock() - asked - flow.slot_seconds
    closers.callback(flow.close)
    metrics.workers, metrics.exchanges = flow.workers, flow.exchanges
    views = _view_states(plans, compiled, flow, begun=manifest is not None)
    epoch = manifest.epoch if manifest else 0
    store = CheckpointStore(generation, program(), reached)
    if manifest is not None:
        resumed = flow.recover(epoch + 1, manifest.arrangements, manifest.workers)
        recover_errors(views, manifest, flow, resumed)
    executor, syncing = (machine.executor(name) for name in ("checkpoint", "reclock"))
    for pool in (executor, syncing):
        closers.callback(pool.shutdown)
    log = _open_log(settings, generation, syncing, reached, disk, epoch + 1)
    closers.callback(log.close)
    reclock = Reclock(log, epoch + 1, Injected(generation.rows, reached))
    commands.keep(*_added(settings, changed, reclock, manifest))
    intakes = IntakeMaker(
        settings=settings, schemas=schemas, tables=tables, manifest=manifest, reclock=reclock, commands=commands,
        changed=changed, flow=flow, folder=generation.folder,
    ).all(closers)  # fmt: skip
    for intake in intakes:
        reclock.drop_stale_by(intake.name, intake.assembler.standing)
    bound = log.bound
    reclock.started()

    parts = RuntimeComponents(
        name=settings.config.name,
        intakes=intakes,
        reclock=reclock,
        log_size=lambda: log.size,
        forget=log.forget,
        flow=flow,
        tables=tables,
        views=views,
        writers=writers,
        store=store,
        metrics=metrics,
        executor=executor,
        fingerprints={v.name: v.fingerprint for v in compiled},
        checkpoint_seconds=settings.config.checkpoint.interval_seconds,
        program=program(),
        generation=generation.number,
        table_facts=facts,
        clock=machine.clock,
        wall=machine.wall,
        memory=make_memory(settings, flow),
        reached=reached,
        commands=commands,
    )
    runtime = Runtime(parts, manifest.sources if manifest else {}, epoch)
    metrics.store = lambda: generation.place.counts + parts.flow.store()
    runtime.pause()
    for writer in writers:
        writer.on_written(runtime.written, runtime.pacing.rested)
    for name, loaded in ((i.name, i.loaded) for i in intakes):
        if loaded is not None:  # until there it may lack transactions that were committed before some that it has
            runtime.hold.await_place(name, Lsn(loaded.lsn))
    reconcile(runtime, states, manifest.sinks if manifest else {}, bound)
    if settings.store is None:
        sweep_generations(settings.state, generation.number, KEPT_GENERATIONS, disk)
    reached("generation swept")
    return Running(runtime, metrics, compiled, closers, settings, schemas, generation, maker, reached, started)


def _take(settings: Settings, reached: Reached, disk: Disk) -> RunState:
    """Begin a run, in the state folder or in the store."""
    objects = objects_of(settings)
    if objects is None:
        return take_generation(settings.state, reached, disk)[0]
    return take_run(objects, settings.state, reached, grace=settings.config.store.grace_seconds)


def _open_log(
    settings: Settings, generation: RunState, executor: Executor, reached: Reached, disk: Disk, before: int
) -> EpochLog:
    """The log of epochs, with what it holds. Raises ReclockError, and StateError where another run has begun."""
    try:
        if settings.config.reclock == "kafka":
            return make_epoch_log(settings, generation, executor, reached, before)
        assert isinstance(generation, Generation), "a store has its log in Kafka"
        return ReclockLog(generation.log, executor, reached, disk, before)
    except ReclockError:
        generation.check_newest()
        raise


def _view_states(plans: Plans, compiled: Sequence[CompiledView], flow: Flow, *, begun: bool) -> list[ViewState]:
    """The views that are put out. `begun`: a checkpoint has them; else they have no row yet."""
    named, rows = rests_on(compiled), None if begun else 0
    return [
        ViewState(sink_view(v), flow.outputs[v.name], v.spec.sinks, names=named[v.name], rows=rows)
        for v in plans.put_out
    ]


def _open_sinks(
    settings: Settings, compiled: Sequence[CompiledView], closers: ExitStack, reached: Reached,
    make: Callable[..., SinkWriter],
) -> tuple[list[SinkWriter], dict[str, SinkState]]:  # fmt: skip
    writers, states = [], {}
    for config in settings.config.sinks:
        views = [sink_view(v) for v in compiled if config.name in v.spec.sinks]
        if not views:
            continue
        writer = make_writer(settings, config, reached, make)
        closers.callback(writer.close)
        states[config.name] = writer.open(views)
        writers.append(writer)
    return writers, states


def make_writer(
    settings: Settings, config: SinkConfig, reached: Reached = unwatched, make: Callable[..., SinkWriter] = SinkWriter
) -> SinkWriter:
    """The group of a sink's views, not opened yet."""
    sink = make_sink(settings, config, reached)
    each = isinstance(config, KafkaSinkConfig) and config.granularity == "transaction"
    return make(sink, interval=config.interval_ms / 1000, limit=config.detach_seconds, each=each)


def _changed(
    settings: Settings, manifest: Manifest | None, facts: Mapping[str, Any], commands: CommandLog
) -> Mapping[str, str]:
    """The tables that the state lacks, or holds with other columns than are declared. Raises CheckpointError for a table
    whose source names no database from which it could be read, and that no load was filling beside the run before."""
    found = changed_tables(manifest, facts)
    for name, change in found.items():
        source = _source_of(settings, name)
        if source.type == "spark" and manifest is not None and name not in manifest.tables:
            if name not in commands.filled(source.name):
                raise refuse_published(name)
        elif source.type != "debezium" or source.database is None:
            raise refuse_change(name, change)
    return found


def _source_of(settings: Settings, table: str) -> SourceConfig:
    """The source that declares a table, else the one that learns its tables."""
    sources = settings.config.sources
    declares = (s for s in sources if table in {t.name for t in s.tables or ()})
    return next(declares, None) or next(s for s in sources if s.tables is None)


def _added(settings: Settings, tables: Collection[str], reclock: Reclock, manifest: Manifest | None) -> Iterator[Added]:
    """Commands by which tables that begin empty are read from their source: after all that the log has of it."""
    for table in tables:
        if _source_of(settings, table).type == "spark":
            continue  # what its load noted is there
        source = _source_of(settings, table).name
        bound = [lsn for _, lsn in reclock.bound_transactions(source, reclock.frontier)]
        at = manifest.sources[source].place.order if manifest is not None and source in manifest.sources else -1
        yield Added(source=source, table=table, place=Lsn(max([at, *bound]) + 1), captured=True)


def _open_commands(settings: Settings, tables: Mapping[str, Schema], manifest: Manifest | None) -> CommandLog:
    """The command log. Letters whose records were read before, and that this state does not have, ask for their tables."""
    mine = {
        s.name: [n for n in tables if s.tables is None or n in {t.name for t in s.tables}]
        for s in settings.config.sources
    }
    at = {s: frontier.positions for s, frontier in manifest.sources.items()} if manifest else {}
    return CommandLog(make_commands(settings), mine, manifest.commands if manifest else None, at)
