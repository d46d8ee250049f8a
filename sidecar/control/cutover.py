"""The cut-over: a change of views takes force between two turns of the loop, at one frontier.

Invariant: whatever others can make fail is done before anything changes. Views that stay keep their outputs and miss no
epoch; what was built in the staging dataflow is taken over; what nothing reads any more is freed. `apply` calls it on the
loop's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from headrace.connectors.sink import SinkView, ViewChanges
from headrace.sidecar.control.added_tables import read
from headrace.sidecar.control.changed_tables import check_at_rest, take_in
from headrace.sidecar.control.plan import ApplyError, ViewsPlan, over_tables
from headrace.sidecar.control.staging import StagingDataflow
from headrace.sidecar.delivery.sink_writer import SinkWriter
from headrace.sidecar.delivery.view_state import ViewState
from headrace.sidecar.execution.dataflow_host import Change
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.state.checkpoint import table_facts
from headrace.sidecar.wiring.build import Running, make_writer
from headrace.sidecar.wiring.intakes import IntakeMaker
from headrace.sidecar.wiring.project import sink_view
from headrace.views.compile import CompiledView
from headrace.views.lineage import rests_on

DRAIN_SECONDS = 5.0
"""How long the loop waits for a sink to write what it was offered, before its views are changed."""


@dataclass
class Opened:
    """What is opened but not part of the runtime yet: the groups of sinks that had no view so far, with the epoch each stands at,
    and the intakes of sources of which no table was declared so far. `closers`: close those intakes."""

    writers: list[tuple[SinkWriter, int, int]] = field(default_factory=list)
    intakes: list[Intake] = field(default_factory=list)
    closers: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Let go of them: the change did not come about."""
        for writer, *_ in self.writers:
            writer.close()
        self.closers.close()


def open_new(running: Running, plan: ViewsPlan) -> Opened:
    """Open the sinks that get their first view, and the sources that get their first table. Raises SinkError, SourceError;
    nothing is left open then."""
    opened = Opened()
    known = {g.name for g in running.runtime.parts.writers}
    try:
        for config in running.settings.config.sinks:
            views = _views_of(plan.views, config.name)
            if views and config.name not in known:
                writer = make_writer(running.settings, config, running.reached)
                opened.writers.append((writer, 0, 1))
                frontier = writer.open(views).frontier
                if frontier is not None:
                    opened.writers[-1] = (writer, frontier.epoch, frontier.incarnation)
        _open_sources(running, plan, opened)
    except BaseException:
        opened.close()
        raise
    return opened


def _open_sources(running: Running, plan: ViewsPlan, opened: Opened) -> None:
    """The intakes of publishers that the sidecar did not read so far, each with its tables that are added."""
    parts = running.runtime.parts
    known = {intake.name for intake in parts.intakes}
    tables = {table: running.schemas[table] for table in plan.tables_to_load}
    maker = IntakeMaker(
        settings=running.settings, schemas=running.schemas, tables=tables, manifest=None, reclock=parts.reclock,
        commands=parts.commands, changed=tables.keys(), flow=parts.flow, folder=running.generation.folder,
        begin=running.runtime.tasks.ask,
    )  # fmt: skip
    for source in running.settings.config.sources:
        if source.name not in known and tables.keys() & {t.name for t in source.tables or ()}:
            opened.intakes.append(maker.one(source, opened.closers))


def check_steady(runtime: Runtime) -> None:
    """Raise ApplyError while the views cannot change: what a restart, or a lost state, left is still made up for."""
    if runtime.hold or runtime.parts.reclock.replaying is not None:
        raise ApplyError("what was read before is being read again", hint="try again in a moment")


def check_current(runtime: Runtime, beside: StagingDataflow) -> None:
    """Raise ApplyError where a new view reads a recursion that became late, or came back, while the view was computed: what was
    computed beside has it as it was before. One that is late all the time is so beside, too, and the view is late with it."""
    turned = runtime.parts.flow.turned_behind(beside.flow)
    if turned:
        raise ApplyError(
            "a recursion that new views read became late, or came back, while they were computed",
            view=", ".join(sorted(turned)), hint="nothing was changed; try again",
        )  # fmt: skip


def swap(running: Running, plan: ViewsPlan, beside: StagingDataflow | None, opened: Opened) -> dict[str, float]:
    """Put `plan` in force; `beside` holds what it needs, but where nothing was ever complete. Seconds of each part.

    Raises ApplyError, and Cancelled, before anything is changed.
    """
    runtime = running.runtime
    clock = runtime.parts.clock
    started = clock()
    check_steady(runtime)
    for intake in runtime.parts.intakes:
        if intake.subscribed & plan.tables_changed.keys():
            intake.settle()
    check_at_rest(runtime, [*plan.tables_changed])
    moved = _groups_moved(runtime, plan)
    for writer in moved:
        if writer.attached and not writer.drain(DRAIN_SECONDS) and writer.attached:
            raise ApplyError(
                "a sink is busy", sink=writer.name, seconds=DRAIN_SECONDS, hint="nothing was changed; try again"
            )
    if beside is not None:
        beside.finish()
        check_current(runtime, beside)
    drained = clock()
    _begin_sources(running, opened)
    _install(running, plan, beside)
    running.views = plan.views
    installed = clock()
    for writer in moved:
        state = writer.change(_views_of(plan.views, writer.name))
        if state is not None:
            runtime.reconcile(writer, state, everything=False)
            _give(runtime, writer, beside)
    _begin(running, opened, beside)
    return {"drain": drained - started, "install": installed - drained, "sinks": clock() - installed}


