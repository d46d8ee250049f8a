"""What a start makes of what it finds: the errors alive in each view, and what each sink holds against what we know.

Always: a sink that is behind the checkpoint, or holds what nobody here knows, is given its views whole; one that went
back since begins a new incarnation (DECISIONS.md 16). Called by wiring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from connectors.sink import Frontier, SinkState, SourceFrontier
from engine.dataflow import OVERFLOWED
from sidecar.checkpoint import Manifest
from sidecar.flow import Flow
from sidecar.held import reached
from sidecar.runtime import Runtime
from sidecar.viewstate import ViewState


def recover_errors(views: Sequence[ViewState], manifest: Manifest, flow: Flow, resumed: Set[str]) -> None:
    """The errors alive in each view: as the checkpoint knows them, or counted where its state is not all from there.

    `resumed`: the arrangements that are.
    """
    made = {view for name, facts in flow.facts().items() if name not in resumed for view in facts.views}
    for state in views:
        record = manifest.views.get(state.view.name)
        same = record is not None and record.fingerprint == state.view.fingerprint
        if record is not None and same and state.view.name not in made and OVERFLOWED not in record.errors:
            state.errors.update(record.errors)
        else:
            state.recount(manifest.epoch)


def reconcile(
    runtime: Runtime, states: Mapping[str, SinkState], held: Mapping[str, int], bound: Sequence[range]
) -> None:
    """Decide which views a sink must be given whole, and what to hold back until a lost state is read again.

    `held`: the epochs that the sinks held at the checkpoint: one that is before its own went back since. `bound`: the
    epochs that the log knows: a sink at none of them, and beyond the checkpoint, was written by a state that is lost. That
    can be one before the log's newest, where a run that found it so was killed before it had given the views whole.
    """
    start = runtime.epoch
    for group in runtime.parts.groups:
        state = states[group.name]
        at = state.frontier.epoch if state.frontier else 0
        foreign = at > start and not any(at in epochs for epochs in bound)
        anew = foreign and _adopt(runtime, state.frontier, group.name)
        runtime.reconcile(group, state, everything=foreign or at < start)
        incarnation = state.frontier.incarnation if state.frontier else 1
        back = state.frontier is not None and at < held.get(group.name, 0)
        group.start(at, incarnation + (anew or back))
    runtime.refresh()


def _adopt(runtime: Runtime, frontier: Frontier | None, sink: str) -> bool:
    """A sink holds what the local log does not know (DECISIONS.md 16): epochs go on after its own, and nothing is written
    before its offsets are passed again. Whether it holds some of topics that were made anew since, which never come to them:
    what they say now takes the place of that, once their snapshot is whole."""
    assert frontier is not None, "a sink beyond the log has a frontier"
    runtime.parts.reclock.skip_to(frontier.epoch + 1)
    ends = {i.name: i.source.high_watermarks() for i in runtime.parts.intakes}
    there = {n: reached(ends.get(n, {}), s.positions) for n, s in frontier.sources.items()}
    for name, source in frontier.sources.items():
        runtime.hold.add(name, source if there[name] else SourceFrontier(ends.get(name, {}), -1, -1), sink)
    return not all(there.values())
