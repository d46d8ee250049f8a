"""Reclock alone mints epochs: it binds whole source transactions, in order, to consecutive epochs, durably.

Always: a binding is on disk before `settle` returns, which the runtime calls before a sink or a manifest may carry it;
one epoch is one transaction; after a restart the same transactions get the same epochs, because what the log says about
epochs beyond the checkpoint is followed to the letter (also the interleaving of several sources). The log is one line a run
of epochs (`sidecar.bindings`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from pathlib import Path

from connectors.durable import Reached, unwatched
from connectors.source import Positions
from sidecar.bindings import (
    NOTHING,
    OF_NO_TRANSACTION,
    Binding,
    Counted,
    Past,
    ReclockError,
    Stamp,
    body_of,
    counted,
    from_epoch,
    kept,
    lines,
    of_one_kind,
)
from sidecar.disk import LOCAL, Buffer, Disk
from sidecar.held import Held, limits_of, reached, split, starts_of
from sidecar.injected import RESYNC, Injected
from sidecar.pending import Place, Slice
from sidecar.transactions import ADOPTED, CHUNK, RESNAPSHOT, Ahead, Transaction, as_bound


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
        self._epochs = Counter[Counted]()
        self.past = Past()
        self.bindings: list[Binding] = []
        try:
            with ExitStack() as undo:
                self._file = disk.open(path)
                undo.callback(self._file.close)
                disk.sync_folder(path.parent)
                good = self._read(disk.map(path), before) if self._file.size else 0
                undo.pop_all()
        except OSError as error:
            raise ReclockError(f"cannot open the reclock log: {error.strerror}", file=path,
                               hint="make the state folder readable and writable") from error  # fmt: skip
        if good != self._file.size:
            self._file.cut(good)

    def _read(self, data: Buffer, before: int) -> int:
        """Take in what a log holds; how many bytes of it are whole. Raises ReclockError where more than its end is not."""
        good = end = 0
        for line in lines(data):
            try:
                body = body_of(line)
                if body["first"] < end:
                    raise ValueError("these epochs were bound before")
                end = body["first"] + len(body["ids"])
                if end <= before:
                    self.past.add(body)
                else:
                    self.bindings.append(Binding.of(body))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if good + len(line) == len(data):
                    break
                raise ReclockError("the reclock log is damaged", file=self._path, byte=good,
                                   hint="restore the state folder, or start with an empty one") from error  # fmt: skip
            self._epochs[counted(body["source"], body["kind"])] += len(body["ids"])
            good += len(line)
        return good

    @property
    def bound(self) -> Sequence[range]:
        """The epochs that it bound when it was opened."""
        return [*self.past.runs, *(b.epochs for b in self.bindings)]

    def started(self) -> None:
        """Let go of what was read."""
        self.past, self.bindings = Past(), []

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
        for binding in bindings:
            self._epochs[counted(binding.source, binding.stamps[0].kind)] += len(binding.stamps)
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
        if 2 * sum(max(0, n - keep) for n in self._epochs.values()) < max(1, self._epochs.total()):
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
        fresh = self._path.with_suffix(".new")
        self._disk.write(fresh, (memoryview(data)[span] for span in reversed(spans)))
        self._reached("reclock trimmed")
        self._disk.replace(fresh, self._path)
        self._disk.sync_folder(self._path.parent)
        self._reached("reclock replaced")
        self._file.close()
        self._file, self._epochs = self._disk.open(self._path), left

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

    def __init__(self, log: ReclockLog, frontier: int = 1, injected: Injected | None = None) -> None:
        self._log = log
        self._injected = injected
        self.frontier = frontier
        replayed = [b for b in log.bindings if b.first + len(b.stamps) > frontier]
        self._expected: deque[Binding] = deque(from_epoch(b, frontier) for b in replayed)
        self._skip = 0
        self._held: dict[str, Held] = {}
        self._passed: dict[str, set[Place]] = {}
        self._last: dict[str, Stamp] = {}
        self._last_positions: dict[str, Positions] = {}
        self._next_positions: dict[str, Positions] = {}

    @property
    def replaying(self) -> Binding | None:
        """The binding that must come next, because the log has it, or None."""
        return self._expected[0] if self._expected else None

    def bind(
        self,
        source: str,
        transactions: Sequence[Transaction],
        positions: Positions,
        resumed: Positions | None = None,
        standing: Callable[[Slice, int], Sequence[Slice]] = lambda rows, _: (rows,),
        passed: Iterable[Place] = (),
    ) -> list[tuple[Binding, list[Transaction]]]:
        """Bind what `source` completed; `positions`: its next offsets once all of them are in; `resumed`: the same, but where
        stopped tables must be read again: that is what a binding says; `standing`: see `Held`; `passed`: records that were passed
        over, of these and perhaps of later ones.

        While the log is ahead, its order is followed, and what comes before its turn is held. Returns runs of epochs
        with their transactions, in epoch order; they are durable once `settle` returns.
        """
        self._held.setdefault(source, Held(standing=standing)).add(transactions)
        self._passed.setdefault(source, set()).update(passed)
        self._last_positions[source] = positions
        self._next_positions[source] = positions if resumed is None else resumed
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
            last = self._last.get(name, NOTHING)
            if waiting := deque(held.take(last.lsn, last.commit_us)):
                stamps = tuple(Stamp(name, t.kind, t.id, t.lsn, t.commit_us) for t in waiting)
                for kind_run in of_one_kind(stamps):
                    run = [waiting.popleft() for _ in kind_run]
                    rows = run[0].slices if kind_run[0].kind == CHUNK else ()
                    here = self._next_positions[name]
                    over = tuple(sorted(self._passed.pop(name, ())))
                    binding = Binding(self.frontier, tuple(kind_run), here, limits_of(rows), starts_of(rows), over)
                    if self._injected is not None and kind_run[0].kind == RESYNC:
                        for epoch, transaction in enumerate(run, self.frontier):
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
        of_source = self._held.get(binding.source, Held())
        held = of_source.whole
        if binding.stamps[0].kind in ("transaction", "snapshot", RESNAPSHOT):
            as_bound(held, ((stamp.id, stamp.lsn) for stamp in binding.stamps))
        if binding.stamps[0].kind in ("cut", CHUNK):
            run = self._follow_rows(binding, of_source)
        elif binding.stamps[0].kind == RESYNC and self._injected is not None:
            run = [self._injected.load(epoch) for epoch, _ in enumerate(binding.stamps, binding.first)]
        elif binding.stamps[0].kind == ADOPTED:
            here = self._last_positions.get(binding.source, {})
            made = [Transaction(s.kind, s.id, s.lsn, s.commit_us, ()) for s in binding.stamps]
            run = made if reached(here, binding.positions) else None
        elif not held:
            run = None
        elif binding.stamps[0].kind == "snapshot" != held[0].kind:
            if len(held) < len(binding.stamps):
                return None
            # all of its rows were of tables that stood still, and there is no such table any more
            stamp = binding.stamps[0]
            run = [Transaction("snapshot", stamp.id, stamp.lsn, stamp.commit_us, ())]
        else:
            _check_same(binding, held)
            whole = len(held) >= len(binding.stamps)
            run = [of_source.with_rows(held.popleft()) for _ in binding.stamps] if whole else None
        if run is not None:
            self.frontier = binding.first + len(binding.stamps)
        return None if run is None else (binding, run)

    def _follow_rows(self, binding: Binding, held: Held) -> list[Transaction] | None:
        """Rows without transactions: those before the logged offsets are the epoch, the rest wait."""
        here, stamp = self._last_positions.get(binding.source, {}), binding.stamps[0]
        limits = binding.positions if stamp.kind == "cut" else binding.limits
        if not reached(here, limits):
            return None
        if stamp.kind == CHUNK:
            inside = held.take_rows(binding.starts, limits)
        else:
            before, beyond = split((s for t in held.whole if t.kind == "cut" for s in t.slices), limits)
            inside, others = tuple(before), [t for t in held.whole if t.kind != "cut"]
            rest = [Transaction("cut", stamp.id, stamp.lsn, stamp.commit_us, tuple(beyond))] if beyond else []
            held.whole = deque((*others, *rest))
        return [Transaction(stamp.kind, stamp.id, stamp.lsn, stamp.commit_us, inside)]

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
        """(id, lsn) of a source's transactions that the log binds to epochs < `before`, oldest first."""
        yield from self._log.past.transactions(source)
        for binding in self._log.bindings:
            if binding.source == source and binding.stamps[0].kind not in OF_NO_TRANSACTION:
                for epoch, stamp in enumerate(binding.stamps, binding.first):
                    if epoch < before:
                        yield stamp.id, stamp.lsn

    def ahead(self, source: str) -> Ahead:
        """Where tables of a source that stood still go on: where the log has it, or after all that it has; and a later
        snapshot."""
        ahead = [s for b in self._expected if b.source == source for s in b.stamps]
        again = next((i for i, s in enumerate(ahead) if s.kind == RESNAPSHOT), None)
        before = None if again is None else max((s.lsn for s in ahead[:again] if s.kind == "transaction"), default=-1)
        later = -1 if again is None else ahead[again].lsn
        first = next((s.lsn for s in ahead if s.kind == "mended"), None)
        last = max((s.lsn for s in ahead if s.kind == "transaction"), default=-1)
        snapshot = next((s.lsn for s in ahead if s.kind == "snapshot"), -1)
        chunks = any(s.kind == CHUNK for s in ahead)
        return Ahead(last if first is None else first, first is not None, before, later, last, snapshot, chunks)

    def started(self) -> None:
        """Recovery is over: let go of what was read from the log."""
        self._log.started()


def _check_same(binding: Binding, held: Iterable[Transaction]) -> None:
    """Raise ReclockError where what is held is not what the log has bound, even if more is still to come: of a snapshot that
    took the place of another there may be fewer portions, and no more ever come."""
    for stamp, found in zip(binding.stamps, held, strict=False):
        same = (stamp.id, stamp.lsn) == (found.id, found.lsn)
        # a snapshot without rows has no LSN, which may be for want of tables that are read now, or were then
        same |= stamp.kind == found.kind == "snapshot" and min(stamp.lsn, found.lsn) <= 0
        if not same or (found.more and stamp is binding.stamps[-1]):
            raise ReclockError(
                "the source gives other transactions than the log has bound", source=binding.source,
                epoch=binding.first, bound=f"{stamp.id}:{stamp.lsn}", found=f"{found.id}:{found.lsn}",
                hint="its topics were changed since: start with an empty state folder",
            )  # fmt: skip
