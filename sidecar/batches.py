"""Batches as files of one generation: each named by the digest of its bytes, written once, mapped where it is read.

Always: a file under its name is whole; several shards may write to one folder, side by side, and the same bytes are one
file. Called by dataflows that are kept in checkpoints; the checkpoint's manifest says which files count.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from connectors.durable import Reached, unwatched
from engine.batch import Batch, Layout
from engine.batch.codec import decode, encode
from engine.errors import HeadraceError
from sidecar.disk import LOCAL, Disk
from sidecar.spill import nameless

LARGE_BYTES = 16 << 20
"""A batch from this size on does not stay in memory."""


class CheckpointError(HeadraceError):
    """A checkpoint cannot be written, or what is there cannot be read."""

    code = "checkpoint"


@dataclass(frozen=True)
class BatchFile:
    """A batch on disk: its file's name (digest of its bytes), its size, and the shard whose it is."""

    name: str
    bytes: int
    shard: int = 0


Files = Mapping[str, Sequence[BatchFile]]
"""The batches of each arrangement; those of one shard in their order."""


class BatchStore:
    """Writes one shard's batches to `folder`. Single writer: whoever calls `write`, one call at a time."""

    def __init__(self, folder: Path, shard: int = 0, reached: Reached = unwatched, disk: Disk = LOCAL) -> None:
        self.folder = folder
        self.disk = disk
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
            return decode(nameless(self.folder / name, fill), batch.layout)
        except OSError:
            return batch

    def adopt(self, batches: Mapping[str, Sequence[Batch]], files: Files) -> None:
        """Remember which recovered batch is which file."""
        for name, found in batches.items():
            for batch, file in zip(found, files[name], strict=True):
                self._known[id(batch)] = (batch, file)

    def write(self, arrangements: Mapping[str, Sequence[Batch]]) -> Files:
        """Write what is not on disk yet; the files of all. Raises CheckpointError."""
        try:
            return self._write(arrangements)
        except OSError as error:
            raise CheckpointError(f"cannot write a checkpoint: {error.strerror}", folder=self.folder,
                                  hint="free disk space; the last checkpoint still stands") from error  # fmt: skip

    def _write(self, arrangements: Mapping[str, Sequence[Batch]]) -> Files:
        known: dict[int, tuple[Batch, BatchFile]] = {}
        files: dict[str, list[BatchFile]] = {}
        wrote = False
        for name, batches in arrangements.items():
            files[name] = []
            for batch in batches:
                file = known.get(id(batch)) or self._known.get(id(batch))
                if file is None:
                    file = (batch, self._write_batch(batch))
                    wrote = True
                known[id(batch)] = file
                files[name].append(file[1])
        if wrote:
            self.disk.sync_folder(self.folder)
        self._known = known
        return files

    def _write_batch(self, batch: Batch) -> BatchFile:
        buffers = encode(batch)
        digest = hashlib.blake2b(digest_size=20)
        size = 0
        for buffer in buffers:
            digest.update(buffer)
            size += memoryview(buffer).nbytes
        file = BatchFile(digest.hexdigest(), size, self._shard)
        path = self.folder / file.name
        if not self.disk.exists(path):
            fresh = path.with_name(f"{file.name}.{self._shard}.new")
            self.disk.write(fresh, buffers)
            self._reached("batch written")
            self.disk.replace(fresh, path)
            self._reached("batch named")
        return file


def load_batches(
    files: Files, folder: Path, layouts: Mapping[str, Layout], disk: Disk = LOCAL
) -> dict[str, list[Batch]]:
    """Map the batches of every arrangement in `layouts` that there is; their bytes are checked first.

    Raises CheckpointError naming the file that is missing or altered.
    """
    return {
        name: [_map_batch(disk, folder / f.name, f, layouts[name], name) for f in files[name]]
        for name in sorted(layouts.keys() & files.keys())
    }


def _map_batch(disk: Disk, path: Path, file: BatchFile, layout: Layout, arrangement: str) -> Batch:
    hint = "restore the state folder, or start with an empty one"
    try:
        mapped = disk.map(path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            hint = f"nothing is lost: let it open more files ({error.strerror}; ulimit -n, systemd's LimitNOFILE)"
        raise CheckpointError("a batch of the checkpoint cannot be read", file=path, arrangement=arrangement,
                              hint=hint) from error  # fmt: skip
    if len(mapped) != file.bytes or hashlib.blake2b(mapped, digest_size=20).hexdigest() != file.name:
        raise CheckpointError("a batch of the checkpoint was altered", file=path, arrangement=arrangement, hint=hint)
    return decode(pa.py_buffer(mapped), layout)
