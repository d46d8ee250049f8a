"""`headrace audit`: the views in a Postgres sink against what the source answers to the same SQL.

Always: the source is asked at an exact LSN, and the sink is read, whole and at one frontier, once it has passed that LSN; what
a running sidecar says that its views changed in between is undone. Floats are compared within their rounding
(`float_rounding`). Where no sidecar says that, a row counts as a mismatch only when it was wrong in the same way every time it
was looked at; a view that changes too fast for that is told as unsettled, never as right. Called by the command.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import psycopg

from headrace.connectors.postgres.connection import Address
from headrace.engine.errors import HeadraceError
from headrace.sidecar.operations import postgres_at_lsn
from headrace.sidecar.operations.float_rounding import is_rounding
from headrace.sidecar.operations.postgres_at_lsn import Row
from headrace.views.compile import CompiledView

ATTEMPTS = 5

_ADDRESS = "correct `database:` of the source, --from, or the sink's `url:`: host, user, password"


Changes = Callable[[int, int, Sequence[str]], Mapping[str, Counter[Row]]]
"""The changes of views after an LSN of the source, up to an epoch; only views whose changes are known are in it."""


@contextmanager
def nobody() -> Iterator[Changes]:
    """No sidecar can be asked."""
    yield lambda *_: {}


class AuditError(HeadraceError):
    """The audit cannot be made, or found what should not be."""

    code = "audit"


@dataclass(frozen=True)
class Finding:
    """One view. `state`: equal, mismatch, unsettled, in error (it is suspended, marked, in the sink), no answer (the
    source's own query fails because of its rows, and the view does not), or gone (the source has a table or column of it no more,
    `why` says which).

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
    why: str = ""


@dataclass
class _Suspect:
    missing: Counter[Row]
    extra: Counter[Row]


@dataclass
class Audit:
    """Audits one sink against one source. `source`: its name in the frontier; `patience`: seconds until the sink must have
    passed the LSN; `queries`: each view's SQL, to be asked alone; `asking`: within it, a running sidecar takes in each
    transaction by itself and can tell what views changed. `sleep` and `now` are handed in by tests.
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
    asking: Callable[[], AbstractContextManager[Changes]] = nobody

    def __post_init__(self) -> None:
        self.queries = self.queries or postgres_at_lsn.with_views(self.views)

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
            with self.asking() as changed:
                with postgres_at_lsn.snapshot(self.source_url, name) as (lsn, db):
                    theirs = {n: self._answer(db, lsn, n) for n in left}
                epoch, ours, errors = self._sink_after(lsn, list(left.values()))
                ours |= _undone(left, ours, changed(lsn, epoch, list(left)))
            for view in list(left.values()):
                answer = theirs[view.name]
                if isinstance(answer, str):
                    found[view.name] = Finding(view.name, "gone", lsn, epoch, 0, why=answer)
                    del left[view.name]
                    continue
                if answer is None:
                    state = "in error" if view.name in errors else "no answer"
                    found[view.name] = Finding(view.name, state, lsn, epoch, 0)
                    if state == "in error":
                        del left[view.name]
                    continue
                rows = postgres_at_lsn.normal(view.schema.columns, answer.rows)
                missing, extra = rows - ours[view.name], ours[view.name] - rows
                if attempt and view.name in suspects:
                    missing &= suspects[view.name].missing
                    extra &= suspects[view.name].extra
                state = "in error" if view.name in errors else "equal"
                rounded = is_rounding(rows - ours[view.name], ours[view.name] - rows, view.schema.columns)
                if state == "equal" and rows != ours[view.name] and not rounded:
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

    def _answer(self, db: psycopg.Connection, lsn: int, name: str) -> postgres_at_lsn.Answer | str | None:
        """The source's answer for a view; None where its rows make it fail, as they may do to the view; Postgres's
        message where a table or column is not there any more."""
        try:
            with db.transaction():
                return postgres_at_lsn.answers(db, lsn, {name: self.queries[name]}, {})[name]
        except (psycopg.errors.DataError, psycopg.errors.CardinalityViolation):
            return None
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as error:
            return error.diag.message_primary or "a table or column is gone"

    def _sink_after(
        self, lsn: int, views: Sequence[CompiledView]
    ) -> tuple[int, dict[str, Counter[Row]], frozenset[str]]:
        """The sink once it reflects `lsn`: its epoch, its rows, and the views in error."""
        end = self.now() + self.patience
        with psycopg.connect(self.sink_url) as db:
            while True:
                at = postgres_at_lsn.sink_lsn(db, self.schema, self.sink, self.source)
                if at >= lsn:
                    break
                if self.now() > end:
                    raise AuditError(
                        "the sink did not come to where the source was asked", sink=self.sink, source=self.source,
                        lsn=lsn, sink_lsn=at, hint="is the sidecar running, and does the connector send heartbeats?",
                    )  # fmt: skip
                self.sleep(0.05)
            epoch, _, rows = postgres_at_lsn.read_sink(db, self.schema, self.sink, views)
            return epoch, rows, postgres_at_lsn.sink_errors(db, self.schema, self.sink)


def _undone(
    views: Mapping[str, CompiledView], ours: Mapping[str, Counter[Row]], changed: Mapping[str, Counter[Row]]
) -> dict[str, Counter[Row]]:
    """The sink's rows without what was changed since; a row that is there less than zero times then was missing."""
    out = {}
    for name, later in changed.items():
        rows = Counter(ours[name])
        rows.subtract(_normal(views[name], later))
        out[name] = Counter({row: count for row, count in rows.items() if count})
    return out


def _normal(view: CompiledView, rows: Counter[Row]) -> Counter[Row]:
    return postgres_at_lsn.normal(view.schema.columns, rows)
