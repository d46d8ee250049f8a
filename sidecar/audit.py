"""`headrace audit`: the views in a Postgres sink against what the source answers to the same SQL.

Always: the source is asked at an exact LSN, and the sink is read, whole and at one frontier, once it has passed that LSN.
What commits in between may differ for a moment, so a row counts as a mismatch only when it was wrong in the same way every
time it was looked at; a view that changes too fast for that is told as unsettled, never as right. Called by the command.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

from connectors.postgres.session import Address
from engine.errors import HeadraceError
from sidecar import oracle
from sidecar.oracle import Row
from views.compile import CompiledView

ATTEMPTS = 5

_ADDRESS = "correct `database:` of the source, --from, or the sink's `url:`: host, user, password"


class AuditError(HeadraceError):
    """The audit cannot be made, or found what should not be."""

    code = "audit"


@dataclass(frozen=True)
class Finding:
    """One view. `state`: equal, mismatch, unsettled, in error (it stands still, marked, in the sink), or no answer (the
    source's own query fails because of its rows, and the view does not).

    `missing`, `extra`: rows that the source has and the sink has not, and the other way, counted with multiplicity;
    `lsn`, `epoch`: where they were compared last; `rows`: that the source has.
    """

    view: str
    state: str
    lsn: int
    epoch: int
    rows: int
    missing: int = 0
    extra: int = 0


@dataclass
class _Suspect:
    missing: Counter[Row]
    extra: Counter[Row]


@dataclass
class Audit:
    """Audits one sink against one source. `source`: its name in the frontier; `patience`: seconds until the sink must have
    passed the LSN; `queries`: each view's SQL, to be asked alone. `sleep` and `now` are handed in by tests.
    """

    source_url: str
    sink_url: str
    schema: str
    sink: str
    source: str
    views: Sequence[CompiledView]
    patience: float = 60.0
    attempts: int = ATTEMPTS
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    queries: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queries = self.queries or oracle.with_views(self.views)

    def run(self) -> list[Finding]:
        """One round over all views. Raises AuditError where a database cannot be read or the sink does not follow."""
        try:
            at, to = Address(self.source_url), Address(self.sink_url)
        except ValueError as error:
            raise AuditError(
                f"a database's address is {error}", sink=self.sink, source=self.source, hint=_ADDRESS
            ) from None
        try:
            return self._run()
        except psycopg.Error as error:
            reason = error.diag.message_primary or at.clean(error).replace(
                str(to.params.get("password") or "\0"), "***"
            )
            hint = "the source's role needs REPLICATION and SELECT, the sink's reader SELECT"
            raise AuditError(
                f"a database cannot be read: {reason}", sink=self.sink, source=self.source, source_database=at.place,
                sink_database=to.place, hint=hint if error.sqlstate is not None else _ADDRESS,
            ) from error  # fmt: skip

    def _run(self) -> list[Finding]:
        found: dict[str, Finding] = {}
        suspects: dict[str, _Suspect] = {}
        left = {v.name: v for v in self.views}
        for attempt in range(self.attempts):
            name = f"headrace_audit_{random.randrange(10**9)}"  # noqa: S311
            with oracle.snapshot(self.source_url, name) as (lsn, db):
                theirs = {n: self._answer(db, lsn, n) for n in left}
            epoch, ours, errors = self._sink_after(lsn, list(left.values()))
            for view in list(left.values()):
                answer = theirs[view.name]
                if answer is None:
                    state = "in error" if view.name in errors else "no answer"
                    found[view.name] = Finding(view.name, state, lsn, epoch, 0)
                    if state == "in error":
                        del left[view.name]
                    continue
                rows = oracle.normal(view.schema.columns, answer.rows)
                missing, extra = rows - ours[view.name], ours[view.name] - rows
                if attempt and view.name in suspects:
                    missing &= suspects[view.name].missing
                    extra &= suspects[view.name].extra
                state = "in error" if view.name in errors else "equal"
                if state == "equal" and rows != ours[view.name]:
                    suspects[view.name] = _Suspect(missing, extra)
                    state = "mismatch" if missing or extra else "unsettled"
                found[view.name] = Finding(
                    view.name, state, lsn, epoch, rows.total(), missing.total(), extra.total()
                )  # fmt: skip
                if state in ("equal", "in error"):
                    found[view.name] = Finding(view.name, state, lsn, epoch, rows.total())
                    del left[view.name]
            if not left:
                break
            self.sleep(0.05 * 2**attempt)
        return [found[v.name] for v in self.views]

    def _answer(self, db: psycopg.Connection, lsn: int, name: str) -> oracle.Answer | None:
        """The source's answer for a view; None where its rows make it fail, as they may do to the view."""
        try:
            with db.transaction():
                return oracle.answers(db, lsn, {name: self.queries[name]}, {})[name]
        except (psycopg.errors.DataError, psycopg.errors.CardinalityViolation):
            return None

    def _sink_after(
        self, lsn: int, views: Sequence[CompiledView]
    ) -> tuple[int, dict[str, Counter[Row]], frozenset[str]]:
        """The sink once it reflects `lsn`: its epoch, its rows, and the views in error."""
        end = self.now() + self.patience
        with psycopg.connect(self.sink_url) as db:
            while True:
                at = oracle.sink_lsn(db, self.schema, self.sink, self.source)
                if at >= lsn:
                    break
                if self.now() > end:
                    raise AuditError(
                        "the sink did not come to where the source was asked", sink=self.sink, source=self.source,
                        lsn=lsn, sink_lsn=at, hint="is the sidecar running, and does the connector send heartbeats?",
                    )  # fmt: skip
                self.sleep(0.05)
            epoch, _, rows = oracle.read_sink(db, self.schema, self.sink, views)
            return epoch, rows, oracle.sink_errors(db, self.schema, self.sink)