def _views_of(views: Sequence[CompiledView], sink: str) -> list[SinkView]:
    return [sink_view(v) for v in views if sink in v.spec.sinks]


def _groups_moved(runtime: Runtime, plan: ViewsPlan) -> list[SinkWriter]:
    """The groups whose views are not the same as before."""
    found = []
    for writer in runtime.parts.writers:
        before = {v.view.name: _told(v.view) for v in runtime.parts.views if writer.name in v.sinks}
        if before != {v.name: _told(v) for v in _views_of(plan.views, writer.name)}:
            found.append(writer)
    return found


def _told(view: SinkView) -> tuple[object, ...]:
    """What a sink must be opened anew for."""
    return view.fingerprint, view.indexes, view.grants


def _install(running: Running, plan: ViewsPlan, beside: StagingDataflow | None) -> None:
    """The running dataflow gets the new plans, with what was computed beside, and lets go of the old."""
    runtime = running.runtime
    parts = runtime.parts
    before, named = {s.view.name: s for s in parts.views}, rests_on(plan.views)
    added, redeclared = {name: running.schemas[name] for name in plan.tables_added}, plan.redeclared
    plans, over = Plans.of(plan.views, {**added, **redeclared}), over_tables(plan.views, plan.redeclared.keys())
    same = {v.name for v in plans.put_out if v.name in before and before[v.name].view.fingerprint == v.fingerprint}
    stay = same - over
    change = Change(plans, plans.schemas, stay, plan.tables_dropped, added, redeclared)
    parts.flow.change(change, None if beside is None else beside.flow)
    states = []
    for view in plans.put_out:
        if view.name in stay:
            state = before.pop(view.name)
            state.view, state.sinks = sink_view(view), view.spec.sinks
        else:
            state = ViewState(sink_view(view), parts.flow.outputs[view.name], view.spec.sinks, names=named[view.name])
            state.rows = 0 if beside is None else None
            if beside is not None:
                state.errors.update(beside.watched[view.name].errors)
        states.append(state)
    for gone in before.values():
        _forget(runtime, gone)
    parts.views = states
    parts.fingerprints = {v.name: v.fingerprint for v in plan.views}
    parts.tables = {n: s for n, s in parts.tables.items() if n not in plan.tables_dropped} | added | redeclared
    read(runtime, running.settings, added)
    take_in(runtime, running.settings, plan.tables_changed)
    parts.table_facts = table_facts(parts.tables)
    runtime.pause()
    for state in states:
        if state.view.name not in stay:
            state.frontier = 0 if state.stands else runtime.epoch


def _begin_sources(running: Running, opened: Opened) -> None:
    """The sources that got their first table are read from now on."""
    parts = running.runtime.parts
    for intake in opened.intakes:
        parts.reclock.drop_stale_by(intake.name, intake.assembler.standing)
    parts.intakes = (*parts.intakes, *opened.intakes)
    running.closers.push(opened.closers.pop_all())
    opened.intakes = []


def _forget(runtime: Runtime, gone: ViewState) -> None:
    """Metrics of a view that is not there any more, or not as it was."""
    metrics = runtime.parts.metrics
    metrics.forget(gone.view.name, gone.sinks)
    for whole in runtime.whole.values():
        whole.discard(gone.view.name)


def _give(runtime: Runtime, writer: SinkWriter, beside: StagingDataflow | None) -> None:
    """What the group's sink lacks, from what was computed beside where it is there."""
    whole = runtime.whole.get(writer.name, set())
    states = {s.view.name: s for s in runtime.parts.views}
    contents = {}
    for name in whole & (beside.watched.keys() if beside is not None else set()):
        assert beside is not None, "asked just now"
        if not states[name].stands:
            rows = beside.watched[name].content(runtime.epoch)
            epochs = np.full(len(rows), runtime.epoch, np.int64)
            states[name].rows = int(rows.diffs.sum())
            contents[name] = ViewChanges(rows.rows, epochs, rows.diffs, whole=True)
    if runtime.epoch >= max(writer.epoch, 1):
        runtime.give(writer, contents)


def _begin(running: Running, opened: Opened, beside: StagingDataflow | None) -> None:
    """The sinks that got their first view take part."""
    runtime = running.runtime
    for writer, at, incarnation in opened.writers:
        running.closers.callback(writer.close)
        writer.on_written(runtime.written, runtime.pacing.rested)
        runtime.parts.writers = (*runtime.parts.writers, writer)
        runtime.whole[writer.name] = {s.view.name for s in runtime.parts.views if writer.name in s.sinks}
        writer.start(at, incarnation)
        _give(runtime, writer, beside)
    opened.writers = []
