"""The one loop: poll, reclock, step, emit, checkpoint, compact.

Always: an epoch is bound durably before any sink or manifest carries it. Time, waiting and the executor are handed in. Wiring
makes the parts; the local host calls `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import wait
from typing import Protocol

import numpy as np

from headrace.connectors.sink import EpochStamp, Frontier, SinkState, SourceFrontier, ViewChanges
from headrace.engine.batch.updates import Int64s, Upserts
from headrace.sidecar.delivery.catch_up import CatchUpGate, stands_at
from headrace.sidecar.delivery.sink_writer import SinkWriter
from headrace.sidecar.delivery.view_state import ViewState
from headrace.sidecar.epochs.each_transaction import EachTransaction
from headrace.sidecar.epochs.epoch_binding import Binding
from headrace.sidecar.epochs.epoch_ranges import EpochRanges, at_range_ends
from headrace.sidecar.intake.source_intake import as_read
from headrace.sidecar.intake.table_upserts import TableErrors, push, upserts
from headrace.sidecar.runtime import late_recursions
from headrace.sidecar.runtime.checkpointer import Checkpointer
from headrace.sidecar.runtime.components import RuntimeComponents
from headrace.sidecar.runtime.loop_tasks import LoopTaskQueue
from headrace.sidecar.runtime.pacing import Pacing
from headrace.sidecar.telemetry.latency_trace import LatencyTrace, StageTimes
from headrace.sidecar.telemetry.memory_budget import Memory
from headrace.sidecar.transactions.model import Incomplete, Marker, Resync, Transaction, errors_of, goes_on
from headrace.sidecar.transactions.splitting import ROWS, Pairs, ends_of, first_portions, in_steps

WATCH_SECONDS = 0.25
DRAIN_SECONDS = 30.0  # for the sinks and the last checkpoint, unless `stop` says otherwise
FUEL = 20_000  # updates that idle merging may handle in one go
KEPT_STEPS, KEPT_ROWS = 8, 1024
"""So many steps may pass before the engine forgets what came before them, of which one counts once more for so many rows:
looking after each arrangement costs more than small steps leave behind."""

Feed = Callable[[int, Mapping[str, Upserts], TableErrors], None]
Told = Callable[[int, Mapping[str, ViewChanges]], None]


class BackgroundJob(Protocol):
    """A job that takes several turns of the loop, asked for while it runs."""

    def on_bound(self, transactions: Iterable[tuple[int, Transaction]]) -> None:
        """These are in now, each at its epoch, which is on disk."""

    def advance(self, runtime: Runtime) -> bool:
        """Do what can be done now, everything bound being in; whether the job has ended. Never raises HeadraceError."""


class Runtime:
    """The running sidecar. Single writer of everything but what sink threads own."""

    def __init__(self, parts: RuntimeComponents, sources: Mapping[str, SourceFrontier], epoch: int) -> None:
        self.parts = parts
        self.sources: dict[str, SourceFrontier] = dict(sources)
        self.epoch, self.transactions = epoch, 0
        self.started = parts.wall()
        self._drain_by: float | None = None
        self.whole: dict[str, set[str]] = {}
        self.hold = CatchUpGate()
        self.jobs: list[BackgroundJob] = []
        self.checkpoints = Checkpointer(parts, epoch)
        self._caught_up, self._following = False, parts.reclock.replaying is not None
        self._watch: Callable[[], None] = lambda: None
        self._asked_at, self._polled_at, self._watched = 0.0, 0.0, float("-inf")
        self._kept = 0  # steps whose past the engine still has
        self._latency, self.tasks, self.pacing = LatencyTrace(), LoopTaskQueue(), Pacing(parts.clock)
        self.feeds: list[Feed] = []  # who is given what a step takes in: dataflows that follow this one
        self.each = EachTransaction(lambda: [g.name for g in parts.writers if g.each], parts.clock)
        self.ranges = EpochRanges(self.each)
        self.told: list[Told] = []  # who is told what a step changed in the views

    def on_turn(self, watch: Callable[[], None]) -> None:
        """Call `watch` between two turns, every WATCH_SECONDS: what it reads does not change meanwhile."""
        self._watch = watch

    def stop(self, seconds: float) -> None:
        """Ask the loop to end, and to drain within so many seconds. Called by any thread."""
        self._drain_by = self.parts.clock() + seconds
        for writer in self.parts.writers:
            writer.leave()

    def run(self, until: Callable[[], bool] = lambda: False) -> Sequence[str]:
        """Turn until told to stop, then drain; what `drain` had no time for. Raises what a part raised."""
        while self._drain_by is None and not until():
            self.turn(0.005)
            if self.parts.clock() - self._watched >= WATCH_SECONDS:
                self._watch()
                self._watched = self.parts.clock()
        return self.drain()

    def turn(self, timeout: float) -> bool:
        """One turn of the loop, waiting at most `timeout` seconds a source for messages; whether an epoch was bound."""
        self.tasks.serve()
        late = late_recursions.evaluate(self.parts, self.sources, held=bool(self.hold))
        timeout, back = 0.0 if late.goes_on else timeout, late.back
        arrived = not back and not self._wait_for_room(timeout) and self.poll(timeout)
        if not back and not self.jobs and self.pacing.holds(self.attached, timeout):
            self._look_after()
            return False
        arrived |= not back and self.pacing.waited and self.poll(0.0)
        self.jobs = [e for e in self.jobs if not e.advance(self)]
        bound = self.bind()
        self.pacing.stepped()
        if bound:
            self.step(bound)
        elif self.hold and self._released():
            self.refresh()
        self._look_after()
        self.checkpoint()
        if not arrived:
            self._caught_up = self._caught_up or (self.epoch > 0 and not self._behind())
            self._forget()
            self.parts.flow.exert(FUEL)
            self.memory.rest(self.parts.clock())
        return bool(bound)

    def _forget(self) -> None:
        """Have the engine forget what came before the last epoch."""
        if self._kept:
            self.parts.flow.advance_since(self.epoch)
            self._kept = 0

    def _look_after(self) -> None:
        """Hear of sinks' failures, and of followers that are late."""
        for writer in self.parts.writers:
            self._attend(writer)
        self.each.look(self.epoch, lambda: all(i.source.at_end() for i in self.parts.intakes))

    @property
    def memory(self) -> Memory:
        """What is used of the budget."""
        return self.parts.memory

    def _wait_for_room(self, timeout: float) -> bool:
        """Read nothing this turn: memory is over its budget, and a sink or a checkpoint holds some that it will give back."""
        if not self.memory.look(self.parts.clock()):
            return False
        writing = [g for g in self.attached if g.epoch < self.epoch]
        if not writing and self.checkpoints.writing is None:
            return False
        started = self.parts.clock()
        if writing:
            writing[0].drain(timeout)
        elif self.checkpoints.writing is not None:
            wait([self.checkpoints.writing], timeout)
        self.parts.metrics.paused.inc(max(0.0, self.parts.clock() - started))
        return True

    def poll(self, timeout: float) -> bool:
        """Take in what arrived from every source."""
        arrived, self._asked_at = False, self.parts.wall()
        for intake in self.parts.intakes:
            before = intake.counts.events
            arrived |= intake.poll(0.0 if arrived else timeout)
            self.parts.metrics.events.labels(intake.name).inc(intake.counts.events - before)
            if intake.counts.events > before:
                self.pacing.arrived(intake.counts.events - before)
        self._polled_at = self.parts.wall()
        return arrived

    def bind(self) -> list[tuple[Binding, list[Transaction]]]:
        """Bind what became whole to epochs; `step` sees to it that they are durable before a sink carries them. What the log
        has may wait for what is read, also where that gives nothing."""
        out, following = [], self.parts.reclock.replaying is not None
        for intake in self.parts.intakes:
            transactions = intake.complete()
            if transactions or following:
                out += self.parts.reclock.bind(intake.batch(transactions))
        for binding, _ in out:
            self.parts.metrics.epochs.labels(binding.source).inc(len(binding.stamps))
        return out

    def step(self, bound: Sequence[tuple[Binding, list[Transaction]]]) -> None:
        """Bring every view to the last epoch bound and hand the changes to the sinks."""
        now = self.parts.wall()
        pairs = [(b.first + i, t) for b, ts in bound for i, t in enumerate(ts)]
        for some in in_steps(pairs, ROWS):
            self._take_in(some)
        epoch = self.epoch
        for binding, transactions in bound:
            self.parts.commands.on_bound(binding.source, transactions)
        for transaction in (t for _, t in pairs if isinstance(t, Resync) and t.whole):
            for intake in self.parts.intakes:
                intake.lost.found(transaction.table, transaction.place.order)
        more = {epoch for epoch, t in pairs if goes_on(t)}
        self.transactions += len(pairs) - len(more)
        self.parts.metrics.epoch.set(epoch)
        held = {i.name: i.resume_positions for i in self.parts.intakes}
        for binding, _ in bound:
            last = binding.stamps[-1]
            here = held[last.source](binding.positions)
            self.sources[last.source] = stands_at(last, here, self.sources.get(last.source))
        if self._following and self.parts.reclock.replaying is None:
            self._following, self.sources = False, as_read(self.sources, self.parts.intakes)
        newest = max(i.counts.newest_message_ms for i in self.parts.intakes) / 1000
        self.parts.reclock.settle()
        for job in self.jobs:
            job.on_bound(pairs)
        arrived = not all(isinstance(t, Marker) for _, t in pairs)
        times = StageTimes(newest, self._asked_at, self._polled_at, now, self.parts.wall())
        self._latency.took(epoch, times if arrived else None)
        self._emit(bound, pairs, more)
        if self._kept >= KEPT_STEPS:
            self._forget()

    def _take_in(self, pairs: Pairs) -> None:
        """Bring every view to the last of these epochs."""
        epoch = pairs[-1][0]
        asked = self.each.cost.ranges
        changes = at_range_ends(upserts(pairs, self.parts.tables), self.ranges.cut(pairs))
        errors = {
            at: {n: e for n, e in told.items() if n in self.parts.tables} for at, t in pairs if (told := errors_of(t))
        }
        push(self.parts.flow, changes, errors)
        if self.feeds:
            here = {table: self.parts.flow.rows_of(table, u) for table, u in changes.items()}
            for feed in self.feeds:
                feed(epoch, here, errors)
        started = self.parts.clock()
        with self.parts.metrics.step_seconds.time():
            self.parts.flow.step(epoch + 1)
        if self.each.cost.ranges > asked:
            self.each.cost.seconds += self.parts.clock() - started
        self.epoch = epoch
        rows = sum(map(len, changes.values()))
        self.memory.took(rows)
        self._kept += 1 + rows // KEPT_ROWS
        self.parts.reached("range stepped")

    def _emit(
        self, bound: Sequence[tuple[Binding, list[Transaction]]], pairs: Pairs, more: Set[int] = frozenset()
    ) -> None:
        """Give the sinks what the step changed. `more`: the epochs of portions that are not the last."""
        firsts = self.ranges.firsts(pairs[0][0] if pairs else self.epoch, self.epoch) | first_portions(more)
        stamps = {
            b.first + i: EpochStamp(s.source, s.place, s.commit_us, firsts.get(b.first + i))
            for b, _ in bound
            for i, s in enumerate(b.stamps)
            if b.first + i not in more
        }
        self.each.note(stamps)
        self.pause()
        ends = ends_of(pairs, more)
        changes = {v.view.name: c for v in self.parts.views if (c := self._take(v, ends)) is not None}
        for tell in self.told:
            tell(self.epoch, changes)
        if self.hold and not self._released():
            # also a sink that is not beyond the log misses these
            for state in self.parts.views:
                for sink in state.sinks if state.view.name in changes else ():
                    self.whole.setdefault(sink, set()).add(state.view.name)
            return
        for writer in self.parts.writers:
            self._offer(writer, changes, stamps)

    def pause(self) -> None:
        """Suspend the views that name a lost column, and resume those that name none any more."""
        lost = self.parts.lost
        for state in self.parts.views:
            state.pause(lost)

    def refresh(self) -> None:
        """Give every sink, at once, the views that it must have whole, where nothing has to be read first."""
        for writer in self.parts.writers:
            if self.whole.get(writer.name) and not self.hold and self.epoch >= max(writer.epoch, 1):
                self._offer(writer, {}, {})

    def give(self, writer: SinkWriter, contents: Mapping[str, ViewChanges]) -> None:
        """Give a sink, at once, what it lacks of views, of which `contents` are at hand as of this epoch."""
        self.whole.setdefault(writer.name, set()).difference_update(contents)
        self._offer(writer, contents, {})

    def _attend(self, writer: SinkWriter) -> None:
        """Raise the failure of a sink that ends the run; give a sink that was detached and is back what it lacks."""
        back = writer.check()
        if back is not None:
            self.reconcile(writer, back.state, everything=back.lost)
            writer.resume()
            self.refresh()

    def reconcile(self, writer: SinkWriter, state: SinkState, *, everything: bool) -> None:
        """Decide which views a sink that was opened must be given whole: those it lacks, or all."""
        mine = {v.view.name for v in self.parts.views if writer.name in v.sinks}
        mended = state.errors.keys() & {v.view.name for v in self.parts.views if not v.stands}
        self.whole[writer.name] = mine if everything else mine & (state.missing | mended)

    def published(self, epoch: int) -> bool:
        """Whether a sink holds this epoch: where none does, another sidecar may have taken over, and its log is what counts."""
        return any(g.epoch >= epoch for g in self.attached)

    @property
    def attached(self) -> list[SinkWriter]:
        """The groups whose sinks take part."""
        return [g for g in self.parts.writers if g.attached]

    def _offer(self, writer: SinkWriter, changes: Mapping[str, ViewChanges], stamps: Mapping[int, EpochStamp]) -> None:
        """Hand a group its views' changes; those that it must have whole only so, and only at an epoch not before its own."""
        if writer.lost:
            return
        mine = {v.view.name: v for v in self.parts.views if writer.name in v.sinks}
        whole = self.whole.setdefault(writer.name, set())
        out = {n: changes[n] for n in mine if n in changes and n not in whole}
        if self.epoch >= writer.epoch:
            for name in sorted(whole & mine.keys()):
                content = None if mine[name].stands else mine[name].whole(self.epoch)
                if content is not None:
                    out[name] = content
                    whole.discard(name)
        errors = {n: v.error if v.stands else "" for n, v in mine.items()}
        writer.offer(out, Frontier(self.epoch, dict(self.sources)), stamps, errors)

    def _take(self, state: ViewState, ends: Int64s) -> ViewChanges | None:
        changes = state.take(ends)
        errors = state.failing
        if errors != state.shown:
            state.shown = errors
            self.parts.metrics.view_errors.labels(state.view.name).set(errors)
        if state.stands or state.mended:
            for sink in state.sinks:
                self.whole.setdefault(sink, set()).add(state.view.name)
        if not state.stands:
            state.frontier = self.epoch
        return changes

    def _released(self) -> bool:
        """Whether every source has passed what the sinks already hold; then nothing is held back any more.

        While the log is followed, what was read may wait for its turn, and is in no view yet.
        """
        if self.parts.reclock.replaying is not None:
            return False
        if not self.hold.are_passed(self.sources, self.parts.intakes):
            return False
        self.sources = as_read(self.sources, self.parts.intakes)
        for writer in (g for g in self.parts.writers if g.name in self.hold.set_back):
            writer.set_back()
        return True

    def written(self, sink: str, frontier: Frontier, stamps: Mapping[int, EpochStamp], seconds: float) -> None:
        """A sink holds `frontier` now (called on its thread)."""
        metrics = self.parts.metrics
        metrics.sink_seconds.labels(sink).observe(seconds)
        metrics.sink_epoch.labels(sink).set(frontier.epoch)
        stages = self._latency.stages(stamps, self.parts.wall(), seconds)
        metrics.traced(sink, stages)
        seconds_each = np.array([stage.total for stage in stages], np.float64)
        for state in self.parts.views:
            if sink in state.sinks and not state.stands:
                metrics.freshness.labels(state.view.name, sink).observe_all(seconds_each)

    def checkpoint(self, *, force: bool = False) -> None:
        """Capture now and then; write a capture once every sink holds its epoch."""
        self.checkpoints.look()
        if self.checkpoints.due(self.epoch, force=force) and self.parts.reclock.replaying is None and not self.hold:
            self.checkpoints.capture(self.epoch, self.sources)
        written = min((g.epoch for g in self.attached), default=self.epoch)
        self.checkpoints.settle(written)
        self._latency.forget(written)

    def drain(self) -> Sequence[str]:
        """Let every sink write what it was offered, then take a last checkpoint; what there was no time for, by name."""
        self.tasks.close()
        self._drain_by = self._drain_by or self.parts.clock() + DRAIN_SECONDS
        left = [g.name for g in self.parts.writers if not g.drain(self._seconds_left()) and g.attached]
        written = self.checkpoints.wait(self._seconds_left())
        if written:
            self.checkpoints.drop()
            self.checkpoint(force=True)
            written = self.checkpoints.wait(self._seconds_left())
        return left if written and self.checkpoints.store_away is None else [*left, "checkpoint"]

    def _seconds_left(self) -> float:
        return max(0.0, (self._drain_by or 0.0) - self.parts.clock())

    def _behind(self) -> bool:
        behind = any(g.epoch < self.epoch for g in self.attached) or self.waiting() is not None
        return behind or not all(i.source.at_end() for i in self.parts.intakes)

    def waiting(self) -> tuple[str, Incomplete] | None:
        """The source whose oldest transaction is incomplete, and what it waits for."""
        for intake in self.parts.intakes:
            found = intake.assembler.waiting()
            if found is not None:
                return intake.name, found
        return None

    @property
    def ready(self) -> tuple[bool, str]:
        """Whether every sink has caught up with its sources once."""
        if self._caught_up:
            stopped = [f"{i.name}: {s.text}" for i in self.parts.intakes for s in i.assembler.stops]
            detached = [f"{g.name}: {g.detachment.error}" for g in self.parts.writers if g.detachment is not None]
            told = [f"\nstopped {text}" for text in stopped] + [f"\ndetached {text}" for text in detached]
            return True, "".join(told)
        waiting = self.waiting()
        return False, f"{waiting[0]}: {waiting[1]}" if waiting else "catching up"
