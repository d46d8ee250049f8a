"""Views that are changed while all goes on: the folder of views gets other definitions now and then, more views or fewer, and an
operator says `apply`, with `--drop` or without (as SIGHUP does), or ends the sidecar, or ends the change.

Always: what runs is the sidecar's own `ViewChanger`, as a strand of the process, and what its host keeps of the views in
force. All views of a state that a reader sees are of one set of definitions that was to be in force once; after an `apply` that
came about and that nobody could interfere with, of that one or a later one; a start goes on with what was noted last, or
takes the folder where the run before it ended in order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from headrace.connectors.sink import Frontier
from headrace.engine.errors import HeadraceError
from headrace.sidecar.control import applied_views as force
from headrace.sidecar.control import apply as changing
from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.runtime import loop_tasks
from headrace.sidecar.state.filesystem import Disk
from headrace.sidecar.state.generation import StateError
from headrace.sidecar.wiring.project import Project
from headrace.views.spec import ViewSpec
from tests.sim.database import filled
from tests.sim.declared import project
from tests.sim.oracle import Wrong
from tests.sim.process import Process
from tests.sim.shop import TABLES
from tests.sim.strands import Alone, Asked, Strand
from tests.sim.variants import DEFINITIONS, Choice, all_of, answers, called, view_of

if TYPE_CHECKING:
    from tests.sim.world import World

MAY_BE = {"apply", "control", "cancelled"}
"""Errors of a change that is refused as things stand, or was ended."""
Set = frozenset[str]
"""What the definitions in force are called, of the views that may change."""


@dataclass
class Changes:
    """`rate`: how often the folder changes, and is applied, a step. `folder`: what stands in it; `legal`: the sets that were
    to be in force, in their order; `kept`: those that the last note may be of, None: the folder is to be taken; `over`: the
    runs that have drained; `floor`: an epoch, and the first set that states behind it may be of. By the number of a run:
    `force`, what it has in force, and `wanted`, what the change that is under way is to put there, with or without `drop`.
    `holds`, `marks`: what a reader of Kafka saw last."""

    draw: random.Random
    rate: float
    folder: Choice = field(default_factory=dict)
    legal: list[Set] = field(default_factory=list)
    kept: set[Set | None] = field(default_factory=lambda: {None})
    over: set[int] = field(default_factory=set)
    floor: tuple[int, int] = (0, 0)
    force: dict[int, Choice] = field(default_factory=dict)
    wanted: dict[int, Choice] = field(default_factory=dict)
    drop: dict[int, bool] = field(default_factory=dict)
    holds: Mapping[str, str] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    changing: dict[int, ViewChanger] = field(default_factory=dict)
    strands: list[Strand] = field(default_factory=list)
    ends_of: Counter[str] = field(default_factory=Counter)
    _known: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)

    def begin(self, world: World) -> None:
        """See `Fate`."""
        self.world = world
        world.host = self
        world.patches.append(self.in_place)
        world.settled.append(self.settled)
        self._change()
        judge = world.judge
        judge.definition = lambda view, fingerprint: self._of(view, fingerprint)[0]
        judge.definitions, judge.more, judge.seen = all_of, answers, self._seen

    def in_place(self, patch: pytest.MonkeyPatch) -> None:
        """While the life is played: the desk's futures are strands', and the folder is what stands in it now."""
        patch.setattr(loop_tasks, "Future", lambda: Asked(self._here(self.world.current[-1])))
        patch.setattr(changing, "view_files", SimpleNamespace(load=lambda _: self._load()))

    def close(self) -> None:
        """The life is over."""
        for strand in self.strands:
            strand.process.dead = True
            strand.end()

    @staticmethod
    def _here(process: Process) -> Strand | None:
        return next((s for s in process.strands if s.here), None)

    # what a reader may see

    def _of(self, view: str, fingerprint: str) -> tuple[str, bool]:
        """What a definition is called, and whether it has no key."""
        if (view, fingerprint) not in self._known:
            for number in range(max(map(len, DEFINITIONS.values()))):
                choice = {v: number % len(ds) for v, ds in DEFINITIONS.items()}
                told = self.world.told | {"chosen": tuple(choice.items())}
                for made in project(sum(n in TABLES for n in self.world.shops), **told).compile():
                    name = called(made.name, choice[made.name]) if made.name in choice else made.name
                    self._known[made.name, made.fingerprint] = name, made.key is None
        return self._known[view, fingerprint]

    def keyless(self, view: str, fingerprint: str) -> bool:
        """Whether rows with this fingerprint have no key."""
        return self._of(view, fingerprint)[1]

    def _seen(self, sink: str, frontier: Frontier, names: Mapping[str, str], marked: Iterable[str]) -> None:
        """All are of one set, and of none that was left for good."""
        left = set(marked)
        if sink == "k":
            self.holds, self.marks = dict(names), left
        here = {name for view, name in names.items() if view in DEFINITIONS and view not in left}
        epoch, first = self.floor
        legal = self.legal[first if frontier.epoch > epoch and not self.world.wiped else 0 :]
        if not any(here <= one for one in legal):
            raise Wrong(
                f"{sink}: {sorted(here)} are of no set of views at {frontier}: {[sorted(one) for one in legal]}"
            )

    def settled(self) -> bool:
        """Whether the sinks hold what the folder says."""
        wanted: dict[str, dict[str, str]] = {"s": {}, "k": {}}
        for one in self.world.project.specs:
            for sink in one.sinks if one.name in self.folder else ():
                wanted[sink][one.name] = called(one.name, self.folder[one.name])
        store = self.world.database.store
        here = {view: self._of(view, f)[0] for view, f in filled(store).items()}
        of = (("s", here, set(store.errors)), ("k", self.holds, self.marks))
        return all(_without(wanted[s], marks) == _without(holds, marks) for s, holds, marks in of)

    # what a host does (see headrace.sidecar.process.serve)

    def resumed(self, disk: Disk) -> Project:
        """With which views a run starts. Raises StateError."""
        found = force.resumed(self.world.project, disk)[0]
        self.legal.append(_set(self._choice(found)))
        return found

    def begun(self, process: Process, with_: Project) -> None:
        """A run is there. Raises Wrong, and StateError."""
        assert process.running is not None, "it is there"
        choice = self._choice(with_)
        may_be = {_set(self.folder) if one is None else one for one in self.kept}
        if self._alone(process) and not self.world.wiped and _set(choice) not in may_be:
            raise Wrong(f"it starts with {sorted(_set(choice))}, and may with {may_be}")
        self.kept.add(_set(choice))  # a power cut may leave what was being noted
        force.note(process.running.generation, with_.specs)
        alone = Alone(lambda: self._here(process))
        self.changing[process.number] = ViewChanger(process.running, clock=lambda: self._clock(process), noting=alone)
        self._in_force(process, choice)

    def _choice(self, of: Project) -> Choice:
        names = [self._of(v.name, v.fingerprint)[0] for v in of.compile() if v.name in DEFINITIONS]
        return {view_of(name): int(name.partition("#")[2]) for name in names}

    def _alone(self, process: Process) -> bool:
        """Whether nobody else can write, or note, anything."""
        return process.number == self.world.started_count and all(p is process for p in self.world.processes)

    def _in_force(self, process: Process, choice: Choice) -> None:
        self.force[process.number] = choice
        self.legal.append(_set(choice))
        noted = self._alone(process) and process.number not in self.over
        self.kept = {_set(choice)} if noted else {*self.kept, _set(choice)}

    def ended(self, process: Process) -> None:
        """A run has drained; an `apply` that has noted its views may still be about to answer."""
        self.over.add(process.number)
        self.kept.add(None)
        with suppress(StateError):
            self.changing[process.number].end()

    # a change

    def _clock(self, process: Process) -> float:
        strand = self._here(process)
        if strand is not None and self.draw.random() < 0.5:
            strand.pause()
        return self.world.clock

    def _load(self) -> Sequence[ViewSpec]:
        """The folder is read, by the change that runs now."""
        number = self.world.current[-1].number
        old = {} if self.drop[number] else self.force[number]
        choice = {v: self.folder[v] if v in self.folder else old[v] for v in DEFINITIONS if v in {**self.folder, **old}}
        self.wanted[number] = _chained(choice)
        self.legal.append(_set(self.wanted[number]))
        self.kept.add(_set(self.wanted[number]))
        return self.world.project.specs

    def _apply(self, process: Process, *, drop: bool) -> None:
        if all(strand.done for strand in process.strands):
            self.world.trace.append(f"{process.number} is to change its views")
            self.drop[process.number] = drop
            strand = Strand(process, lambda: self._work(process, drop=drop))
            process.strands = [strand]
            self.strands.append(strand)

    def _work(self, process: Process, *, drop: bool) -> None:
        """What a thread of the control door does. Raises Wrong."""
        number = process.number
        try:
            done = self.changing[number].apply(drop=drop)
        except HeadraceError as error:
            self.ends_of[f"{error.code}: {error.what}"] += 1
            if not process.dead and error.code not in MAY_BE | process.excuses:
                raise Wrong(f"views cannot be changed: {error}") from error
            return
        self.ends_of["applied"] += 1
        self._in_force(process, self.wanted[number])
        if self._alone(process):
            shown = (f.epoch for f in self.world.judge.published.values())
            self.floor = max(done["epoch"], *shown, 0), len(self.legal) - 1

    # what befalls

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`: what changes the views waits there, and the loop goes on."""
        strand = self._here(process)
        if strand is not None and self.draw.random() < 0.5:
            strand.pause()

    def befall(self, world: World) -> None:
        """See `Fate`."""
        for strand in self.strands:
            if strand.process.dead:
                strand.end()
        self.strands = [s for s in self.strands if not s.done]
        if self.draw.random() < self.rate:
            self._change()
        for process in world.ready():
            if self.draw.random() < self.rate:
                self._apply(process, drop=self.draw.random() < 0.5)
            elif self.draw.random() < self.rate / 5:
                self.changing[process.number].cancel()
            for strand in process.strands:
                if not strand.idle and self.draw.random() < 0.7:
                    world._run(process, strand.run)

    def _change(self) -> None:
        """Somebody writes the folder anew."""
        chosen = {v: self.draw.randrange(len(ds)) for v, ds in DEFINITIONS.items() if self.draw.random() < 0.7}
        self.folder = _chained(chosen)
        self.world.trace.append(f"the folder has {sorted(_set(self.folder))}")
        self.world.tell(chosen=tuple(self.folder.items()))

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """Never."""
        return False

    def mend(self, world: World) -> None:
        """The folder is put in force."""
        if not self.settled():
            for process in world.ready():
                self._apply(process, drop=True)


def _set(choice: Choice) -> Set:
    return frozenset(called(view, number) for view, number in choice.items())


def _chained(choice: Choice) -> Choice:
    """A view over another is what that is."""
    found = {v: n for v, n in choice.items() if v != "chained"}
    return found | ({"chained": found["extra"]} if "chained" in choice and "extra" in found else {})


def _without(names: Mapping[str, str], marked: set[str]) -> dict[str, str]:
    return {view: name for view, name in names.items() if view in DEFINITIONS and view not in marked}


def drawn_changes(draw: random.Random) -> Changes | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.1, 0.4])
    return Changes(draw, rate) if rate else None
