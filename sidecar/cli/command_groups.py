"""The groups of subcommands: `headrace dev …` and `headrace deadletters …`; and the options that all commands share.

Always: as thin as `headrace.sidecar.cli.app`, which adds them to the command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.sidecar.cli.errors import reported
from headrace.sidecar.config.config import load_for_replay

dev = typer.Typer(help="The embedded Postgres, Kafka and Connect with Debezium, for trying things out.",
                  no_args_is_help=True)  # fmt: skip


deadletters = typer.Typer(help="Records that could not be decoded and were set aside (on_undecodable: dead_letter).",
                          no_args_is_help=True)  # fmt: skip


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


ConfigPath = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.")]


Url = Annotated[str | None, typer.Option("--url", help="The sidecar's HTTP address, if not on this machine's socket.")]


Env = Annotated[bool, typer.Option("--env", help="Print the addresses alone, as lines to paste into a shell.")]


Folder = Annotated[Path, typer.Option("--folder", help="The stack's data folder.")]


LetterIds = Annotated[list[str] | None, typer.Argument(help="topic/partition/offset of each, as `list` names them.")]


DEFAULT = Path("headrace.yaml")


DEV_FOLDER = Path(".headrace/dev")


@deadletters.command("list")
def deadletters_list(
    config: ConfigPath = DEFAULT,
    table: Annotated[str | None, typer.Option(help="Of this table alone.")] = None,
    as_json: Json = False,
) -> None:
    """The dead letters: which records, of which table, and why."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.dead_letters import list_letters

        list_letters(load_for_replay(config), table, as_json=as_json)


@deadletters.command("replay")
def deadletters_replay(
    ids: LetterIds = None,
    config: ConfigPath = DEFAULT,
    url: Url = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the running sidecar.")] = 600.0,
    as_json: Json = False,
) -> None:
    """Have the running sidecar take dead letters in, all unless some are named; those that it takes in are let go of."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.dead_letters import replay_letters

        replay_letters(load_for_replay(config), url, ids or (), timeout, as_json=as_json)


@deadletters.command("discard")
def deadletters_discard(
    ids: LetterIds = None,
    config: ConfigPath = DEFAULT,
    everything: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    as_json: Json = False,
) -> None:
    """Let go of dead letters for good: the views go on without what they changed."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.dead_letters import discard_letters

        discard_letters(load_for_replay(config), ids or (), everything=everything, as_json=as_json)


@dev.command("up")
def dev_up(
    folder: Folder = DEV_FOLDER,
    detach: Annotated[bool, typer.Option(help="Stay in the background.")] = False,
    spark: Annotated[bool, typer.Option("--spark", help="With a Spark master and two workers.")] = False,
    env: Env = False,
    as_json: Json = False,
) -> None:
    """Start the embedded stack; stays until Ctrl-C unless detached."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.dev import up

        up(folder, detach=detach, spark=spark, env=env, as_json=as_json)


@dev.command("down")
def dev_down(folder: Folder = DEV_FOLDER, as_json: Json = False) -> None:
    """Stop a detached stack."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.dev import down

        down(folder, as_json=as_json)


@dev.command("status")
def dev_status(folder: Folder = DEV_FOLDER, env: Env = False, as_json: Json = False) -> None:
    """What runs, where, since when, with how much memory."""
    with reported(as_json=as_json):
        from headrace.sidecar.cli.dev import status as stack_status

        stack_status(folder, env=env, as_json=as_json)
