"""`headrace explain`: one view's plan as text, JSON or a picture, with what its arrangements hold where a sidecar runs.

Always: nothing is started and nothing is changed; a sidecar that does not answer leaves sizes unsaid.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from sidecar.config import Settings
from sidecar.console import show
from sidecar.wiring import understand
from views.compile import CompiledView
from views.errors import ViewError
from views.explain import explain, explain_json
from views.picture import picture
from views.strict import nearest

SECONDS = 3.0
"""So long a running sidecar is waited for."""


def run_explain(settings: Settings, name: str, svg: Path | None, *, why: bool, as_json: bool) -> None:
    """Show the plan of the view `name`. Raises ViewError where there is none."""
    views = understand(settings).compile()
    view = _named(views, name)
    body = explain_json(view, views)
    body["held"] = _held(f"http://{settings.config.http}", name)
    if svg is not None:
        svg.write_text(picture(view, views))
        body["svg"] = str(svg)
    if as_json:
        show.emit(body, as_json=True)
        return
    typer.echo(explain(view, views))
    show.emit(body, as_json=False, tables=_tables(body))
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
    made = [show.table("One changed row of", ("table", "look-ups", "arrangements that take it up"), costs)]
    if body["held"] is not None:
        held = ((a["name"], a["rows"], show.bytes_text(a["bytes"]), ", ".join(a["views"])) for a in body["held"])
        made.append(show.table("Arrangements, as they are now", ("name", "updates", "size", "views"), held))
    return made


def _held(address: str, view: str) -> list[dict[str, Any]] | None:
    """The arrangements of the view in the sidecar that answers at `address`; None if none does."""
    try:
        with urllib.request.urlopen(f"{address}/status", timeout=SECONDS) as answer:  # noqa: S310 (http, by config)
            status = json.load(answer)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return None
    return [a for a in status["arrangements"] if view in a["views"]]
