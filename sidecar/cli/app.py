"""The command `headrace`: thin; each subcommand reads its arguments, calls one function, prints a table or JSON.

Always: every output is also there as `--json`; errors leave with the code of their kind (`errors`).
"""

from __future__ import annotations

import gc
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

import headrace.sidecar.process.bootstrap
from headrace.sidecar import VERSION
from headrace.sidecar.cli.command_groups import DEFAULT, ConfigPath, Json, Url, deadletters, dev
from headrace.sidecar.cli.errors import reported
from headrace.sidecar.cli.preparing import init, load_tables, schema
from headrace.sidecar.config.config import load, load_partly

app = typer.Typer(name="headrace", help="Keeps SQL views of a live Postgres fresh, exact and ready to read.",
                  no_args_is_help=True, pretty_exceptions_enable=False)  # fmt: skip
app.add_typer(dev, name="dev")
app.add_typer(deadletters, name="deadletters")

Drop = Annotated[bool, typer.Option("--drop", help="Views that are gone from the folder lose their result tables.")]


def version(value: bool) -> None:
    """Print the version and leave."""
    if value:
        typer.echo(f"headrace {VERSION}")
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
        from headrace.sidecar.cli.validate import run_validate

        run_validate(load_partly(config), against, explain=explain, as_json=as_json)


def one(words: list[str], what: str) -> str:
    """The only word. Raises BadParameter for more."""
    if len(words) > 1:
        raise typer.BadParameter(f"{what} is one word: {' '.join(words)} are {len(words)}")
    return words[0]


@app.command("explain")
def explain_one(
    view: Annotated[
        list[str], typer.Argument(help="The view's name; or `row VIEW KEY…`: why a row is there, or why not.")
    ],
    config: ConfigPath = DEFAULT,
    url: Url = None,
    as_json: Json = False,
    svg: Annotated[Path | None, typer.Option(help="Write the plan as a picture to this file.")] = None,
    why: Annotated[bool, typer.Option(help="Name the rules that made the plan.")] = False,
) -> None:
    """How a view is kept: its plan, what it shares, what one change costs, and what it holds where a sidecar runs."""
    with reported(as_json=as_json):
        if view[0] == "row" and len(view) > 1:
            from headrace.sidecar.cli.view_commands import run_explain_row

            run_explain_row(load_partly(config), url, view[1], view[2:], as_json=as_json)
            return
        from headrace.sidecar.cli.explain import run_explain

        run_explain(load_partly(config), one(view, "a view"), svg, why=why, as_json=as_json)


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
    from headrace.sidecar.process.event_log import configure
    from headrace.sidecar.process.shutdown import ShutdownDeadline

    configure(as_json=as_json)
    shutdown = ShutdownDeadline()
    shutdown.listen()
    with reported(as_json=as_json):
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # whoever asks over HTTP may hang up
        gc.disable()  # what is imported stays: to look for garbage in it takes a tenth of the start
        from headrace.sidecar.process.serve import serve

        gc.enable()
        serve(load(config), shutdown, as_folder=as_folder)


@app.command()
def plan(
    config: ConfigPath = DEFAULT,
    url: Url = None,
    drop: Drop = False,
    as_json: Json = False,
) -> None:
    """What the changed folder of views would do: to a running sidecar, or against the state folder where none runs."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.view_commands import run_plan

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
        from headrace.sidecar.cli.view_commands import run_apply

        run_apply(load_partly(config), url, drop=drop, cancel=cancel, as_json=as_json)


@app.command()
def rescale(
    workers: Annotated[int, typer.Argument(min=1, max=64, help="How many from now on, until the next start.")],
    config: ConfigPath = DEFAULT,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Go on with another count of workers, with one pause: sinks, positions and epochs stay."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.view_commands import run_rescale

        run_rescale(load_partly(config), url, workers, as_json=as_json)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def query(
    context: typer.Context,
    sql: Annotated[
        str, typer.Argument(help="A SELECT over tables and views, or a question PROGRAM.RELATION with --column VALUE.")
    ],
    config: ConfigPath = DEFAULT,
    url: Url = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV: Postgres's texts, nothing for NULL.")] = False,
    as_json: Json = False,
) -> None:
    """Answer one SELECT, or one question of a Datalog program, from what a running sidecar holds, at its last complete epoch."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.view_commands import run_query

        run_query(load_partly(config), url, sql, context.args, as_csv=as_csv, as_json=as_json)


