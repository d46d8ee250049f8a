"""Databases that a test made, dropped with the replication slots that are of them.

A connector that was deleted lets go of its slot later, and one that was deleted while it started may still make it: so this
goes on until the database is gone. Fixtures call it.
"""

from __future__ import annotations

from typing import Any

import psycopg

from tests.sidecar.support.process import wait

SECONDS = 60.0


def drop(admin: psycopg.Connection[Any], name: str) -> None:
    """Drop a database and its slots, over a connection in autocommit mode to another one of the same server."""

    def gone() -> bool:
        try:
            admin.execute(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s and not active",
                (name,),
            )
            admin.execute(f'drop database if exists "{name}" with (force)')
        except (psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
            return False
        return True

    wait(gone, f"database {name} is dropped", SECONDS)
