"""Background jobs of the loop: resyncs, fills and replays of dead letters, asked for over the control channel or by the sidecar.

Invariant: a job is answered once, with what was done or with a named error. The command log keeps it before it changes anything,
so that a lost state folder has it done again. The loop's own thread calls everything here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from headrace.connectors.changes import MessageBatch
from headrace.connectors.commands import Replayed, Resynced
from headrace.connectors.commit_place import UNKNOWN, CommitPlace, Lsn
from headrace.connectors.dead_letters import DeadLetter, DeadLetterQueue
from headrace.engine.errors import HeadraceError
from headrace.sidecar.config.config import Settings
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.operations.dead_letter_replay import APPLIED, SUPERSEDED, DeadLetterReplay
from headrace.sidecar.operations.resync import Report, Resync, TableRead, read_table
from headrace.sidecar.operations.table_fill import Rows, TableFill
from headrace.sidecar.runtime.loop import Runtime
from headrace.sidecar.wiring.factories import make_dead_letters
from headrace.sidecar.wiring.topic_reading import read_topic

Answer = Mapping[str, Any] | HeadraceError
Tell = Callable[[Answer], None]
"""Hears of a job's end: the loop calls it once, perhaps many turns later."""
RETRY_SECONDS = 30.0
"""Seconds before the sidecar repeats a job of its own that failed."""


class RequestError(HeadraceError):
    """A job cannot be done here."""

    code = "request"


