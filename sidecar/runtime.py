"""The one loop: poll, reclock, step, emit, checkpoint, commit, compact.

Always: an epoch is bound durably before any sink or manifest carries it; a manifest carries an epoch only once every sink
that takes part holds it; offsets are committed only after their manifest. Time, waiting and the executor are handed in.
Wiring makes the parts; the local host calls `run`. It is longer than a file should be: the order of these steps is one decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Protocol

from connectors.sink import EpochStamp, Frontier, SinkState, SourceFrontier, ViewChanges
from engine.batch.updates import Upserts
from sidecar.adopted import Adopted, stands_at
from sidecar.bindings import Binding
from sidecar.budget import Memory
from sidecar.checkpoint import Capture, Manifest, ViewRecord
from sidecar.desk import Desk
from sidecar.emit import Group
from sidecar.ingest import as_read
from sidecar.parts import Parts
from sidecar.portions import ROWS, Pairs, as_published, in_steps
from sidecar.transactions import Transaction, Waiting
from sidecar.upserts import TableErrors, push, upserts
from sidecar.viewstate import ViewState
from sidecar.walks import Walk, Walks

LOG_BYTES = 32 << 20
"""Size at which the reclock log is trimmed to what repetitions may still need."""
LOG_EPOCHS = 200_000
"""Of each source, how many of those before the checkpoint are left then."""
WATCH_SECONDS = 0.25
DRAIN_SECONDS = 30.0  # for the sinks and the last checkpoint, unless `stop` says otherwise
FUEL = 20_000  # updates that idle merging may handle in one go

Feed = Callable[[int, Mapping[str, Upserts], TableErrors], None]
Told = Callable[[int, Mapping[str, ViewChanges]], None]


class Errand(Protocol):
    """Something asked for while the loop runs, that takes several turns."""

    def saw(self, transactions: Iterable[tuple[int, Transaction]]) -> None:
        """These are in now, each at its epoch, which is on disk."""

    def attend(self, runtime: Runtime) -> bool:
        """Go on as far as it goes now: all that is bound is in; whether that was all. Never raises HeadraceError."""


class Runtime:
    """The running sidecar. Single writer of everything but what sink threads own."""

    def __init__(self, parts: Parts, sources: Mapping[str, SourceFrontier], epoch: int) -> None:
        self.parts = parts
        self.sources: dict[str, SourceFrontier] = dict(sources)
        self.epoch, self.transactions = epoch, 0
        self.started = parts.wall()
        self._drain_by: float | None = None
        self.whole: dict[str, set[str]] = {}
        self.hold = Adopted()
        self.errands: list[Errand] = []
        self._pending_capture: Capture | None = None
        self._writing: Future[Manifest] | None = None
        self._checkpointed, self._last_checkpoint = epoch, parts.clock()
        self._caught_up, self._following = False, parts.reclock.replaying is not None
        self._watch: Callable[[], None] = lambda: None
        self._polled_at, self._watched = 0.0, float("-inf")
        self._walks, self.desk = Walks(), Desk()
        self.feeds: list[Feed] = []  # who is given what a step takes in: dataflows that follow this one
        self.told: list[Told] = []  # who is told what a step changed in the views

    def on_turn(self, watch: Callable[[], None]) -> None:
        """Call `watch` between two turns, every WATCH_SECONDS: what it reads stands still."""
        self._watch = watch

    def stop(self, seconds: float) -> None:
        """Ask the loop to end, and to drain within so many seconds. Called by any thread."""
        self._drain_by = self.parts.clock() + seconds
        for group in self.parts.groups:
            group.leave()

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
        self.desk.serve()
        arrived = not self._wait_for_room(timeout) and self.poll(timeout)
        self.errands = [e for e in self.errands if not e.attend(self)]
        bound = self.bind()
        if bound:
            self.step(bound)
        elif self.hold and self._released():
            self.refresh()
        for group in self.parts.groups:
            self._attend(group)
        self.checkpoint()
        if not arrived:
            self._caught_up = self._caught_up or (self.epoch > 0 and not self._behind())
            self.parts.flow.exert(FUEL)
            self.memory.rest(self.parts.clock())
        return bool(bound)

    @property
    def memory(self) -> Memory:
        """What is used of the budget."""
        return self.parts.memory

    def _wait_for_room(self, timeout: float) -> bool:
        """Read nothing this turn: memory is over its budget, and a sink or a checkpoint holds some that it will give back."""
        if not self.memory.look(self.parts.clock()):
            return False
        writing = [g for g in self.attached if g.epoch < self.epoch]
        if not writing and self._writing is None:
            return False
        started = self.parts.clock()
        if writing:
            writing[0].drain(timeout)
        elif self._writing is not None:
            wait([self._writing], timeout)
        self.parts.metrics.paused.inc(max(0.0, self.parts.clock() - started))
        return True

    def poll(self, timeout: float) -> bool:
        """Take in what arrived from every source."""
        arrived = False
        for intake in self.parts.intakes:
            before = intake.counts.events
            arrived |= intake.poll(0.0 if arrived else timeout)
            self.parts.metrics.events.labels(intake.name).inc(intake.counts.events - before)
        self._polled_at = self.parts.wall()
        return arrived

    def bind(self) -> list[tuple[Binding, list[Transaction]]]:
        """Bind what became whole to epochs; `step` sees to it that they are durable before a sink carries them. What the log
        has may wait for what is read, also where that gives nothing."""
        out, following = [], self.parts.reclock.replaying is not None
        for intake in self.parts.intakes:
            transactions = intake.complete()
            if transactions or following:
                here = intake.positions()
                out += self.parts.reclock.bind(intake.name, transactions, here, *intake.told(here))
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
        for transaction in (t for _, t in pairs if t.whole):
            for intake in self.parts.intakes:
                intake.lost.found(transaction.whole, transaction.lsn)
        self.transactions += sum(not t.more for _, t in pairs)
        self.parts.metrics.epoch.set(epoch)
        held = {i.name: i.held for i in self.parts.intakes}
        for binding, _ in bound:
            last = binding.stamps[-1]
            here = held[last.source](binding.positions)
            self.sources[last.source] = stands_at(last, here, self.sources.get(last.source))
        if self._following and self.parts.reclock.replaying is None:
            self._following, self.sources = False, as_read(self.sources, self.parts.intakes)
        newest = max(i.counts.newest_message_ms for i in self.parts.intakes) / 1000
        self.parts.reclock.settle()
        for errand in self.errands:
            errand.saw(pairs)
        self._walks.took(epoch, Walk(newest, self._polled_at, now, self.parts.wall()))
        self._emit(bound, pairs)
        self.parts.flow.advance_since(epoch)

    def _take_in(self, pairs: Pairs) -> None:
        """Bring every view to the last of these epochs."""
        epoch = pairs[-1][0]
        changes = upserts(pairs, self.parts.tables)
        errors = {at: {n: e for n, e in t.errors.items() if n in self.parts.tables} for at, t in pairs if t.errors}
        push(self.parts.flow, changes, errors)
        for feed in self.feeds:
            feed(epoch, changes, errors)
        with self.parts.metrics.step_seconds.time():
            self.parts.flow.step(epoch + 1)
        self.epoch = epoch
        self.memory.took(sum(map(len, changes.values())))

    def _emit(self, bound: Sequence[tuple[Binding, list[Transaction]]], pairs: Pairs) -> None:
        more = {epoch for epoch, t in pairs if t.more}
        stamps = {
            b.first + i: EpochStamp(s.source, s.lsn, s.commit_us)
            for b, _ in bound
            for i, s in enumerate(b.stamps)
            if b.first + i not in more
        }
        self.pause()
        changes = {v.view.name: c for v in self.parts.views if (c := self._take(v, pairs)) is not None}
        for tell in self.told:
            tell(self.epoch, changes)
        if self.hold and not self._released():
            # also a sink that is not beyond the log misses these
            for state in self.parts.views:
                for sink in state.sinks if state.view.name in changes else ():
                    self.whole.setdefault(sink, set()).add(state.view.name)
            return
        for group in self.parts.groups:
            self._offer(group, changes, stamps)

    def pause(self) -> None:
        """Let the views that name a lost column stand still, and those go on that name none any more."""
        lost = self.parts.lost
        for state in self.parts.views:
            state.pause(lost)

    def refresh(self) -> None:
        """Give every sink, at once, the views that it must have whole, where nothing has to be read first."""
        for group in self.parts.groups:
            if self.whole.get(group.name) and not self.hold and self.epoch >= max(group.epoch, 1):
                self._offer(group, {}, {})

    def give(self, group: Group, contents: Mapping[str, ViewChanges]) -> None:
        """Give a sink, at once, what it lacks of views, of which `contents` are at hand as of this epoch."""
        self.whole.setdefault(group.name, set()).difference_update(contents)
        self._offer(group, contents, {})

    def _attend(self, group: Group) -> None:
        """Hear of a sink's failure that stops us, and take one in again that was detached and is back."""
        back = group.check()
        if back is not None:
            self.reconcile(group, back.state, everything=back.lost)
            group.resume()
            self.refresh()

    def reconcile(self, group: Group, state: SinkState, *, everything: bool) -> None:
        """Decide which views a sink that was opened must be given whole: those it lacks, or all."""
        mine = {v.view.name for v in self.parts.views if group.name in v.sinks}
        mended = state.errors.keys() & {v.view.name for v in self.parts.views if not v.stands}
        self.whole[group.name] = mine if everything else mine & (state.missing | mended)

    def published(self, epoch: int) -> bool:
        """Whether a sink holds this epoch: where none does, another sidecar may have taken over, and its log is what counts."""
        return any(g.epoch >= epoch for g in self.attached)

    @property
    def attached(self) -> list[Group]:
        """The groups whose sinks take part."""
        return [g for g in self.parts.groups if g.attached]

    def _offer(self, group: Group, changes: Mapping[str, ViewChanges], stamps: Mapping[int, EpochStamp]) -> None:
        """Hand a group its views' changes; those that it must have whole only so, and only at an epoch not before its own."""
        if group.lost:
            return
        mine = {v.view.name: v for v in self.parts.views if group.name in v.sinks}
        whole = self.whole.setdefault(group.name, set())
        out = {n: changes[n] for n in mine if n in changes and n not in whole}
        if self.epoch >= group.epoch:
            for name in sorted(whole & mine.keys()):
                content = None if mine[name].stands else mine[name].whole(self.epoch)
                if content is not None:
                    out[name] = content
                    whole.discard(name)
        errors = {n: v.error for n, v in mine.items()}
        group.offer(out, Frontier(self.epoch, dict(self.sources)), stamps, errors)

    def _take(self, state: ViewState, pairs: Pairs) -> ViewChanges | None:
        changes = state.take()
        self.parts.metrics.view_errors.labels(state.view.name).set(len(state.errors) + len(state.lost))
        if state.stands or state.mended:
            for sink in state.sinks:
                self.whole.setdefault(sink, set()).add(state.view.name)
        if not state.stands:
            state.frontier = self.epoch
        return None if changes is None else as_published(changes, state.view.schema, pairs)

    def _released(self) -> bool:
        """Whether every source has passed what the sinks already hold; then nothing is held back any more.

        While the log is followed, what was read may wait for its turn, and is in no view yet.
        """
        if self.parts.reclock.replaying is not None:
            return False
        if not self.hold.are_passed(self.sources, self.parts.intakes):
            return False
        self.sources = as_read(self.sources, self.parts.intakes)
        for group in (g for g in self.parts.groups if g.name in self.hold.set_back):
            group.set_back()
        return True

    def written(self, sink: str, frontier: Frontier, stamps: Mapping[int, EpochStamp], seconds: float) -> None:
        """A sink holds `frontier` now (called on its thread)."""
        metrics = self.parts.metrics
        metrics.sink_seconds.labels(sink).observe(seconds)
        metrics.sink_epoch.labels(sink).set(frontier.epoch)
        legs = self._walks.legs(stamps, self.parts.wall())
        metrics.walked(sink, legs)
        for state in self.parts.views:
            if sink in state.sinks and not state.stands:
                histogram = metrics.freshness.labels(state.view.name, sink)
                for leg in legs:
                    histogram.observe(leg.total)

    def checkpoint(self, *, force: bool = False) -> None:
        """Capture now and then; write a capture once every sink holds its epoch; commit and trim once it is written."""
        parts = self.parts
        if self._writing is not None and self._writing.done():
            self._await_write(0.0)
        due = force or parts.clock() - self._last_checkpoint >= parts.checkpoint_seconds
        if due and self._pending_capture is None and self._writing is None and self.epoch > self._checkpointed:
            if parts.reclock.replaying is None and not self.hold:
                self._pending_capture = self._capture()
            self._last_checkpoint = parts.clock()
        capture = self._pending_capture
        if capture is not None and all(g.epoch >= capture.epoch for g in self.attached):
            self._pending_capture = None
            self._writing = parts.executor.submit(self._write, capture)
        self._walks.forget(min((g.epoch for g in self.attached), default=self.epoch))

    def _capture(self) -> Capture:
        prints, intakes = self.parts.fingerprints, self.parts.intakes
        views = {v.view.name: ViewRecord(prints[v.view.name], dict(v.errors)) for v in self.parts.views}
        ids, known = (
            {i.name: i.source.topic_ids() for i in intakes},
            {i.name: i.assembler.remembered() for i in intakes},
        )
        stopped = {i.name: [s.json() for s in i.assembler.stops if s.told] for i in intakes}
        sinks = {g.name: g.epoch for g in self.parts.groups}
        lost, beats = {i.name: i.lost.json() for i in intakes}, {i.name: i.beats.json() for i in intakes}
        flow, facts, at = self.parts.flow, self.parts.table_facts, dict(self.sources)
        return Capture(self.epoch, at, flow.hold(), views, facts, ids, stopped, sinks, flow.count, lost, beats, known)

    def _write(self, capture: Capture) -> Manifest:
        started = self.parts.clock()
        manifest = self.parts.store.write(capture)
        self.parts.metrics.checkpoint_seconds.set(self.parts.clock() - started)
        return manifest

    def _finish(self, manifest: Manifest) -> None:
        self._checkpointed = manifest.epoch
        self.parts.metrics.checkpoints.inc()
        for intake in self.parts.intakes:
            if intake.name in manifest.sources:
                intake.source.commit(manifest.sources[intake.name].positions)
        self.parts.reached("offsets committed")
        self.parts.reclock.checkpointed(manifest.epoch)
        stopped = any(i.assembler.stops for i in self.parts.intakes)  # what they are owed is told apart by the log
        if self.parts.log_size() > LOG_BYTES and not stopped:
            self.parts.forget(manifest.epoch, LOG_EPOCHS)
        self.parts.metrics.observed(self.parts.flow.facts(), {i.name: i.lags() for i in self.parts.intakes})

    def drain(self) -> Sequence[str]:
        """Let every sink write what it was offered, then take a last checkpoint; what there was no time for, by name."""
        self.desk.close()
        self._drain_by = self._drain_by or self.parts.clock() + DRAIN_SECONDS
        left = [g.name for g in self.parts.groups if not g.drain(self._seconds_left()) and g.attached]
        written = self._await_write(self._seconds_left())
        if written:
            self._pending_capture = None
            self.checkpoint(force=True)
            written = self._await_write(self._seconds_left())
        return left if written else [*left, "checkpoint"]

    def _seconds_left(self) -> float:
        return max(0.0, (self._drain_by or 0.0) - self.parts.clock())

    def _await_write(self, timeout: float) -> bool:
        """Wait for the checkpoint that is being written; whether none is any more."""
        if self._writing is not None:
            try:
                manifest = self._writing.result(timeout)
            except TimeoutError:
                return False
            self._writing = None
            self._finish(manifest)
        return True

    def _behind(self) -> bool:
        behind = any(g.epoch < self.epoch for g in self.attached) or self.waiting() is not None
        return behind or not all(i.source.at_end() for i in self.parts.intakes)

    def waiting(self) -> tuple[str, Waiting] | None:
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
            detached = [f"{g.name}: {g.trouble.error}" for g in self.parts.groups if g.trouble is not None]
            told = [f"\nstopped {text}" for text in stopped] + [f"\ndetached {text}" for text in detached]
            return True, "".join(told)
        waiting = self.waiting()
        return False, f"{waiting[0]}: {waiting[1]}" if waiting else "catching up"
