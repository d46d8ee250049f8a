"""`headrace dev up|down|status`: prints what the embedded stack says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sidecar.console import show
from sidecar.devstack import cli as stack


def up(folder: Path, *, detach: bool, as_json: bool) -> None:
    """Run the stack in `folder` until a signal, or leave it in the background."""
    stack.up(folder, detach=detach, ready=lambda facts: _print(facts, as_json=as_json))


def down(folder: Path, *, as_json: bool) -> None:
    """Stop the stack in `folder`."""
    stopped = stack.down(folder)
    text = "stopped" if stopped else "nothing ran"
    show.emit({"stopped": stopped, "folder": str(folder)}, as_json=as_json,
              tables=[show.table("Embedded stack", ("folder", "state"), [(folder, text)])])  # fmt: skip


def status(folder: Path, *, as_json: bool) -> None:
    """Show the stack in `folder`."""
    _print(stack.status(folder), as_json=as_json)


def _print(facts: dict[str, Any], *, as_json: bool) -> None:
    rows = list(facts.items())
    show.emit(facts, as_json=as_json, tables=[show.table("Embedded stack", ("what", "value"), rows)])
