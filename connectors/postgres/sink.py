"""The Postgres sink: each write is one transaction of rows and frontier, fenced, and settled when its end is unknown.

Always: the first statement of a write moves the frontier row of our generation and holds its lock; a write that
returned is on disk, exactly once. Single writer: the sidecar's loop. Opened by wiring.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import psycopg
from psycopg import sql

from connectors.postgres import ddl, flush, registry
from connectors.postgres.ddl import Names
from connectors.postgres.flush import Expected
from connectors.postgres.net import Net, net
from connectors.postgres.session import REPEATABLE, Connection, Target, lost
from connectors.sink import EpochStamp, Fenced, Frontier, SinkError, SinkState, SinkView, ViewChanges

_LOCK_TIMEOUT = "5s"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0


class PostgresSink:
    """Writes views as tables of `schema`. `patience`: seconds to try again for when the database is lost or busy.

    `program`: name and version shown in the frontier table. `sleep` and `now` are handed in by wiring and tests.
    """

    def __init__(
        self,
        name: str,
        url: str,
        schema: str = "headrace",
        *,
        patience: float = 30.0,
        program: str = "",
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._target = Target(name, url)
        if not schema or "%" in schema or "\0" in schema or len(schema.encode()) > 63:
            raise SinkError(
                "a schema cannot have this name", hint="use letters, digits and _", sink=name, schema=schema
            )
        self._names = Names(schema)
        self._advance = registry.advance_statement(self._names)
        self._patience, self._program, self._sleep, self._now = patience, program, sleep, now
        self._connection: Connection | None = None
        self._claim: registry.Claim | None = None
        self._writes = 0
        self._epoch: int | None = None
        self._remake: set[str] = set()

    def open(self, views: Sequence[SinkView]) -> SinkState:
        """See `Sink.open`. Also refuses a table of a view's name that is not ours (SinkError)."""
        for view in views:
            ddl.check_name(self.name, view)
        self.close()
        claim = self._claimed(views)
        self._claim, self._writes, self._remake = claim, claim.writes, set(claim.remake)
        self._epoch = None if claim.frontier is None else claim.frontier.epoch
        return SinkState(claim.generation, claim.frontier, claim.missing)

    def _claimed(self, views: Sequence[SinkView]) -> registry.Claim:
        """Claim the sink; a predecessor that hangs inside a transaction holds the row and is ended, then once more."""
        for again in (False, True):
            try:
                connection = self._connection = self._target.connect()
                connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
                if again:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE application_name = %s AND usename = current_user AND pid <> pg_backend_pid()",
                        (self._target.application,),
                    )
                claim = registry.claim(connection, self.name, self._names, views, self._program)
                connection.commit()
                return claim
            except psycopg.errors.LockNotAvailable as error:
                self.close()
                if again:
                    raise self._target.refused(error) from error
            except psycopg.OperationalError as error:
                self.close()
                raise self._target.unreachable(error) from error
            except psycopg.Error as error:
                self.close()
                raise self._target.refused(error) from error
            except SinkError:
                self.close()
                raise
        raise AssertionError("the second attempt returns or raises")

    def write(
        self, changes: Mapping[str, ViewChanges], frontier: Frontier, stamps: Mapping[int, EpochStamp] | None = None
    ) -> None:
        """See `Sink.write`. `stamps` are not kept: a table has no place for the epoch of a row."""
        del stamps
        work = self._work(changes, frontier)
        deadline = self._now() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                self._attempt(work, frontier)
                break
            except REPEATABLE as error:
                self._rollback()
                if self._now() > deadline:
                    raise self._target.refused(error) from error
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not lost(error, self._connection):
                    self._rollback()
                    raise self._target.refused(error) from error
                self._drop()
                if self._now() > deadline:
                    raise self._target.unreachable(error) from error
            except psycopg.Error as error:
                self._rollback()
                raise self._target.refused(error) from error
            except BaseException:
                self._drop()  # whatever was sent is rolled back with its session
                raise
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._writes += 1
        self._epoch = frontier.epoch
        self._remake -= {n.table.view.name for n in work if n.whole}

    def _work(self, changes: Mapping[str, ViewChanges], frontier: Frontier) -> list[Net]:
        if self._claim is None:
            raise SinkError("the sink is not open", sink=self.name)
        if self._epoch is not None and frontier.epoch < self._epoch:
            raise SinkError(
                "a frontier cannot go back", sink=self.name, epoch=frontier.epoch, stands_at=self._epoch
            )  # fmt: skip
        work = []
        for name in sorted(changes):
            table = self._claim.tables.get(name)
            if table is None:
                raise SinkError("the sink was not opened with this view", sink=self.name, view=name)
            if name in self._remake and not changes[name].whole:
                raise SinkError("the view changed and must be given whole first", sink=self.name, view=name)
            found = net(self.name, table, changes[name])
            if len(found) or found.whole:
                work.append(found)
        return work

    @property
    def _mine(self) -> tuple[str, int, int]:
        assert self._claim is not None
        return self.name, self._claim.generation, self._writes

    def _attempt(self, work: Sequence[Net], frontier: Frontier) -> None:
        """One transaction, or the finding that an earlier attempt went through after all."""
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = self._target.connect()
            connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
            connection.commit()
            if registry.written(connection, self._names, self._mine):
                return
        small = all(len(n) <= flush.FEW and not n.whole for n in work)
        with connection.pipeline() if small else contextlib.nullcontext():
            moved = registry.advance(connection, self._advance, self._mine, frontier)
            if not small:
                self._check_moved(connection, moved)
            expected = [e for n in work for e in self._apply(connection, n, frontier.epoch, small)]
        self._check_moved(connection, moved)
        for one in expected:
            one.check(self.name)
        connection.commit()

    def _check_moved(self, connection: Connection, moved: psycopg.Cursor[tuple[object, ...]]) -> None:
        """Our fence: no row touched means that another generation, or something else, has changed it."""
        if moved.rowcount == 1:
            return
        connection.rollback()
        if registry.written(connection, self._names, self._mine):
            raise SinkError("this write was done already", hint="restart", sink=self.name)
        raise Fenced("the frontier row could not be moved", sink=self.name)

    def _apply(self, connection: Connection, work: Net, epoch: int, small: bool) -> Iterator[Expected]:
        if work.whole:
            if work.table.view.name in self._remake:
                connection.execute(sql.SQL("DROP TABLE {}").format(self._names.of(work.table.view.name)))
                registry.make(connection, self.name, self._names, work.table)
            flush.replace(connection, self._names, work)
            registry.filled(connection, self._names, work.table, epoch)
        elif small or len(work) <= flush.FEW:
            yield from flush.apply_few(connection, self._names, work)
        else:
            yield from flush.apply_many(connection, self._names, work)

    def _rollback(self) -> None:
        with contextlib.suppress(psycopg.Error):
            if self._connection is not None:
                self._connection.rollback()
                return
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def close(self) -> None:
        """See `Sink.close`."""
        self._drop()
