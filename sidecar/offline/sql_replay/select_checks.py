"""The SELECTs of a script, each answered by a view of ours, and the views that stay for a while.

Always: a view that stays is asked again after each later change of its tables; before it goes, the rows of its tables are
deleted and inserted again in a random order; then its SELECT is told, once, in the order of lines. Whatever a SELECT meets
on our side, it alone is told as wrong. Called by the script's run.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

from headrace.engine.operators.expressions.array.array_text import SHAPED
from headrace.engine.operators.expressions.core.inputs import UNREAD
from headrace.engine.operators.expressions.datetime.calendar_text import LATE
from headrace.engine.operators.expressions.datetime.input_parse import UNSPELLED
from headrace.engine.operators.expressions.datetime.zone_names import NO_NAME
from headrace.engine.operators.expressions.datetime.zoned_times import UNDATED
from headrace.engine.operators.expressions.json.jsonpath import SILENT
from headrace.engine.operators.expressions.json.jsonpath_parser import REFUSED, REGEX
from headrace.engine.operators.expressions.network.networks import LONG
from headrace.engine.operators.expressions.numeric.decimals import TOO_WIDE
from headrace.engine.operators.expressions.regex.regex_syntax import UNMATCHED
from headrace.sidecar.offline.sql_replay.change_capture import Relation
from headrace.sidecar.offline.sql_replay.maintained_views import Maintained, MaintainedView, Views
from headrace.sidecar.offline.sql_replay.nondeterminism import several
from headrace.sidecar.offline.sql_replay.result_diff import difference
from headrace.sidecar.offline.sql_replay.session import Failure, Result, Row, Session
from headrace.sidecar.offline.sql_replay.statement_splitter import Statement
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_query
from headrace.views.errors import ViewError
from headrace.views.spec import ViewSpec

SECONDS = 30
"""Processor time that one of our answers may take: on a busy machine the same queries are answered."""
KEPT = 8
"""Views that stay for later changes."""
CHURNED = 2_000
"""A table with more rows is not emptied and filled again."""


ORDERS = 3
"""Orders of the rows in which Postgres is asked again, even where the first has shown that it has several answers."""
_SPELLING = {"22P02", "22007", "22008"}
"""Postgres's messages for an invalid literal: it would give them for a row too."""


@dataclass(frozen=True)
class Answer:
    """One SELECT: `status` equal, different or refused, and why; `rows`: how many Postgres has, None where it has none.

    Equal is also what both refuse in the same words, which `reason` has then.

    Of a different one `postgres` and `headrace` hold both answers.
    """

    line: int
    sql: str
    status: str
    reason: str = ""
    rows: int | None = None
    postgres: tuple[Row, ...] = ()
    headrace: tuple[Row, ...] = ()


@dataclass
class _Kept:
    """A SELECT whose view stands, and what Postgres answered last."""

    place: int
    standing: MaintainedView
    theirs: Result | Failure


