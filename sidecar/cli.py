"""The command `headrace`: thin; each subcommand reads its arguments, calls one function, prints a table or JSON.

Always: every output is also there as `--json`; errors leave with the code of their kind (`console.errors`).
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

import sidecar.environment
from sidecar.config import load, load_partly
from sidecar.console import show
from sidecar.console.errors import reported
from sidecar.groups import DEFAULT, ConfigPath, Json, deadletters, dev

app = typer.Typer(name="headrace", help="Keeps SQL views of a live Postgres fresh, exact and ready to read.",
                  no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)  # fmt: skip
app.add_typer(dev, name="dev")
app.add_typer(deadletters, name="deadletters")

"""So long `status` waits for an answer."""

Url = Annotated[str | None, typer.Option("--url", help="The sidecar's HTTP address, if not on this machine's socket.")]
Drop = Annotated[bool, typer.Option("--drop", help="Views that are gone from the folder lose their result tables.")]


def version(value: bool) -> None:
    """Print the version and leave."""
    if value:
        from sidecar.making import program

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
    against: Annotated[
        str | None,
        typer.Option(help="URL of a Postgres with the tables: each view is prepared there, and what it says compared."),
    ] = None,
) -> None:
    """Check configuration and views without starting anything."""
    with reported(as_json=as_json):
        from sidecar.console.validate import run_validate

        run_validate(load_partly(config), against, explain=explain, as_json=as_json)


@app.command("explain")
def explain_one(
    view: Annotated[str, typer.Argument(help="The view's name.")],
    config: ConfigPath = DEFAULT,
    as_json: Json = False,
    svg: Annotated[Path | None, typer.Option(help="Write the plan as a picture to this file.")] = None,
    why: Annotated[bool, typer.Option(help="Name the rules that made the plan.")] = False,
) -> None:
    """How a view is kept: its plan, what it shares, what one change costs, and what it holds where a sidecar runs."""
    with reported(as_json=as_json):
        from sidecar.console.explain import run_explain

        run_explain(load_partly(config), view, svg, why=why, as_json=as_json)


@app.command()
def run(
    config: ConfigPath = DEFAULT,
    as_json: Json = False,
    as_folder: Annotated[
        bool,
        typer.Option("--as-folder", help="Take the folder's views, though the run before died with others in force."),
    ] = False,
) -> None:
    """Run the sidecar until SIGTERM or Ctrl-C; then drain and leave with 0. SIGHUP does what `apply` does."""
    from sidecar.hosts.leaving import Leaving

    leaving = Leaving(as_json=as_json)
    leaving.listen()
    with reported(as_json=as_json):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # whoever asks over HTTP may hang up
        from sidecar.hosts.local import serve

        serve(load(config), leaving, as_folder=as_folder, as_json=as_json)


@app.command()
def plan(
    config: ConfigPath = DEFAULT,
    url: Url = None,
    drop: Drop = False,
    as_json: Json = False,
) -> None:
    """What the changed folder of views would do: to a running sidecar, or against the state folder where none runs."""
    with reported(as_json=as_json):
        from sidecar.console.views import run_plan

        run_plan(load_partly(config), url, drop=drop, as_json=as_json)


@app.command("apply")
def apply_views(
    config: ConfigPath = DEFAULT,
    url: Url = None,
    drop: Drop = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End the change that is under way.")] = False,
    as_json: Json = False,
) -> None:
    """Put the changed folder of views in force in the running sidecar: no restart, and no other view is disturbed."""
    with reported(as_json=as_json):
        from sidecar.console.views import run_apply

        run_apply(load_partly(config), url, drop=drop, cancel=cancel, as_json=as_json)


@app.command()
def query(
    sql: Annotated[str, typer.Argument(help="A SELECT over tables and views.")],
    config: ConfigPath = DEFAULT,
    url: Url = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: Postgres's texts, nothing for NULL.")] = False,
    as_json: Json = False,
) -> None:
    """Answer one SELECT from what a running sidecar holds, at its last complete epoch."""
    with reported(as_json=as_json):
        from sidecar.console.views import run_query

        run_query(load_partly(config), url, sql, as_csv=as_csv, as_json=as_json)


@app.command()
def tail(
    view: Annotated[str, typer.Argument(help="A view that has a sink.")],
    config: ConfigPath = DEFAULT,
    url: Url = None,
    start: Annotated[
        int | None, typer.Option("--from", help="Go on after this epoch (`resume`); the whole view first unless given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Follow a view of a running sidecar: its rows, then every change, until Ctrl-C."""
    with reported(as_json=as_json):
        from sidecar.console.views import run_tail

        run_tail(load_partly(config), url, view, start, as_json=as_json)


