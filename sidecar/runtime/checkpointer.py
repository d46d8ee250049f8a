"""Checkpoints: captures the state now and then, writes the capture, and commits offsets once it is written.

Always: a manifest carries an epoch only once every attached sink holds it; offsets are committed and the log is trimmed only
after their manifest. The executor writes; everything else happens on the loop's thread. The loop calls `turn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

from headrace.connectors.sink import SourceFrontier
from headrace.engine.errors import HeadraceError
from headrace.sidecar.runtime.components import RuntimeComponents
from headrace.sidecar.state.batch_store import Files, StoreAway
from headrace.sidecar.state.checkpoint import Capture, Manifest, ViewRecord

LOG_BYTES = 32 << 20
"""Size at which the reclock log is trimmed to what repetitions may still need."""
LOG_EPOCHS = 200_000
"""Of each source, how many of those before the checkpoint are left then."""


class Checkpointer:
    """The checkpoints of one run. `epoch`: of the last complete one. `wall`: the wall-clock second of the last one, or of the
    start. `store_away`: why none can be written, and since which wall-clock second; None while the store answers."""

    def __init__(self, parts: RuntimeComponents, epoch: int) -> None:
        self.epoch = epoch
        self.wall: float = parts.wall()
        self.store_away: tuple[StoreAway, float] | None = None
        self._parts = parts
        self._captured: Capture | None = None
        self._writing: Future[Manifest] | None = None
        self._last = parts.clock()
        self._suspended = False
        self._lent: Future[Files] | None = None

    def due(self, epoch: int, *, force: bool = False) -> bool:
        """Whether a capture at `epoch` should be taken. Each time that it is due counts as a try, whatever comes of it."""
        if not force and (self._suspended or self._parts.clock() - self._last < self._parts.checkpoint_seconds):
            return False
        if self._lent is not None and not self._lent.done():
            return False  # the dataflow holds one state at a time
        if self._captured is not None or self._writing is not None or epoch <= self.epoch:
            return False
        self._last = self._parts.clock()
        return True

    def capture(self, epoch: int, sources: Mapping[str, SourceFrontier]) -> None:
        """Take a capture of everything as of `epoch`, which waits until every attached sink holds it."""
        self._captured = self._capture(epoch, sources)

    def settle(self, written: int) -> None:
        """Write the capture if every attached sink holds its epoch; `written`: the oldest epoch that one of them holds."""
        if self._captured is not None and written >= self._captured.epoch:
            capture, self._captured = self._captured, None
            self._writing = self._parts.executor.submit(self._write, capture)

    def look(self) -> None:
        """Take note of a checkpoint that has been written meanwhile. Raises what its writing raised."""
        if self._writing is not None and self._writing.done():
            self.wait(0.0)

    @property
    def writing(self) -> Future[Manifest] | None:
        """The checkpoint that is being written."""
        return self._writing

    def wait(self, seconds: float | None) -> bool:
        """Wait so long, or without end, for the checkpoint that is being written, and for what is lent; whether none is any more.
        Raises what its writing raised."""
        if self._lent is not None:
            try:
                self._lent.result(seconds)
            except TimeoutError:
                return False
            except HeadraceError:
                pass  # whoever it is lent to hears of it
            self._lent = None
        if self._writing is not None:
            try:
                manifest = self._writing.result(seconds)
            except TimeoutError:
                return False
            except StoreAway as away:
                self._writing = None
                self.store_away = away, self._parts.wall() if self.store_away is None else self.store_away[1]
                return True
            self._writing = None
            self._finish(manifest)
        return True

    def drop(self) -> None:
        """Let go of the capture that waits for sinks."""
        self._captured = None

    def clear(self) -> None:
        """Have none under way: what is being written is waited for, what waits for sinks is dropped and taken anew soon."""
        self._captured, self._last = None, float("-inf")
        self.wait(None)

    def lend(self) -> Future[Files] | None:
        """What the state is as of now, written for others to begin with: no checkpoint is begun until `resume`, but the last one
        of a run. None while one is being written; what waits for sinks is dropped."""
        self._suspended, self._captured = True, None
        self.look()
        if self._writing is not None:
            return None
        self._lent = self._parts.executor.submit(self._parts.flow.hold())
        return self._lent

    def resume(self) -> None:
        """Begin checkpoints again."""
        self._suspended = False

    def _capture(self, epoch: int, sources: Mapping[str, SourceFrontier]) -> Capture:
        parts, intakes = self._parts, self._parts.intakes
        return Capture(
            epoch=epoch,
            sources=dict(sources),
            write=parts.flow.hold(),
            views={
                v.view.name: ViewRecord(parts.fingerprints[v.view.name], dict(v.errors), v.rows) for v in parts.views
            },
            tables=parts.table_facts,
            topic_ids={i.name: i.source.topic_ids() for i in intakes},
            stopped={i.name: [s.json() for s in i.assembler.stops if s.told] for i in intakes},
            sinks={g.name: g.epoch for g in parts.writers},
            workers=parts.flow.count,
            lost={i.name: i.lost.json() for i in intakes},
            beats={i.name: i.beats.json() for i in intakes},
            remembered={i.name: i.assembler.remembered() for i in intakes},
            commands=parts.commands.json(),
        )

    def _write(self, capture: Capture) -> Manifest:
        started = self._parts.clock()
        manifest = self._parts.store.write(capture)
        self._parts.metrics.checkpoint_seconds.set(self._parts.clock() - started)
        return manifest

    def _finish(self, manifest: Manifest) -> None:
        parts = self._parts
        self.epoch, self.wall, self.store_away = manifest.epoch, parts.wall(), None
        parts.metrics.checkpoints.inc()
        for intake in parts.intakes:
            if intake.name in manifest.sources:
                intake.source.commit(manifest.sources[intake.name].positions)
        parts.reached("offsets committed")
        parts.reclock.checkpointed(manifest.epoch)
        stopped = any(i.assembler.stops for i in parts.intakes)  # what they are owed is told apart by the log
        if parts.log_size() > LOG_BYTES and not stopped:
            parts.forget(manifest.epoch, LOG_EPOCHS)
        parts.metrics.observed(parts.flow.facts(), {i.name: i.lags() for i in parts.intakes})
