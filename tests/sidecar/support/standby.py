"""A standby of an embedded Postgres: a base backup of it that streams from it, falls behind when told, and takes over.

Always: it knows the primary's password, and what it had not received when it was told to fall behind it never has.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psycopg

from headrace.sidecar.devstack.postgres import EmbeddedPostgres, binaries
from headrace.sidecar.devstack.processes import run, unprivileged
from tests.sidecar.support.process import wait


def make_standby(
    primary: EmbeddedPostgres, folder: Path, settings: dict[str, str], port: int | None = None
) -> EmbeddedPostgres:
    """A standby that runs, and has all that the primary has committed by now."""
    made = EmbeddedPostgres(folder, settings=settings, port=port)
    folder.mkdir(parents=True)
    shutil.copy(primary.folder / "postgres.password", folder / "postgres.password")
    copy = [
        binaries() / "pg_basebackup",
        "-D",
        made.data,
        "-d",
        primary.url(),
        "-R",
        "-X",
        "stream",
        "-c",
        "fast",
        "--no-sync",
    ]
    run("a base backup", copy, identity=None, folder=Path("/"))
    give_to_server(made)
    made.start()
    wait(lambda: _one(made, "select count(*) from pg_stat_wal_receiver where status = 'streaming'") == 1, "it streams")
    at = _one(primary, "select pg_current_wal_lsn()::text")
    wait(lambda: _one(made, f"select pg_last_wal_replay_lsn() >= '{at}'::pg_lsn"), f"it has replayed {at}")
    return made


def fall_behind(standby: EmbeddedPostgres) -> None:
    """It receives nothing from here on."""
    with psycopg.connect(standby.url(), autocommit=True) as admin:
        admin.execute("alter system set primary_conninfo = ''")
        admin.execute("select pg_reload_conf()")
    wait(lambda: _one(standby, "select count(*) from pg_stat_wal_receiver") == 0, "it receives nothing")


def promote(standby: EmbeddedPostgres) -> None:
    """It takes writes."""
    assert _one(standby, "select pg_promote(true, 60)")


def give_to_server(server: EmbeddedPostgres) -> None:
    """A data folder that we wrote belongs to whom the server runs as."""
    identity = unprivileged([binaries() / "postgres", server.data])
    if identity is not None:
        for place in (server.data, *server.data.rglob("*")):
            os.chown(place, identity.uid, identity.gid, follow_symlinks=False)


def _one(server: EmbeddedPostgres, text: str) -> object:
    with psycopg.connect(server.url(), autocommit=True) as admin:
        row = admin.execute(text).fetchone()
    assert row is not None, "it has a row"
    return row[0]
