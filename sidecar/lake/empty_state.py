"""The state that a load fills: a folder or a store that has no rows yet, taken for the time of the load.

Always: nothing counts before `complete`, and then all of it does; of two loads at once one is refused, on one machine at
once, elsewhere when it completes. Called by `load`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.sidecar.config.config import Settings
from headrace.sidecar.control.client import Client, NotRunning
from headrace.sidecar.lake.runs import LoadError
from headrace.sidecar.state.checkpoint import Manifest, parse_manifest
from headrace.sidecar.state.generation import Generation, RunState, take_generation
from headrace.sidecar.state.object_generation import ObjectGeneration, take_run
from headrace.sidecar.wiring.factories import make_epoch_topic
from headrace.sidecar.wiring.run_states import newest_run, objects_of

Taken = Generation | ObjectGeneration


@contextmanager
def taken(settings: Settings, *, repeated: bool = False) -> Iterator[tuple[Taken, Manifest | None]]:
    """A run's state of its own, to be completed inside, and else gone without a trace; `repeated`: the state may have rows,
    whose manifest is given. Raises LoadError, StateError."""
    with alone(settings):
        if is_running(settings):
            raise LoadError("a sidecar is running", state=settings.state,
                            hint="stop it first")  # fmt: skip
        there = newest_run(settings)
        data = None if there is None else there.read_manifest()
        before = None if data is None or there is None else parse_manifest(data, there.where)
        if not repeated and (before is not None or _has_epochs(settings, there)):
            raise LoadError("the state has rows already", state=settings.store or settings.state,
                            hint="load into an empty one: the views are then given anew")  # fmt: skip
        objects = objects_of(settings)
        fresh: Taken = take_generation(settings.state)[0] if objects is None else take_run(objects, settings.state)
        try:
            yield fresh, before
        except BaseException:
            fresh.discard()
            raise


def complete(fresh: Taken, manifest: Manifest) -> None:
    """Have the load count, all of it. Raises StateError where another run or load has begun meanwhile."""
    fresh.begin_with(manifest.json(), {f.name for files in manifest.arrangements.values() for f in files})


def _has_epochs(settings: Settings, there: RunState | None) -> bool:
    """Whether a log has epochs though no checkpoint was written: they are of another beginning."""
    if settings.config.reclock == "kafka":
        return bool(make_epoch_topic(settings).look())
    return isinstance(there, Generation) and there.disk.exists(there.log) and there.log.stat().st_size > 0


def is_running(settings: Settings) -> bool:
    """Whether a sidecar answers."""
    try:
        Client(settings, patience=5.0).status()
    except NotRunning:
        return False
    return True


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """While no other load of this machine has this state. Raises LoadError."""
    folder = settings.state / "spark"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        end = os.open(folder / "load.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise LoadError(f"the state folder cannot be written: {error.strerror}", folder=folder) from error
    try:
        try:
            fcntl.flock(end, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LoadError("another load is under way", state=settings.state, hint="wait for it, or end it") from None
        yield
    finally:
        os.close(end)
