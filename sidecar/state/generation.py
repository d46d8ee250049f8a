"""A run's own folder of state: each run of the sidecar is a generation, taken before anything else (decision 15).

Always: `state/generations/N` is written by generation N alone, so that a process that was frozen and wakes up harms
nobody; what the one before it had is copied, its batches by hard links, which cost nothing. Called by wiring.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.errors import HeadraceError
from headrace.sidecar.state.batch_places import Batches, FolderBatches
from headrace.sidecar.state.filesystem import LOCAL, Disk, replace_whole
from headrace.sidecar.state.synthetic_transactions import FolderRows, Rows


class StateError(HeadraceError):
    """The state folder cannot be used."""

    code = "state"


class RunState(Protocol):
    """One run's state, wherever it lies. Raises OSError where the place refuses, StateError where another run has it."""

    @property
    def number(self) -> int:
        """Of the generation."""

    @property
    def folder(self) -> Path:
        """A folder of this machine."""

    @property
    def where(self) -> str:
        """How errors call it."""

    @property
    def place(self) -> Batches:
        """Where batches lie; another process may be sent it."""

    @property
    def rows(self) -> Rows:
        """Where injected rows lie."""

    def begin(self, reached: Reached = unwatched) -> None:
        """Take over what the run before knew, once every sink is fenced."""

    def check_newest(self) -> object:
        """Raise StateError where a later run has begun."""

    def later_number(self) -> int | None:
        """The number of a later run, if there is one."""

    def read_manifest(self) -> bytes | None:
        """The last complete checkpoint's."""

    def put_manifest(self, data: bytes, names: Set[str], reached: Reached = unwatched) -> None:
        """Have a checkpoint count: from here on `names` are the batches that do."""

    def sweep(self) -> None:
        """Delete batches that do not count any more."""

    def read_views(self) -> bytes | None:
        """The views in force, as `put_views` was given them."""

    def put_views(self, data: bytes) -> None:
        """Keep the views in force."""


@dataclass(frozen=True)
class Generation:
    """One run's folder: its reclock log, its manifest, its batches. See `RunState`."""

    number: int
    folder: Path
    disk: Disk = LOCAL

    @property
    def batches(self) -> Path:
        """Immutable batch files, each named by its content."""
        return self.folder / "batches"

    @property
    def log(self) -> Path:
        """The reclock log."""
        return self.folder / "reclock.log"

    @property
    def ready(self) -> Path:
        """There once the generation has taken over all that the one before it knew."""
        return self.folder / "ready"

    @property
    def injected(self) -> Path:
        """Rows of epochs that no topic holds, until a checkpoint has them."""
        return self.folder / "injected"

    @property
    def manifest(self) -> Path:
        """The last complete checkpoint."""
        return self.folder / "manifest.json"

    @property
    def views(self) -> Path:
        """The views in force."""
        return self.folder / "views.json"

    @property
    def where(self) -> str:
        """See `RunState.where`."""
        return str(self.folder)

    @property
    def place(self) -> FolderBatches:
        """See `RunState.place`."""
        return FolderBatches(self.batches.absolute() if self.disk is LOCAL else self.batches, self.disk)

    @property
    def rows(self) -> FolderRows:
        """See `RunState.rows`."""
        return FolderRows(self.injected, self.disk)

    def begin(self, reached: Reached = unwatched) -> None:
        """See `RunState.begin`."""
        carry_over(self, predecessor(self), reached)

    def begin_with(self, data: bytes, names: Set[str]) -> None:  # noqa: ARG002
        """Begin with a checkpoint, where there was none: it counts at once, or not at all. Raises StateError."""
        self.disk.sync_folder(self.batches)
        replace_whole(self.disk, self.manifest, [data])
        carry_over(self, None)

    def discard(self) -> None:
        """Leave nothing of a run that has not begun."""
        self.disk.remove_folder(self.folder)

    def check_newest(self) -> list[int]:
        """See `RunState.check_newest`."""
        return check_newest(self)

    def later_number(self) -> int | None:
        """See `RunState.later_number`."""
        later = numbers(self.folder.parent.parent, self.disk)[-1:]
        return later[0] if later and later[0] > self.number else None

    def read_manifest(self) -> bytes | None:
        """See `RunState.read_manifest`."""
        return self.disk.read(self.manifest) if self.disk.exists(self.manifest) else None

    def put_manifest(self, data: bytes, names: Set[str], reached: Reached = unwatched) -> None:
        """See `RunState.put_manifest`."""
        replace_whole(self.disk, self.manifest, [data], ("manifest written", "manifest named"), reached)
        for name in self.disk.names(self.batches):
            if name not in names and not name.startswith("."):  # which somebody writes at this moment
                self.disk.remove(self.batches / name)

    def sweep(self) -> None:
        """See `RunState.sweep`: here nobody reads another run's folder."""

    def read_views(self) -> bytes | None:
        """See `RunState.read_views`."""
        return self.disk.read(self.views) if self.disk.exists(self.views) else None

    def put_views(self, data: bytes) -> None:
        """See `RunState.put_views`."""
        replace_whole(self.disk, self.views, [data])


