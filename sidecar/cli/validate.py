"""`headrace validate`: the views as they were understood, and where a Postgres says otherwise of them.

Always: the exit code is 4 where Headrace or that Postgres refuses a view, or a view's columns differ between them. Called by
the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from headrace.sidecar.cli import output
from headrace.sidecar.cli.errors import EXIT_CODES
from headrace.sidecar.config.config import Settings
from headrace.sidecar.operations.postgres_check import Compared, Difference, compare
from headrace.sidecar.wiring.mistakes import mistakes
from headrace.sidecar.wiring.project import read_project, tables_of
from headrace.views.compile import CompiledView
from headrace.views.errors import ViewError
from headrace.views.explain import explain as explain_view
from headrace.views.yaml_reader import ConfigError


def run_validate(settings: Settings, against: str | None, *, explain: bool, as_json: bool) -> None:
    """Check the views, and ask the Postgres at `against` about them. Raises HeadraceError: the first mistake, all others in
    its `others`."""
    try:
        _validate(settings, against, explain=explain, as_json=as_json)
    except (ConfigError, ViewError) as error:
        found = mistakes(settings)
        if not found:
            raise
        first, *others = found
        first.others = others
        raise first from error


def _validate(settings: Settings, against: str | None, *, explain: bool, as_json: bool) -> None:
    project = read_project(settings)
    compared = None if against is None else compare(project, against)
    if compared is None and project.unknown:
        text = ", ".join(project.unknown)
        title = "Columns known only from messages: views are checked when they arrive"
        body: dict[str, Any] = {"ok": True, "views": [], "unknown_tables": list(project.unknown)}
        body["unfilled"] = list(settings.unfilled)
        output.emit(body, as_json=as_json, tables=[output.table(title, ("tables",), [(text,)])])
        return
    views = project.compile() if compared is None else compared.checked.views
    body = {"ok": compared is None or not compared.differences, "views": _described(views, explain=explain)}
    body["unfilled"] = list(settings.unfilled)
    if compared is not None:
        body["against"] = {"database": compared.database, "version": compared.version, "prepared": compared.prepared,
                           "differences": [asdict(d) for d in compared.differences]}  # fmt: skip
    valid = "" if compared is not None and compared.checked.errors else ", all valid"
    output.emit(body, as_json=as_json, tables=[] if as_json else [_table(body["views"], valid)])
    if not as_json:
        for unfilled in settings.unfilled:
            typer.echo(f"warning: {unfilled}")
        _print(body["views"], compared)
    if not body["ok"]:
        raise SystemExit(EXIT_CODES["view"])


def _described(views: Sequence[CompiledView], *, explain: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": v.name,
            "key": None if v.key is None else [v.schema.columns[i].name for i in v.key],
            "columns": [
                {"name": c.name, "data_type": c.type.sql(), "nullable": c.nullable} for c in v.schema.columns
            ],
            "tables": list(tables_of(v)),
            "warnings": list(v.warnings),
            "plan": explain_view(v, views) if explain else None,
        }
        for v in views
    ]  # fmt: skip


def _table(views: Sequence[Mapping[str, Any]], valid: str) -> Table:
    rows = [
        (v["name"], ", ".join(v["key"] or ()) or "(multiset)", ", ".join(v["tables"]),
         ", ".join(f"{c['name']} {c['data_type']}" for c in v["columns"]))
        for v in views
    ]  # fmt: skip
    return output.table(f"{len(views)} views{valid}", ("view", "key", "tables", "columns"), rows)


def _print(views: Sequence[Mapping[str, Any]], compared: Compared | None) -> None:
    """What stands below the table."""
    for v in views:
        for warning in v["warnings"]:
            typer.echo(f"warning: view {v['name']}: {warning}")
    for v in views:
        if v["plan"] is not None:
            typer.echo(f"\n{v['name']}\n{v['plan']}")
    if compared is None:
        return
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for difference in compared.differences:
        console.print(_sentence(difference))
    console.print(
        f"{compared.prepared} views prepared on {compared.database} (Postgres {compared.version}): "
        f"{len(compared.differences) or 'no'} differences"
    )


def _sentence(d: Difference) -> str:
    place = ":".join(str(part) for part in (d.file, d.line, d.character) if part is not None)
    column = "" if d.column is None else f", column {d.column}"
    hint = f"; {d.hint}" if d.hint else ""
    return f"{place}: view {d.view}{column}: {d.what}: we say {d.ours!r}, Postgres says {d.postgres!r}{hint}"
