"""The moment at which a change of views takes force: between two turns of the loop, at one frontier.

Always: what can fail on account of others is done before anything is changed; views that stay keep their outputs and their
states, and miss no epoch; what was built beside is taken over as it is; what nothing holds any more is freed. Called by
`apply`, on the loop's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from connectors.sink import SinkView, ViewChanges
from sidecar.checkpoint import table_facts
from sidecar.emit import Group
from sidecar.flow import Change
from sidecar.live.beside import Beside
from sidecar.live.plans import ApplyError, ViewsPlan
from sidecar.plans import Plans
from sidecar.runtime import Runtime
from sidecar.viewstate import ViewState
from sidecar.wiring import Running, make_group, sink_view
from views.compile import CompiledView
from views.lineage import columns_named

DRAIN_SECONDS = 5.0
"""How long the loop waits for a sink to write what it was offered, before its views are changed."""


@dataclass
class Opened:
    """The groups of sinks that had no view so far, opened but not part of the runtime yet, with the epoch each stands at."""

    groups: list[tuple[Group, int, int]] = field(default_factory=list)

    def close(self) -> None:
        """Let go of them: the change did not come about."""
        for group, *_ in self.groups:
            group.close()


def open_new(running: Running, plan: ViewsPlan) -> Opened:
    """Open the sinks that get their first view. Raises SinkError; nothing is left open then."""
    opened = Opened()
    known = {g.name for g in running.runtime.parts.groups}
    try:
        for config in running.settings.config.sinks:
            views = _views_of(plan.views, config.name)
            if views and config.name not in known:
                group = make_group(running.settings, config, running.reached)
                opened.groups.append((group, 0, 1))
                frontier = group.open(views).frontier
                if frontier is not None:
                    opened.groups[-1] = (group, frontier.epoch, frontier.incarnation)
    except BaseException:
        opened.close()
        raise
    return opened


def check_steady(runtime: Runtime) -> None:
    """Raise ApplyError while the views cannot change: what a restart, or a lost state, left is still made up for."""
    if runtime.hold or runtime.parts.reclock.replaying is not None:
        raise ApplyError("what was read before is being read again", hint="try again in a moment")


def swap(running: Running, plan: ViewsPlan, beside: Beside | None, opened: Opened) -> dict[str, float]:
    """Put `plan` in force; `beside` holds what it needs, but where nothing was ever complete. Seconds of each part.

    Raises ApplyError, and Cancelled, before anything is changed.
    """
    runtime = running.runtime
    clock = runtime.parts.clock
    started = clock()
    check_steady(runtime)
    moved = _groups_moved(runtime, plan)
    for group in moved:
        if group.attached and not group.drain(DRAIN_SECONDS) and group.attached:
            raise ApplyError(
                "a sink is busy", sink=group.name, seconds=DRAIN_SECONDS, hint="nothing was changed; try again"
            )
    if beside is not None:
        beside.finish()
    drained = clock()
    _install(runtime, plan, beside)
    running.views = plan.views
    installed = clock()
    for group in moved:
        state = group.change(_views_of(plan.views, group.name))
        if state is not None:
            runtime.reconcile(group, state, everything=False)
            _give(runtime, group, beside)
    _begin(running, opened, beside)
    return {"drain": drained - started, "install": installed - drained, "sinks": clock() - installed}


def _views_of(views: Sequence[CompiledView], sink: str) -> list[SinkView]:
    return [sink_view(v) for v in views if sink in v.spec.sinks]


def _groups_moved(runtime: Runtime, plan: ViewsPlan) -> list[Group]:
    """The groups whose views are not the same as before."""
    found = []
    for group in runtime.parts.groups:
        before = {v.view.name: _told(v.view) for v in runtime.parts.views if group.name in v.sinks}
        if before != {v.name: _told(v) for v in _views_of(plan.views, group.name)}:
            found.append(group)
    return found


def _told(view: SinkView) -> tuple[object, ...]:
    """What a sink must be opened anew for."""
    return view.fingerprint, view.indexes, view.grants


def _install(runtime: Runtime, plan: ViewsPlan, beside: Beside | None) -> None:
    """The running dataflow gets the new plans, with what was computed beside, and lets go of the old."""
    parts = runtime.parts
    before, named = {s.view.name: s for s in parts.views}, columns_named(plan.views)
    plans = Plans.of(plan.views, {})
    stay = {v.name for v in plans.put_out if v.name in before and before[v.name].view.fingerprint == v.fingerprint}
    change = Change(plans, plans.schemas, stay, plan.tables_dropped)
    parts.flow.change(change, None if beside is None else beside.flow)
    states = []
    for view in plans.put_out:
        if view.name in stay:
            state = before.pop(view.name)
            state.view, state.sinks = sink_view(view), view.spec.sinks
        else:
            state = ViewState(sink_view(view), parts.flow.outputs[view.name], view.spec.sinks, names=named[view.name])
            if beside is not None:
                state.errors.update(beside.watched[view.name].errors)
        states.append(state)
    for gone in before.values():
        _forget(runtime, gone)
    parts.views = states
    parts.fingerprints = {v.name: v.fingerprint for v in plan.views}
    parts.tables = {n: s for n, s in parts.tables.items() if n not in plan.tables_dropped}
    parts.table_facts = table_facts(parts.tables)
    runtime.pause()
    for state in states:
        if state.view.name not in stay:
            state.frontier = 0 if state.stands else runtime.epoch


def _forget(runtime: Runtime, gone: ViewState) -> None:
    """Metrics of a view that is not there any more, or not as it was."""
    metrics = runtime.parts.metrics
    metrics.forget(gone.view.name, gone.sinks)
    for whole in runtime.whole.values():
        whole.discard(gone.view.name)


def _give(runtime: Runtime, group: Group, beside: Beside | None) -> None:
    """What the group's sink lacks, from what was computed beside where it is there."""
    whole = runtime.whole.get(group.name, set())
    states = {s.view.name: s for s in runtime.parts.views}
    contents = {}
    for name in whole & (beside.watched.keys() if beside is not None else set()):
        assert beside is not None, "asked just now"
        if not states[name].stands:
            rows = beside.watched[name].content(runtime.epoch)
            epochs = np.full(len(rows), runtime.epoch, np.int64)
            contents[name] = ViewChanges(rows.rows, epochs, rows.diffs, whole=True)
    if runtime.epoch >= max(group.epoch, 1):
        runtime.give(group, contents)


def _begin(running: Running, opened: Opened, beside: Beside | None) -> None:
    """The sinks that got their first view take part."""
    runtime = running.runtime
    for group, at, incarnation in opened.groups:
        running.closers.callback(group.close)
        group.on_written(runtime.written)
        runtime.parts.groups = (*runtime.parts.groups, group)
        runtime.whole[group.name] = {s.view.name for s in runtime.parts.views if group.name in s.sinks}
        group.start(at, incarnation)
        _give(runtime, group, beside)
    opened.groups = []
