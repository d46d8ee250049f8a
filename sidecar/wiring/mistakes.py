"""Checks of a configuration and its views that need no server: the tables that it declares, and every mistake.

Always: nothing is opened but files; the same files give the same mistakes, in the same order. `project.read_project` raises the
first mistake; `headrace validate` tells all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.engine.errors import HeadraceError
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings
from headrace.views import view_files
from headrace.views.catalog import Catalog
from headrace.views.compile import check_views
from headrace.views.spec import ViewSpec
from headrace.views.yaml_models import nearest
from headrace.views.yaml_reader import ConfigError


def mistakes(settings: Settings) -> list[HeadraceError]:
    """Every mistake of the folder of views that can be told without a server, in order of its files and lines.

    A view that reads a wrong one is not looked at: it may be right. Raises ConfigError where there is no such folder.
    """
    loaded = view_files.read(settings.views)
    found: list[HeadraceError] = [*loaded.mistakes, *undeclared_sinks(settings, loaded.specs)]
    tables, unknown = declared_tables(settings)
    if not unknown:
        found += check_views(loaded.specs, Catalog(tables), loaded.unread).errors
    return sorted(
        found, key=lambda e: (str(e.where.get("file")), *(int(str(e.where.get(p) or 0)) for p in ("line", "column")))
    )


def undeclared_sinks(settings: Settings, specs: Sequence[ViewSpec]) -> list[ConfigError]:
    """The mistakes of views that name sinks which the configuration does not have."""
    sinks = {s.name for s in settings.config.sinks}
    return [
        ConfigError(f"view {view.name} names a sink that is not declared", file=view.file, line=view.line,
                    field="sinks", value=name, hint=nearest(name, sinks))
        for view in specs for name in view.sinks if name not in sinks and sinks
    ]  # fmt: skip


def declared_tables(settings: Settings) -> tuple[dict[str, Schema], list[str]]:
    """The tables whose columns the configuration names, and the sources or tables whose columns only messages tell."""
    tables: dict[str, Schema] = {}
    unknown: list[str] = []
    for source in settings.config.sources:
        for table in source.tables or ():
            schema = table.schema_of()
            if schema is None:
                unknown.append(table.name)
            elif table.name in tables:
                raise ConfigError("two sources declare the same table", file=settings.path, field="sources",
                                  value=table.name, hint="leave it out of one of them")  # fmt: skip
            else:
                tables[table.name] = schema
        if source.tables is None:
            unknown.append(f"{source.topic_prefix}.*")
    return tables, unknown
