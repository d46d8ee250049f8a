"""The command `headrace`: thin; each subcommand reads its arguments, calls one function, prints a table or JSON.

Always: every output is also there as `--json`; errors leave with the code of their kind (`console.errors`).
"""

from __future__ import annotations

import json
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import sidecar.environment
from sidecar.config import load, load_for_replay
from sidecar.console import show
from sidecar.console.errors import fail, reported

app = typer.Typer(name="headrace", help="Keeps SQL views of a live Postgres fresh, exact and ready to read.",
                  no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)  # fmt: skip
dev = typer.Typer(help="The embedded Postgres, Kafka and Connect with Debezium, for trying things out.",
                  no_args_is_help=True)  # fmt: skip
app.add_typer(dev, name="dev")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ConfigPath = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")]
Folder = Annotated[Path, typer.Option("--folder", help="The stack's data folder.")]
DEFAULT = Path("headrace.yaml")
DEV_FOLDER = Path(".headrace/dev")


def version(value: bool) -> None:
    """Print the version and leave."""
    if value:
        from sidecar.wiring import program

        typer.echo(program())
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Version.")] = False,
) -> None:
    """Options of every subcommand."""


@app.command()
def validate(
    config: ConfigPath = DEFAULT,
    as_json: Json = False,
    explain: Annotated[bool, typer.Option(help="Show each view's plan.")] = False,
) -> None:
    """Check configuration and views without starting anything."""
    with reported(as_json=as_json):
        from sidecar.wiring import tables_of, understand
        from views.explain import explain as explain_view

        understood = understand(load_for_replay(config))
        if understood.unknown:
            body: dict[str, Any] = {"ok": True, "views": [], "unknown_tables": list(understood.unknown)}
            text = ", ".join(understood.unknown)
            tables = [
                show.table(
                    "Columns known only from messages: views are checked when they arrive", ("tables",), [(text,)]
                )
            ]
            show.emit(body, as_json=as_json, tables=tables)
            return
        views = understood.compile()
        body = {
            "ok": True,
            "views": [
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
            ],
        }
        rows = [
            (v["name"], ", ".join(v["key"] or ()) or "(multiset)", ", ".join(v["tables"]),
             ", ".join(f"{c['name']} {c['data_type']}" for c in v["columns"]))
            for v in body["views"]
        ]  # fmt: skip
        tables = [show.table(f"{len(views)} views, all valid", ("view", "key", "tables", "columns"), rows)]
        show.emit(body, as_json=as_json, tables=tables)
        if as_json:
            return
        for v in body["views"]:
            for warning in v["warnings"]:
                typer.echo(f"warning: view {v['name']}: {warning}")
        if explain:
            for v in body["views"]:
                typer.echo(f"\n{v['name']}\n{v['plan']}")


@app.command()
def run(config: ConfigPath = DEFAULT, as_json: Json = False) -> None:
    """Run the sidecar until SIGTERM or Ctrl-C; then drain and leave with 0."""
    with reported(as_json=as_json):
        # pyarrow imports pandas at its first scalar: over 30 MB that nothing here uses.
        sidecar.environment.forgo("pandas")
        from sidecar.hosts.local import serve

        serve(load(config), as_json=as_json)


@app.command()
def status(
    config: ConfigPath = DEFAULT,
    as_json: Json = False,
    url: Annotated[str | None, typer.Option(help="The sidecar's HTTP address, if not the configuration's.")] = None,
) -> None:
    """What a running sidecar does: sources, views, arrangements, sinks."""
    with reported(as_json=as_json):
        from sidecar.stopped import last

        settings = None if url else load_for_replay(config)
        ended = last(settings.state) if settings else None
        show_status(url or (f"http://{settings.config.http}" if settings else ""), ended, as_json=as_json)


def show_status(address: str, ended: Mapping[str, Any] | None, *, as_json: bool) -> None:
    """Fetch and print /status; `ended`: why the last run stopped, shown where nobody answers."""
    from sidecar.health import HttpError

    try:
        with urllib.request.urlopen(f"{address}/status", timeout=10) as answer:  # noqa: S310 (http, by config)
            body = json.load(answer)
    except (urllib.error.URLError, OSError, ValueError) as error:
        why, hint, when = str(error), "is `headrace run` running?", None
        if ended is not None:
            why, hint, when = f"it stopped: {ended['text']}", ended["hint"] or hint, ended["at"]
        fail(HttpError(f"no sidecar answers: {why}", http=address, stopped=when, hint=hint), as_json=as_json)
    show.emit(body, as_json=as_json, tables=[] if as_json else show.status_tables(body))


