"""`headrace explain`: one view's plan as text, JSON or a picture, with what its arrangements hold where a sidecar runs, and
what those may come to hold that do not stand yet.

Always: nothing is started and nothing is changed; a sidecar that does not answer leaves sizes unsaid, and what is expected
is told against its state folder then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from headrace.engine.errors import HeadraceError
from headrace.sidecar.cli import output
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control.client import Client, NotRunning
from headrace.sidecar.control.offline_plan import plan_offline
from headrace.sidecar.wiring.project import read_project
from headrace.views.compile import CompiledView
from headrace.views.errors import ViewError
from headrace.views.explain import explain, explain_json
from headrace.views.plan_svg import picture
from headrace.views.yaml_models import nearest

SECONDS = 3.0
"""So long a running sidecar is waited for."""


def run_explain(settings: Settings, name: str, svg: Path | None, *, why: bool, as_json: bool) -> None:
    """Show the plan of the view `name`. Raises ViewError where there is none."""
    views = read_project(settings).compile()
    view = _named(views, name)
    body = explain_json(view, views)
    client = Client(settings, patience=SECONDS)
    body["held"], body["expected"] = _held(client, name), _expected(client, settings, name)
    if svg is not None:
        svg.write_text(picture(view, views))
        body["svg"] = str(svg)
    if as_json:
        output.emit(body, as_json=True)
        return
    typer.echo(explain(view, views))
    output.emit(body, as_json=False, tables=_tables(body))
    if why:
        typer.echo("\n".join(f"rule {rule}" for rule in view.rules))
    if svg is not None:
        typer.echo(f"written: {svg}")


def _named(views: tuple[CompiledView, ...], name: str) -> CompiledView:
    found = next((v for v in views if v.name == name), None)
    if found is None:
        names = [v.name for v in views]
        raise ViewError(
            "there is no such view", view=name, hint=nearest(name, names) or f"there are: {', '.join(names)}"
        )
    return found


def _tables(body: dict[str, Any]) -> list[Table]:
    costs = ((table, c["look_ups"], c["kept"]) for table, c in body["costs"].items())
    made = [output.table("One changed row of", ("table", "look-ups", "arrangements that take it up"), costs)]
    if body["held"] is not None:
        held = ((a["name"], a["rows"], output.bytes_text(a["bytes"]), ", ".join(a["views"])) for a in body["held"])
        made.append(output.table("Arrangements, as they are now", ("name", "updates", "size", "views"), held))
    if body["expected"]:
        rows = ((a["name"], a["rows"], output.bytes_text(a["bytes"])) for a in body["expected"])
        made.append(output.table("Arrangements to be added, at most", ("name", "updates", "size"), rows))
    return made


def _held(client: Client, view: str) -> list[dict[str, Any]] | None:
    """The arrangements of the view in the running sidecar; None if none answers."""
    try:
        return [a for a in client.status()["arrangements"] if view in a["views"]]
    except NotRunning:
        return None


def _expected(client: Client, settings: Settings, view: str) -> list[dict[str, Any]] | None:
    """The arrangements that the view would add, with what they may hold at most; None where that cannot be told."""
    try:
        try:
            plan = client.ask("/plan", {"drop": False})
        except NotRunning:
            plan = plan_offline(read_project(settings), drop=False).json()
    except HeadraceError:
        return None
    return next((list(f["adds"]) for f in plan["views"] if f["view"] == view), None)