@app.command()
def tail(
    view: Annotated[str, typer.Argument(help="A view that has a sink.")],
    config: ConfigPath = DEFAULT,
    url: Url = None,
    start: Annotated[
        int | None, typer.Option("--from", help="Go on after this epoch (`resume`); the whole view first unless given.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="End once so many rows were told, with the rest of their epoch.")
    ] = None,
    until: Annotated[int | None, typer.Option(help="End once everything up to this epoch was told.")] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Each transaction by itself, for which all steps get finer.")
    ] = False,
    lag: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="With --each: end it once it holds the intake up for so many seconds (5 unless given)."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Follow a view of a running sidecar: its rows, then every change, until Ctrl-C; it then prints how to go on."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.view_commands import run_tail

        settings = load_partly(config)
        run_tail(settings, url, view, start, limit=limit, until=until, as_json=as_json, each=each, lag=lag)


@app.command()
def status(
    config: ConfigPath = DEFAULT,
    as_json: Json = False,
    url: Url = None,
    view: Annotated[
        str | None, typer.Option("--view", help="One view: its state in each sink, and what it reads.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="All views, arrangements, workers and data tests.")
    ] = False,
) -> None:
    """What a running sidecar does, on one screen: what needs somebody, views, sources, sinks."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.status import run_status

        run_status(None if url else load_partly(config), url, view=view, verbose=verbose, as_json=as_json)


@app.command("test")
def run_tests_of_views(
    views: Annotated[list[str] | None, typer.Argument(help="Views; all unless given.")] = None,
    config: ConfigPath = DEFAULT,
    as_json: Json = False,
) -> None:
    """Run the unit tests that stand under the views' `tests:`, with no server at all; leaves with 9 where one fails."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.view_tests import run_unit_tests

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
            from headrace.sidecar.cli.replay_sql import run_scripts

            run_scripts(scripts, seed, as_json=as_json)
            return
        from headrace.sidecar.cli.row_output import print_replay
        from headrace.sidecar.offline.recording_replay import Replay

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
        from headrace.sidecar.cli.audit import run_audit

        run_audit(load(config), views or (), sink, from_, every, http, as_json=as_json)


@app.command()
def doctor(
    config: ConfigPath = DEFAULT,
    source: Annotated[bool, typer.Option("--source", help="Look at the sources' databases.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Look at Kafka's topics and at the connectors.")] = False,
    sink: Annotated[bool, typer.Option("--sink", help="Look at the Postgres sinks.")] = False,
    itself: Annotated[bool, typer.Option("--self", help="Look at this machine and the state folder.")] = False,
    from_: Annotated[
        str | None, typer.Option("--from", help="libpq URL of the source, if not the configuration's `database:`.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look for what is wrong, with a command that mends it: 0 clean, 1 advice, 2 refused. All subjects unless some are named."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.doctor import run_doctor

        asked = {"source": source, "kafka": kafka, "sink": sink, "self": itself}
        run_doctor(load(config), asked, from_, as_json=as_json)


@app.command()
def resync(
    table: Annotated[str, typer.Argument(help="schema.table, one that a view reads.")],
    config: ConfigPath = DEFAULT,
    from_: Annotated[
        str | None, typer.Option("--from", help="libpq URL of the source, if not the configuration's `database:`.")
    ] = None,
    url: Url = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the running sidecar.")] = 600.0,
    as_json: Json = False,
) -> None:
    """Compare a table of the running sidecar with its source, and take in what differs as one epoch."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.view_commands import run_resync

        run_resync(load_partly(config), url, table, from_, timeout, as_json=as_json)


app.command("schema")(schema)
app.command("load")(load_tables)
app.command("init")(init)


def main() -> None:
    """Entry point."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # pyarrow imports pandas at its first scalar: over 30 MB, and a good part of a second, that nothing here uses
    headrace.sidecar.process.bootstrap.forgo("pandas")
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
