"""`tail`: a view as it is, then everything that changes in it, epoch by epoch, to be gone on with after any break.

Always: rows given at an epoch, with the changes of later epochs added, are the view at each; a `resume` line says up to
which epoch that is so. Where the changes in between are not kept any more the view is given whole again, marked; whoever
asked to go on from such an epoch is refused by name. Called by the control door, on the asker's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np

from connectors.sink import ViewChanges
from engine.batch.updates import Updates
from engine.errors import HeadraceError
from sidecar.backlog import after
from sidecar.live.beside import Beside
from sidecar.live.history import History
from sidecar.live.query import values
from sidecar.plans import Plans
from sidecar.wiring import Running
from views.compile import CompiledView

QUIET_SECONDS = 5.0
"""After so long without a change a follower is told how far it is all the same."""


class TailError(HeadraceError):
    """A view cannot be followed from there, or not any more."""

    code = "tail"


class Tail:
    """Follows one view of a running sidecar; as lines, see `lines`."""

    def __init__(self, running: Running, history: History, view: str, *, as_json: bool) -> None:
        self._running, self._history, self._name = running, history, view
        self._as_json = as_json
        self._view = self._find()

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
        that is not kept."""
        if start is not None:
            self._check(start)
        return self._follow(start)

    def _check(self, start: int) -> None:
        seen = self._history.wait(self._name, -1, 0.0)
        if start > seen.epoch:
            raise TailError(
                "this epoch is not complete yet", view=self._name, start=start, epoch=seen.epoch,
                hint="go on from the epoch that `resume` told last; after a lost state folder follow it without --from",
            )  # fmt: skip
        if start < seen.since:
            raise TailError(
                "the changes from there on are not kept any more", view=self._name, start=start, kept_since=seen.since,
                hint="follow it without --from: it is given whole first; `tail: {history_mib}` says how much is kept",
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
                at = None
            else:
                for changes in seen.changes:
                    fresh = after(changes, at)
                    if fresh is not None:
                        yield from self._rows(fresh)
                at = seen.epoch
                yield {"resume": at}

    def _whole(self) -> tuple[int, ViewChanges, str]:
        """The view's epoch, content, and error or ""; computed beside, where its arrangements stand already."""
        runtime = self._running.runtime
        views, error, beside = runtime.desk.ask(
            lambda: (self._running.views, self._error(), Beside.begin(runtime, follow=False))
        )
        self._view = self._find()
        with closing(beside):
            rows, _ = beside.answer(Plans.of(views, {}, {self._name}), self._name)
        return beside.epoch, _changes(rows, beside.epoch), error

    def _error(self) -> str:
        """For which the view stands still, or "". Asked between two steps."""
        return next((s.error for s in self._running.runtime.parts.views if s.view.name == self._name), "")

    def _head(self, epoch: int, *, whole: bool) -> dict[str, Any]:
        columns = [{"name": c.name, "data_type": c.type.sql()} for c in self._view.schema.columns]
        return {"view": self._name, "columns": columns, "epoch": epoch, "whole": whole}

    def _rows(self, changes: ViewChanges) -> Iterator[dict[str, Any]]:
        rows = values(self._view.schema.columns, changes.rows, as_json=self._as_json)
        for row, epoch, diff in zip(rows, changes.epochs.tolist(), changes.diffs.tolist(), strict=True):
            yield {"epoch": epoch, "diff": diff, "row": row}


def _changes(rows: Updates, epoch: int) -> ViewChanges:
    return ViewChanges(rows.rows, np.full(len(rows), epoch, np.int64), rows.diffs)
