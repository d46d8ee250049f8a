"""Transactions that no topic holds: what a resync found, what a dead letter brought. Kept on disk, as nobody could read
them again.

Always: an injected transaction is durable before its binding is, so that a restart gives the same epoch the same rows;
it is kept until a checkpoint holds its epoch. Called by the reclock; the runtime says what may be forgotten.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.connectors.changes import TableChanges, lanes
from headrace.connectors.commit_place import CommitPlace, place_of
from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.batch.updates import UInt8s
from headrace.engine.errors import HeadraceError
from headrace.sidecar.state.filesystem import LOCAL, Disk, replace_whole
from headrace.sidecar.state.objects import Objects
from headrace.sidecar.transactions.model import Resync
from headrace.sidecar.transactions.partial import RowRange

_DIGEST = 20


class InjectedError(HeadraceError):
    """Rows that were injected cannot be kept or read."""

    code = "state"


def injected(
    table: str, rows: pa.RecordBatch, kinds: UInt8s, place: CommitPlace, commit_us: int,
    errors: Mapping[str, int] | None = None, *, whole: bool = True, letter: str = "",
) -> Resync:  # fmt: skip
    """A transaction of a table's changes, in their order. `place`, `commit_us`: where its source stands. `errors`: what becomes
    of the table's errors: message → change. `whole`: the table is as its source has it from here on; `letter`: the dead letter
    that brought them.
    """
    n = len(kinds)
    changes = TableChanges(
        table, "", 0, rows, kinds, lanes(n, -1), lanes(n, Resync.id), np.arange(n, dtype=np.int64), lanes(n, place.order),
        lanes(n, commit_us), np.zeros(n, np.uint8), np.ones(n, np.bool_), lanes(n),
    )  # fmt: skip
    slices = (RowRange(changes, 0, n),) if n else ()
    return Resync(
        place, commit_us, slices, table=table, whole=whole, letter=letter, errors={table: errors} if errors else {}
    )


class Rows(Protocol):
    """Where injected rows lie, by the epoch that they are bound to. Every failure is an OSError."""

    def where(self, epoch: int) -> object:
        """How errors call the place of an epoch."""

    def put(self, epoch: int, parts: Sequence[bytes]) -> None:
        """Keep the rows of an epoch, durably; a run does so once."""

    def get(self, epoch: int) -> bytes:
        """The rows that the newest run has put there."""

    def forget(self, upto: int) -> None:
        """Let go of the epochs ≤ `upto`."""


class FolderRows:
    """Files of a generation's folder: see `Rows`."""

    def __init__(self, folder: Path, disk: Disk = LOCAL) -> None:
        self._folder, self._disk = folder, disk

    def where(self, epoch: int) -> Path:
        """See `Rows.where`."""
        return self._folder / f"{epoch}.rows"

    def put(self, epoch: int, parts: Sequence[bytes]) -> None:
        """See `Rows.put`."""
        path = self.where(epoch)
        with suppress(FileExistsError):
            self._disk.make_folder(self._folder, 0o700)
        replace_whole(self._disk, path, parts)
        self._disk.sync_folder(self._folder.parent)

    def get(self, epoch: int) -> bytes:
        """See `Rows.get`."""
        return self._disk.read(self.where(epoch))

    def forget(self, upto: int) -> None:
        """See `Rows.forget`."""
        for name in self._disk.names(self._folder):
            if int(Path(name).stem) <= upto:
                self._disk.remove(self._folder / name)


class ObjectRows:
    """Objects of a store, each run's under its number: see `Rows`. What a run put that lost the epoch log to a later one is
    passed over, as that one bound the epoch anew."""

    def __init__(self, objects: Objects, generation: int) -> None:
        self._objects, self._generation = objects, generation

    def where(self, epoch: int) -> str:
        """See `Rows.where`."""
        return f"{self._objects.where}/{self._name(self._generation, epoch)}"

    def put(self, epoch: int, parts: Sequence[bytes]) -> None:
        """See `Rows.put`."""
        self._objects.put(self._name(self._generation, epoch), parts)

    def get(self, epoch: int) -> bytes:
        """See `Rows.get`."""
        found = [run for run, at, _ in self._all() if at == epoch and run <= self._generation]
        return self._objects.get(self._name(max(found, default=self._generation), epoch))

    def forget(self, upto: int) -> None:
        """See `Rows.forget`."""
        for run, epoch, name in self._all():
            if epoch <= upto and run <= self._generation:
                self._objects.delete(name)

    def _all(self) -> list[tuple[int, int, str]]:
        names = self._objects.names("injected/")
        return [(int(name.split("/")[1]), int(name.split("/")[2].partition(".")[0]), name) for name in names]

    @staticmethod
    def _name(run: int, epoch: int) -> str:
        return f"injected/{run:06d}/{epoch}.rows"


