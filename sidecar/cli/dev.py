"""`headrace dev up|down|status`: prints what the embedded stack says of itself."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.sidecar.cli import output
from headrace.sidecar.devstack import cli as stack

_NEXT = """
Then, for instance:
  headrace init --from "$SOURCE_URL" --kafka "$KAFKA" --connect "$CONNECT" --register --connector-password "$CONNECTOR_PASSWORD"
"""


def up(folder: Path, *, detach: bool, spark: bool, env: bool, as_json: bool) -> None:
    """Run the stack in `folder` until a signal, or leave it in the background; `spark`: with a Spark."""
    stack.up(folder, detach=detach, spark=spark, ready=lambda facts: _print(facts, env=env, as_json=as_json))


def down(folder: Path, *, as_json: bool) -> None:
    """Stop the stack in `folder`."""
    stopped = stack.down(folder)
    text = "stopped" if stopped else "nothing ran"
    output.emit({"stopped": stopped, "folder": str(folder)}, as_json=as_json,
              tables=[output.table("Embedded stack", ("folder", "state"), [(folder, text)])])  # fmt: skip


def status(folder: Path, *, env: bool, as_json: bool) -> None:
    """Show the stack in `folder`."""
    _print(stack.status(folder), env=env, as_json=as_json)


def exports(facts: Mapping[str, Any]) -> dict[str, str]:
    """The addresses of a running stack as variables of a shell. No password is in them: each reads it from its file."""
    at = facts["postgres"]
    password = Path(at["password_file"])
    url = f"postgresql://{at['user']}:$(cat {shlex.quote(str(password))})@{at['host']}:{at['port']}/postgres"
    return {
        "SOURCE_URL": f'"{url}"',
        "WAREHOUSE_URL": f'"{url}"',
        "KAFKA": shlex.quote(facts["kafka"]),
        "CONNECT": shlex.quote(facts["connect"]),
        "CONNECTOR_PASSWORD": shlex.quote(f"${{directory:{password.parent}:{password.name}}}"),
    }


def _print(facts: dict[str, Any], *, env: bool, as_json: bool) -> None:
    lines = [f"export {name}={value}" for name, value in exports(facts).items()] if facts["running"] else []
    if env and not as_json:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        return
    rows = [(name, value) for name, value in facts.items() if name != "parts"]
    rows += [(f"log of {name}", part["log"]) for name, part in facts.get("parts", {}).items()]
    output.emit(facts, as_json=as_json, tables=[output.table("Embedded stack", ("what", "value"), rows)])
    if lines and not as_json:
        sys.stdout.write("To paste into a shell (`--env` prints these lines alone):\n\n" + "\n".join(lines) + _NEXT)
        sys.stdout.flush()