@app.command()
def replay(
    recordings: Annotated[list[Path], typer.Argument(help="JSON lines, plain or gzipped.")],
    config: ConfigPath = DEFAULT,
    output: Annotated[str, typer.Option(help="final or changes.")] = "final",
    as_json: Json = False,
) -> None:
    """Run the views over recorded topics, with no server at all."""
    if output not in ("final", "changes"):
        raise typer.BadParameter("final or changes", param_hint="--output")
    with reported(as_json=as_json):
        from sidecar.console.rows import print_replay
        from sidecar.replay import Replay

        print_replay(Replay(load_for_replay(config), recordings), output, as_json=as_json)


@app.command()
def audit(
    views: Annotated[list[str] | None, typer.Argument(help="Views; all of the sink unless given.")] = None,
    config: ConfigPath = DEFAULT,
    sink: Annotated[str | None, typer.Option(help="A postgres sink; the first unless given.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="libpq URL of the source, if not the configuration's `database:`.")
    ] = None,
    every: Annotated[float | None, typer.Option(help="Seconds between rounds; one round unless given.")] = None,
    http: Annotated[str | None, typer.Option(help="Address that serves /metrics meanwhile, with --every.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the views in a Postgres sink with what the source itself answers; leaves with 9 on a mismatch."""
    with reported(as_json=as_json):
        from sidecar.console.audit import run_audit

        run_audit(load(config), views or (), sink, from_, every, http, as_json=as_json)


@app.command()
def schema(kind: Annotated[str, typer.Argument(help="config or views.")] = "config") -> None:
    """Print the JSON Schema of headrace.yaml (config) or of view files (views), for editors."""
    from sidecar.config import schema as config_schema
    from views.spec import ViewsFile
    from views.strict import json_schema

    if kind not in ("config", "views"):
        raise typer.BadParameter("config or views", param_hint="KIND")
    typer.echo(json.dumps(config_schema() if kind == "config" else json_schema(ViewsFile), indent=2))


@app.command()
def init(
    from_: Annotated[str, typer.Option("--from", help="libpq URL of the source database.")],
    folder: Annotated[Path, typer.Option(help="Where to write.")] = Path(),
    name: Annotated[str, typer.Option(help="Name of the source.")] = "app",
    topic_prefix: Annotated[str | None, typer.Option(help="Debezium's topic.prefix; the name unless given.")] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", help="schema.table, with * and ?; all unless given.")
    ] = None,
    kafka: Annotated[str, typer.Option(help="Kafka's bootstrap servers.")] = "127.0.0.1:9092",
    connect: Annotated[str | None, typer.Option(help="Kafka Connect's REST address.")] = None,
    register: Annotated[bool, typer.Option(help="Register the connector with Connect.")] = False,
    force: Annotated[bool, typer.Option(help="Overwrite files.")] = False,
    as_json: Json = False,
) -> None:
    """Reflect a database: write headrace.yaml, example views and the Debezium connector's configuration."""
    with reported(as_json=as_json):
        from sidecar.console.init import run_init

        run_init(url=from_, folder=folder, name=name, topic_prefix=topic_prefix or name, tables=tables, kafka=kafka,
                 connect=connect, register=register, force=force, as_json=as_json)  # fmt: skip


@dev.command("up")
def dev_up(
    folder: Folder = DEV_FOLDER,
    detach: Annotated[bool, typer.Option(help="Stay in the background.")] = False,
    as_json: Json = False,
) -> None:
    """Start the embedded stack; stays until Ctrl-C unless detached."""
    with reported(as_json=as_json):
        from sidecar.console.dev import up

        up(folder, detach=detach, as_json=as_json)


@dev.command("down")
def dev_down(folder: Folder = DEV_FOLDER, as_json: Json = False) -> None:
    """Stop a detached stack."""
    with reported(as_json=as_json):
        from sidecar.console.dev import down

        down(folder, as_json=as_json)


@dev.command("status")
def dev_status(folder: Folder = DEV_FOLDER, as_json: Json = False) -> None:
    """What runs, where, since when, with how much memory."""
    with reported(as_json=as_json):
        from sidecar.console.dev import status as stack_status

        stack_status(folder, as_json=as_json)


def main() -> None:
    """Entry point."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