@app.command()
def status(
    config: ConfigPath = DEFAULT,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """What a running sidecar does: sources, views, arrangements, sinks."""
    with reported(as_json=as_json):
        from sidecar.console.status import run_status

        run_status(None if url else load_partly(config), url, as_json=as_json)


@app.command("test")
def run_tests_of_views(
    views: Annotated[list[str] | None, typer.Argument(help="Views; all unless given.")] = None,
    config: ConfigPath = DEFAULT,
    as_json: Json = False,
) -> None:
    """Run the unit tests that stand under the views' `tests:`, with no server at all; leaves with 9 where one fails."""
    with reported(as_json=as_json):
        from sidecar.console.tests import run_unit_tests

        run_unit_tests(load_partly(config), views or (), as_json=as_json)


@app.command()
def replay(
    files: Annotated[
        list[Path], typer.Argument(help="Recordings (JSON lines, plain or gzipped), or SQL scripts (.sql).")
    ],
    config: ConfigPath = DEFAULT,
    output: Annotated[str, typer.Option(help="Of recordings: final or changes.")] = "final",
    seed: Annotated[int, typer.Option(help="Of scripts: the order in which rows come and go.")] = 0,
    as_json: Json = False,
) -> None:
    """Run the views over recorded topics, with no server at all; or SQL scripts, each SELECT a view beside Postgres."""
    if output not in ("final", "changes"):
        raise typer.BadParameter("final or changes", param_hint="--output")
    scripts = [f for f in files if f.suffix.lower() == ".sql"]
    if scripts and len(scripts) < len(files):
        raise typer.BadParameter("SQL scripts and recordings are replayed apart", param_hint="FILES")
    with reported(as_json=as_json):
        if scripts:
            from sidecar.console.script import run_scripts

            run_scripts(scripts, seed, as_json=as_json)
            return
        from sidecar.console.rows import print_replay
        from sidecar.replay import Replay

        print_replay(Replay(load_partly(config), files), output, as_json=as_json)


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
def resync(
    table: Annotated[str, typer.Argument(help="schema.table, one that a view reads.")],
    config: ConfigPath = DEFAULT,
    from_: Annotated[
        str | None, typer.Option("--from", help="libpq URL of the source, if not the configuration's `database:`.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the running sidecar.")] = 600.0,
    as_json: Json = False,
) -> None:
    """Compare a table of the running sidecar with its source, and take in what differs as one epoch."""
    with reported(as_json=as_json):
        from sidecar.requests import ask

        of = {"table": table, "from": from_}
        found = ask(load_partly(config).state, "resync", of, timeout)
        row = [found[k] for k in ("table", "rows", "added", "changed", "removed", "epoch")]
        columns = ("table", "rows in the source", "added", "changed", "removed", "epoch")
        show.emit(
            found, as_json=as_json, tables=[show.table(f"As of LSN {show.lsn_text(found['lsn'])}", columns, [row])]
        )


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
    workers: Annotated[int, typer.Option(min=1, help="Processes that are to share the work.")] = 1,
    force: Annotated[bool, typer.Option(help="Overwrite files.")] = False,
    as_json: Json = False,
) -> None:
    """Reflect a database: write headrace.yaml, example views and the Debezium connector's configuration."""
    with reported(as_json=as_json):
        from sidecar.console.init import run_init

        run_init(url=from_, folder=folder, name=name, topic_prefix=topic_prefix or name, tables=tables, kafka=kafka,
                 connect=connect, register=register, workers=workers, force=force, as_json=as_json)  # fmt: skip


def main() -> None:
    """Entry point."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # pyarrow imports pandas at its first scalar: over 30 MB, and a good part of a second, that nothing here uses
    sidecar.environment.forgo("pandas")
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
