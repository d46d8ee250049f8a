"""Batches as files or objects: each named by the digest of its bytes, written once, mapped where it is read.

Always: what has a name is whole; several shards may write to one place, side by side, and the same bytes are one file.
Called by dataflows that are kept in checkpoints; the checkpoint's manifest says which of them count.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa

from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.batch import Batch, Layout
from headrace.engine.batch.codec import decode, encode
from headrace.engine.errors import HeadraceError
from headrace.sidecar.state.batch_places import Batches, FolderBatches, digest_of
from headrace.sidecar.state.filesystem import LOCAL, Disk
from headrace.sidecar.state.spill import nameless

LARGE_BYTES = 16 << 20
"""A batch from this size on does not stay in memory."""


class CheckpointError(HeadraceError):
    """A checkpoint cannot be written, or what is there cannot be read."""

    code = "checkpoint"


class StoreAway(CheckpointError):
    """The store does not answer: the last checkpoint stands, and another is tried later."""


WRITES: Iterator[int] = count(1)
"""Numbers of the writes of this process; a worker is told its driver's."""


@dataclass(frozen=True)
class BatchFile:
    """A batch that is kept: its name (which begins with the digest of its bytes), its size, and the shard whose it is."""

    name: str
    bytes: int
    shard: int = 0


Files = Mapping[str, Sequence[BatchFile]]
"""The batches of each arrangement; those of one shard in their order."""


class BatchStore:
    """Writes one shard's batches to `place`, or a folder. Single writer: whoever calls `write`, one call at a time."""

    def __init__(self, place: Path | Batches, shard: int = 0, reached: Reached = unwatched, disk: Disk = LOCAL) -> None:
        self.place = _place(place, disk)
        self._shard = shard
        self._reached = reached
        self._known: dict[int, tuple[Batch, BatchFile]] = {}

    def placed(self, batch: Batch) -> Batch:
        """A large batch lies in a file from now on, mapped where it is read: one without a name, gone with whoever reads it.

        Where the disk refuses, it stays in memory.
        """
        if batch.nbytes < LARGE_BYTES or id(batch) in self._known:
            return batch  # small, or in a file already
        parts = encode(batch)

        def fill(file: pa.OSFile) -> None:
            for part in parts:
                file.write(part)

        try:
            name = f"placing.{self._shard}.{threading.get_ident()}"  # dataflows beside one another share a store
            return decode(nameless(self.place.scratch / name, fill), batch.layout)
        except OSError:
            return batch

    def adopt(self, batches: Mapping[str, Sequence[Batch]], files: Files) -> None:
        """Remember which recovered batch is which file."""
        for name, found in batches.items():
            for batch, file in zip(found, files[name], strict=True):
                self._known[id(batch)] = (batch, file)

    def write(self, arrangements: Mapping[str, Sequence[Batch]], number: int | None = None) -> Files:
        """Write what is not kept yet; the files of all. `number`: of the write, where others write with us.

        Raises CheckpointError, and StoreAway where the place may come back.
        """
        try:
            return self._write(arrangements, next(WRITES) if number is None else number)
        except OSError as error:
            raise not_written(error, self.place.where, remote=self.place.is_remote) from error

    def _write(self, arrangements: Mapping[str, Sequence[Batch]], number: int) -> Files:
        known: dict[int, tuple[Batch, BatchFile]] = {}
        files: dict[str, list[BatchFile]] = {}
        wrote = False
        for name, batches in arrangements.items():
            files[name] = []
            for batch in batches:
                file = known.get(id(batch)) or self._known.get(id(batch))
                if file is None:
                    file = (batch, self._write_batch(batch, number))
                    wrote = True
                known[id(batch)] = file
                files[name].append(file[1])
        if wrote:
            self.place.flush()
        self._known = known
        return files

    def _write_batch(self, batch: Batch, number: int) -> BatchFile:
        buffers = encode(batch)
        name = self.place.named(digest_of(buffers), number)
        self.place.put(name, buffers, self._shard, self._reached)
        return BatchFile(name, sum(memoryview(buffer).nbytes for buffer in buffers), self._shard)


def not_written(error: OSError, where: object, *, remote: bool) -> CheckpointError:
    """Why a checkpoint is not written."""
    if remote:
        return StoreAway(f"the store of the state does not answer: {error.strerror}", store=where,
                         hint="steps go on and the last checkpoint stands; the next one is tried in a while")  # fmt: skip
    return CheckpointError(f"cannot write a checkpoint: {error.strerror}", folder=where,
                           hint="free disk space; the last checkpoint still stands")  # fmt: skip


def _place(place: Path | Batches, disk: Disk) -> Batches:
    return FolderBatches(place, disk) if isinstance(place, Path) else place


def load_batches(
    files: Files, place: Path | Batches, layouts: Mapping[str, Layout], disk: Disk = LOCAL
) -> dict[str, list[Batch]]:
    """Map the batches of every arrangement in `layouts` that there is; their bytes are checked first.

    Raises CheckpointError naming the file that is missing or altered.
    """
    there = _place(place, disk)
    return {
        name: [_map_batch(there, f, layouts[name], name) for f in files[name]]
        for name in sorted(layouts.keys() & files.keys())
    }


def _map_batch(place: Batches, file: BatchFile, layout: Layout, arrangement: str) -> Batch:
    hint, path = "restore the state folder, or start with an empty one", f"{place.where}/{file.name}"
    try:
        mapped = place.map(file.name)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            hint = f"nothing is lost: let it open more files ({error.strerror}; ulimit -n, systemd's LimitNOFILE)"
        raise CheckpointError("a batch of the checkpoint cannot be read", file=path, arrangement=arrangement,
                              hint=hint) from error  # fmt: skip
    if len(mapped) != file.bytes or digest_of([mapped]) != file.name.partition(".")[0]:
        raise CheckpointError("a batch of the checkpoint was altered", file=path, arrangement=arrangement, hint=hint)
    return decode(pa.py_buffer(mapped), layout)
