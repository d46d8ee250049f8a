"""A second dataflow beside the running one, over the same arrangements: what is new is built there, at its own pace.

Always: it shares every immutable batch with the running dataflow and copies none; from `begin` on it is fed what the
running one takes in, so that both can stand at one frontier; nothing in it disturbs the loop, but for the processor that
it takes. Written by one thread, but `feed`, which the loop calls, and `finish`, which the loop calls while that one waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.batch.batch import Batch
from engine.batch.consolidation import consolidate
from engine.batch.layout import layout_of
from engine.batch.payload import conformed
from engine.batch.updates import Updates, Upserts
from engine.dataflow import Collection, Dataflow, Output
from engine.dataflow.graph import reachable
from engine.dataflow.nodes import Node
from engine.errors import HeadraceError
from engine.operators.delta import concat
from engine.schema import Schema
from sidecar.keeping import KeptDataflow
from sidecar.runtime import Runtime
from sidecar.upserts import TableErrors, push
from views.compile import CompiledView
from views.render import render

ENOUGH = 4
"""Steps behind that the loop may be asked to make up for."""
ROUNDS = 50
"""How often what came meanwhile is made up for before the loop is asked all the same."""


class Cancelled(HeadraceError):
    """Somebody asked for the end of it."""

    code = "cancelled"


class Shared(HeadraceError):
    """What is asked for needs the dataflow in this process."""

    code = "control"


class NothingYet(HeadraceError):
    """No epoch is complete yet."""

    code = "control"


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

    output: Output
    parts: list[Updates] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)

    def take(self, rows: Updates, errors: Updates) -> None:
        """Rows and errors that were there, or changed."""
        if len(rows):
            self.parts.append(rows)
        for text, diff in zip(errors.rows.column(0).to_pylist(), errors.diffs.tolist(), strict=True):
            left = self.errors.get(text, 0) + diff
            self.errors.pop(text, None) if not left else self.errors.update({text: left})

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


def in_process(runtime: Runtime) -> KeptDataflow:
    """The running dataflow. Raises Shared where several workers run it."""
    flow = runtime.parts.flow
    if not isinstance(flow, KeptDataflow):
        raise Shared(
            "several workers keep the views, which can neither be changed nor asked while they run", workers=flow.count,
            hint="restart the sidecar to take changed views, or set engine.workers to 1",
        )  # fmt: skip
    return flow


class Beside:
    """The second dataflow. `epoch`: the last one complete in it."""

    def __init__(self, epoch: int, tables: Mapping[str, Schema], batches: Mapping[str, Sequence[Batch]]) -> None:
        self.epoch = epoch
        self.flow = Dataflow()
        for name in sorted(tables):
            self.flow.table(name, tables[name])
        self.flow.restore(epoch + 1, batches)
        self.rendered: dict[str, Collection] = {}
        self.watched: dict[str, Watched] = {}
        self.progress = Progress()
        self._waiting: deque[tuple[int, Mapping[str, Upserts], TableErrors]] = deque()
        self._cancelled = False

    @classmethod
    def begin(cls, runtime: Runtime, *, follow: bool = True) -> Beside:
        """At the epoch where the runtime stands, and, to `follow`, fed from now on; to be called on the loop.

        Raises NothingYet.
        """
        if runtime.epoch == 0:
            raise NothingYet(
                "nothing is complete yet", hint="ask once the snapshot is read: `headrace status` says what is missing"
            )
        beside = cls(runtime.epoch, runtime.parts.tables, in_process(runtime).held())
        if follow:
            runtime.feeds.append(beside.feed)
        return beside

    def feed(self, epoch: int, changes: Mapping[str, Upserts], errors: TableErrors) -> None:
        """What the running dataflow takes in with the step to `epoch`. Called by the loop."""
        self._waiting.append((epoch, changes, errors))

    def cancel(self) -> None:
        """Have it end with Cancelled at the next node or step. Called by any thread."""
        self._cancelled = True

    def render(self, views: Sequence[CompiledView]) -> None:
        """Build views, each after those it reads; nothing is computed yet."""
        for view in views:
            self.rendered[view.name] = render(view, self.flow, self.rendered)

    def watch(self, name: str, collection: Collection) -> None:
        """Follow a collection: to be called before `hydrate`."""
        self.watched[name] = Watched(collection.output(name))

    def hydrate(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Compute what is not there yet, and what is followed. Raises Cancelled."""
        progress, started = self.progress, clock()
        weights = {node: _rows_before(node) for node in self.flow.unhydrated()}
        progress.of, progress.stage = sum(weights.values()), "hydrating"
        done = 0

        def begun(node: Node) -> None:
            nonlocal done
            self._check()
            progress.rows, progress.seconds = done, clock() - started
            done += weights.get(node, 0)

        self.flow.hydrate(begun)
        progress.rows = progress.of
        for followed in self.watched.values():
            self._check()
            followed.take(*followed.output.snapshot(self.epoch))
        progress.seconds, progress.stage = clock() - started, "catching up"

    def catch_up(self) -> None:
        """Take in what came meanwhile, until little is left. Raises Cancelled."""
        for _ in range(ROUNDS):
            if len(self._waiting) <= ENOUGH:
                return
            for _ in range(len(self._waiting)):
                self._check()
                self._step()

    def finish(self) -> None:
        """Take in the rest: then it stands where the runtime stands. Called by the loop."""
        self._check()
        while self._waiting:
            self._step()

    def _step(self) -> None:
        epoch, changes, errors = self._waiting.popleft()
        push(self.flow, changes, errors)
        self.flow.step(epoch + 1)
        self.epoch = epoch
        for followed in self.watched.values():
            followed.take(*followed.output.take())
        self.flow.advance_since(epoch)

    def _check(self) -> None:
        if self._cancelled:
            raise Cancelled("it was cancelled", hint="nothing was changed")


def _rows_before(node: Node) -> int:
    """Updates in the arrangements that stand already and that `node` is computed from."""
    return sum(len(t.arranged) for n in reachable(node.inputs) for t in n.traces() if t.loaded)
