"""What may be asked of a running sidecar: requests from the state folder become errands of its loop.

Always: a request is answered once, with what was done or with a named error; one that was asked before a restart is
begun again. Called by the host between two turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

from connectors.letters import Letter
from engine.errors import HeadraceError
from sidecar.again import Again
from sidecar.config import Settings
from sidecar.ingest import Intake
from sidecar.requests import Request, RequestError, Requests
from sidecar.resync import Report, Resync, TableRead, read_table
from sidecar.runtime import Runtime
from sidecar.wiring import read_topic

Answer = Mapping[str, Any] | HeadraceError
Tell = Callable[[Answer], None]


class Errands:
    """Owned by the host; `close` when the loop has ended. `read`: how a source's table is read (url, table, schema)."""

    def __init__(
        self,
        runtime: Runtime,
        settings: Settings,
        read: Callable[..., TableRead] = read_table,
        executor: Executor | None = None,
    ) -> None:
        self._runtime, self._settings, self._read = runtime, settings, read
        self._requests = Requests(settings.state)
        self._executor = executor or ThreadPoolExecutor(1, thread_name_prefix="errands")
        self._known: Mapping[str, Callable[[Mapping[str, Any], Tell], None]] = {
            "resync": self._resync, "replay": self._replay,
        }  # fmt: skip

    def look(self) -> None:
        """Begin what was asked since the last look."""
        for request in self._requests.take():
            self.begin(request, partial(self._requests.answer, request))

    def begin(self, request: Request, tell: Tell) -> None:
        """Begin one request; `tell` is called once, perhaps many turns later, by the loop."""
        begin = self._known.get(request.does)
        try:
            if begin is None:
                raise RequestError(
                    "this sidecar cannot do that", asked=request.does, hint=f"it can: {', '.join(self._known)}"
                )
            begin(request.of, tell)
        except HeadraceError as error:
            tell(error)

    def _resync(self, of: Mapping[str, Any], tell: Tell) -> None:
        intake, schema = self._table(str(of.get("table")))
        table = str(of["table"])
        [source] = [s for s in self._settings.config.sources if s.name == intake.name]
        url = of.get("from") or (source.database.get_secret_value() if source.database else None)
        if source.type != "debezium" or url is None:
            raise RequestError("there is no database to compare the table with", source=source.name, table=table,
                               hint="give `database:` of the debezium source, or --from")  # fmt: skip

        def told(what: Report | HeadraceError) -> None:
            tell(what.json() if isinstance(what, Report) else what)

        read = partial(self._read, url, table, schema)
        self._runtime.errands.append(Resync(table, intake, schema, read, self._executor, told))

    def _replay(self, of: Mapping[str, Any], tell: Tell) -> None:
        letters = [Letter.parse(body) for body in of["letters"]]
        told: list[Mapping[str, Any]] = []

        def one(letter: Letter, outcome: str | HeadraceError) -> None:
            refused = isinstance(outcome, HeadraceError)
            told.append({
                "id": letter.id, "outcome": "refused" if refused else outcome, "why": str(outcome) if refused else "",
            })  # fmt: skip
            if len(told) == len(letters):
                tell({"letters": told})

        intakes = [self._table(letter.table)[0] for letter in letters]
        for letter, intake in zip(letters, intakes, strict=True):
            [source] = [s for s in self._settings.config.sources if s.name == intake.name]
            read = partial(read_topic, self._settings, source, intake)
            self._runtime.errands.append(Again(letter, intake, read, self._executor, partial(one, letter)))

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
