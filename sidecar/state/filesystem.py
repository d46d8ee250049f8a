"""The file system that the state folder's writers need: files that are written whole, files that only grow, folders.

Always: what `write` and `Appended.sync` returned from is on disk; a name that was made, replaced or linked is there for good
once `sync_folder` returned for its folder; nothing else is promised after a power cut. Every failure is an OSError. Handed in
by wiring; the simulator has one that forgets what was not synced.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from headrace.connectors.step_hooks import Reached, unwatched

Buffer: TypeAlias = Any
"""Bytes in memory or mapped, as Python's buffer protocol gives them: bytes, mmap, pyarrow.Buffer."""


class Appended(Protocol):
    """An open file that grows at its end. Single user: who opened it."""

    @property
    def size(self) -> int:
        """Bytes in it."""

    def append(self, data: bytes) -> int:
        """Write at the end; how many bytes were taken."""

    def sync(self) -> None:
        """Return once everything appended is on disk. May be called on another thread."""

    def cut(self, size: int) -> None:
        """Let it end after `size` bytes."""

    def close(self) -> None:
        """Let go of it."""


class Disk(Protocol):
    """Files and folders by path."""

    def exists(self, path: Path) -> bool:
        """Whether a file or folder is there."""

    def names(self, folder: Path) -> list[str]:
        """What a folder holds, in any order; nothing where there is none."""

    def read(self, path: Path) -> bytes:
        """A file's bytes."""

    def map(self, path: Path) -> Buffer:
        """A file's bytes, read as they are used. Raises ValueError for an empty file."""

    def write(self, path: Path, parts: Iterable[Buffer]) -> None:
        """Make or replace a file by one with these bytes; they are on disk, its name may not be."""

    def open(self, path: Path) -> Appended:
        """Open a file to append to, made where there is none."""

    def replace(self, old: Path, new: Path) -> None:
        """Give a file another name, at once instead of what has that name."""

    def link(self, old: Path, new: Path) -> None:
        """Give a file a second name. Raises FileExistsError, FileNotFoundError."""

    def remove(self, path: Path) -> None:
        """Take a file's name away, if it is there."""

    def make_folder(self, path: Path, mode: int = 0o777) -> None:
        """Make a folder in one that is there. Raises FileExistsError."""

    def remove_folder(self, path: Path) -> None:
        """Take a folder away with all that it holds, as far as that goes."""

    def sync_folder(self, path: Path) -> None:
        """Return once the names in a folder are on disk."""


class _File:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    @property
    def size(self) -> int:
        return os.fstat(self._file).st_size

    def append(self, data: bytes) -> int:
        return os.write(self._file, data)

    def sync(self) -> None:
        os.fdatasync(self._file)

    def cut(self, size: int) -> None:
        os.ftruncate(self._file, size)

    def close(self) -> None:
        os.close(self._file)


class LocalDisk:
    """The machine's own; see `Disk`."""

    def exists(self, path: Path) -> bool:
        """See `Disk.exists`."""
        return path.exists()

    def names(self, folder: Path) -> list[str]:
        """See `Disk.names`."""
        return os.listdir(folder) if folder.exists() else []

    def read(self, path: Path) -> bytes:
        """See `Disk.read`."""
        return path.read_bytes()

    def map(self, path: Path) -> Buffer:
        """See `Disk.map`."""
        with path.open("rb") as source:
            return mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)

    def write(self, path: Path, parts: Iterable[Buffer]) -> None:
        """See `Disk.write`."""
        with path.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())

    def open(self, path: Path) -> Appended:
        """See `Disk.open`."""
        return _File(path)

    def replace(self, old: Path, new: Path) -> None:
        """See `Disk.replace`."""
        os.replace(old, new)

    def link(self, old: Path, new: Path) -> None:
        """See `Disk.link`."""
        os.link(old, new)

    def remove(self, path: Path) -> None:
        """See `Disk.remove`."""
        path.unlink(missing_ok=True)

    def make_folder(self, path: Path, mode: int = 0o777) -> None:
        """See `Disk.make_folder`."""
        path.mkdir(mode)

    def remove_folder(self, path: Path) -> None:
        """See `Disk.remove_folder`."""
        shutil.rmtree(path, ignore_errors=True)

    def sync_folder(self, path: Path) -> None:
        """See `Disk.sync_folder`."""
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


LOCAL = LocalDisk()
"""What every part has unless wiring hands in something else."""


def replace_whole(
    disk: Disk, path: Path, parts: Iterable[Buffer], steps: tuple[str, str] | None = None, reached: Reached = unwatched,
    *, fresh: Path | None = None, sync: bool = True,
) -> None:  # fmt: skip
    """Write a file beside `path` and rename it: whoever looks finds the old one or all of the new one.

    Once it returns the new one stays, whatever happens: unless not `sync`, where the caller syncs the folder. `steps`: what
    `reached` hears once it is written, and once it has its name. `fresh`: the file beside, where two may write at once.
    """
    written, named = steps or ("", "")
    beside = path.with_suffix(".new") if fresh is None else fresh
    disk.write(beside, parts)
    if steps is not None:
        reached(written)
    disk.replace(beside, path)
    if sync:
        disk.sync_folder(path.parent)
    if steps is not None:
        reached(named)
