"""A run's state in a store of objects: no renames and no links, as nothing that has a name is ever changed.

Always: a run is begun by a number that it alone has, takes over by writing the next manifest, and has lost the state once
a later run wrote one. A batch is deleted only after a manifest that condemned it counts, and a while later; a condemned
name is never used again, so that a run which wakes up late deletes nothing that a newer manifest names. Made by wiring.
"""

from __future__ import annotations

import json
import platform
import time
from collections import deque
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.connectors.step_hooks import Reached, unwatched
from headrace.sidecar.state.batch_places import BATCHES, ObjectBatches
from headrace.sidecar.state.generation import StateError
from headrace.sidecar.state.objects import Objects
from headrace.sidecar.state.register import Behind, Overtaken, Record, Register
from headrace.sidecar.state.synthetic_transactions import ObjectRows

RUNS, MANIFESTS, VIEWS = "runs", "manifests", "views"
GRACE_SECONDS = 900.0
"""How long a condemned batch is left for those who still read the manifest before."""
LIST_EVERY = 64
"""Manifests after which all batches are listed, to find those that a write left which was never named."""
KEPT_RUNS = 8
TRIES = 10


def newest_number(objects: Objects) -> int:
    """The number of the last run that began; 0 where none did. Raises OSError."""
    return max((int(name.rpartition("/")[2]) for name in objects.names(f"{RUNS}/")), default=0)


