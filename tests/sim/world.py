"""One simulated life of sidecars, from a seed: a scheduler on one thread lets sources, sidecars, their threads' work and faults
happen in an order that the seed draws, and a judge looks at everything that is published.

Always: the same seed plays the same life. Nothing here waits, sleeps, or touches a file, but for what spills (see limits). One
class: every fault, actor and judge acts on the one world.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from headrace.connectors.dead_letters import MemoryDeadLetterQueue
from headrace.engine.errors import HeadraceError
from headrace.sidecar.state.generation import open_generation
from tests.sim.broker import Broker
from tests.sim.database import Database, become, copy_of
from tests.sim.declared import STATE, project
from tests.sim.disk import Disk
from tests.sim.doubles import in_place
from tests.sim.fates import drawn
from tests.sim.limits import Limits
from tests.sim.oracle import Judge, KafkaReader, Wrong, unheld
from tests.sim.process import Killed, Process
from tests.sim.rates import Rates
from tests.sim.shop import TABLES, Shop

if TYPE_CHECKING:
    from tests.sim.changes import Changes


class World:
    """Everything that outlives a process, and who runs now. `failed`: what was wrong, once something was. Not `fated`: the same
    life with faults alone."""

    def __init__(self, seed: int, steps: int = 60, *, fated: bool = True) -> None:
        self.seed, self.steps, self.draw = seed, steps, random.Random(seed)
        self.rates, self.limits = Rates.drawn(self.draw), Limits.drawn(self.draw)
        self.broker, self.database, self.disk = Broker(), Database(), Disk()
        self.clock = 1000.0
        self.flying: list[Callable[[], None]] = []
        self.processes: list[Process] = []
        self.current: list[Process] = []
        self.started_count = 0
        self.faulty = True
        self.failed: BaseException | None = None
        self.trace: list[str] = []
        self.safe = 0
        self.wiped = self.hopeless = False
        self.troubled: set[str] = set()
        self.backups: list[Any] = []
        self.letters = MemoryDeadLetterQueue()
        self.counts = dict.fromkeys(("kills", "power cuts", "lost", "zombies", "starts", "doors"), 0)
        sources = self.draw.choice([1, 1, 2])
        self.shops = {n: Shop(n, self.broker, self.draw) for n in list(TABLES)[:sources]}
        self.told: dict[str, Any] = {}
        self.tell()
        self.judge = Judge(self.shops)
        self.lettered = True
        self.host: Changes | None = None
        self.patches: list[Callable[[pytest.MonkeyPatch], None]] = []
        self.settled: list[Callable[[], bool]] = []
        self.fates = drawn(seed) if fated else []
        for fate in self.fates:
            fate.begin(self)
        found = {v.name: v.key is None for v in self.project.compile()}
        keyless = self.host.keyless if self.host is not None else lambda view, _: found[view]
        self.reader = KafkaReader(self.broker, self.judge, "k", "out.", keyless)
        self.database.watch = lambda written: self._judged(lambda: self.judge.database("s", written))

    def tell(self, **more: Any) -> None:
        """From the next start on this is configured too."""
        self.told |= more
        self.project = project(sum(name in TABLES for name in self.shops), **self.told)

    # what processes meet

    def _judged(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Wrong as wrong:
            self._fail(wrong)
            raise Killed from None

    def _fail(self, failure: BaseException) -> None:
        self.failed = self.failed or failure
        for process in self.processes:
            process.dead = True

    def at_door(self, process: Process, name: str) -> None:
        """A process is about to do something to the outside: what else happens first?"""
        self.counts["doors"] += 1
        self.trace.append(f"{process.number} {name}")
        if not self.faulty or self.failed is not None:
            return
        for fate in self.fates:
            fate.at_door(self, process)
        if not self.faulty:
            return  # it stood here until the end had begun
        draw, rates = self.draw, self.rates
        chance = draw.random()
        at_point = name == rates.point and draw.random() < rates.eager
        now = draw.choice(("kill", "power", "nested", "zombie")) if at_point else ""
        if now == "kill" or chance < rates.kill:
            self._kill(process)
        elif now == "power" or chance < rates.kill + rates.power:
            self._cut_power()
        elif (now == "nested" or draw.random() < rates.nested) and len(self.current) < 4:
            self._meanwhile(process)
        elif (now == "zombie" or draw.random() < rates.zombie) and len(self.current) < 3 and len(self._alive()) < 2:
            self.counts["zombies"] += 1
            self._start()
            for _ in range(draw.randrange(6)):
                self._step()

    def _meanwhile(self, process: Process) -> None:
        """Something else runs while `process` stands at a door."""
        others = [
            p for p in self._alive() if p is not process and not p.building and not p.turning and p not in self.current
        ]
        if others and self.draw.random() < 0.3:
            self._turn(others[0])
        elif self.draw.random() < 0.5 and process.running is not None:
            self._run(process, lambda: process.work())
        else:
            self._outside()

    def lost(self, process: Process, name: str) -> str:
        """What of a call to a server is lost."""
        if not self.faulty or self.draw.random() >= self.rates.lost:
            return ""
        self.counts["lost"] += 1
        process.excuses |= {"sink", "source"}
        return self.draw.choice(["request", "answer", "late"])

    def pass_time(self, seconds: float) -> None:
        """Time goes on, and what is on its way arrives."""
        self.clock += seconds
        while self.flying:
            self.flying.pop(0)()
        for name in sorted(self.broker.producers):
            if not self.faulty or self.draw.random() >= self.rates.slow:
                self.broker.settle(self.broker.producers[name], self.draw.choice([1, None]) if self.faulty else None)
        if not self.faulty:
            self._mend()

    def _mend(self) -> None:
        self.broker.up = self.database.up = True
        self.disk.full = False

    # what the scheduler does

    def _alive(self) -> list[Process]:
        self.processes = [p for p in self.processes if not p.dead]
        return self.processes

    def _kill(self, process: Process) -> None:
        self.counts["kills"] += 1
        self.trace.append(f"{process.number} killed")
        process.dead = True
        self.database.settle(self.draw.random() < 0.5)

    def _cut_power(self) -> None:
        self.counts["power cuts"] += 1
        self.trace.append("power cut")
        for process in self._alive():
            process.dead = True
        self.disk.forget(self.draw)

    def _start(self) -> None:
        self.counts["starts"] += 1
        for older in self._alive():
            # the last for a log that it would trim: this one may sweep it
            older.excuses |= {"fenced", "sink", "state", "checkpoint", "reclock"}
        self.started_count += 1
        process = Process(self, self.started_count)
        if self._alive():
            # an older one that looks for a successor just before that one says so takes its producer over, and both end
            process.excuses |= {"fenced"}
        if not self.broker.up or not self.database.up:
            process.excuses |= {"sink", "source"}
        if self.disk.full:
            process.excuses |= {"state", "checkpoint", "reclock"}
        self.processes.append(process)
        self._run(process, process.start)

    def _run(self, process: Process, what: Callable[[], Any]) -> None:
        """Let a process do something; it may end by that."""
        self.current.append(process)
        try:
            what()
        except Killed:
            pass
        except HeadraceError as error:
            self.trace.append(f"{process.number} ends: {error.code}")
            if not process.dead and error.code not in process.excuses:
                causes = {fate.ends(self, process, error) for fate in self.fates}
                self.hopeless |= True in causes
                if causes <= {False}:
                    self._fail(error)
            process.dead = True
        except BaseException as error:
            if not process.dead:
                self._fail(error)
            process.dead = True
        finally:
            self._note_trouble()
            self.current.pop()
        for detachment in (writer.detachment for writer in process.writers if writer.detachment is not None):
            if not process.dead and detachment.error.code not in process.excuses:
                self._fail(detachment.error)
        if self.failed is None:
            self._judged_quietly()

    def _judged_quietly(self) -> None:
        try:
            self.reader.look()
        except Wrong as wrong:
            self._fail(wrong)

    def started(self, process: Process) -> None:
        """A process has recovered: from the last checkpoint that was told complete, and without doubting a sink that was
        never in trouble. Raises Wrong."""
        assert process.running is not None, "it has recovered"
        found = process.running.runtime
        if self.wiped or process.number != self.started_count:
            return  # one that another has overtaken while it began is fenced, and has what it had then
        if found.epoch < self.safe:
            raise Wrong(f"it recovers at epoch {found.epoch}, and the checkpoint of epoch {self.safe} was complete")
        if found.hold and "s" not in self.judge.forgiven:
            raise Wrong(f"a sink holds what the log does not know: {found.hold}")
        self._note_trouble()
        doubted = {name for name, everything in process.doubts.items() if everything} - self.troubled
        if doubted:
            raise Wrong(f"{doubted} are given everything again after a restart, and were never in trouble")

    def _note_trouble(self) -> None:
        """Also of those that stand at a door while others start."""
        self.troubled |= {
            g.name for p in (*self.processes, *self.current) for g in p.writers if g.detachment is not None
        }

    def committed(self, process: Process, positions: Mapping[str, Mapping[int, int]]) -> None:
        """Offsets are committed: a manifest that survives must hold them."""
        assert process.running is not None, "only a running one commits"
        number = process.running.runtime.parts.generation
        if wrong := unheld(self.disk.kept(open_generation(STATE, number).manifest), positions):
            self._fail(Wrong(wrong))
            raise Killed

    def _turn(self, process: Process) -> None:
        self.clock += self.draw.random()
        self._run(process, process.turn)
        newest = max((p.running.generation.number for p in self.processes if p.running is not None), default=0)
        last = process.number == self.started_count  # the run before it may yet have begun after it
        if last and process.running is not None and process.running.generation.number == newest:
            self.safe = max(self.safe, process.running.runtime.checkpoints.epoch)

    def _befall(self) -> None:
        """What an operator may do to us: the state folder is lost, the database goes back to a backup."""
        if not self._alive() and (self.draw.random() < self.rates.wipe or self.hopeless):
            self._wipe()
        if self.rates.restore and self.draw.random() < 0.2:
            self.backups.append(copy_of(self.database.store))
        if self.backups and self.draw.random() < self.rates.restore:
            self.database.flying = None
            become(self.database.store, copy_of(self.draw.choice(self.backups)))
            self.troubled.add("s")
            self.judge.restored("s", self.database.store.frontier)
            for process in self._alive():
                process.excuses |= {"sink", "fenced"}

    def _wipe(self) -> None:
        """The state folder is lost, or emptied, as an error has told the operator to (`hopeless`)."""
        self.hopeless = False
        if self.disk.find(STATE) is not None:
            self.disk.folder(STATE.parent).change(STATE.name, None)
            self.disk.sync_all()
            self.wiped = True
            self.judge.emptied(self.database.store.frontier)

    def _outside(self) -> None:
        """Something happens where no sidecar is."""
        shop = self.draw.choice(list(self.shops.values()))
        match self.draw.randrange(6):
            case 0 | 1:
                shop.transact()
            case 2 | 3 | 4:
                shop.show(self.draw.choice([1, 3, 20]))
            case _:
                name = self.draw.choice(sorted(self.broker.producers) or [""])
                if name and self.draw.random() >= self.rates.slow:
                    self.broker.settle(self.broker.producers[name], self.draw.choice([1, None]))
                elif self.flying:
                    self.flying.pop(0)()
                with suppress(Killed):
                    self.database.settle(self.draw.random() < 0.5)
        if self.draw.random() < self.rates.crash:
            shop.crash()

    def _step(self) -> None:
        """One step of the scheduler."""
        draw, rates = self.draw, self.rates
        if draw.random() < rates.down:
            self.broker.up, self.database.up = draw.random() < 0.5, draw.random() < 0.5
            for process in self._alive():
                process.excuses |= {"sink", "source"}
        elif draw.random() < 0.3:
            self.broker.up = self.database.up = True
        if draw.random() < rates.full:
            self.disk.full = True
            for process in self._alive():
                process.excuses |= {"state", "checkpoint", "reclock"}
        elif draw.random() < 0.3:
            self.disk.full = False
        self._outside()
        self._befall()
        for fate in self.fates:
            fate.befall(self)
        ready = self.ready()
        if not self._alive():
            self._start()
        elif ready:
            process = draw.choice(ready)
            if draw.random() < rates.stop:
                self.end(process)
            elif draw.random() < 0.6:
                self._turn(process)
            else:
                self._run(process, process.work)

    def ready(self) -> list[Process]:
        """Who could turn now."""
        return [p for p in self._alive() if not p.building and p not in self.current]

    def end(self, process: Process) -> None:
        """SIGTERM, between two turns."""
        self._run(process, process.stop)

    def live(self) -> None:
        """The whole life, and its end: everything arrives, nothing fails any more, and the sinks must catch up. Raises
        what was wrong."""
        with in_place(self):
            for shop in self.shops.values():
                shop.fill()
                shop.snapshot()
                for _ in range(self.draw.choice([0, 0, 1, 2])):
                    shop.begin_again()
            for _ in range(self.steps):
                self._step()
                self._raise()
            self._finish()

    def _raise(self) -> None:
        if self.failed is not None:
            raise self.failed

    def _finish(self) -> None:
        self.faulty = False
        self._mend()
        for shop in self.shops.values():
            shop.transact()
            shop.show_all()
        for _ in range(400):
            self.pass_time(5.0)
            for fate in self.fates:
                fate.mend(self)
            if not self._alive():
                if self.hopeless:
                    self._wipe()
                self._start()
            for process in list(self._alive()):
                self._turn(process)
                for _ in range(20):
                    if not process.dead:
                        self._run(process, process.work)
            self._raise()
            if self._caught_up():
                break
        else:
            raise Wrong(f"the sinks do not catch up: {self.judge.published} {self._why()}")
        for process in self._alive():
            self._run(process, process.stop)
        self._raise()
        self._start()
        for process in self._alive():
            self._turn(process)
        self._raise()
        if not self._caught_up():
            raise Wrong("a restart loses what the sinks held")
        if letters := {letter.id for letter in self.letters.read()} ^ (self.undecodable() if self.lettered else set()):
            raise Wrong(f"{letters} became dead letters, or did not")

    def undecodable(self) -> set[str]:
        """The places of all records that nobody can decode."""
        return set[str]().union(*(shop.undecodable() for shop in self.shops.values()))

    def _why(self) -> str:
        found = [p.running.runtime.waiting() for p in self._alive() if p.running is not None]
        return str(found)

    def _caught_up(self) -> bool:
        ends = tuple(s.lsn for s in self.shops.values())
        last = all(ends in self.judge.stands.get(s, ()) for s in ("s", "k"))
        return last and not any(self.judge.standing.values()) and all(settled() for settled in self.settled)