class Asked:
    """Answers SELECTs over the tables in `ours`. Single writer: the script's run."""

    def __init__(self, session: Session, chance: random.Random) -> None:
        self.ours = Maintained()
        self._session = session
        self._chance = chance
        self._catalog = Catalog()
        self._views = Views({}, self._catalog)
        self._relations: dict[str, Relation] = {}
        self._told: list[Answer] = []
        self._kept: list[_Kept] = []
        self._types: dict[int, str] = {}

    def know(self, catalog: Catalog, views: Views, relations: dict[str, Relation]) -> None:
        """What names mean from now on; `relations` by full name."""
        self._catalog, self._views, self._relations = catalog, views, relations

    def ask(self, statement: Statement, theirs: Result | Failure) -> bool:
        """Answer a SELECT that Postgres answered so, at the last epoch; gives whether it is no more than a question."""
        self._told.append(self._answer(statement, theirs))
        return self._told[-1].status == "equal"

    def excuse(self, statement: Statement, reason: str) -> None:
        """Tell a SELECT that could not be asked, unless it was told before."""
        last = self._told[-1] if self._told else None
        if last is None or (last.line, last.sql) != (statement.line, statement.sql):
            status = "different" if reason.startswith("our") else "refused"
            self._told.append(Answer(statement.line, statement.sql, status, reason))

    def told(self, *, last: bool = False) -> Iterator[Answer]:
        """The SELECTs that nothing waits for any more; `last`: all of them."""
        if self._kept and not self._session.failed and (last or len(self._kept) >= KEPT):
            self.settle()
        if last or not self._kept:
            yield from self._told
            self._told = []

    def _answer(self, statement: Statement, theirs: Result | Failure) -> Answer:
        """The SELECT's answer so far; its view stays where it is equal."""
        rows = None if isinstance(theirs, Failure) else len(theirs.rows)
        answer = Answer(statement.line, statement.sql, "refused", rows=rows)
        if isinstance(theirs, Failure) and theirs.sqlstate == "25P02":
            return replace(answer, reason=f"Postgres: {theirs.message}")
        try:
            with _limited():
                view = compile_query(ViewSpec(f"line_{statement.line}", statement.sql), self._catalog, self._views)
                if isinstance(theirs, Failure) and not theirs.is_data:
                    status = "different" if theirs.sqlstate.startswith("42") else "refused"
                    return replace(answer, status=status, reason=f"only Postgres refuses it: {theirs.message}")
                standing = self.ours.install(view, self._views)
        except ViewError as error:
            alike = isinstance(theirs, Failure) and error.what == theirs.message
            return replace(answer, status="equal" if alike else "refused", reason=error.what)
        except _TooLong:
            self._rebuild()
            return replace(answer, reason=f"not answered within {SECONDS} seconds")
        except MemoryError:
            self._rebuild()
            return replace(answer, reason="it needs more memory than a replay may use")
        except Exception as error:  # whatever a query meets, the script goes on, and the query is told as wrong
            self._rebuild()
            return replace(answer, status="different", reason=_mistake(error))
        unreadable = [f"{t}: {self.ours.unreadable[t]}" for t in sorted(standing.tables) if t in self.ours.unreadable]
        if unreadable:
            self.ours.uninstall(standing)
            return replace(answer, reason=f"a value that the engine does not hold: {unreadable[0]}")
        reason = self._differs(statement.sql, standing, theirs)
        if reason is None:
            self._kept.append(_Kept(len(self._told), standing, theirs))
            return replace(answer, status="equal")
        self.ours.uninstall(standing)
        return self._wrong(answer, reason, standing, theirs)

    def _wrong(self, answer: Answer, reason: str, standing: MaintainedView, theirs: Result | Failure) -> Answer:
        if reason in (SEVERAL, CONSTANTS) or any(limit in reason for limit in LIMITS):
            return replace(answer, status="refused", reason=reason)
        rows = theirs.rows if isinstance(theirs, Result) else ()
        ours = tuple(sorted(standing.rows.elements(), key=str))
        return replace(answer, status="different", reason=reason, postgres=rows, headrace=ours)

    def _differs(self, sql: str, standing: MaintainedView, theirs: Result | Failure) -> str | None:
        """Why the view is not what Postgres answers; None also where Postgres has several answers and this is one."""
        reason = difference(theirs, standing, self._types_of(theirs))
        if reason is None or self._session.failed:
            return reason
        if isinstance(theirs, Failure):
            explained = self._session.run(f"explain {sql}")
            early = isinstance(explained, Failure) and explained.message == theirs.message
            return CONSTANTS if early and standing.tables and theirs.sqlstate not in _SPELLING else reason
        tables = [r for name, r in self._relations.items() if name in standing.tables]
        views = [r for r in self._relations.values() if r.kind == "v"]
        answers = {_whatever_order(theirs)}
        for tried, other in enumerate(several(self._session, sql, tables, views)):
            if tried >= ORDERS and len(answers) > 1:
                break
            if isinstance(other, Result):
                if difference(other, standing, self._types_of(other)) is None:
                    return None
                answers.add(_whatever_order(other))
        # as many rows as none of them has is no question of order
        ordered = len(answers) > 1 and standing.rows.total() in {len(rows) for rows in answers}
        return SEVERAL if ordered else reason

    def _types_of(self, theirs: Result | Failure) -> list[str]:
        if isinstance(theirs, Failure):
            return []
        unknown = {oid for _, oid in theirs.columns} - self._types.keys()
        if unknown and not self._session.failed:
            listed = ", ".join(map(str, sorted(unknown)))
            asked = f"select oid::int8, format_type(oid, null) from pg_type where oid in ({listed})"  # noqa: S608 (numbers)
            self._types |= {int(o or 0): t or "" for o, t in self._session.ask(asked).rows}
        return [self._types.get(oid, "") for _, oid in theirs.columns]

    def step(self) -> None:
        """Take what changed through the engine, and ask the views that stay again. Not inside a failed transaction."""
        try:
            with _limited():
                changed = self.ours.step()
        except (_TooLong, MemoryError):
            self._rebuild()
        except Exception as error:  # as in `_answer`
            self._rebuild(f"after a later change: {_mistake(error)}")
        else:
            for kept in list(self._kept):
                if kept.standing.tables & changed:
                    self._again(kept)

    def settle(self) -> None:
        """Compare the views that stay, and let them go."""
        if self._kept:
            self.step()
            self.end()

    def _again(self, kept: _Kept) -> None:
        """Compare a view after a later change."""
        sql = self._told[kept.place].sql
        inside = not self._session.idle
        self._session.run("savepoint headrace" if inside else "begin")
        kept.theirs = self._session.run(sql)
        self._session.run("rollback to headrace" if inside else "rollback")
        if inside:
            self._session.run("release headrace")
        if isinstance(kept.theirs, Failure) and not kept.theirs.is_data:
            return
        reason = self._differs(sql, kept.standing, kept.theirs)
        if reason is not None:
            self._drop(kept, reason if reason in (SEVERAL, CONSTANTS) else f"after a later change: {reason}")

    def _drop(self, kept: _Kept, reason: str) -> None:
        self._told[kept.place] = self._wrong(self._told[kept.place], reason, kept.standing, kept.theirs)
        self._kept.remove(kept)
        self.ours.uninstall(kept.standing)

    def end(self) -> None:
        """Delete and insert the rows of the kept views' tables again; then the views go.

        Nothing is compared while there are changes that no step took in, since Postgres's answer may differ by then.
        """
        if not self.ours.waiting:
            tables = set[str]().union(*(k.standing.tables for k in self._kept))
            tables = {t for t in tables if 0 < self.ours.size(t) <= CHURNED}
            try:
                with _limited():
                    if tables:
                        self.ours.churn(tables, self._chance)
            except (_TooLong, MemoryError):
                self._rebuild()
            except Exception as error:  # as in `_answer`
                self._rebuild(f"{AGAIN}: {_mistake(error)}")
            for kept in list(self._kept):
                comparable = isinstance(kept.theirs, Result) or kept.theirs.is_data
                reason = self._differs(self._told[kept.place].sql, kept.standing, kept.theirs) if comparable else None
                if reason is not None:
                    self._drop(kept, reason if reason in (SEVERAL, CONSTANTS) else f"{AGAIN}: {reason}")
        for kept in self._kept:
            self.ours.uninstall(kept.standing)
        self._kept = []

    def _rebuild(self, wrong: str | None = None) -> None:
        """A new engine with the same tables, after one that an exception left in the middle of a step.

        The views that stood are told as they were, or as wrong for this reason.
        """
        for kept in self._kept:
            if wrong is not None:
                self._told[kept.place] = replace(self._told[kept.place], status="different", reason=wrong)
        self._kept = []
        self.ours = self.ours.again()


SEVERAL = "Postgres has several answers: they depend on the order in which it meets the rows"
CONSTANTS = "Postgres computes constants before it looks at rows, and fails with one that no row asks for"
LIMITS = (TOO_WIDE, SHAPED, SILENT, REFUSED, REGEX, UNREAD, UNSPELLED, NO_NAME, UNDATED, LONG, UNMATCHED, LATE)
"""What our views say of values that the engine does not hold."""
AGAIN = "after its tables' rows were deleted and inserted again"


class _TooLong(Exception):
    """Our answer took longer than its time."""


def _whatever_order(answer: Result) -> tuple[Row, ...]:
    return tuple(sorted(answer.rows, key=str))


def _mistake(error: Exception) -> str:
    return f"our own mistake: {type(error).__name__}: {error}"


@contextmanager
def _limited() -> Iterator[None]:
    """Raise _TooLong in the main thread after SECONDS of this process's processor time."""
    rung = False

    def ring(_number: int, _frame: FrameType | None) -> None:
        nonlocal rung
        rung = True
        raise _TooLong

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    except SystemError as error:
        if rung:  # what is raised inside a kernel's call comes out of it as a SystemError
            raise _TooLong from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
