"""`apply`: puts a changed folder of views in force while everything else goes on.

Invariant: one change at a time; the asking thread computes what is new beside the running dataflow. The views are durable
before they take force; a change that fails or is cancelled before that has changed nothing. After a run has ended in order, a
change that was under way writes nothing more. The control channel and SIGHUP call it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from headrace.connectors.commands import Added
from headrace.engine.errors import HeadraceError
from headrace.sidecar.config.config import Settings
from headrace.sidecar.control import applied_views
from headrace.sidecar.control.added_tables import addable, capture, declare, settings_now
from headrace.sidecar.control.changed_tables import announce, changes_of, check_at_rest, read
from headrace.sidecar.control.cutover import Opened, check_steady, open_new, swap
from headrace.sidecar.control.filled_tables import Asked, check_published, published_tables, versions_of
from headrace.sidecar.control.plan import ApplyError, Held, ViewsPlan, over_tables, plan_views
from headrace.sidecar.control.staging import StagingDataflow
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.wiring.build import Running
from headrace.sidecar.wiring.project import kept_tables
from headrace.views import view_files
from headrace.views.spec import ViewSpec

TELL_SECONDS = 0.5
"""How often whoever waits is told how far it is."""

Tell = Callable[[Mapping[str, Any]], None]
NONE_FILLED: Mapping[str, int] = {}


class ViewChanger:
    """Changes the views of a running sidecar. Called by any thread. `swapped` is told, on the loop, that others are in force;
    `noting` is held by whoever notes them.
    """

    def __init__(
        self,
        running: Running,
        swapped: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        noting: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._running = running
        self._swapped = swapped
        self._clock = clock
        self._one = threading.Lock()
        self._noting = threading.Lock() if noting is None else noting
        self._ended = False
        self._beside: StagingDataflow | None = None
        self._last: Mapping[str, Any] | None = None

    @property
    def state(self) -> Mapping[str, Any] | None:
        """How far the change that is under way is; None while there is none."""
        return None if self._beside is None else _progress(self._beside)

    @property
    def last(self) -> Mapping[str, Any] | None:
        """How the last change ended."""
        return self._last

    def plan(self, *, drop: bool) -> ViewsPlan:
        """What the folder, as it is now, would do. Raises ConfigError, ViewError and ApplyError."""
        return self._plan(settings_now(self._running), drop=drop)

    def _plan(self, settings: Settings, *, drop: bool) -> ViewsPlan:
        running = self._running
        folder = view_files.load(settings.views)
        _check_sinks(running, folder)
        held = running.runtime.tasks.ask(self._held)
        tables = dict(running.runtime.parts.tables)
        more = addable(running, settings)
        changed = changes_of(running, settings)
        schemas = {**running.schemas, **more, **{t: change.schema for t, change in changed.items()}}
        plan = plan_views(running.views, folder, schemas, tables, frozenset(kept_tables(settings)), held, drop=drop,
                          workers=running.settings.config.engine.workers, addable=more.keys(),
                          changed=changed)  # fmt: skip
        published = published_tables(settings)
        return replace(plan, tables_to_load=tuple(t for t in plan.tables_added if t in published))

    def versions(self, asked: Asked) -> dict[str, int]:
        """Of which version of their source the files of a load may be. Raises ConfigError, ApplyError and SourceError."""
        return versions_of(self._running, settings_now(self._running), asked)

    def _held(self) -> dict[str, Held]:
        live = self._running.runtime.parts.flow.facts()
        return {n: Held(facts.rows, facts.bytes) for n, facts in live.items()}

    def unfilled(self, asked: Asked) -> list[str]:
        """Those of the tables that are read already, and of which the state lacks the rows."""
        return sorted(asked.keys() & self._running.runtime.parts.commands.open.keys())

    def apply(
        self, *, drop: bool, tell: Tell = lambda _: None, filled: Mapping[str, int] = NONE_FILLED
    ) -> Mapping[str, Any]:
        """Put the folder in force; `tell` is given the plan, then how far it is. What was done, as `--json` prints it. `filled`:
        the tables of publishers to which a load gives rows right afterwards, each with the version of its files.

        Raises as `plan` does, and Cancelled; then nothing was changed.
        """
        with self.alone():
            try:
                settings = settings_now(self._running)
                plan = self._plan(settings, drop=drop)
                tell({"event": "plan", **plan.json()})
                versions_of(self._running, settings, filled)
                done = (
                    self._apply(plan, settings, tell, filled) if plan.changes else {"event": "applied", "seconds": {}}
                )
                self._last = {**done, "epoch": self._running.runtime.epoch}
                return {**self._last, **plan.json()}
            except HeadraceError as error:
                self._last = {"event": "failed", "error": error.as_json()}
                raise

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While nothing else changes what runs. Raises ApplyError where something does."""
        if not self._one.acquire(blocking=False):
            raise ApplyError(
                "another change is under way", hint="wait for it, or end it with `headrace apply --cancel`"
            )
        try:
            yield
        finally:
            self._one.release()

    def cancel(self) -> bool:
        """End the change that is under way, if it has not taken force yet; whether there was one."""
        beside = self._beside
        if beside is not None:
            beside.cancel()
        return beside is not None

    def end(self) -> None:
        """The run ends in order: note that, with the views in force. Raises StateError."""
        with self._noting:
            self._ended = True
            applied_views.note(self._running.generation, [v.spec for v in self._running.views], ended=True)

    def _note(self, specs: Sequence[ViewSpec]) -> None:
        with self._noting:
            if not self._ended:
                applied_views.note(self._running.generation, specs)

    def _apply(
        self, plan: ViewsPlan, settings: Settings, tell: Tell, filled: Mapping[str, int] = NONE_FILLED
    ) -> dict[str, Any]:  # fmt: skip
        if not plan.tables_added and not plan.tables_changed:
            return self._change(plan, tell)
        running, log = self._running, self._running.runtime.parts.commands
        before, schemas, known = running.settings, running.schemas, {c.key: c for c in log.of(Added)}
        added: list[Added] = []
        changed: list[Added] = []
        try:
            added = declare(running, settings, plan.tables_added, filled) if plan.tables_added else []
            changed = announce(running, settings, plan.tables_changed)
            more = addable(running, settings) if added else {}
            others = {t: change.schema for t, change in plan.tables_changed.items()}
            running.schemas, running.settings = {**schemas, **more, **others}, settings
            done = self._change(plan, tell, filled)
        except BaseException:
            running.schemas, running.settings = schemas, before
            keys = [c.key for c in (*added, *changed)]
            log.forget(*(k for k in keys if k not in known))
            log.keep(*(known[k] for k in keys if k in known))
            raise
        told = capture(running, settings, added) + read(running, settings, plan.tables_changed, changed)
        return {**done, "tables": told}

    def _change(self, plan: ViewsPlan, tell: Tell, filled: Mapping[str, int] = NONE_FILLED) -> dict[str, Any]:
        running, runtime = self._running, self._running.runtime
        started = self._clock()
        opened = open_new(running, plan)
        beside: StagingDataflow | None = None
        try:
            beside = self._beside = runtime.tasks.ask(lambda: self._begin(plan))
            if beside is not None:
                self._build(plan, beside, tell)
            self._note(plan.specs)
            built = self._clock()
            seconds = runtime.tasks.ask(lambda: self._swap(plan, beside, opened, filled))
        except BaseException:
            opened.close()
            self._note([v.spec for v in running.views])
            raise
        finally:
            self._beside = None
            if beside is not None:
                runtime.feeds.remove(beside.feed)
                beside.close()
        total = self._clock() - started
        return {"event": "applied", "seconds": {"build": built - started, **seconds, "total": total}}

    def _swap(
        self, plan: ViewsPlan, beside: StagingDataflow | None, opened: Opened, filled: Mapping[str, int]
    ) -> dict[str, float]:
        check_published(self._running.runtime, filled)
        seconds = swap(self._running, plan, beside, opened)
        self._swapped()
        return seconds

    def _begin(self, plan: ViewsPlan) -> StagingDataflow | None:
        runtime = self._running.runtime
        check_steady(runtime)
        check_at_rest(runtime, [*plan.tables_changed])
        if not runtime.epoch:
            if plan.tables_changed:
                raise ApplyError("nothing is complete yet, and a table that is read is declared otherwise",
                                 table=min(plan.tables_changed), hint="try again once a snapshot is read")  # fmt: skip
            return None
        return StagingDataflow.begin(runtime, redeclared=plan.redeclared)

    def _build(self, plan: ViewsPlan, beside: StagingDataflow, tell: Tell) -> None:
        """Compute what is new, and tell how far it is meanwhile."""
        before = {s.view.name: s.view.fingerprint for s in self._running.runtime.parts.views}
        plans, over = Plans.of(plan.views, {}), over_tables(plan.views, plan.redeclared.keys())
        beside.build(
            plans.only({v.name for v in plans.put_out if before.get(v.name) != v.fingerprint or v.name in over})
        )
        ended = threading.Event()
        teller = threading.Thread(target=_tell_until, args=(ended, beside, tell), name="apply-progress", daemon=True)
        teller.start()
        try:
            beside.hydrate(self._clock)
            beside.catch_up()
        finally:
            ended.set()
            teller.join()
        tell(_progress(beside))


def _tell_until(ended: threading.Event, beside: StagingDataflow, tell: Tell) -> None:
    while not ended.wait(TELL_SECONDS):
        tell(_progress(beside))


def _progress(beside: StagingDataflow) -> dict[str, Any]:
    at = beside.progress
    return {"event": "progress", "stage": at.stage, "rows": at.rows, "of": at.of, "seconds": round(at.seconds, 3),
            "seconds_left": None if at.left is None else round(at.left, 1)}  # fmt: skip


def _check_sinks(running: Running, folder: tuple[ViewSpec, ...]) -> None:
    known = {s.name for s in running.settings.config.sinks}
    for view in folder:
        for name in view.sinks:
            if name not in known:
                raise ApplyError(
                    "a view names a sink that this sidecar does not have", view=view.name, file=view.file, line=view.line,
                    sink=name, hint=f"there are: {', '.join(sorted(known))}; a new one needs a start",
                )  # fmt: skip
