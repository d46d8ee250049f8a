"""Reclock alone mints epochs: it binds whole source transactions, in order, to consecutive epochs, durably.

Always: a binding is on disk before `settle` returns, which the runtime calls before a sink or a manifest may carry it;
one epoch is one transaction; after a restart the same transactions get the same epochs, because what the log says about
epochs beyond the checkpoint is followed to the letter (also the interleaving of several sources). The log is one line a run
of epochs (`headrace.sidecar.epochs.epoch_binding`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from pathlib import Path
from typing import assert_never

from headrace.connectors.source import Positions
from headrace.connectors.step_hooks import Reached, unwatched
from headrace.sidecar.epochs.epoch_binding import (
    OF_NO_TRANSACTION,
    Binding,
    BoundTransaction,
    Counted,
    Past,
    ReclockError,
    counted,
    from_epoch,
    kept,
    of_one_kind,
)
from headrace.sidecar.epochs.log_index import EpochLog, LogIndex
from headrace.sidecar.epochs.reorder_buffer import Held, limits_of, reached, split, starts_of
from headrace.sidecar.epochs.source_batch import SourceBatch
from headrace.sidecar.state.filesystem import LOCAL, Disk, replace_whole
from headrace.sidecar.state.synthetic_transactions import Injected
from headrace.sidecar.transactions.model import (
    EpochKind,
    IncrementalRows,
    Marker,
    Microbatch,
    ReplayOrder,
    Resync,
    SnapshotTransaction,
    Transaction,
    as_bound,
    goes_on,
)
from headrace.sidecar.transactions.partial import Place, RowRange


class ReclockLog:
    """The file of bindings: appended and synced; a torn last line is cut off when opened.

    `executor`: where it is synced, so that the engine's step need not wait for the disk; without it `append` waits. `before`: a
    checkpoint holds all epochs before this one, which are `past`; `bindings` are the others.
    """

    def __init__(
        self, path: Path, executor: Executor | None = None, reached: Reached = unwatched, disk: Disk = LOCAL,
        before: int = 0,
    ) -> None:  # fmt: skip
        self._path, self._disk = path, disk
        self._reached = reached
        self._executor = executor
        self._syncing: Future[None] | None = None
        self._index = LogIndex()
        try:
            with ExitStack() as undo:
                self._file = disk.open(path)
                undo.callback(self._file.close)
                disk.sync_folder(path.parent)
                good = self._index.read(disk.map(path), before, path) if self._file.size else 0
                undo.pop_all()
        except OSError as error:
            raise ReclockError(f"cannot open the reclock log: {error.strerror}", file=path,
                               hint="make the state folder readable and writable") from error  # fmt: skip
        if good != self._file.size:
            self._file.cut(good)

    @property
    def past(self) -> Past:
        """See `EpochLog`."""
        return self._index.past

    @property
    def bindings(self) -> list[Binding]:
        """See `EpochLog`."""
        return self._index.bindings

    @property
    def bound(self) -> Sequence[range]:
        """See `EpochLog.bound`."""
        return self._index.bound

    def started(self) -> None:
        """See `EpochLog.started`."""
        self._index.started()

    def append(self, bindings: Sequence[Binding]) -> None:
        """Write, and begin to sync. Raises ReclockError when the disk refuses."""
        self.settle()
        data = b"".join(b.line() for b in bindings)
        self._reached("reclock append")
        try:
            written = self._file.append(data)
        except OSError as error:
            raise self._refused(error) from error
        if written != len(data):
            raise ReclockError("the reclock log was written in part", file=self._path, hint="free disk space")
        self._index.count(bindings)
        self._reached("reclock written")
        if self._executor is None:
            self._sync()
        else:
            self._syncing = self._executor.submit(self._sync)

    def settle(self) -> None:
        """Wait until all that was appended is on disk. Raises ReclockError when the disk refuses."""
        if self._syncing is not None:
            syncing, self._syncing = self._syncing, None
            syncing.result()

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            raise self._refused(error) from error
        self._reached("reclock synced")

    def _refused(self, error: OSError) -> ReclockError:
        gone = isinstance(error, FileNotFoundError)
        remedy = "another run has begun and swept it, or it was removed" if gone else "free disk space"
        return ReclockError(
            f"cannot write the reclock log: {error.strerror}", file=self._path,
            hint=f"{remedy}; nothing was published beyond the last binding",
        )  # fmt: skip

    def forget(self, before: int, keep: int) -> None:
        """Drop bindings whose epochs are all < `before`, but for each source's newest `keep` epochs of transactions among these,
        by which its repetitions are known however much has been bound since, and as many others. The file is written anew
        and renamed, where at least half of its epochs go: to write the others costs no more than to bind these did.

        Raises ReclockError when the disk refuses; the log then still stands.
        """
        if not self._index.may_forget(keep):
            return
        self.settle()
        try:
            self._rewrite(before, keep)
        except OSError as error:
            raise self._refused(error) from error

    def _rewrite(self, before: int, keep: int) -> None:
        data, spans, left = self._disk.map(self._path), list[slice](), Counter[Counted]()
        for span, body in kept(data, before, keep):
            left[counted(body["source"], body["kind"])] += len(body["ids"])
            if spans and spans[-1].start == span.stop:
                spans[-1] = slice(span.start, spans[-1].stop)
            else:
                spans.append(span)
        parts = (memoryview(data)[span] for span in reversed(spans))
        replace_whole(self._disk, self._path, parts, ("reclock trimmed", "reclock replaced"), self._reached)
        self._file.close()
        self._file, self._index.epochs = self._disk.open(self._path), left

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._file.size

    def close(self) -> None:
        """Let go of the file."""
        try:
            self.settle()
        finally:
            self._file.close()


class Reclock:
    """Binds transactions to epochs. `frontier`: the next epoch to mint; epochs < `frontier` are bound.

    `injected`: where transactions are kept that no topic holds.
    """

    def __init__(self, log: EpochLog, frontier: int = 1, injected: Injected | None = None) -> None:
        self._log = log
        self._injected = injected
        self.frontier = frontier
        replayed = [b for b in log.bindings if b.first + len(b.stamps) > frontier]
        self._expected: deque[Binding] = deque(from_epoch(b, frontier) for b in replayed)
        self._skip = 0
        self._held: dict[str, Held] = {}
        self._passed: dict[str, set[Place]] = {}
        self._last: dict[str, BoundTransaction] = {}
        self._last_positions: dict[str, Positions] = {}
        self._next_positions: dict[str, Positions] = {}

    @property
    def replaying(self) -> Binding | None:
        """The binding that must come next, because the log has it, or None."""
        return self._expected[0] if self._expected else None

    def drop_stale_by(self, source: str, standing: Callable[[RowRange, int], Sequence[RowRange]]) -> None:
        """Before a source's first batch: how rows of its incremental snapshots that count no more are told (see `Held`)."""
        self._held[source] = Held(standing=standing)

    def bind(self, batch: SourceBatch) -> list[tuple[Binding, list[Transaction]]]:
        """Bind what a source completed.

        While the log is ahead, its order is followed, and what comes before its turn is held. Returns runs of epochs
        with their transactions, in epoch order; they are durable once `settle` returns.
        """
        source = batch.source
        self._held.setdefault(source, Held()).add(batch.transactions)
        self._passed.setdefault(source, set()).update(batch.passed)
        self._last_positions[source] = batch.positions
        self._next_positions[source] = batch.positions if batch.resume_positions is None else batch.resume_positions
        out: list[tuple[Binding, list[Transaction]]] = []
        while self._expected:
            replayed = self._follow(self._expected[0])
            if replayed is None:
                return out
            out.append(replayed)
            last = self._expected.popleft().stamps[-1]
            self._last[last.source] = last
        self.frontier = max(self.frontier, self._skip)
        fresh = []
        for name, held in self._held.items():
            before = self._last.get(name)
            if waiting := deque(held.take(before)):
                stamps = tuple(BoundTransaction(name, t.kind, t.id, t.place, t.commit_us) for t in waiting)
                for kind_run in of_one_kind(stamps):
                    run = [waiting.popleft() for _ in kind_run]
                    rows = run[0].slices if isinstance(run[0], IncrementalRows) else ()
                    here = self._next_positions[name]
                    over = tuple(sorted(self._passed.pop(name, ())))
                    binding = Binding(self.frontier, tuple(kind_run), here, limits_of(rows), starts_of(rows), over)
                    for epoch, transaction in enumerate(run, self.frontier):
                        if self._injected is not None and isinstance(transaction, Resync):
                            self._injected.keep(epoch, transaction)
                    self.frontier += len(run)
                    fresh.append((binding, run))
        if fresh:
            self._log.append([b for b, _ in fresh])
        return out + fresh

    def settle(self) -> None:
        """Wait until everything bound is durable. Raises ReclockError when the disk refuses."""
        self._log.settle()

    def _follow(self, binding: Binding) -> tuple[Binding, list[Transaction]] | None:
        """The transactions of a binding in the log, if they are all here again."""
        run = self._come_again(binding, self._held.get(binding.source, Held()))
        if run is None:
            return None
        self.frontier = binding.first + len(binding.stamps)
        return binding, run

    def _come_again(self, binding: Binding, held: Held) -> list[Transaction] | None:
        """The transactions that a binding names, taken out of what is here; None where some are still to come."""
        kind, here = binding.stamps[0].kind, self._last_positions.get(binding.source, {})
        match kind:
            case EpochKind.MICROBATCH:
                return self._rows_before(binding, held) if reached(here, binding.positions) else None
            case EpochKind.INCREMENTAL:
                rows = held.take_rows(binding.starts, binding.limits) if reached(here, binding.limits) else None
                stamp = binding.stamps[0]
                return None if rows is None else [IncrementalRows(stamp.place, stamp.commit_us, rows)]
            case EpochKind.MARKER:
                made = [Marker(s.place, s.commit_us) for s in binding.stamps]
                return list(made) if reached(here, binding.positions) else None
            case EpochKind.RESYNC if self._injected is not None:
                return [self._injected.load(epoch) for epoch, _ in enumerate(binding.stamps, binding.first)]
            case EpochKind.TRANSACTION | EpochKind.SNAPSHOT | EpochKind.LATER_SNAPSHOT:
                as_bound(held.whole, ((stamp.id, stamp.place.order) for stamp in binding.stamps))
                return self._from_front(binding, held)
            case EpochKind.VERSION | EpochKind.REPAIR | EpochKind.RESYNC:
                return self._from_front(binding, held)
            case _:
                assert_never(kind)

    def _from_front(self, binding: Binding, held: Held) -> list[Transaction] | None:
        """The oldest transactions here, which must be those of the binding. Raises ReclockError."""
        if not held.whole:
            return None
        stamp, whole = binding.stamps[0], len(held.whole) >= len(binding.stamps)
        if stamp.kind is EpochKind.SNAPSHOT and held.whole[0].kind is not EpochKind.SNAPSHOT:
            # all of its rows were of tables that were suspended, and there is no such table any more
            return [SnapshotTransaction(stamp.place, stamp.commit_us)] if whole else None
        _check_same(binding, held.whole)
        return [held.with_rows(held.whole.popleft()) for _ in binding.stamps] if whole else None

    def _rows_before(self, binding: Binding, held: Held) -> list[Transaction]:
        """Rows without transactions: those before the logged offsets are the epoch, the rest wait."""
        stamp = binding.stamps[0]
        rows = (s for t in held.whole if isinstance(t, Microbatch) for s in t.slices)
        before, beyond = split(rows, binding.positions)
        made = [Microbatch(stamp.place, stamp.commit_us, tuple(s), id=stamp.id) for s in (before, beyond)]
        others = [t for t in held.whole if not isinstance(t, Microbatch)]
        held.whole = deque((*others, *(made[1:] if beyond else ())))
        return [made[0]]

    def passed(self, source: str) -> frozenset[Place]:
        """The records that the transactions of a source which the log has, and which come again, are without."""
        return frozenset(place for b in self._expected if b.source == source for place in b.passed)

    def checkpointed(self, epoch: int) -> None:
        """A checkpoint holds every epoch ≤ `epoch`: what was injected until then is in it."""
        if self._injected is not None:
            self._injected.forget(epoch)

    def skip_to(self, epoch: int) -> None:
        """Mint nothing below `epoch` from now on: a sink has seen such epochs with another meaning."""
        self._skip = max(self._skip, epoch)

    def bound_transactions(self, source: str, before: int) -> Iterable[tuple[int, int]]:
        """(id, order of its place) of a source's transactions that the log binds to epochs < `before`, oldest first."""
        yield from self._log.past.transactions(source)
        for binding in self._log.bindings:
            if binding.source == source and binding.stamps[0].kind not in OF_NO_TRANSACTION:
                for epoch, stamp in enumerate(binding.stamps, binding.first):
                    if epoch < before:
                        yield stamp.id, stamp.place.order

    def ahead(self, source: str) -> ReplayOrder:
        """Where tables of a source that were suspended go on: where the log has it, or after all that it has; and a later
        snapshot."""
        ahead = [s for b in self._expected if b.source == source for s in b.stamps]
        again = next((i for i, s in enumerate(ahead) if s.kind is EpochKind.LATER_SNAPSHOT), None)
        before = (
            None
            if again is None
            else max((s.place.order for s in ahead[:again] if s.kind is EpochKind.TRANSACTION), default=-1)
        )
        later = -1 if again is None else ahead[again].place.order
        first = next((s.place.order for s in ahead if s.kind is EpochKind.REPAIR), None)
        last = max((s.place.order for s in ahead if s.kind is EpochKind.TRANSACTION), default=-1)
        snapshot = next((s.place.order for s in ahead if s.kind is EpochKind.SNAPSHOT), -1)
        chunks = any(s.kind is EpochKind.INCREMENTAL for s in ahead)
        return ReplayOrder(last if first is None else first, first is not None, before, later, last, snapshot, chunks)

    def started(self) -> None:
        """Recovery is over: let go of what was read from the log."""
        self._log.started()


def _check_same(binding: Binding, held: Iterable[Transaction]) -> None:
    """Raise ReclockError where what is held is not what the log has bound, even if more is still to come: of a snapshot that
    took the place of another there may be fewer portions, and no more ever come."""
    for stamp, found in zip(binding.stamps, held, strict=False):
        same = (stamp.id, stamp.place) == (found.id, found.place)
        # a snapshot without rows has no LSN, which may be for want of tables that are read now, or were then
        same |= stamp.kind is found.kind is EpochKind.SNAPSHOT and min(stamp.place.order, found.place.order) <= 0
        if not same or (goes_on(found) and stamp is binding.stamps[-1]):
            raise ReclockError(
                "the source gives other transactions than the log has bound", source=binding.source,
                epoch=binding.first, bound=f"{stamp.id}:{stamp.place.order}", found=f"{found.id}:{found.place.order}",
                hint="its topics were changed since: start with an empty state folder",
            )  # fmt: skip
