"""What a configuration and its views say before anything is opened, and facts of views that several parts ask for.

`build` makes a running sidecar of a project; commands that need no server read one too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.connectors.sink import SinkView
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings
from headrace.sidecar.wiring.mistakes import declared_tables, undeclared_sinks
from headrace.views import view_files
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_views
from headrace.views.plan import Scan
from headrace.views.spec import ViewSpec
from headrace.views.traversal import walk


@dataclass(frozen=True)
class Project:
    """A configuration and its views, with everything resolved that needs no server."""

    settings: Settings
    specs: tuple[ViewSpec, ...]
    tables: Mapping[str, Schema]
    unknown: tuple[str, ...]

    def compile(self, tables: Mapping[str, Schema] | None = None) -> tuple[CompiledView, ...]:
        """The views over these tables. Raises ViewError."""
        return compile_views(self.specs, Catalog(dict(self.tables if tables is None else tables)))


def read_project(settings: Settings) -> Project:
    """Read the views and the declared tables. `unknown`: sources or tables whose schema only messages tell."""
    specs = view_files.load(settings.views)
    for error in undeclared_sinks(settings, specs):
        raise error
    tables, unknown = declared_tables(settings)
    return Project(settings, specs, tables, tuple(unknown))


def tables_of(view: CompiledView) -> tuple[str, ...]:
    """The tables that a view's own SQL reads, by name; those of views it reads are theirs."""
    return tuple(sorted({node.table for node in walk(view.plan) if isinstance(node, Scan)}))


def kept_tables(settings: Settings) -> set[str]:
    """The tables that are read though no view may need them yet."""
    return {t.name for source in settings.config.sources for t in source.tables or () if t.keep}


def sink_view(view: CompiledView) -> SinkView:
    """A compiled view as sinks see it."""
    columns = {c.name: c.description for c in view.spec.columns if c.description}
    spec = view.spec
    return SinkView(
        view.name, view.schema, view.key, view.fingerprint, spec.description, columns, spec.indexes, spec.grants
    )
