"""The subcommands that prepare a sidecar: `headrace schema`, `load` and `init`.

Always: as thin as `headrace.sidecar.cli.app`, which adds them to the command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headrace.sidecar.cli.command_groups import DEFAULT, ConfigPath, Json
from headrace.sidecar.cli.errors import reported
from headrace.sidecar.config.config import load


def schema(kind: Annotated[str, typer.Argument(help="config or views.")] = "config") -> None:
    """Print the JSON Schema of headrace.yaml (config) or of view files (views), for editors."""
    from headrace.sidecar.config.config import schema as config_schema
    from headrace.views.view_models import ViewsFile
    from headrace.views.yaml_models import json_schema

    if kind not in ("config", "views"):
        raise typer.BadParameter("config or views", param_hint="KIND")
    typer.echo(json.dumps(config_schema() if kind == "config" else json_schema(ViewsFile), indent=2))


def load_tables(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE…", help="The tables of one source: all that are read, or new ones of a running sidecar."
        ),
    ],
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            help="parquet:PATH ({table} stands for each), delta:PATH@VERSION, iceberg:NAME@SNAPSHOT, spark:QUERY of Spark's "
            "SQL, or postgres: the source's own.",
        ),
    ],
    config: ConfigPath = DEFAULT,
    version: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Version that files are, of a spark source: 1, beside a running sidecar where the source stands, or the lake's.",
        ),
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Spark tasks a table; one a core unless given.")] = None,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Where it was loaded already, see that the input is still the same.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fill tables by a Spark job: in an empty state, from which `headrace run` goes on, or beside a running sidecar."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.load import run_load

        run_load(load(config), tables, from_, version=version, tasks=tasks, repeat=repeat, as_json=as_json)


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
    allow_keyless: Annotated[
        bool,
        typer.Option(
            "--allow-keyless", help="Register tables whose rows the application can then not update or delete."
        ),
    ] = False,
    connector_password: Annotated[
        str | None,
        typer.Option(help="What stands for the password at Connect: a reference to one of its config providers."),
    ] = None,
    show_password: Annotated[
        bool,
        typer.Option("--show-password", help="Register the password as it is: Connect's REST answers show it."),
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that are to share the work.")] = 1,
    force: Annotated[bool, typer.Option(help="Overwrite files.")] = False,
    as_json: Json = False,
) -> None:
    """Reflect a database: write headrace.yaml, example views and the Debezium connector's configuration."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.init import run_init

        run_init(url=from_, folder=folder, name=name, topic_prefix=topic_prefix or name, tables=tables, kafka=kafka,
                 connect=connect, register=register, workers=workers, force=force, allow_keyless=allow_keyless,
                 connector_password=connector_password, show_password=show_password, as_json=as_json)  # fmt: skip
