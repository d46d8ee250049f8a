"""The staging dataflow: computes new views beside the running dataflow, over the same arrangements.

Invariant: it shares the running dataflow's immutable batches, copies none, and has as many shards. From `begin` on it is fed
what the running one takes in, so that both reach one frontier. It takes processor time from the loop and disturbs nothing
else. One thread writes it, except `feed` and `finish`, which the loop calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.engine.batch.consolidation import consolidate
from headrace.engine.batch.gather_rows import conformed
from headrace.engine.batch.redeclared_rows import redeclared_upserts
from headrace.engine.batch.sort_layout import layout_of
from headrace.engine.batch.updates import Updates, Upserts
from headrace.engine.operators.delta import concat
from headrace.engine.schema import Schema
from headrace.sidecar.control.following import Following, NothingYet
from headrace.sidecar.execution.dataflow_host import NOTHING, Flow, Sides, ViewOutput
from headrace.sidecar.execution.live_errors import add_errors
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.runtime.loop import Runtime


@dataclass
class Progress:
    """How far the building of new arrangements is, in updates of what they are made of. Times in seconds."""

    rows: int = 0
    of: int = 0
    seconds: float = 0.0
    stage: str = "planned"

    @property
    def left(self) -> float | None:
        """Seconds that are left if it goes on so; None where that cannot be told yet."""
        if self.stage != "hydrating" or not self.rows:
            return None
        return self.seconds * (self.of - self.rows) / self.rows


@dataclass
class Watched:
    """A view followed beside: what it held and what changed since, as one collection at the last epoch taken."""

    output: ViewOutput
    parts: list[Updates] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)

    def take(self, rows: Updates, errors: Updates) -> None:
        """Rows and errors that were there, or changed."""
        if len(rows):
            self.parts.append(rows)
        add_errors(self.errors, errors)

    def content(self, epoch: int) -> Updates:
        """Everything, consolidated, as of `epoch`."""
        return settled(self.parts, epoch, self.output.schema)


def settled(parts: Sequence[Updates], epoch: int, schema: Schema) -> Updates:
    """Updates added up as of one epoch."""
    layout = layout_of(schema, ())
    at = [Updates(u.rows, np.full(len(u), epoch, np.int64), u.diffs) for u in parts if len(u)]
    whole = concat(at)
    if whole is None:
        return Updates(layout.schema.empty(), np.empty(0, np.int64), np.empty(0, np.int64))
    found = consolidate(whole, layout.image_plan)
    return Updates(conformed(found.rows, layout.arrow), found.times, found.diffs)


class StagingDataflow(Following):
    """The second dataflow."""

    def __init__(self, epoch: int, begun: Callable[[], Flow], redeclared: Mapping[str, Schema] = NOTHING) -> None:
        super().__init__(epoch)
        self._redeclared = redeclared
        self.watched: dict[str, Watched] = {}
        self.progress = Progress()
        self._begun = begun
        self._flow: Flow | None = None

    @classmethod
    def begin(
        cls, runtime: Runtime, *, follow: bool = True, redeclared: Mapping[str, Schema] = NOTHING
    ) -> StagingDataflow:
        """At the epoch where the runtime stands, and, to `follow`, fed from now on; to be called on the loop. `redeclared`: the
        tables that have other columns here. Raises NothingYet.
        """
        if runtime.epoch == 0:
            raise NothingYet(
                "nothing is complete yet", hint="ask once the snapshot is read: `headrace status` says what is missing"
            )
        beside = cls(runtime.epoch, runtime.parts.flow.beside(redeclared), redeclared)
        if follow:
            runtime.feeds.append(beside.feed)
        return beside

    @property
    def flow(self) -> Flow:
        """The dataflow, begun with the first question."""
        if self._flow is None:
            self._flow = self._begun()
        return self._flow

    def build(self, plans: Plans) -> None:
        """Build plans, and follow what they put out; nothing is computed yet. To be called once."""
        self.flow.build(plans, plans.schemas)
        self.watched = {name: Watched(output) for name, output in self.flow.outputs.items()}

    def answer(self, plans: Plans, view: str) -> Sides:
        """What `view`, the one that `plans` put out, holds: rows and errors."""
        self.flow.build(plans, plans.schemas)
        return self.flow.outputs[view].snapshot(self.epoch)

    def answers(self, plans: Plans, views: Sequence[str]) -> list[Sides]:
        """As `answer`, of several views."""
        self.flow.build(plans, plans.schemas)
        return [self.flow.outputs[view].snapshot(self.epoch) for view in views]

    def hydrate(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Compute what is not there yet, and what is followed. Raises Cancelled."""
        progress, started = self.progress, clock()
        for progress.rows, progress.of in self.flow.hydrating():
            progress.seconds, progress.stage = clock() - started, "hydrating"
            self.check()
        progress.rows = progress.of
        for followed in self.watched.values():
            self.check()
            followed.take(*followed.output.snapshot(self.epoch))
        progress.seconds, progress.stage = clock() - started, "catching up"

    def taken_in(self, changes: Mapping[str, Upserts]) -> Mapping[str, Upserts]:
        """See `Following.taken_in`."""
        others = {t: redeclared_upserts(changes[t], s) for t, s in self._redeclared.items() if t in changes}
        return {**changes, **others}

    def stepped(self) -> None:
        """See `Following.stepped`."""
        for followed in self.watched.values():
            followed.take(*followed.output.take())

    def close(self) -> None:
        """Let it go, with all that nobody took over."""
        if self._flow is not None:
            self._flow.close()
