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

import numpy as np
import pyarrow as pa

from connectors.changes import TableChanges, lanes
from connectors.durable import Reached, unwatched
from engine.batch.updates import UInt8s
from engine.errors import HeadraceError
from sidecar.disk import LOCAL, Disk
from sidecar.pending import Slice
from sidecar.transactions import Transaction

RESYNC = "resync"
"""The kind of these transactions."""
RESYNC_ID = -3
_DIGEST = 20


class InjectedError(HeadraceError):
    """Rows that were injected cannot be kept or read."""

    code = "state"


def injected(
    table: str, rows: pa.RecordBatch, kinds: UInt8s, lsn: int, commit_us: int, errors: Mapping[str, int] | None = None,
    *, whole: bool = True,
) -> Transaction:  # fmt: skip
    """A transaction of a table's changes, in their order. `lsn`, `commit_us`: where its source stands. `errors`: what becomes
    of the table's errors: message → change. `whole`: the table is as its source has it from here on.
    """
    n = len(kinds)
    changes = TableChanges(
        table, "", 0, rows, kinds, lanes(n, -1), lanes(n, RESYNC_ID), np.arange(n, dtype=np.int64), lanes(n, lsn),
        lanes(n, commit_us), np.zeros(n, np.uint8), np.ones(n, np.bool_), lanes(n),
    )  # fmt: skip
    slices = (Slice(changes, 0, n),) if n else ()
    return Transaction(
        RESYNC, RESYNC_ID, lsn, commit_us, slices, {table: errors} if errors else {}, table if whole else ""
    )


class Injected:
    """The folder of one generation. Single writer: the loop."""

    def __init__(self, folder: Path, reached: Reached = unwatched, disk: Disk = LOCAL) -> None:
        self._folder, self._reached, self._disk = folder, reached, disk

    def keep(self, epoch: int, transaction: Transaction) -> None:
        """Write and sync a transaction that is about to be bound to `epoch`. Raises InjectedError."""
        changes = [s.changes for s in transaction.slices]
        table = transaction.whole or changes[0].table
        facts: dict[str, object] = {
            "table": table,
            "whole": bool(transaction.whole),
            "lsn": transaction.lsn,
            "commit_us": transaction.commit_us,
            "errors": dict(transaction.errors.get(table, {})),
        }
        data = _written(changes, facts)
        path = self._path(epoch)
        try:
            with suppress(FileExistsError):
                self._disk.make_folder(self._folder, 0o700)
            fresh = path.with_suffix(".new")
            self._disk.write(fresh, [hashlib.blake2b(data, digest_size=_DIGEST).digest(), data])
            self._disk.replace(fresh, path)
            for folder in (self._folder, self._folder.parent):
                self._disk.sync_folder(folder)
        except OSError as error:
            raise InjectedError(f"cannot keep the rows of a resync: {error.strerror}", file=path,
                                hint="free disk space; nothing of it was published") from error  # fmt: skip
        self._reached("injected")

    def load(self, epoch: int) -> Transaction:
        """The transaction bound to `epoch`. Raises InjectedError naming its file."""
        path = self._path(epoch)
        try:
            data = self._disk.read(path)
            if hashlib.blake2b(data[_DIGEST:], digest_size=_DIGEST).digest() != data[:_DIGEST]:
                raise ValueError("it says something else than was written")
            return _read(data[_DIGEST:])
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            raise InjectedError("the rows of a resync cannot be read again", file=path, epoch=epoch,
                                hint="restore the state folder, or start with an empty one") from error  # fmt: skip

    def forget(self, upto: int) -> None:
        """A checkpoint holds every epoch ≤ `upto`."""
        for name in self._disk.names(self._folder):
            if int(Path(name).stem) <= upto:
                self._disk.remove(self._folder / name)

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{epoch}.rows"


def _written(changes: Sequence[TableChanges], facts: Mapping[str, object]) -> bytes:
    """The length of the facts, the facts as JSON, and the rows, of which there is at most one run, as an Arrow stream."""
    sink = pa.BufferOutputStream()
    text = json.dumps({**facts, "kinds": [c.kinds.tolist() for c in changes]}).encode()
    sink.write(len(text).to_bytes(8, "little") + text)
    for each in changes:
        with pa.ipc.new_stream(sink, each.rows.schema) as stream:
            stream.write_batch(each.rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(data: bytes) -> Transaction:
    size = int.from_bytes(data[:8], "little")
    facts = json.loads(data[8 : 8 + size])
    rows, kinds = pa.RecordBatch.from_arrays([], []), np.zeros(0, np.uint8)
    if facts["kinds"]:
        kinds = np.array(facts["kinds"][0], np.uint8)
        with pa.ipc.open_stream(pa.BufferReader(data[8 + size :])) as stream:
            rows = stream.read_next_batch()
    return injected(
        facts["table"], rows, kinds, facts["lsn"], facts["commit_us"], facts["errors"], whole=facts["whole"]
    )
