"""What the publisher remembers between versions: the last completed snapshot of each table, and what was begun since.

Always: the manifest is replaced whole, by rename after fsync; a version is begun in it before anything of it is
published and completed in it after its last END is safe. The folder has one writer at a time and lies where driver
and executors see it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.connectors.spark.errors import PublishError

_FORMAT = 1
_CHANGES = "@changes"
"""How the name begins that stands in the manifest where no snapshot is."""


@dataclass(frozen=True)
class Manifest:
    """`completed`: the last whole version, 0 before the first. `begun`: version and attempt last started.

    `snapshots`: table → folder name of its content at its last completed version; `pending`: at the one begun.
    """

    completed: int = 0
    begun: tuple[int, int] = (0, 0)
    snapshots: Mapping[str, str] = field(default_factory=dict)
    pending: Mapping[str, str] = field(default_factory=dict)

    @property
    def versions(self) -> Mapping[str, int]:
        """Table → its last completed version, as the names of the folders tell."""
        return {table: int(name.rsplit("-", 2)[1]) for table, name in self.snapshots.items()}

    @property
    def changed(self) -> frozenset[str]:
        """The tables whose last version was published as changes, or as rows that were added: there is no snapshot of it."""
        return frozenset(table for table, name in self.snapshots.items() if name.startswith("@"))


def no_snapshot(version: int, attempt: int) -> str:
    """What stands for a table's snapshot where a version was published as changes."""
    return f"{_CHANGES}-{version}-{attempt}"


class State:
    """The state folder of one topic prefix. One writer: use it inside `locked`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._path = self.folder / "manifest.json"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder. Raises PublishError while another publisher holds it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PublishError(
                    "another publisher is at work on this state folder", state=self.folder, hint="wait for it to end"
                ) from None
            yield

    def read(self) -> Manifest:
        """The manifest, or an empty one. Raises PublishError for one that cannot be read."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return Manifest()
        try:
            held = json.loads(text)
            if held["format"] != _FORMAT:
                raise PublishError(
                    f"the state folder has format {held['format']}, not {_FORMAT}", state=self.folder,
                    hint="use the version of headrace-publish that wrote it",
                )  # fmt: skip
            version, attempt = held["begun"]
            begun = (int(version), int(attempt))
            return Manifest(int(held["completed"]), begun, dict(held["snapshots"]), dict(held["pending"]))
        except (ValueError, KeyError, TypeError) as error:
            raise PublishError(
                f"the state folder's manifest cannot be read: {error}", state=self._path,
                hint="restore it; a new folder needs --previous",
            ) from error  # fmt: skip

    def begin(self, version: int, attempt: int, snapshots: Mapping[str, str]) -> None:
        """Note, durably, that this attempt may have published something, and from which snapshots."""
        self._write(replace(self.read(), begun=(version, attempt), pending=dict(snapshots)))

    def complete(self) -> Manifest:
        """Note, durably, that what was begun is whole; its snapshots become what the next one is compared with."""
        held = self.read()
        now = Manifest(held.begun[0], held.begun, {**held.snapshots, **held.pending})
        self._write(now)
        self._sweep(now)
        return now

    def snapshot(self, table: str, version: int, attempt: int) -> tuple[str, Path]:
        """Name and path of the folder for a table's content at (version, attempt); whatever lies there is removed."""
        name = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', table)}-{version}-{attempt}"
        path = self.folder / "snapshots" / name
        shutil.rmtree(path, ignore_errors=True)
        return name, path

    def path(self, name: str) -> Path:
        """The path of a snapshot that the manifest names. Raises PublishError if it is gone."""
        path = self.folder / "snapshots" / name
        if not path.is_dir():
            raise PublishError("the last published snapshot is gone", state=path, hint="restore it, or give --previous")
        return path

    def _sweep(self, manifest: Manifest) -> None:
        folder = self.folder / "snapshots"
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name not in manifest.snapshots.values():
                shutil.rmtree(path, ignore_errors=True)

    def _write(self, manifest: Manifest) -> None:
        held = {
            "format": _FORMAT,
            "completed": manifest.completed,
            "begun": list(manifest.begun),
            "snapshots": dict(manifest.snapshots),
            "pending": dict(manifest.pending),
        }
        fresh = self._path.with_suffix(".fresh")
        with open(fresh, "w") as out:
            json.dump(held, out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        fresh.rename(self._path)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
