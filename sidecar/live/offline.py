"""`plan` where no sidecar runs: the folder of views against what the state folder says was last in force.

Always: read-only, and it needs no server; the sizes are those of the last checkpoint. Called by the command.
"""

from __future__ import annotations

from dataclasses import replace

from sidecar.checkpoint import Manifest, read_manifest
from sidecar.generation import last_generation
from sidecar.live import force
from sidecar.live.door import ControlError
from sidecar.live.plans import UPDATE_BYTES, Held, ViewsPlan, plan_views
from sidecar.wiring import Understood, kept_tables
from views.catalog import Catalog
from views.compile import CompiledView, compile_views
from views.errors import ViewError


def plan_offline(understood: Understood, *, drop: bool) -> ViewsPlan:
    """What a start, or an apply right after it, would do. Raises ViewError, ApplyError, CheckpointError, StateError."""
    settings = understood.settings
    if understood.unknown:
        raise ControlError("columns are known only from messages", tables=", ".join(understood.unknown),
                           hint="ask while `headrace run` runs, or declare the columns")  # fmt: skip
    generation = last_generation(settings.state)
    manifest = None if generation is None else read_manifest(generation.manifest)
    read = understood.tables
    if manifest is not None:
        read = {n: s for n, s in understood.tables.items() if n in manifest.tables}
    kept = frozenset(kept_tables(settings))
    old = _before(understood, manifest)
    plan = plan_views(old, understood.specs, understood.tables, read, kept, _held(manifest), drop=drop,
                      workers=settings.config.engine.workers)  # fmt: skip
    return plan if manifest is not None else replace(plan, tables_dropped=())  # what was never read is not let go of


def _before(understood: Understood, manifest: Manifest | None) -> tuple[CompiledView, ...]:
    """The views last in force; none where nothing is kept, or where the tables are not what they were."""
    found = None if manifest is None else force.last(understood.settings.state)
    if found is None:
        return ()
    try:
        return compile_views(found[0], Catalog(dict(understood.tables)))
    except ViewError:
        return ()


def _held(manifest: Manifest | None) -> dict[str, Held]:
    """What the checkpoint holds; how many updates a file has is guessed from its size."""
    held = {}
    for name, files in (manifest.arrangements if manifest is not None else {}).items():
        size = sum(f.bytes for f in files)
        held[name] = Held(size // (2 * UPDATE_BYTES), size)
    return held
