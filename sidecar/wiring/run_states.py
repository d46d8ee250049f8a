"""Where a sidecar's state lies: the one place that knows whether it is a folder or a store of objects.

Always: nothing is written before a run is taken; secrets go to the store's client alone. Called by wiring, and by the
commands that read the state of a stopped sidecar.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from headrace.sidecar.config.config import Settings
from headrace.sidecar.state.batch_places import Batches, FolderBatches, ObjectBatches
from headrace.sidecar.state.checkpoint import Manifest, manifest_of
from headrace.sidecar.state.filesystem import LOCAL, Disk
from headrace.sidecar.state.generation import RunState, last_generation
from headrace.sidecar.state.object_generation import kept_run
from headrace.sidecar.state.objects import FolderObjects, Objects, S3Access, S3Objects
from headrace.views.yaml_reader import ConfigError

LOADS = "loads"
"""A folder of the state, and how the names of a store's objects begin."""


def objects_of(settings: Settings) -> Objects | None:
    """The store that `state` names by a URL; None for a folder. Raises ConfigError where its client is not installed."""
    if settings.store is None:
        return None
    url, given = urlsplit(settings.store), settings.config.store
    if url.scheme == "file":
        return FolderObjects(Path(url.path))
    if find_spec("obstore") is None:
        raise ConfigError("the state is in S3 and obstore is not installed", file=settings.path, field="state",
                          hint="pip install 'headrace[s3]'")  # fmt: skip
    secret = None if given.secret_access_key is None else given.secret_access_key.get_secret_value()
    prefix = url.path.strip("/")
    return S3Objects(S3Access(url.netloc, prefix, given.endpoint, given.region, given.access_key_id, secret))


def load_place(settings: Settings) -> Batches:
    """Where a load leaves the rows of tables that a running sidecar takes in; no checkpoint names or condemns what is there."""
    objects = objects_of(settings)
    if objects is None:
        return FolderBatches(settings.state / LOADS)
    return ObjectBatches(objects, 0, settings.state / LOADS, prefix=f"{LOADS}/")


def clear_load_place(settings: Settings) -> None:
    """Take away what is there. Raises OSError."""
    shutil.rmtree(settings.state / LOADS, ignore_errors=True)
    objects = objects_of(settings)
    if objects is None:
        (settings.state / LOADS).mkdir(mode=0o700, parents=True)
        return
    for name in objects.names(f"{LOADS}/"):
        objects.delete(name)


def newest_run(settings: Settings, disk: Disk = LOCAL) -> RunState | None:
    """The state as the last run left it, to be read alone. Raises OSError."""
    objects = objects_of(settings)
    return last_generation(settings.state, disk) if objects is None else kept_run(objects, settings.state)


def newest_manifest(settings: Settings) -> Manifest | None:
    """The last complete checkpoint. Raises CheckpointError, StateError, OSError."""
    run = newest_run(settings)
    return None if run is None else manifest_of(run)
