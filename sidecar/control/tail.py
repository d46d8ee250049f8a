"""`tail`: a view as it is, then each change of it, epoch by epoch; a follower may go on after any break.

Invariant: the rows given at an epoch plus the changes of later epochs are the view at each; a `resume` line names the epoch
up to which that holds. Where the changes between are no longer kept, the whole view is given again, marked; who asks to go on
from such an epoch is refused by name. Who asks for `each` transaction is told each by itself, or is ended by name. The
control channel calls it on the asking thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from headrace.connectors.sink import ViewChanges
from headrace.engine.batch.updates import Updates
from headrace.engine.errors import HeadraceError
from headrace.sidecar.control.change_history import ChangeHistory
from headrace.sidecar.control.query import values
from headrace.sidecar.control.staging import StagingDataflow
from headrace.sidecar.delivery.write_backlog import after
from headrace.sidecar.epochs.each_transaction import READER, Asker
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.wiring.build import Running
from headrace.views.compile import CompiledView

QUIET_SECONDS = 5.0
"""After so long without a change a follower is told how far it is all the same."""
LAG_SECONDS = 5.0
"""How long the intake, or the reader, may stay behind before one who asks for each transaction is ended."""


class TailError(HeadraceError):
    """A view cannot be followed from there, or not any more."""

    code = "tail"


class Tail:
    """Follows one view of a running sidecar; as lines, see `lines`. `each`: every transaction by itself; `lag`: how many
    seconds it may hold the intake up for that."""

    def __init__(
        self,
        running: Running,
        history: ChangeHistory,
        view: str,
        *,
        as_json: bool,
        each: bool = False,
        lag: float = LAG_SECONDS,
    ) -> None:
        self._running, self._history, self._name = running, history, view
        self._as_json = as_json
        self._view = self._find()
        self._each, self._lag = each, lag
        self._asker: Asker | None = None

    def _find(self) -> CompiledView:
        found = next((v for v in self._running.views if v.name == self._name), None)
        if found is None:
            known = ", ".join(v.name for v in self._running.views if v.spec.sinks)
            raise TailError("there is no such view", view=self._name, hint=f"there are: {known}")
        if not found.spec.sinks:
            raise TailError("a view without sinks is not followed", view=self._name, hint="give it a sink, or query it")
        return found

    def lines(self, start: int | None) -> Iterator[dict[str, Any]]:
        """The view whole, or what changed after the epoch `start`; then what changes. Raises TailError at once for a start
        that is not kept. Whoever has the lines closes them: that one asks for each transaction no more."""
        lines = self._asking(start)
        next(lines)
        return lines

    def _asking(self, start: int | None) -> Iterator[dict[str, Any]]:
        """Nothing once everything is checked, then the lines."""
        each = self._running.runtime.each
        self._asker = each.ask(f"tail of view {self._name}", self._lag) if self._each else None
        try:
            if start is not None:
                self._check(start)
            yield {}
            yield from self._follow(start)
        finally:
            if self._asker is not None:
                each.release(self._asker)

    def _check(self, start: int) -> None:
        seen = self._history.wait(self._name, -1, 0.0)
        if start > seen.epoch:
            raise TailError(
                "this epoch is not complete yet", view=self._name, start=start, epoch=seen.epoch,
                hint="go on from the epoch that `resume` told last; after a lost state folder follow it without --from",
            )  # fmt: skip
        ranges = self._running.runtime.ranges
        inside, since = ranges.register(start), max(seen.since, ranges.known_from)
        if inside is not None:
            raise TailError(
                "this epoch was taken in as one with others", view=self._name, start=start,
                nearest=f"{inside.start - 1} and {inside.stop - 1}",
                hint="follow it without --from: it is given whole first; `resume` tells where one may go on",
            )  # fmt: skip
        if start < since:
            raise TailError(
                "the changes from there on are not kept any more", view=self._name, start=start, kept_since=since,
                hint="follow it without --from: it is given whole first; `tail: {history_mib}` says how much is kept",
            )  # fmt: skip
        coarse = ranges.coarse_after(start) if self._each else None
        if coarse is not None:
            raise TailError(
                "transactions since this epoch were taken in as one", view=self._name, start=start,
                as_one=f"{coarse.start} to {coarse.stop - 1}",
                hint=f"each is known from {coarse.stop - 1} on; or follow it without --from: it is given whole first",
            )  # fmt: skip

    def _follow(self, start: int | None) -> Iterator[dict[str, Any]]:
        at, told = start, ""
        if at is not None:
            yield self._head(at, whole=False)
        while not self._history.closed:
            if at is None:
                at, content, told = self._whole()
                if told:
                    yield {"in_error": told, "epoch": at}
                else:
                    yield self._head(at, whole=True)
                    yield from self._rows(content)
                yield {"resume": at}
            seen = self._history.wait(self._name, at, QUIET_SECONDS)
            if seen.fingerprint != self._view.fingerprint:
                self._view = self._find()
                at = None
            elif seen.error:
                if seen.error != told:
                    told = seen.error
                    yield {"in_error": told, "epoch": seen.since}
                at = max(at, seen.since)
            elif told or seen.since > at:
                self._check_reader(seen.forgotten > at)
                at = None
            else:
                for changes in seen.changes:
                    yield from self._changed(changes, at)
                at = seen.epoch
                yield {"resume": at}
            self._reached(at)

    def _changed(self, changes: ViewChanges, at: int) -> Iterator[dict[str, Any]]:
        """What of it lies after `at`; to one who asks for each transaction with a `resume` behind each."""
        fresh = after(changes, at)
        if fresh is None:
            return
        firsts = self._running.runtime.ranges.firsts(int(fresh.epochs[0]), int(fresh.epochs[-1]))
        before: int | None = None
        for row in self._rows(fresh, firsts):
            if self._each and before is not None and row["epoch"] != before:
                yield {"resume": before}
                self._reached(before)
            before = row["epoch"]
            yield row

    def _reached(self, at: int | None) -> None:
        """The reader has everything up to there. Raises EachEnded where it is ended."""
        if self._asker is not None:
            self._asker.at = at
            self._asker.check()

    def _check_reader(self, forgotten: bool) -> None:
        """One who asks for each transaction is not to miss any: it is ended where changes that it lacks were dropped."""
        if self._asker is not None and forgotten:
            self._asker.ended = READER
            self._asker.check()

    def _whole(self) -> tuple[int, ViewChanges, str]:
        """The view's epoch, content, and error or ""; computed beside, where its arrangements stand already."""
        runtime = self._running.runtime
        views, error, beside = runtime.tasks.ask(
            lambda: (self._running.views, self._error(), StagingDataflow.begin(runtime, follow=False))
        )
        self._view = self._find()
        with closing(beside):
            rows, _ = beside.answer(Plans.of(views, {}, {self._name}), self._name)
        return beside.epoch, _changes(rows, beside.epoch), error

    def _error(self) -> str:
        """For which the view is suspended, or "". Asked between two steps."""
        return next((s.error for s in self._running.runtime.parts.views if s.view.name == self._name), "")

    def _head(self, epoch: int, *, whole: bool) -> dict[str, Any]:
        columns = [{"name": c.name, "data_type": c.type.sql()} for c in self._view.schema.columns]
        return {"view": self._name, "columns": columns, "epoch": epoch, "whole": whole}

    def _rows(self, changes: ViewChanges, firsts: Mapping[int, int] | None = None) -> Iterator[dict[str, Any]]:
        """Each with the first and the last epoch of its range: `first`, where it is another one than `epoch`."""
        rows = values(self._view.schema.columns, changes.rows, as_json=self._as_json)
        for row, epoch, diff in zip(rows, changes.epochs.tolist(), changes.diffs.tolist(), strict=True):
            first = (firsts or {}).get(epoch)
            yield {"epoch": epoch, "diff": diff, "row": row} | ({} if first is None else {"first": first})


def _changes(rows: Updates, epoch: int) -> ViewChanges:
    return ViewChanges(rows.rows, np.full(len(rows), epoch, np.int64), rows.diffs)
