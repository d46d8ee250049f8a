"""What views changed since a commit of their source, for who compares a sink with the source as it was then.

Invariant: while one asks, each transaction is a range and its LSN is noted, so that what changed after a commit is known
apart from what it changed itself. Called by the control door, on the asker's thread; `headrace audit` asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace.connectors.commit_place import Lsn
from headrace.sidecar.control.change_history import ChangeHistory
from headrace.sidecar.control.query import values
from headrace.sidecar.delivery.write_backlog import after
from headrace.sidecar.wiring.build import Running
from headrace.views.compile import CompiledView

LAG_SECONDS = 60.0
"""Seconds that the intake may be behind before a follower of each transaction is ended."""
ALIVE_SECONDS = 1.0
"""So often who asks is told that it does: where nobody reads that any more, nobody asks."""


def registered(
    running: Running, who: str, *, lag: float = LAG_SECONDS, sleep: Callable[[float], None] = time.sleep
) -> Iterator[dict[str, Any]]:
    """Lines for as long as somebody reads them: meanwhile each transaction is taken in by itself, and its LSN noted."""
    each = running.runtime.each
    asker = each.ask(who, lag, noting=True)
    try:
        while True:
            asker.check()
            running.runtime.tasks.check()
            yield {"asks": who, "epoch": running.runtime.epoch}
            sleep(ALIVE_SECONDS)
    finally:
        each.release(asker)


def changed_since(
    running: Running, history: ChangeHistory, source: str, lsn: int, epoch: int, names: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """What each of the views changed behind `source`'s commits up to `lsn`, up to `epoch`: rows as Postgres's texts; a view of
    which that is not known any more is told as lost. Somebody has registered since before that commit."""
    began = min(
        (e for e, name, at in running.runtime.each.noted() if name == source and at > Lsn(lsn)), default=epoch + 1
    )
    views = {v.name: v for v in running.views}
    for name in names:
        yield from _of_view(history, views.get(name), name, began - 1, epoch)


def _of_view(
    history: ChangeHistory, view: CompiledView | None, name: str, start: int, epoch: int
) -> Iterator[dict[str, Any]]:
    seen = history.wait(name, start, 0.0)
    same = view is not None and seen.fingerprint == view.fingerprint
    if view is None or not same or seen.error or (seen.since > start and start < epoch):
        yield {"view": name, "lost": True}
        return
    for changes in seen.changes:
        fresh = after(changes, start)
        if fresh is None:
            continue
        rows = values(view.schema.columns, fresh.rows, as_json=False)
        for row, at, diff in zip(rows, fresh.epochs.tolist(), fresh.diffs.tolist(), strict=True):
            if at <= epoch:
                yield {"view": name, "diff": diff, "row": row}
    yield {"view": name, "lost": False}