def numbers(state: Path, disk: Disk = LOCAL) -> list[int]:
    """The generations in a state folder, ascending."""
    return sorted(int(name) for name in disk.names(state / "generations") if re.fullmatch(r"\d{6,}", name))


def open_generation(state: Path, number: int, disk: Disk = LOCAL) -> Generation:
    """An existing generation, for reading."""
    return Generation(number, state / "generations" / f"{number:06d}", disk)


def last_generation(state: Path, disk: Disk = LOCAL) -> Generation | None:
    """The newest generation that took over all that the one before it knew."""
    ready = (
        g for g in (open_generation(state, n, disk) for n in reversed(numbers(state, disk))) if disk.exists(g.ready)
    )
    return next(ready, None)


def take_generation(
    state: Path, reached: Reached = unwatched, disk: Disk = LOCAL
) -> tuple[Generation, Generation | None]:
    """Make the next generation's folder; gives it and the one before it (its state is to be carried over).

    Raises StateError where the folder cannot be made.
    """
    try:
        _make_folders(state / "generations", disk)
        while True:
            known = numbers(state, disk)
            previous = last_generation(state, disk)
            fresh = open_generation(state, known[-1] + 1 if known else 1, disk)
            try:
                disk.make_folder(fresh.folder, 0o700)
                disk.make_folder(fresh.batches)
            except FileExistsError:
                continue
            reached("generation taken")
            return fresh, previous
    except OSError as error:
        raise StateError(f"cannot use the state folder: {error.strerror}", folder=state,
                         hint="make it writable, or name another one under `state:`") from error  # fmt: skip


def _make_folders(path: Path, disk: Disk) -> None:
    """Make what is missing of the way to `path`; each folder's name is on disk before anything is made in it, even where a
    run before was killed just after it had made it."""
    if not disk.exists(path):
        _make_folders(path.parent, disk)
        disk.sync_folder(path.parent.parent)
        with suppress(FileExistsError):
            disk.make_folder(path)


def predecessor(fresh: Generation) -> Generation | None:
    """The generation to carry over, to be asked once every sink is fenced: nothing before it can write to a sink any more.

    Raises StateError where a later one was taken meanwhile: that one may have some of the sinks, and this one the others.
    """
    state, disk = fresh.folder.parent.parent, fresh.disk
    while True:
        known = check_newest(fresh)
        earlier = (open_generation(state, n, disk) for n in reversed(known) if n < fresh.number)
        found = next((g for g in earlier if disk.exists(g.ready)), None)
        if found is not None or numbers(state, disk) == known:
            return found  # else a run that began meanwhile has swept what was to be looked at


def check_newest(fresh: Generation) -> list[int]:
    """The numbers of all generations. Raises StateError where a later one was taken: its run sweeps this one's folder."""
    state = fresh.folder.parent.parent
    known = numbers(state, fresh.disk)
    if known and known[-1] > fresh.number:
        raise StateError("another run has begun meanwhile", folder=state, generation=fresh.number, later=known[-1],
                         hint="only one may run: this one has written nothing")  # fmt: skip
    return known


