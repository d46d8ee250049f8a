"""A disk that forgets what was not synced, and tears what it keeps of it. It outlives processes; a power cut is `forget`.

Always: after `forget`, a file has what was synced and any beginning of what was appended since, perhaps zeros behind it; of a
folder's changes since it was synced the first few happened, and none after. Each process sees it through a `Door` of its own.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Door = Callable[[str], None]
"""Told before each thing that happens; raises where it must not happen."""


@dataclass
class Node:
    """A file: its bytes, and those that are on disk."""

    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


@dataclass
class Folder:
    """Names now, names on disk, and what happened in between: the names after each change."""

    names: dict[str, Node | Folder] = field(default_factory=dict)
    synced: dict[str, Node | Folder] = field(default_factory=dict)
    changes: list[dict[str, Node | Folder]] = field(default_factory=list)

    def change(self, name: str, to: Node | Folder | None, gone: str = "") -> None:
        names = {n: node for n, node in self.names.items() if n not in (gone, name)}
        if to is not None:
            names[name] = to
        self.names = names
        self.changes.append(names)


class Disk:
    """What stands on it. `lazy`: for a path, whether a sync of it is left out (a guard taken away)."""

    def __init__(self) -> None:
        self.root = Folder()
        self.lazy: Callable[[str, Path], bool] = lambda _what, _path: False
        self.full = False

    def folder(self, path: Path) -> Folder:
        at = self.root
        for name in path.parts[1:]:
            found = at.names.get(name)
            if not isinstance(found, Folder):
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            at = found
        return at

    def find(self, path: Path) -> Node | Folder | None:
        try:
            return self.folder(path.parent).names.get(path.name) if path.parts[1:] else self.root
        except FileNotFoundError:
            return None

    def kept(self, path: Path) -> bytes | None:
        """What a power cut would surely leave of a file; None where it might leave none."""
        at: Node | Folder | None = self.root
        for name in path.parts[1:]:
            at = at.synced.get(name) if isinstance(at, Folder) else None
        return at.synced if isinstance(at, Node) else None

    def node(self, path: Path) -> Node:
        found = self.find(path)
        if not isinstance(found, Node):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return found

    def forget(self, draw: random.Random) -> None:
        """The power is cut."""
        self._forget(self.root, draw, set())

    def sync_all(self) -> None:
        """What stands here now is on disk."""
        todo = [self.root]
        while todo:
            folder = todo.pop()
            folder.synced, folder.changes = folder.names, []
            todo += [n for n in folder.names.values() if isinstance(n, Folder)]

    def _forget(self, folder: Folder, draw: random.Random, seen: set[int]) -> None:
        states = [folder.synced, *folder.changes]
        folder.names = folder.synced = states[draw.randrange(len(states))]
        folder.changes = []
        for name in sorted(folder.names):
            found = folder.names[name]
            if isinstance(found, Folder):
                self._forget(found, draw, seen)
            elif id(found) not in seen:
                seen.add(id(found))
                found.data = bytearray(_torn(found, draw))
                found.synced = bytes(found.data)


def _torn(node: Node, draw: random.Random) -> bytes:
    now = bytes(node.data)
    if now == node.synced:
        return now
    if not now.startswith(node.synced):
        return node.synced if draw.random() < 0.5 else now
    kept = draw.choice([len(node.synced), draw.randint(len(node.synced), len(now)), len(now)])
    zeros = draw.randint(0, len(now) - kept) if draw.random() < 0.3 else 0
    return now[:kept] + bytes(zeros)


class _Appended:
    def __init__(self, view: View, path: Path, node: Node) -> None:
        self._view, self._path, self._node = view, path, node

    @property
    def size(self) -> int:
        return len(self._node.data)

    def append(self, data: bytes) -> int:
        self._view.door("disk append")
        if self._view.disk.full:
            taken = self._view.draw.randrange(len(data))
            self._node.data += data[:taken]
            if taken:
                return taken
            raise OSError(errno.ENOSPC, "No space left on device")
        self._node.data += data
        return len(data)

    def sync(self) -> None:
        self._view.door("disk sync")
        if not self._view.disk.lazy("append", self._path):
            self._node.synced = bytes(self._node.data)

    def cut(self, size: int) -> None:
        self._view.door("disk cut")
        del self._node.data[size:]

    def close(self) -> None:
        return


class View:
    """The disk as one process has it (see headrace.sidecar.state.filesystem.Disk)."""

    def __init__(self, disk: Disk, door: Door, draw: random.Random) -> None:
        self.disk, self.door, self.draw = disk, door, draw

    def exists(self, path: Path) -> bool:
        self.door("disk look")
        return self.disk.find(path) is not None

    def names(self, folder: Path) -> list[str]:
        self.door("disk look")
        found = self.disk.find(folder)
        return sorted(found.names) if isinstance(found, Folder) else []

    def read(self, path: Path) -> bytes:
        self.door("disk read")
        return bytes(self.disk.node(path).data)

    def map(self, path: Path) -> bytes:
        found = self.read(path)
        if not found:
            raise ValueError("cannot map an empty file")
        return found

    def write(self, path: Path, parts: Iterable[Any]) -> None:
        self.door("disk write")
        data = b"".join(bytes(memoryview(p)) for p in parts)
        folder = self.disk.folder(path.parent)
        found = folder.names.get(path.name)
        node = found if isinstance(found, Node) else Node()
        if found is None:
            folder.change(path.name, node)
        node.data = bytearray(data[: self.draw.randint(0, len(data))])
        self.door("disk write")
        if self.disk.full and data:
            raise OSError(errno.ENOSPC, "No space left on device")
        node.data = bytearray(data)
        self.door("disk sync")
        if not self.disk.lazy("write", path):
            node.synced = data

    def open(self, path: Path) -> _Appended:
        self.door("disk open")
        found = self.disk.find(path)
        if not isinstance(found, Node):
            found = Node()
            self.disk.folder(path.parent).change(path.name, found)
        return _Appended(self, path, found)

    def replace(self, old: Path, new: Path) -> None:
        self.door("disk rename")
        assert old.parent == new.parent, "a name changes within its folder"
        self.disk.folder(new.parent).change(new.name, self.disk.node(old), gone=old.name)

    def link(self, old: Path, new: Path) -> None:
        self.door("disk link")
        node, folder = self.disk.node(old), self.disk.folder(new.parent)
        if new.name in folder.names:
            raise FileExistsError(errno.EEXIST, "File exists", str(new))
        folder.change(new.name, node)

    def remove(self, path: Path) -> None:
        self.door("disk remove")
        if self.disk.find(path) is not None:
            self.disk.folder(path.parent).change(path.name, None)

    def make_folder(self, path: Path, mode: int = 0o777) -> None:
        self.door("disk mkdir")
        folder = self.disk.folder(path.parent)
        if path.name in folder.names:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        folder.change(path.name, Folder())

    def remove_folder(self, path: Path) -> None:
        self.door("disk remove")
        if self.disk.find(path) is not None:
            self.disk.folder(path.parent).change(path.name, None)

    def sync_folder(self, path: Path) -> None:
        self.door("disk sync")
        folder = self.disk.folder(path)
        if not self.disk.lazy("folder", path):
            folder.synced, folder.changes = folder.names, []
