"""`plan` where no sidecar runs: the folder of views against what the state folder says was last in force.

Always: read-only, and it needs no server; the sizes are those of the last checkpoint. Called by the command.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.sidecar.config.config import Settings
from headrace.sidecar.control import applied_views
from headrace.sidecar.control.plan import UPDATE_BYTES, Held, ViewsPlan, plan_views
from headrace.sidecar.control.protocol import ControlError
from headrace.sidecar.state.checkpoint import Manifest
from headrace.sidecar.wiring.project import Project, kept_tables
from headrace.sidecar.wiring.run_states import newest_manifest, newest_run
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_views
from headrace.views.errors import ViewError


def plan_offline(project: Project, *, drop: bool) -> ViewsPlan:
    """What a start, or an apply right after it, would do. Raises ViewError, ApplyError, CheckpointError, StateError."""
    settings = project.settings
    if project.unknown:
        raise ControlError("columns are known only from messages", tables=", ".join(project.unknown),
                           hint="ask while `headrace run` runs, or declare the columns")  # fmt: skip
    manifest = newest_manifest(settings)
    read = project.tables
    if manifest is not None:
        read = {n: s for n, s in project.tables.items() if n in manifest.tables}
    kept = frozenset(kept_tables(settings))
    old = _before(project, manifest)
    plan = plan_views(old, project.specs, project.tables, read, kept, _held(manifest), drop=drop,
                      workers=settings.config.engine.workers, addable=_addable(settings))  # fmt: skip
    return (
        plan if manifest is not None else replace(plan, tables_dropped=(), tables_added=())
    )  # what was never read is not let go of


def _addable(settings: Settings) -> frozenset[str]:
    """The tables that a start would read from their source where the state folder lacks them."""
    sources = [s for s in settings.config.sources if s.type == "debezium" and s.database is not None]
    return frozenset(t.name for s in sources for t in s.tables or ())


def _before(project: Project, manifest: Manifest | None) -> tuple[CompiledView, ...]:
    """The views last in force; none where nothing is kept, or where the tables are not what they were."""
    found = None if manifest is None else applied_views.last(newest_run(project.settings))
    if found is None:
        return ()
    try:
        return compile_views(found[0], Catalog(dict(project.tables)))
    except ViewError:
        return ()


def _held(manifest: Manifest | None) -> dict[str, Held]:
    """What the checkpoint holds; how many updates a file has is guessed from its size."""
    held = {}
    for name, files in (manifest.arrangements if manifest is not None else {}).items():
        size = sum(f.bytes for f in files)
        held[name] = Held(size // (2 * UPDATE_BYTES), size)
    return held