def take_run(
    objects: Objects, folder: Path, reached: Reached = unwatched, *, grace: float = GRACE_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> ObjectGeneration:  # fmt: skip
    """Begin a run: the next number, which no other has. `folder`: this machine's. Raises StateError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            number = newest_number(objects) + 1
            body = json.dumps({"host": platform.node(), "at": time.time()}).encode()
            if objects.put(f"{RUNS}/{number:06d}", [body]):
                reached("generation taken")
                return ObjectGeneration(objects, folder, number, grace=grace, clock=clock)
    except OSError as error:
        raise _unusable(objects, error) from error


def _unusable(objects: Objects, error: OSError) -> StateError:
    return StateError(f"cannot use the store of the state: {error.strerror}", store=objects.where,
                      hint="does the bucket exist, may it be read, written and listed, and is `store:` right?")  # fmt: skip


class ObjectGeneration:
    """One run's state; see `RunState`. Single writer: the loop and the thread that writes checkpoints, each its part."""

    def __init__(
        self, objects: Objects, folder: Path, number: int, *, grace: float = GRACE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.number, self.folder, self._objects = number, folder, objects
        self._grace, self._clock = grace, clock
        self._manifests, self._views = (Register(objects, chain, number) for chain in (MANIFESTS, VIEWS))
        self._head = self._views_head = 0
        self._named: frozenset[str] = frozenset()
        self._since_listed: int | None = None
        self._condemned: deque[tuple[float, list[str]]] = deque()

    @property
    def where(self) -> str:
        """See `RunState.where`."""
        return self._objects.where

    @property
    def place(self) -> ObjectBatches:
        """See `RunState.place`."""
        return ObjectBatches(self._objects, self.number, self.folder.absolute() / "fetched")

    @property
    def rows(self) -> ObjectRows:
        """See `RunState.rows`."""
        return ObjectRows(self._objects, self.number)

    def begin(self, reached: Reached = unwatched) -> None:
        """See `RunState.begin`: what the newest manifest says is said again, in the name of this run."""
        try:
            self.check_newest()
            for _ in range(TRIES):
                last = self._last(self._manifests)
                text = None if last is None else last.body["manifest"]
                try:
                    self._head = self._manifests.append(
                        {"manifest": text, "condemned": []}, last.number if last is not None else 0
                    )
                except Behind:
                    continue
                break
            else:
                raise StateError("the state is written by others all the time", store=self.where,
                                 hint="end them, and start again")  # fmt: skip
            reached("generation copied")
            views = self._last(self._views)
            self._views_head = 0 if views is None else views.number
            for old in self._objects.names(f"{RUNS}/")[:-KEPT_RUNS]:
                self._objects.delete(old)
        except Overtaken as error:
            raise StateError(error.what, hint=error.hint, **error.where) from error
        except OSError as error:
            raise _unusable(self._objects, error) from error
        reached("generation ready")

    def begin_with(self, data: bytes, names: Set[str]) -> None:
        """Begin with a checkpoint, where there was none: it counts at once, or not at all. Raises StateError, Overtaken."""
        self.begin()
        if self.read_manifest() is not None:
            raise StateError("the state has rows already", store=self.where, hint="name another prefix under `state:`")
        try:
            self.put_manifest(data, names)
        except OSError as error:
            raise _unusable(self._objects, error) from error

    def discard(self) -> None:
        """Leave no batch of a run that has named none."""
        with suppress(OSError):  # what is left is found when batches are listed
            for name in self._objects.names(BATCHES):
                if f".{self.number:x}-" in name:
                    self._objects.delete(name)

    def check_newest(self) -> None:
        """See `RunState.check_newest`."""
        later = newest_number(self._objects)
        if later > self.number:
            raise StateError("another run has begun meanwhile", store=self.where, generation=self.number, later=later,
                             hint="only one may run: this one has written nothing")  # fmt: skip

    def later_number(self) -> int | None:
        """See `RunState.later_number`."""
        try:
            later = newest_number(self._objects)
        except OSError:
            return None
        return later if later > self.number else None

    def read_manifest(self) -> bytes | None:
        """See `RunState.read_manifest`."""
        last = self._last(self._manifests)
        return None if last is None or last.body["manifest"] is None else str(last.body["manifest"]).encode()

    def put_manifest(self, data: bytes, names: Set[str], reached: Reached = unwatched) -> None:
        """See `RunState.put_manifest`. Batches that no manifest from this one on names are condemned by it."""
        since, self._since_listed = self._since_listed, None  # where this fails, what it left is to be found
        everything = since is None or since >= LIST_EVERY
        condemned = sorted((self._listed() if everything else self._named) - names)
        self._head = self._appended(self._manifests, {"manifest": data.decode(), "condemned": condemned}, self._head)
        reached("manifest written")
        reached("manifest named")
        self._named = frozenset(names)
        self._since_listed = 1 if everything or since is None else since + 1
        self._condemned.append((self._clock() + self._grace, condemned))

    def _appended(self, chain: Register, body: Mapping[str, Any], head: int) -> int:
        """Write the next record; its number. Raises Overtaken, StateError, OSError."""
        for _ in range(TRIES):
            try:
                return chain.append(body, head)
            except Behind:  # ours, whose answer was lost, or an earlier run's
                last = self._last(chain)
                head = 0 if last is None else last.number
        raise StateError("the state is written by others all the time", store=self.where,
                         hint="end them, and start again")  # fmt: skip

    def sweep(self) -> None:
        """See `RunState.sweep`."""
        while self._condemned and self._condemned[0][0] <= self._clock():
            for name in self._condemned[0][1]:
                self._objects.delete(f"{BATCHES}{name}")
            self._condemned.popleft()
        self._manifests.trim()

    def _listed(self) -> frozenset[str]:
        waiting = {name for _, names in self._condemned for name in names}
        return frozenset(n.removeprefix(BATCHES) for n in self._objects.names(BATCHES)) - waiting

    def read_views(self) -> bytes | None:
        """See `RunState.read_views`."""
        last = self._last(self._views)
        return None if last is None else str(last.body["views"]).encode()

    def put_views(self, data: bytes) -> None:
        """See `RunState.put_views`."""
        self._views_head = self._appended(self._views, {"views": data.decode()}, self._views_head)
        self._views.trim()

    def _last(self, chain: Register) -> Record | None:
        try:
            return chain.last()
        except ValueError as error:
            raise StateError("a record of the state is damaged", store=self.where,
                             hint="restore the store, or name another prefix under `state:`") from error  # fmt: skip


def kept_run(objects: Objects, folder: Path) -> ObjectGeneration:
    """The state as it is now, to be read alone."""
    return ObjectGeneration(objects, folder, 0)