class Injected:
    """The injected transactions of one generation. Single writer: the loop."""

    def __init__(self, rows: Path | Rows, reached: Reached = unwatched, disk: Disk = LOCAL) -> None:
        self._rows: Rows = FolderRows(rows, disk) if isinstance(rows, Path) else rows
        self._reached = reached

    def keep(self, epoch: int, transaction: Resync) -> None:
        """Write and sync a transaction that is about to be bound to `epoch`. Raises InjectedError."""
        changes = [s.changes for s in transaction.slices]
        table = transaction.table
        facts: dict[str, object] = {
            "table": table,
            "whole": transaction.whole,
            "letter": transaction.letter,
            **transaction.place.json(),
            "commit_us": transaction.commit_us,
            "errors": dict(transaction.errors.get(table, {})),
        }
        data = _written(changes, facts)
        try:
            self._rows.put(epoch, [hashlib.blake2b(data, digest_size=_DIGEST).digest(), data])
        except OSError as error:
            raise InjectedError(f"cannot keep the rows of a resync: {error.strerror}", file=self._rows.where(epoch),
                                hint="free disk space; nothing of it was published") from error  # fmt: skip
        self._reached("injected")

    def load(self, epoch: int) -> Resync:
        """The transaction bound to `epoch`. Raises InjectedError naming its file."""
        try:
            data = self._rows.get(epoch)
            if hashlib.blake2b(data[_DIGEST:], digest_size=_DIGEST).digest() != data[:_DIGEST]:
                raise ValueError("it says something else than was written")
            return _read(data[_DIGEST:])
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise InjectedError("the rows of a resync cannot be read again", file=self._rows.where(epoch), epoch=epoch,
                                hint="restore the state folder, or start with an empty one") from error  # fmt: skip

    def forget(self, upto: int) -> None:
        """A checkpoint holds every epoch ≤ `upto`. Where that fails now, the next checkpoint tries again."""
        with suppress(OSError):
            self._rows.forget(upto)


def _written(changes: Sequence[TableChanges], facts: Mapping[str, object]) -> bytes:
    """The length of the facts, the facts as JSON, and the rows, of which there is at most one run, as an Arrow stream. One kind
    stands for all rows where it is that of all."""
    sink = pa.BufferOutputStream()
    kinds = [c.kinds[:1] if (c.kinds == c.kinds[0]).all() else c.kinds for c in changes]
    text = json.dumps({**facts, "kinds": [some.tolist() for some in kinds]}).encode()
    sink.write(len(text).to_bytes(8, "little") + text)
    for each in changes:
        with pa.ipc.new_stream(sink, each.rows.schema) as stream:
            stream.write_batch(each.rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(data: bytes) -> Resync:
    size = int.from_bytes(data[:8], "little")
    facts = json.loads(data[8 : 8 + size])
    rows, kinds = pa.RecordBatch.from_arrays([], []), np.zeros(0, np.uint8)
    if facts["kinds"]:
        kinds = np.array(facts["kinds"][0], np.uint8)
        with pa.ipc.open_stream(pa.BufferReader(data[8 + size :])) as stream:
            rows = stream.read_next_batch()
        kinds = np.full(rows.num_rows, kinds[0]) if len(kinds) == 1 else kinds
    return injected(
        facts["table"],
        rows,
        kinds,
        place_of(facts),
        facts["commit_us"],
        facts["errors"],
        whole=facts["whole"],
        letter=facts.get("letter", ""),
    )
