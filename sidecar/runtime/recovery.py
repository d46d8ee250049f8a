"""Recovery at a start: counts the errors alive in each view, and compares what each sink holds with the local log.

Invariant: a sink that is behind the checkpoint, or holds epochs that the log does not know, is given its views whole. A sink
that went back begins a new incarnation (decision 16). Wiring calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from headrace.connectors.sink import Frontier, SinkError, SinkState, SourceFrontier
from headrace.engine.dataflow import OVERFLOWED
from headrace.sidecar.delivery.view_state import ViewState
from headrace.sidecar.epochs.reorder_buffer import reached
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.state.checkpoint import Manifest


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
            state.rows = record.rows
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
    for writer in runtime.parts.writers:
        state = states[writer.name]
        at = state.frontier.epoch if state.frontier else 0
        foreign = at > start and not any(at in epochs for epochs in bound)
        anew = foreign and _adopt(runtime, state.frontier, writer.name)
        runtime.reconcile(writer, state, everything=foreign or at < start)
        incarnation = state.frontier.incarnation if state.frontier else 1
        back = state.frontier is not None and at < held.get(writer.name, 0)
        runtime.ranges.register(at)
        writer.start(at, incarnation + (anew or back))
    runtime.refresh()


def _adopt(runtime: Runtime, frontier: Frontier | None, sink: str) -> bool:
    """A sink holds epochs that the local log does not know (decision 16): new epochs begin after its own, and nothing is
    written before its offsets are passed again. Gives whether the sink holds changes of topics that were made anew since, whose
    offsets never come to its own: then the new topics' content replaces them, once their snapshot is whole."""
    assert frontier is not None, "a sink beyond the log has a frontier"
    runtime.parts.reclock.skip_to(frontier.epoch + 1)
    for intake in runtime.parts.intakes:
        held = frontier.sources.get(intake.name)
        if held is not None and not isinstance(held.place, intake.places):
            raise SinkError("a sink holds commits of another kind of source under this name", sink=sink, source=intake.name,
                            held=held.place.kind, now=intake.places.kind, hint="give the source a name of its own")  # fmt: skip
    ends = {i.name: i.source.high_watermarks() for i in runtime.parts.intakes}
    there = {n: reached(ends.get(n, {}), s.positions) for n, s in frontier.sources.items()}
    for name, source in frontier.sources.items():
        nowhere = SourceFrontier(ends.get(name, {}), replace(source.place, order=-1), -1)
        runtime.hold.add(name, source if there[name] else nowhere, sink)
    return not all(there.values())
