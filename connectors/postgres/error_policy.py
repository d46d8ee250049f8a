"""The error policy of a target database: a lost session, a write to try again, or a refusal.

Invariant: each class of errors has one policy and one sentence (docs/sinks.md lists them). The detail of a message, which
holds row values, is left out. The sink and its session call it.
"""

from __future__ import annotations

import psycopg
from psycopg import errors

from headrace.connectors.postgres.connection import Connection, Target
from headrace.connectors.sink import SinkAway, SinkError

REPEATABLE = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.InsufficientResources,
    errors.DiskFull,
    errors.OutOfMemory,
    errors.TooManyConnections,
)
"""Postgres rolled the transaction back, and the same one may go through a little later."""

_LOST = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.ReadOnlySqlTransaction)
"""The session is over, or is one with a server that cannot write (any more): another is needed."""

_ALTERED = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.InvalidSchemaName,
    errors.DatatypeMismatch,
    errors.WrongObjectType,
    errors.InvalidColumnReference,
)


def lost(error: psycopg.Error, connection: Connection | None) -> bool:
    """Whether the session is gone, so that what it was doing may or may not be done."""
    return connection is None or connection.closed or connection.broken or isinstance(error, _LOST)


def unreachable(target: Target, error: psycopg.Error) -> SinkAway:
    """The database does not answer, or is not the one that the url's TLS settings ask for."""
    text = target.clean(error)
    hint = "start it, or correct the sink's url; nothing is lost meanwhile"
    if "certificate" in text:
        hint = (
            "give the root that signed the server's certificate as sslrootcert, and the host by the certificate's name"
        )
    elif "read-only" in text or isinstance(error, errors.ReadOnlySqlTransaction):
        hint = "name every server in the sink's url: the one that takes writes is found"
    return SinkAway(f"the database cannot be reached: {text}", hint=hint, sink=target.sink, database=target.place)


def refused(target: Target, error: psycopg.Error) -> SinkError:
    """The database said no, or said again and again that it cannot now (SinkAway)."""
    what, hint = _meaning(error)
    primary = error.diag.message_primary or target.clean(error)
    kind = SinkAway if isinstance(error, REPEATABLE) else SinkError
    return kind(
        f"{what}: {primary}", hint=hint or error.diag.message_hint or "", sink=target.sink, database=target.place,
        table=error.diag.table_name, constraint=error.diag.constraint_name, sqlstate=error.sqlstate,
    )  # fmt: skip


def _meaning(error: psycopg.Error) -> tuple[str, str]:
    """What happened, in our words, and the remedy ("": the server's own hint)."""
    match error:
        case errors.InsufficientPrivilege():
            return "the sink's role may not", "grant it what docs/sinks.md lists; the sink then goes on by itself"
        case errors.QueryCanceled():
            return "the write was cut short", "raise statement_timeout for the sink's role, or find who cancels it"
        case errors.LockNotAvailable() | errors.DeadlockDetected():
            return "somebody else's locks are in the way", "pg_locks and pg_stat_activity tell whose; end that session"
        case errors.SerializationFailure():
            return "the write met others at every attempt", "let nobody but the sink write to its tables"
        case errors.DiskFull() | errors.OutOfMemory() | errors.InsufficientResources():
            return "the database has run out of room", "give it room; nothing is lost meanwhile"
        case errors.IntegrityError():
            return "a constraint on the table refuses a row", "the table is the sink's: take the constraint away"
        case _ if isinstance(error, _ALTERED):
            return "somebody else dropped or altered a table", "the sink makes it anew and fills it by itself"
        case errors.RaiseException():
            return "a trigger on the table refuses a row", "the table is the sink's: take the trigger away"
    return "the database refused", ""
