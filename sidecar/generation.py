"""A run's own folder of state: each run of the sidecar is a generation, taken before anything else (DECISIONS.md 15).

Always: `state/generations/N` is written by generation N alone, so that a process that was frozen and wakes up harms
nobody; what the one before it had is copied, its batches by hard links, which cost nothing. Called by wiring.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from connectors.durable import Reached, unwatched
from engine.errors import HeadraceError


class StateError(HeadraceError):
    """The state folder cannot be used."""

    code = "state"


@dataclass(frozen=True)
class Generation:
    """One run's folder: its reclock log, its manifest, its batches."""

    number: int
    folder: Path

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
    def manifest(self) -> Path:
        """The last complete checkpoint."""
        return self.folder / "manifest.json"


def numbers(state: Path) -> list[int]:
    """The generations in a state folder, ascending."""
    folder = state / "generations"
    if not folder.exists():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if re.fullmatch(r"\d{6,}", p.name))


def open_generation(state: Path, number: int) -> Generation:
    """An existing generation, for reading."""
    return Generation(number, state / "generations" / f"{number:06d}")


def take_generation(state: Path, reached: Reached = unwatched) -> tuple[Generation, Generation | None]:
    """Make the next generation's folder; gives it and the one before it (its state is to be carried over).

    Raises StateError where the folder cannot be made.
    """
    try:
        (state / "generations").mkdir(parents=True, exist_ok=True)
        while True:
            known = numbers(state)
            ready = [g for g in (open_generation(state, n) for n in reversed(known)) if g.ready.exists()]
            previous = ready[0] if ready else None
            fresh = open_generation(state, known[-1] + 1 if known else 1)
            try:
                fresh.folder.mkdir(mode=0o700)
                fresh.batches.mkdir()
            except FileExistsError:
                continue
            reached("generation taken")
            return fresh, previous
    except OSError as error:
        raise StateError(f"cannot use the state folder: {error.strerror}", folder=state,
                         hint="make it writable, or name another one under `state:`") from error  # fmt: skip


def carry_over(fresh: Generation, previous: Generation | None, reached: Reached = unwatched) -> None:
    """Begin `fresh` with what `previous` knows. To be called once every sink is fenced: whatever a sink holds is in the
    log by then, and nothing that `previous` may still write can reach a sink. Raises StateError."""
    try:
        _carry_over(fresh, previous, reached)
    except OSError as error:
        raise StateError(f"cannot carry the state over: {error.strerror}", folder=fresh.folder,
                         hint="free disk space, or make the state folder readable and writable") from error  # fmt: skip


def _carry_over(fresh: Generation, previous: Generation | None, reached: Reached) -> None:
    if previous is not None:
        while not _link_batches(fresh, previous):
            continue
        reached("generation linked")
        if previous.log.exists():
            shutil.copyfile(previous.log, fresh.log)
            _sync(fresh.log)
        _sync(fresh.batches)
    reached("generation copied")
    fresh.ready.touch()
    _sync(fresh.folder)
    reached("generation ready")


def _link_batches(fresh: Generation, previous: Generation) -> bool:
    """Copy the manifest and link every batch it names; False where `previous`, still alive, replaced it meanwhile."""
    if not previous.manifest.exists():
        return True
    manifest = previous.manifest.read_bytes()
    for name in _files_of(manifest, previous.manifest):
        target = fresh.batches / name
        if target.exists():
            continue
        try:
            os.link(previous.batches / name, target)
        except FileNotFoundError:
            if previous.manifest.read_bytes() != manifest:
                return False
            raise StateError("a batch of the checkpoint is gone", file=previous.batches / name,
                             hint="restore the state folder, or start with an empty one") from None  # fmt: skip
    fresh.manifest.write_bytes(manifest)
    _sync(fresh.manifest)
    return True


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


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def sweep_generations(state: Path, keep: int) -> None:
    """Remove all but the newest `keep` generations."""
    for number in numbers(state)[:-keep]:
        shutil.rmtree(state / "generations" / f"{number:06d}", ignore_errors=True)
