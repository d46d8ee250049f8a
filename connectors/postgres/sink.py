"""The Postgres sink: each write is one transaction of rows and frontier, fenced, and settled when its end is unknown.

Always: the first statement of a write moves the frontier row of our generation and holds its lock; a write that
returned is on disk, exactly once. Single writer: the sidecar's loop. Opened by wiring.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import psycopg
from psycopg import sql

from headrace.connectors.postgres import bulk_copy, ddl, error_policy, indexes_and_grants, sink_catalog
from headrace.connectors.postgres.connection import Connection, Target
from headrace.connectors.postgres.ddl import Names
from headrace.connectors.postgres.delta.by_column import Net, net
from headrace.connectors.postgres.delta.by_row import Few, few, fewer
from headrace.connectors.postgres.pipeline import BEGIN, Pipeline, Step
from headrace.connectors.sink import (
    EpochStamp,
    Fenced,
    Frontier,
    SinkError,
    SinkState,
    SinkView,
    ViewChanges,
    last_epoch,
)
from headrace.connectors.step_hooks import Reached, unwatched

_LOCK_TIMEOUT = "5s"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0


class PostgresSink:
    """Writes views as tables of `schema`. `patience`: seconds to try again for when the database is lost or busy.

    `program`: name and version shown in the frontier table. `sleep`, `now` and `reached` are handed in by wiring and tests.
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
        reached: Reached = unwatched,
    ) -> None:
        self.name = name
        self.warnings: tuple[str, ...] = ()
        self._target = Target(name, url)
        if not schema or "%" in schema or "\0" in schema or len(schema.encode()) > 63:
            raise SinkError(
                "a schema cannot have this name", hint="use letters, digits and _", sink=name, schema=schema
            )
        self._names = Names(schema)
        self._patience, self._program, self._sleep, self._now = patience, program, sleep, now
        self._reached = reached
        self._connection: Connection | None = None
        self._pipeline: Pipeline | None = None
        self._errors: dict[str, str] = {}
        self._claim: sink_catalog.Claim | None = None
        self._runs: frozenset[str] = frozenset()  # see sink_catalog.claim
        self._writes = 0
        self._epoch: int | None = None
        self._remake: set[str] = set()

    def open(self, views: Sequence[SinkView], held: int | None = None) -> SinkState:
        """See `Sink.open`. Also refuses a table of a view's name that is not ours (SinkError)."""
        for view in views:
            ddl.check_name(self.name, view)
        self.close()
        claim = self._claimed(views, held)
        self._claim, self._writes, self._remake = claim, claim.mine.writes, set(claim.remake)
        self._runs = frozenset({claim.mine.run})
        self._epoch = None if claim.frontier is None else claim.frontier.epoch
        self._errors = dict(claim.errors)
        return SinkState(claim.mine.generation, claim.frontier, claim.missing, claim.errors)

    def _claimed(self, views: Sequence[SinkView], held: int | None) -> sink_catalog.Claim:
        """Claim the sink; a predecessor that hangs inside a transaction holds the row and is ended, then once more.

        Who comes back (`held`) ends nobody: it may be a successor that holds the row.
        """
        run, ours = str(uuid.uuid4()), self._runs
        self._runs |= {run}  # from here on nobody knows whether it took effect, until it is answered
        for again in (False, True):
            try:
                connection, _ = self._connect()
                if again:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE application_name = %s AND usename = current_user AND pid <> pg_backend_pid()",
                        (self._target.application,),
                    )
                claim = sink_catalog.claim(connection, self.name, self._names, views, self._program, run, held, ours)
                self._reached("postgres claim")
                connection.commit()
                self._reached("postgres claimed")
                return claim
            except psycopg.errors.LockNotAvailable as error:
                self.close()
                if again or held is not None:
                    raise error_policy.refused(self._target, error) from error
            except error_policy.REPEATABLE as error:
                self.close()
                raise error_policy.refused(self._target, error) from error
            except psycopg.OperationalError as error:
                self.close()
                raise error_policy.unreachable(self._target, error) from error
            except psycopg.Error as error:
                self.close()
                raise error_policy.refused(self._target, error) from error
            except SinkError:
                self.close()
                raise
        raise AssertionError("the second attempt returns or raises")

    def _connect(self) -> tuple[Connection, Pipeline]:
        connection = self._connection = self._target.connect()
        pipeline = self._pipeline = Pipeline(connection)
        connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
        return connection, pipeline

    def write(
        self,
        changes: Mapping[str, ViewChanges],
        frontier: Frontier,
        stamps: Mapping[int, EpochStamp] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        """See `Sink.write`. `stamps` are not kept: a table has no place for the epoch of a row."""
        del stamps
        work = self._work(changes, frontier)
        marks = self._marks(errors or {}, changes)
        deadline = self._now() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                self._attempt(work, frontier, marks)
                break
            except error_policy.REPEATABLE as error:
                self._rollback()
                if self._now() > deadline:
                    raise error_policy.refused(self._target, error) from error
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not error_policy.lost(error, self._connection):
                    self._rollback()
                    raise error_policy.refused(self._target, error) from error
                self._drop()
                if self._now() > deadline:
                    raise error_policy.unreachable(self._target, error) from error
            except psycopg.Error as error:
                self._rollback()
                raise error_policy.refused(self._target, error) from error
            except BaseException:
                self._drop()  # whatever was sent is rolled back with its session
                raise
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        self._writes += 1
        self._epoch = frontier.epoch
        self._remake -= {n.table.view.name for n in work if isinstance(n, Net) and n.whole}
        self._errors = {name: error for name, error in {**self._errors, **(errors or {})}.items() if error}

    def _marks(self, errors: Mapping[str, str], changes: Mapping[str, ViewChanges]) -> list[Step]:
        """What marks the views whose state is not what the table `view` says."""
        assert self._claim is not None
        found = []
        for name in sorted(errors):
            if name not in self._claim.tables:
                raise SinkError("the sink was not opened with this view", sink=self.name, view=name)
            if errors[name] != self._errors.get(name, ""):
                last = last_epoch(changes.get(name), None)
                found.append(sink_catalog.mark(self._names, name, errors[name], last, self._epoch))
        return found

    def _work(self, changes: Mapping[str, ViewChanges], frontier: Frontier) -> list[Net | Few]:
        if self._claim is None:
            raise SinkError("the sink is not open", sink=self.name)
        if self._epoch is not None and frontier.epoch < self._epoch:
            raise SinkError(
                "a frontier cannot go back", sink=self.name, epoch=frontier.epoch, stands_at=self._epoch
            )  # fmt: skip
        work: list[Net | Few] = []
        for name in sorted(changes):
            table = self._claim.tables.get(name)
            if table is None:
                raise SinkError("the sink was not opened with this view", sink=self.name, view=name)
            if name in self._remake and not changes[name].whole:
                raise SinkError("the view changed and must be given whole first", sink=self.name, view=name)
            if not changes[name].whole and changes[name].rows.num_rows <= bulk_copy.FEW:
                small = few(self.name, table, changes[name])
                if len(small):
                    work.append(small)
                continue
            found = net(self.name, table, changes[name])
            if found.whole or len(found) > bulk_copy.FEW:
                work.append(found)
            elif len(found):
                work.append(fewer(found))
        return work

    @property
    def _mine(self) -> sink_catalog.Mine:
        assert self._claim is not None
        return self._claim.mine._replace(writes=self._writes)

    def _attempt(self, work: Sequence[Net | Few], frontier: Frontier, marks: Sequence[Step]) -> None:
        """One transaction, or the finding that an earlier attempt went through after all.

        What is small goes out with the frontier in one go, and COMMIT follows once its answers are checked: two waits.
        """
        connection, pipeline = self._connection, self._pipeline
        if connection is None or pipeline is None or connection.closed:
            connection, pipeline = self._connect()
            connection.commit()
            if sink_catalog.written(connection, self._names, self._mine):
                return
        small = [step for one in work if isinstance(one, Few) for step in one.steps(self._names)]
        steps = [*small, *marks]
        self._reached("postgres write")
        _, moved, *touched = pipeline.run([BEGIN, sink_catalog.advance(self._names, self._mine, frontier), *steps])
        if moved != 1:
            self._refuse(connection)
        for step, rows in zip(steps, touched, strict=True):
            step.check(self.name, rows)
        self._reached("postgres moved")
        for one in work:
            if isinstance(one, Net):
                self._apply(connection, one, frontier.epoch)
        self._reached("postgres applied")
        connection.commit()
        self._reached("postgres committed")

    def _refuse(self, connection: Connection) -> None:
        """Our fence: no row touched means that another generation, or something else, has changed it."""
        connection.rollback()
        if sink_catalog.written(connection, self._names, self._mine):
            raise SinkError("this write was done already", hint="restart", sink=self.name)
        raise Fenced("the frontier row could not be moved", sink=self.name)

    def _apply(self, connection: Connection, work: Net, epoch: int) -> None:
        if not work.whole:
            bulk_copy.apply(connection, self.name, self._names, work)
            return
        if work.table.view.name in self._remake:
            self._succeed(connection, work)
        else:
            bulk_copy.replace(connection, self.name, self._names, work)
        sink_catalog.filled(connection, self._names, work.table, epoch)

    def _succeed(self, connection: Connection, work: Net) -> None:
        """Fill a table of the new shape, then let it take the old one's place: readers wait for no more than a rename."""
        table, names = work.table, self._names
        there = names.of(table.view.name)
        sink_catalog.create(connection, names, table.successor)
        bulk_copy.replace(connection, self.name, names, replace(work, table=table.successor))
        indexes_and_grants.index(connection, names, table.successor)
        connection.execute(sql.SQL("DROP TABLE {}").format(there))

        def is_free(name: sql.Identifier) -> bool:
            row = connection.execute("SELECT to_regclass(%s)", (name.as_string(connection),)).fetchone()
            return row == (None,)

        for statement in ddl.rename(names, table.successor, table, is_free):
            connection.execute(statement)
        sink_catalog.register(connection, self.name, names, table)
        indexes_and_grants.grant(connection, names, table)

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