def carry_over(fresh: Generation, previous: Generation | None, reached: Reached = unwatched) -> None:
    """Begin `fresh` with what `previous` knows. To be called once every sink is fenced: whatever a sink holds is in the
    log by then, and nothing that `previous` may still write can reach a sink. Raises StateError."""
    try:
        _carry_over(fresh, previous, reached)
    except OSError as error:
        with suppress(OSError):  # each start that found no room would keep some more of it
            for copied in (fresh.log, fresh.views, fresh.manifest):
                fresh.disk.remove(copied)
        raise StateError(f"cannot carry the state over: {error.strerror}", folder=fresh.folder,
                         hint="free disk space, or make the state folder readable and writable") from error  # fmt: skip


def _carry_over(fresh: Generation, previous: Generation | None, reached: Reached) -> None:
    if previous is not None:
        _link_injected(fresh, previous)
        while not _link_batches(fresh, previous):
            continue
        reached("generation linked")
        for old, new in ((previous.log, fresh.log), (previous.views, fresh.views)):
            if fresh.disk.exists(old):
                fresh.disk.write(new, [fresh.disk.read(old)])
        _link_injected(fresh, previous)  # those that were bound meanwhile
        fresh.disk.sync_folder(fresh.batches)
    reached("generation copied")
    check_newest(fresh)
    if previous is not None and not fresh.disk.exists(previous.ready):
        raise StateError("another run has swept what was to be carried over", folder=previous.folder,
                         generation=fresh.number, hint="start again: this one has written nothing")  # fmt: skip
    fresh.disk.write(fresh.ready, [])
    fresh.disk.sync_folder(fresh.folder)
    fresh.disk.sync_folder(fresh.folder.parent)
    fresh.disk.sync_folder(fresh.folder.parent.parent)
    reached("generation ready")


def _link_batches(fresh: Generation, previous: Generation) -> bool:
    """Copy the manifest and link every batch it names; False where `previous`, still alive, replaced it meanwhile."""
    disk = fresh.disk
    if not disk.exists(previous.manifest):
        return True
    manifest = disk.read(previous.manifest)
    for name in _files_of(manifest, previous.manifest):
        target = fresh.batches / name
        if disk.exists(target):
            continue
        try:
            disk.link(previous.batches / name, target)
        except FileNotFoundError:
            if disk.read(previous.manifest) != manifest:
                return False
            raise StateError("a batch of the checkpoint is gone", file=previous.batches / name,
                             hint="restore the state folder, or start with an empty one") from None  # fmt: skip
    disk.write(fresh.manifest, [manifest])
    return True


def _link_injected(fresh: Generation, previous: Generation) -> None:
    """Link the rows that the log may need and no checkpoint may hold."""
    disk = fresh.disk
    if not disk.exists(previous.injected):
        return
    with suppress(FileExistsError):
        disk.make_folder(fresh.injected, 0o700)
    for name in disk.names(previous.injected):
        if name.endswith(".rows"):
            with suppress(FileExistsError, FileNotFoundError):
                disk.link(previous.injected / name, fresh.injected / name)
    disk.sync_folder(fresh.injected)


def _files_of(manifest: bytes, path: Path) -> set[str]:
    """The batch files that a manifest names. Raises StateError for a damaged one."""
    try:
        found = {f["file"] for files in json.loads(manifest)["arrangements"].values() for f in files}
        if not all(re.fullmatch(r"[0-9a-f]{40}", name) for name in found):
            raise ValueError("a name that is no digest")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError("the manifest is damaged", file=path,
                         hint="restore the state folder, or start with an empty one") from error  # fmt: skip
    return found


def sweep_generations(state: Path, own: int, earlier: int, disk: Disk = LOCAL) -> None:
    """Remove all generations before our own but the newest `earlier` of them. Those of later runs may have taken nothing over
    yet: ours is then the only one that has the state."""
    before = [number for number in numbers(state, disk) if number < own]
    for number in before[: len(before) - earlier]:
        disk.remove_folder(open_generation(state, number).folder)