class BackgroundJobs:
    """Owned by the host; `close` when the loop has ended. `read`: how a source's table is read (url, table, schema); `now`: the
    configuration in force, that of the start unless given."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        read: Callable[..., TableRead] = read_table,
        executor: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
        letters: Callable[[Settings], DeadLetterQueue] = make_dead_letters,
        now: Callable[[], Settings] | None = None,
    ) -> None:
        self._runtime, self._read, self._now = runtime, read, now or (lambda: settings)
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="jobs")
        self._clock, self._make_letters = clock, letters
        self._under_way: set[str] = set()
        self._rests: dict[str, float] = {}
        self._letters: Future[Sequence[DeadLetter]] | None = None
        self._facts: list[Mapping[str, Any]] = []
        self._fills: dict[str, TableFill] = {}

    @property
    def _settings(self) -> Settings:
        return self._now()

    def look(self) -> list[Mapping[str, Any]]:
        """Begin what mends unproven tables; what became of what was begun before, as events."""
        self._mend()
        told, self._facts = self._facts, []
        return told

    def _mend(self) -> None:
        """Do again what the state lacks of the command log, one try a table at a time."""
        log = self._runtime.parts.commands
        letters = log.to_replay()
        if letters and self._settled():
            self._replay_again(letters)
        waiting = {c.table for c in letters}
        for table, one in log.open.items():
            rests = self._rests.get(table, 0.0) > self._clock()
            if one.by_itself and table not in waiting and table not in self._under_way and not rests:
                self._mend_table(table)

    def _mend_table(self, table: str) -> None:
        self._under_way.add(table)

        def told(answer: Answer) -> None:
            self._under_way.discard(table)
            failed = isinstance(answer, HeadraceError)
            self._rests[table] = self._clock() + (RETRY_SECONDS if failed else 0.0)
            if isinstance(answer, HeadraceError):
                self._facts.append({"event": "mend_failed", "table": table, "error": str(answer)})
            else:
                self._facts.append({"event": "mended", **answer})

        try:
            self.resync(table, None, told)
        except RequestError as error:
            told(error)

    def _settled(self) -> bool:
        """Whether all that was there is read: what a letter's record was made of is known by then."""
        return self._runtime.parts.reclock.replaying is None and not self._runtime.hold and self._runtime.ready[0]

    def _replay_again(self, commands: Sequence[Replayed]) -> None:
        """Letters that were set aside again are taken in again; the others are rows by now, as their records can be read,
        or their table is compared, where this state had read the record before it was set aside."""
        if self._letters is None:
            self._letters = self._executor.submit(self._make_letters(self._settings).read)
        if not self._letters.done():
            return
        log, found, self._letters = self._runtime.parts.commands, self._letters, None
        try:
            there = {letter.id: letter for letter in found.result()}
        except HeadraceError as error:
            self._facts.append({"event": "mend_failed", "error": str(error)})
            return
        for command in commands:
            if command.letter in there and command.key not in self._under_way:
                self._again(there[command.letter], command)
            elif command.letter not in there:
                log.replayed(command.key, resync=log.was_read(command))

    def _again(self, letter: DeadLetter, command: Replayed) -> None:
        self._under_way.add(command.key)
        log = self._runtime.parts.commands

        def told(outcome: str | HeadraceError) -> None:
            done = outcome in (APPLIED, SUPERSEDED)
            log.replayed(command.key, resync=not done)
            if done:
                self._executor.submit(self._make_letters(self._settings).discard, [letter.id])
            self._facts.append({"event": "mended" if done else "mend_failed", "letter": letter.id,
                                "table": letter.table, "outcome" if done else "error": str(outcome)})  # fmt: skip

        intake, _ = self._table(letter.table)
        self._runtime.jobs.append(DeadLetterReplay(letter, intake, self._reads(intake), self._executor, told))

    def resync(self, table: str, url: str | None, tell: Tell) -> None:
        """Begin to compare a table with its source; `url`: of its database, if not as configured. Raises RequestError."""
        intake, schema = self._table(table)
        [source] = [s for s in self._settings.config.sources if s.name == intake.name]
        url = url or (source.database.get_secret_value() if source.database else None)
        if source.type != "debezium" or url is None:
            raise RequestError("there is no database to compare the table with", source=source.name, table=table,
                               hint="give `database:` of the debezium source, or --from")  # fmt: skip

        def told(what: Report | HeadraceError) -> None:
            tell(what.json() if isinstance(what, Report) else what)

        def read() -> TableRead:
            found = self._read(url, table, schema)
            self._runtime.parts.commands.keep(Resynced(source=source.name, table=table, place=Lsn(found.lsn)))
            return found

        self._runtime.jobs.append(Resync(table, self._executor, told, intake, schema, read))

    def fill(self, table: str, tell: Tell) -> TableFill:
        """Begin to wait, until somebody leaves it, for the rows of a table that `apply` is about to take in. Raises
        RequestError."""
        if table in self._under_way:
            raise RequestError("the table is being read already", table=table, hint="wait until it is")

        def told(what: Report | HeadraceError) -> None:
            self._under_way.discard(table)
            del self._fills[table]
            tell(what.json() if isinstance(what, Report) else what)

        self._under_way.add(table)
        self._fills[table] = TableFill(table, self._executor, told)
        self._runtime.jobs.append(self._fills[table])
        return self._fills[table]

    def filled(self, table: str, place: CommitPlace, rows: Rows) -> None:
        """The rows of a table that is waited for, as of a place of its source. Raises RequestError."""
        if table not in self._fills:
            raise RequestError("no rows of the table are waited for", table=table, hint="load it anew")
        self._fills[table].give(place, rows)

    def replay(self, letters: Sequence[DeadLetter], tell: Tell) -> None:
        """Begin to take dead letters in again. Raises RequestError."""
        told: list[Mapping[str, Any]] = []
        log = self._runtime.parts.commands

        def one(letter: DeadLetter, key: str, outcome: str | HeadraceError) -> None:
            refused = isinstance(outcome, HeadraceError)
            told.append({
                "id": letter.id, "outcome": "refused" if refused else outcome, "why": str(outcome) if refused else "",
            })  # fmt: skip
            if refused:
                self._executor.submit(log.forget, key)
            else:
                log.replayed(key)
            if len(told) == len(letters):
                tell({"letters": told})

        if not letters:
            tell({"letters": []})
        intakes = [self._table(letter.table)[0] for letter in letters]
        for letter, intake in zip(letters, intakes, strict=True):
            command = self._command(letter)
            read = self._reads(intake, command)
            told_one = partial(one, letter, command.key)
            self._runtime.jobs.append(DeadLetterReplay(letter, intake, read, self._executor, told_one))

    def _command(self, letter: DeadLetter) -> Replayed:
        at = self._runtime.sources.get(letter.source)
        return Replayed(source=letter.source, table=letter.table, place=UNKNOWN if at is None else at.place, topic=letter.topic,
                        partition=letter.partition, offset=letter.offset)  # fmt: skip

    def _reads(self, intake: Intake, command: Replayed | None = None) -> Callable[..., Sequence[MessageBatch]]:
        """How a letter's record is read; the command log knows that it is taken in before it is."""
        [source] = [s for s in self._settings.config.sources if s.name == intake.name]

        def read(topic: str, partition: int, start: int, stop: int) -> Sequence[MessageBatch]:
            if command is not None:
                self._runtime.parts.commands.keep(command)
            return read_topic(self._settings, source, intake, topic, partition, start, stop)

        return read

    def _table(self, table: str) -> tuple[Intake, Any]:
        """The intake of a table that views read, and its columns. Raises RequestError."""
        for intake in self._runtime.parts.intakes:
            if table in intake.schemas:
                return intake, intake.schemas[table]
        known = sorted(t for i in self._runtime.parts.intakes for t in i.schemas)
        raise RequestError("no view reads such a table", table=table, hint=f"there are: {', '.join(known) or 'none'}")

    def close(self) -> None:
        """Begin nothing more."""
        self._executor.shutdown(wait=False, cancel_futures=True)
