"""Where batches lie: a generation's folder, or a store of objects with a folder of this machine that they are mapped from.

Invariant: what `map` gives is what `put` was given under that name. A store's names carry the generation and a number of
the write besides the content's digest, so that a name that was condemned is never used again. Called by `BatchStore`;
wiring chooses, and a worker's process is sent the choice.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Protocol

from headrace.connectors.step_hooks import Reached
from headrace.sidecar.state.filesystem import LOCAL, Buffer, Disk, replace_whole
from headrace.sidecar.state.objects import Counts, Objects

BATCHES = "batches/"
_DIGEST = 20


def digest_of(buffers: Sequence[Buffer]) -> str:
    """Of a batch's bytes, as its name begins."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for buffer in buffers:
        digest.update(buffer)
    return digest.hexdigest()


class Batches(Protocol):
    """A place for batches. Every failure is an OSError."""

    @property
    def scratch(self) -> Path:
        """A folder of this machine for files without a name."""

    @property
    def where(self) -> str:
        """How errors call it."""

    @property
    def is_remote(self) -> bool:
        """Whether it may be away for a while though this machine is well."""

    @property
    def counts(self) -> Counts:
        """What this process has asked of a store; nothing of a folder."""

    def named(self, digest: str, write: int) -> str:
        """The name under which this write puts a batch with this digest."""

    def put(self, name: str, buffers: Sequence[Buffer], shard: int, reached: Reached) -> None:
        """Keep a batch under a name; the same bytes may be there already."""

    def flush(self) -> None:
        """Return once all that was put is durable."""

    def map(self, name: str) -> Buffer:
        """A batch's bytes. Raises ValueError for an empty file."""

    def keep_only(self, names: Set[str]) -> None:
        """Of what was fetched to this machine, let go of the rest."""


class FolderBatches:
    """The folder of a generation: see `Batches`."""

    def __init__(self, folder: Path, disk: Disk = LOCAL) -> None:
        self.folder, self.disk = folder, disk
        self.is_remote, self.counts = False, Counts()

    @property
    def scratch(self) -> Path:
        """See `Batches.scratch`."""
        return self.folder

    @property
    def where(self) -> str:
        """See `Batches.where`."""
        return str(self.folder)

    def named(self, digest: str, write: int) -> str:  # noqa: ARG002
        """See `Batches.named`."""
        return digest

    def put(self, name: str, buffers: Sequence[Buffer], shard: int, reached: Reached) -> None:
        """See `Batches.put`."""
        path = self.folder / name
        if not self.disk.exists(path):
            fresh = path.with_name(f"{name}.{shard}.{secrets.token_hex(4)}.new")  # a task that is repeated may live on
            replace_whole(self.disk, path, buffers, ("batch written", "batch named"), reached, fresh=fresh, sync=False)

    def flush(self) -> None:
        """See `Batches.flush`."""
        self.disk.sync_folder(self.folder)

    def map(self, name: str) -> Buffer:
        """See `Batches.map`."""
        return self.disk.map(self.folder / name)

    def keep_only(self, names: Set[str]) -> None:
        """See `Batches.keep_only`."""


class ObjectBatches:
    """Objects of a store, fetched once to `cache`, a folder of whichever machine asks: see `Batches`. `prefix`: of their
    names; what lies under another than BATCHES no checkpoint condemns."""

    def __init__(self, objects: Objects, generation: int, cache: Path, prefix: str = BATCHES) -> None:
        self.objects, self._generation, self._cache, self._prefix = objects, generation, cache, prefix
        self.is_remote = True

    @property
    def counts(self) -> Counts:
        """See `Batches.counts`."""
        return self.objects.counts

    @property
    def scratch(self) -> Path:
        """See `Batches.scratch`."""
        self._cache.mkdir(parents=True, exist_ok=True)
        return self._cache

    @property
    def where(self) -> str:
        """See `Batches.where`."""
        return self.objects.where

    def named(self, digest: str, write: int) -> str:
        """See `Batches.named`."""
        return f"{digest}.{self._generation:x}-{write:x}"

    def put(self, name: str, buffers: Sequence[Buffer], shard: int, reached: Reached) -> None:  # noqa: ARG002
        """See `Batches.put`. Where another shard put the same bytes in this write, they are there."""
        self.objects.put(f"{self._prefix}{name}", buffers)
        reached("batch written")
        reached("batch named")

    def flush(self) -> None:
        """See `Batches.flush`: each put was."""

    def map(self, name: str) -> Buffer:
        """See `Batches.map`. What was fetched and is not what its name says is fetched again."""
        path = self.scratch / name
        found = _mapped(path)
        if found is None or digest_of([found]) != name.partition(".")[0]:
            fresh = self.scratch / f".new-{secrets.token_hex(8)}"
            try:
                fresh.write_bytes(self.objects.get(f"{self._prefix}{name}"))
                os.replace(fresh, path)
            finally:
                fresh.unlink(missing_ok=True)
            found = _mapped(path)
        if found is None:
            raise ValueError("an empty batch")
        return found

    def keep_only(self, names: Set[str]) -> None:
        """See `Batches.keep_only`."""
        for name in os.listdir(self.scratch):
            if "." in name and not name.startswith(".") and name not in names:
                (self._cache / name).unlink(missing_ok=True)


def _mapped(path: Path) -> mmap.mmap | None:
    try:
        with path.open("rb") as source:
            return mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):
        return None
