"""Describe: a statement's columns, or why Postgres refuses it, without executing it.

Invariant: statements are prepared and explained in one read-only transaction that is rolled back: they need SELECT alone and
leave nothing behind. One text is one statement. No message shows the password. `validate --against` calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import conninfo, errors
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from headrace.connectors.postgres.connection import Address
from headrace.connectors.source import SourceError

Type = tuple[int, int]
"""A type's OID and modifier; a domain is its base."""

_EXPLAIN = "EXPLAIN (COSTS OFF)\n"


@dataclass(frozen=True)
class Refusal:
    """Postgres's error; `position`: the character of the statement that it points at, from 0."""

    message: str
    sqlstate: str
    hint: str = ""
    position: int | None = None


@dataclass(frozen=True)
class Prepared:
    """What is said of one statement: its columns where it can be read, and a refusal where it could not run."""

    columns: tuple[tuple[str, Type], ...] = ()
    refusal: Refusal | None = None


@contextmanager
def preparing(url: str, settings: Mapping[str, str]) -> Iterator[Preparer]:
    """A session for questions, under these settings. Raises SourceError where there is none, or it is lost."""
    try:
        address = Address(url)
    except ValueError as error:
        hint = "write it as postgresql://user:password@host:port/database"
        raise SourceError(f"the url is {error}", hint=hint) from None
    params = {"connect_timeout": 10, "application_name": "headrace", **address.params, "client_encoding": "UTF8"}
    try:
        with psycopg.connect(conninfo.make_conninfo("", **params)) as db:
            db.read_only = True
            for name, value in settings.items():
                db.execute("SELECT set_config(%s, %s, true)", (name, value))
            yield Preparer(db, address.place)
            db.rollback()
    except psycopg.Error as error:
        reason = error.diag.message_primary or address.clean(error)
        raise SourceError(f"the database cannot be asked: {reason}", database=address.place,
                          hint="are address, database, user and password right?") from None  # fmt: skip


class Preparer:
    """Asks about statements over a connection in a transaction, which stays usable. `place`: host:port/database."""

    def __init__(self, db: psycopg.Connection, place: str) -> None:
        self._db = db
        self.place = place
        self.user = db.info.user
        self.version = db.info.parameter_status("server_version") or ""
        self._types: dict[str, Type | None] = {}

    def prepare(self, statement: str) -> Prepared:
        """The statement's columns, and what the parser, the planner or the rights on its tables have against it."""
        told = self.describe(statement)
        if told.refusal is not None:
            return told

        def plan() -> Prepared:
            self._done(self._db.pgconn.exec_params((_EXPLAIN + statement).encode(), None))
            return told

        planned = self._tried(plan, len(_EXPLAIN))
        return Prepared(told.columns, planned.refusal)

    def describe(self, statement: str) -> Prepared:
        """The statement's columns as the parser has them, which looks at no right on a table."""

        def ask() -> Prepared:
            self._done(self._db.pgconn.prepare(b"", statement.encode()))
            told = self._done(self._db.pgconn.describe_prepared(b""))
            names = [(told.fname(i) or b"").decode() for i in range(told.nfields)]
            return Prepared(tuple((n, (told.ftype(i), told.fmod(i))) for i, n in enumerate(names)))

        return self._tried(ask, 0)

    def type_of(self, spelled: str) -> Type | None:
        """What this Postgres understands by a type's name; None where it has no such type."""
        if spelled not in self._types:
            told = self.describe(f"SELECT NULL::{spelled}")
            self._types[spelled] = told.columns[0][1] if told.columns else None
        return self._types[spelled]

    def spelled(self, of: Type) -> str:
        """A type as DDL spells it."""
        row = self._db.execute("SELECT format_type(%s::oid, %s)", of).fetchone()
        assert row is not None, "a SELECT without FROM has a row"
        return str(row[0])

    def _tried(self, ask: Callable[[], Prepared], head: int) -> Prepared:
        try:
            with self._db.transaction():
                return ask()
        except psycopg.Error as error:
            if error.sqlstate is None or self._db.broken:
                raise
            diag = error.diag
            at = None if diag.statement_position is None else int(diag.statement_position) - 1 - head
            return Prepared(refusal=Refusal(diag.message_primary or "", error.sqlstate, diag.message_hint or "", at))

    def _done(self, result: PGresult) -> PGresult:
        if result.status == ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result)
        return result
