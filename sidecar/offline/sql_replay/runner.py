"""A SQL script run: its statements on a Postgres, its SELECTs answered by views of ours beside it.

Always: a SELECT is answered at the state that its session sees, inside an open transaction too; a statement that fails is
told, and the script goes on. Called by the command and by tests.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headrace.sidecar.offline.sql_replay.catalog import created_view, rebuilt, view_queries
from headrace.sidecar.offline.sql_replay.change_capture import Capture, Change
from headrace.sidecar.offline.sql_replay.maintained_views import Views
from headrace.sidecar.offline.sql_replay.select_checks import Answer, Asked
from headrace.sidecar.offline.sql_replay.session import HELD, Failure, Result, Row, Session, SourceError
from headrace.sidecar.offline.sql_replay.statement_splitter import Statement, statements
from headrace.views.catalog import Catalog

_CONTROL = {"begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release"}
_ENDS = {"commit", "end", "prepare"}
_UNDOES = {"rollback", "abort"}
_PLAIN = {"insert", "update", "delete", "merge", "copy", "truncate", "with", "explain", "show", "fetch", "analyze"}
"""Statements that leave the catalogue as it is."""
_NEEDS_NO_BLOCK = {"25001", "2D000"}


@dataclass(frozen=True)
class Note:
    """A statement that is no SELECT and was not executed, and why."""

    line: int
    sql: str
    reason: str


class Script:
    """A run of scripts in one session. Single use. `seed`: of the order in which rows come and go again."""

    def __init__(self, session: Session, seed: int = 0) -> None:
        self._session = session
        self._capture = Capture(session)
        self._asked = Asked(session, random.Random(seed))  # noqa: S311 (an order of rows)
        self._path: tuple[str, ...] = ()
        self._given: dict[int, str] = {}
        """The script's own text of views, by OID."""
        self._stale = True
        """Whether the catalogue may have changed."""
        self._lost = False
        """Whether it is not known what the engine has of the tables."""
        self._written = False
        """Whether the open transaction has done anything since it was last looked at."""
        self._provisional: set[int] = set()
        """Tables that were looked at inside the open transaction."""

    def run(self, text: str) -> Iterator[Answer | Note]:
        """Execute a script; gives its SELECTs in their order, and the statements that were not executed."""
        for statement in statements(text):
            note = self._guarded(statement)
            if note is not None:
                yield note
            yield from self._asked.told()
        if self._session.failed:
            self._session.run("rollback")
            self._look(self._provisional, anew=True)
        yield from self._asked.told(last=True)

    def _guarded(self, statement: Statement) -> Note | None:
        """One statement; after whatever goes wrong with it everything is looked at anew, and the script goes on."""
        try:
            return self._one(statement)
        except SourceError as error:
            reason = f"Postgres: {error}"
        except Exception as error:  # a mistake of ours with one statement must not keep the others from their answers
            reason = f"our own mistake: {type(error).__name__}: {error}"
        self._stale = self._lost = True
        if statement.is_query:
            self._asked.excuse(statement, reason)
            return None
        return Note(statement.line, statement.sql, reason)

    def _one(self, statement: Statement) -> Note | None:
        """One statement; gives why it was not executed, if it was not."""
        if statement.is_query:
            self._query(statement)
            return None
        if statement.verb in ("set", "reset") and HELD & set(statement.words[1:4]):
            return Note(statement.line, statement.sql, "not executed: views print under fixed settings")
        if statement.verb in _CONTROL or statement.words[:2] == ("prepare", "transaction"):
            failure = self._control(statement)
        else:
            failure = self._executed(statement)
        return None if failure is None else Note(statement.line, statement.sql, f"Postgres: {failure.message}")

    def _query(self, statement: Statement) -> None:
        """One SELECT: Postgres first, then our view beside it."""
        inside = not self._session.idle
        if not self._session.failed:
            if inside and (self._written or self._stale):
                self._look(self._capture.locked() | self._provisional)
            elif self._stale:
                self._look(())
            self._asked.step()
        theirs, locked = (self._session.run(statement.sql), set[int]()) if inside else self._alone(statement)
        if isinstance(theirs, Failure) and theirs.lost:
            self._stale = True
        if isinstance(theirs, Result) and not theirs.is_query:
            self._stale = self._written = True
        else:
            project = self._asked.ask(statement, theirs)
            if inside and not project:
                self._stale = self._written = True  # it may have called a function that writes
        if not inside and (self._stale or locked & self._capture.relations.keys()):
            self._look(locked)

    def _control(self, statement: Statement) -> Failure | None:
        """BEGIN, COMMIT, ROLLBACK and their like."""
        undone = self._session.failed or statement.verb in _UNDOES
        inside = not self._session.idle
        locked = self._capture.locked() if inside and not undone and statement.verb in _ENDS else set()
        found = self._session.run(statement.sql)
        undone |= isinstance(found, Failure)
        if inside and undone and not self._session.failed:
            self._stale = True
            self._look(self._provisional, anew=True)
        elif inside and statement.verb in _ENDS:
            self._look(locked | self._provisional)
        if self._session.idle:
            self._provisional = set()
        return found if isinstance(found, Failure) else None

    def _executed(self, statement: Statement) -> Failure | None:
        """Run a statement that may change something, in a transaction of its own unless one is open."""
        if statement.verb not in _PLAIN and not self._session.failed:
            self._asked.settle()  # while names still mean what they meant
        if self._session.idle:
            found, locked = self._alone(statement)
        else:
            found, locked = self._session.run(statement.sql, statement.data), set[int]()
            self._written = True
        self._stale |= statement.verb not in _PLAIN or (isinstance(found, Failure) and found.lost)
        if isinstance(found, Result):
            self._remember(statement)
        if self._session.idle:
            self._look(locked)
        return found if isinstance(found, Failure) else None

    def _alone(self, statement: Statement) -> tuple[Result | Failure, set[int]]:
        """A statement in a transaction of its own, and the relations that it may have written."""
        self._session.run("begin")
        found = self._session.run(statement.sql, statement.data)
        if isinstance(found, Result):
            locked = self._capture.locked()
            ended = self._session.run("commit")
            return (ended, set()) if isinstance(ended, Failure) else (found, locked)
        self._session.run("rollback")
        if found.sqlstate in _NEEDS_NO_BLOCK:
            found = self._session.run(statement.sql, statement.data)
            self._stale = True
            return found, set(self._capture.relations)
        return found, set()

    def _remember(self, statement: Statement) -> None:
        """The text of a view, as long as nothing is altered."""
        if statement.verb == "alter":
            self._given.clear()
            # Values of a composite type, or of a table's, look different without a new version of their row.
            self._lost |= statement.words[1:2] in (("type",), ("table",))
        created = created_view(statement) if statement.verb == "create" else None
        if created is None:
            return
        if "replace" in statement.words[:3]:
            self._given.clear()  # what stars of views over it stand for does not change with it
        fresh = self._refresh()
        name, query = created
        for relation in self._capture.relations.values():
            if relation.kind == "v" and relation.name == name and relation.visible:
                self._given[relation.oid] = query
        self._know()
        self._look(fresh)

    def _refresh(self) -> set[int]:
        """Read the catalogue where it may have changed; gives the tables to be looked at from their beginning."""
        if not self._stale or self._session.failed:
            return set()
        self._stale = False
        before, types = self._capture.relations, (self._capture.types, self._capture.composites)
        after = self._capture.reload()
        path = tuple(r[0] or "" for r in self._session.ask("select unnest(current_schemas(true))").rows)
        if before == after and path == self._path and types == (self._capture.types, self._capture.composites):
            return set()
        self._asked.end()
        changed = rebuilt(before, after)
        ours = self._asked.ours
        for oid in changed:
            if oid in before and before[oid].holds_rows:
                ours.drop(before[oid].full)
            self._capture.forget(oid)
        for oid in changed:
            if oid in after and after[oid].holds_rows:
                ours.declare(after[oid].full, after[oid].schema)
        self._path = path
        self._know()
        return changed & after.keys()

    def _know(self) -> None:
        """Tell what names mean now."""
        relations = {r.full: r for r in self._capture.relations.values()}
        tables = {n: r.schema for n, r in relations.items() if r.holds_rows}
        catalog = Catalog(tables, self._path, self._capture.types, self._capture.composites)
        self._asked.know(catalog, Views(view_queries(relations.values(), self._given), catalog), relations)

    def _look(self, oids: Iterable[int], *, anew: bool = False) -> None:
        """Give the engine what changed in these tables, as one epoch."""
        if self._session.failed:
            return
        fresh = self._refresh()
        if self._lost:
            oids, anew, self._lost = set(self._capture.relations), True, False
        found: list[Change] = []
        try:
            for oid in {*oids, *fresh}:
                change = self._capture.changes(oid, anew=anew)
                found += [] if change is None else [change]
        finally:
            self._give(found)  # what was read counts as given, whatever happened then
        self._written = False

    def _give(self, found: Sequence[Change]) -> None:
        """Give the engine these changes, those of a table's parents among them, as one epoch."""
        if not self._session.idle:
            self._provisional |= {c.oid for c in found}
        changes: list[tuple[str, list[Row], list[Row]]] = []
        relations = self._capture.relations
        for change in found:
            mine = relations[change.oid]
            changes.append((mine.full, change.removed, change.added))
            for parent in mine.parents:
                places = [mine.schema.position(n) for n in relations[parent].schema.names]
                removed, added = (
                    [tuple(r[p] for p in places) for r in some] for some in (change.removed, change.added)
                )
                changes.append((relations[parent].full, removed, added))
        if changes:
            self._asked.ours.transaction(changes)
