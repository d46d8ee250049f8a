"""`python -m tests.crash.run --kills N --seed S`: the bank under kills, cuts and stalls; says in its last line how it went.

Always: the seed decides what is done in which order (not when the machine gets there); exit code 0 only if nothing was lost,
doubled or torn, both sinks equal the source's SQL at the end, and no sidecar ended for a reason of its own. Called by
`make crash` and by a test, which runs a short one.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headrace.sidecar.wiring.failpoints import STEPS, VARIABLE
from tests.crash.bank import Faults, Writer
from tests.crash.counts import write
from tests.crash.proxy import Fault, commits, kafka_request
from tests.crash.scene import PATIENCE, Scene
from tests.crash.watch import BusWatch, WarehouseWatch

SIGKILL = -9
UNREACHED = {"reclock trimmed", "reclock replaced"}
"""Steps that a run of minutes does not come to: the log is trimmed once it has 32 MB."""
ONCE = {s for s in STEPS if s.startswith("generation") or "claim" in s or s == "kafka fenced"}
"""Steps that a life comes to once."""
REACH_SECONDS, START_SECONDS, STILL_SECONDS = 8.0, 60.0, 30.0
"""How long a step is waited for once a sidecar runs; how long that may take; how long nothing new may be published."""
SERVERS = ("warehouse", "postgres", "kafka", "connect")
CUTS = {"to_sink": commits, "to_kafka": kafka_request(0, 22, 24, 26), "to_source": lambda _: True}


@dataclass(frozen=True)
class Act:
    """One life of a sidecar: how it ends, and what happens to one of its connections after a while.

    `steps`: failpoints, each a life of its own, one right after the other. `early`: killed `seconds` after its start, not
    after it says that it runs. `server`: killed while it lives.
    """

    steps: tuple[str, ...] = ()
    seconds: float = 0.0
    cut: tuple[str, Fault] | None = None
    cut_after: float = 0.0
    early: bool = False
    server: str = ""


NOTHING = Act()


def play(draw: random.Random, *, servers: bool, names: Sequence[str] = SERVERS) -> Iterator[Act]:
    """What to do, without end: every step alone, twice in a row and after another, and random moments."""
    steps = [s for s in STEPS if s not in UNREACHED]
    queue: list[tuple[str, ...]] = []
    while True:
        if not queue:
            alone, twice = [(s,) for s in steps], [(s, s) for s in steps]
            mixed = [(draw.choice(steps), draw.choice(steps[:5] + steps[16:])) for _ in steps]
            queue = alone + twice + mixed
            draw.shuffle(queue)
        roll = draw.random()
        cut = (draw.choice(sorted(CUTS)), draw.choice(list(Fault))) if draw.random() < 0.5 else None
        after = draw.choice((0.0, draw.uniform(0.3, 2.0)))
        if roll < 0.55:
            chosen = tuple(f"{s}:{1 if s in ONCE else draw.randint(1, 4)}" for s in queue.pop())
            yield Act(chosen, cut=cut, cut_after=after)
        elif roll < 0.94 or not servers:
            early = draw.random() < 0.3
            yield Act(seconds=draw.uniform(0.05, 1.0 if early else 2.0), cut=cut, cut_after=after, early=early)
        else:
            yield Act(seconds=draw.uniform(0.5, 2.0), server=draw.choice(names))


@dataclass
class Tally:
    """What was done and found."""

    kills: Counter[str] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Play:
    """A run of acts over a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.tally = scene, Tally()
        self._excused = 0.0

    def life(self, act: Act) -> None:
        """One act."""
        if not act.steps:
            self._random(act)
        for step in act.steps:
            self._until(step, act)
        for proxy in (self.scene.to_sink, self.scene.to_kafka, self.scene.to_source):
            proxy.disarm()

    def _arm(self, act: Act) -> None:
        if act.cut is not None:
            way, fault = act.cut
            getattr(self.scene, way).arm(fault, CUTS[way], 0.7)
            self._excuse()

    def _excuse(self) -> None:
        """From now on, for a while, a sidecar may end because it reaches nobody."""
        self._excused = time.monotonic() + 60

    def start(self, failpoint: str = "") -> int:
        """A sidecar's process id."""
        environment = {VARIABLE: failpoint}
        self.scene.mark_log()
        return self.scene.nursery.start(self.scene.config, self.scene.log, environment)

    def _random(self, act: Act) -> None:
        pid = self.start()
        self._live(pid, act.seconds, act)
        if act.server:
            self._excuse()
            self.scene.kill_server(act.server, 0.3)
            self.tally.kills[act.server] += 1
            self._live(pid, act.seconds)
        self.kill(pid, "sidecar")

    def _live(self, pid: int, seconds: float, act: Act = NOTHING) -> None:
        begin, armed = time.monotonic(), False
        running = begin if act.early or act is NOTHING else 0.0
        while self.scene.nursery.ended(pid) is None and time.monotonic() < (running or begin + START_SECONDS) + seconds:
            if not running and self.scene.says_it_runs():
                running = time.monotonic()
            if not armed and time.monotonic() >= begin + act.cut_after:
                armed = True
                self._arm(act)
            time.sleep(0.01)

    def kill(self, pid: int, what: str) -> None:
        """End it, unless it has ended by itself, and count it."""
        code = self.scene.nursery.ended(pid)
        if code is None:
            self.scene.nursery.kill(pid)
            self.tally.kills[what] += 1
        elif code == SIGKILL:
            self.tally.kills[what] += 1
        else:
            self.ended(code)

    def ended(self, code: int) -> None:
        """It ended by itself: a problem, unless it could reach nobody."""
        excused = time.monotonic() < self._excused and code == 5
        self.tally.exits[f"{code}{'' if excused else ' by itself'}"] += 1
        if not excused:
            self.tally.problems.append(f"a sidecar ended with {code}: {self.scene.tail(1500)}")

    def _until(self, step: str, act: Act) -> None:
        pid = self.start(step)
        self._live(pid, REACH_SECONDS, act)
        code = self.scene.nursery.ended(pid)
        if code == SIGKILL:
            self.tally.kills[f"at {step.partition(':')[0]}"] += 1
        else:
            self.kill(pid, "sidecar, not at its step")
            self.tally.exits[f"did not come to {step}"] += 1

    def calm(self, moved: Callable[[], bool]) -> None:
        """A life without faults until `moved`."""
        pid, end = self.start(), time.monotonic() + PATIENCE
        while not moved():
            self.scene.mend_connector()
            code = self.scene.nursery.ended(pid)
            if code is not None:
                self.ended(code)
                pid = self.start()
            assert time.monotonic() < end, f"nothing is published any more: {self.scene.tail()}"
            time.sleep(0.05)
        self.kill(pid, "sidecar")

    def last(self) -> int:
        """A sidecar without faults, caught up: its process id."""
        end = time.monotonic() + PATIENCE
        while True:
            pid = self.start()
            while self.scene.nursery.ended(pid) is None:
                self.scene.mend_connector()
                if self.scene.ready():
                    return pid
                assert time.monotonic() < end, f"the last sidecar does not become ready: {self.scene.tail()}"
                time.sleep(0.1)
            self.ended(self.scene.nursery.ended(pid) or 0)
            assert time.monotonic() < end, f"no sidecar stays: {self.scene.tail()}"


def run(
    kills: int, seed: int, folder: Path, *, servers: bool = True, rate: float = 40.0, seconds: float = float("inf"),
    sources: int = 1, host: str = "local", intake: str = "driver",
) -> tuple[str, list[str]]:  # fmt: skip
    """The whole of it, or as much as `seconds` allow: (the last line, what was wrong)."""
    began = time.monotonic()
    scene = Scene(folder, sources, host=host, intake=intake)
    try:
        scene.start(seed)
        play_ = Play(scene)
        tally = play_.tally
        writers = [Writer(url, seed + 1 + n, rate / sources) for n, url in enumerate(scene.source_urls.values())]
        for writer in writers:
            writer.start()
        warehouse = WarehouseWatch(scene.sink_url, scene.halves)
        warehouse.start()
        first = play_.last()
        bus = BusWatch(scene.stack.kafka.bootstrap, "views.", scene.halves)
        bus.start()
        play_.kill(first, "sidecar")
        draw = random.Random(seed + 2)
        for number, live in enumerate(_lives(play_, draw, servers=servers, sources=sources), 1):
            if tally.kills.total() >= kills or time.monotonic() - began > seconds:
                break
            if sys.stderr.isatty() or number % 10 == 0:
                done = sum(w.done for w in writers)
                seen = f"{warehouse.frontiers + bus.frontiers} frontiers, {done} transactions"
                print(f"{time.monotonic() - began:6.0f} s  {tally.kills.total()} kills, {seen}", file=sys.stderr)
            live()
            if warehouse.still_for > STILL_SECONDS:
                before = warehouse.frontiers
                # a checkpoint too: else what waits grows from life to life, until none is long enough to take it in
                play_.calm(lambda b=before: warehouse.frontiers > b and scene.says("event=checkpoint"))  # type: ignore[misc]
        for writer in writers:
            writer.stop()
        pid = play_.last()
        verdict = scene.compare(bus)
        warehouse.stop()
        leaks = scene.leaks()
        code = scene.nursery.stop(pid, 60)
        problems = [*tally.problems, *leaks, *verdict.differences, *warehouse.faults.told[:5], *bus.faults.told[:5]]
        if code != 0:
            problems.append(f"SIGTERM ended the last sidecar with {code}: {scene.tail(1500)}")
        if "Traceback" in scene.log.read_text():
            problems.append("a bare exception: see the log")
        faults = [warehouse.faults, bus.faults]
        return _line(tally, seed, writers, warehouse, bus, faults, problems, scene, time.monotonic() - began), problems
    finally:
        scene.close()


def _lives(play_: Play, draw: random.Random, *, servers: bool, sources: int) -> Iterator[Callable[[], None]]:
    """What to do, without end."""
    if play_.scene.spark is not None:
        from tests.crash.spark_acts import SparkPlay, lives

        with_spark = SparkPlay(play_, play_.scene.spark, draw)
        yield from (partial(with_spark.live, life) for life in lives(draw))
        return
    names = SERVERS if sources == 1 else (*SERVERS, "second")
    yield from (partial(play_.life, act) for act in play(draw, servers=servers, names=names))


def _line(
    tally: Tally, seed: int, writers: Sequence[Writer], warehouse: WarehouseWatch, bus: BusWatch, faults: list[Faults],
    problems: list[str], scene: Scene, seconds: float,
) -> str:  # fmt: skip
    met = Counter(
        {f.name.lower(): sum(p.met[f] for p in (scene.to_sink, scene.to_kafka, scene.to_source)) for f in Fault}
    )
    facts: dict[str, int] = {
        "kills": tally.kills.total(),
        "at_steps": sum(n for k, n in tally.kills.items() if k.startswith("at ")),
        "steps": sum(1 for k in tally.kills if k.startswith("at ")),
        "servers": sum(tally.kills[s] for s in (*SERVERS, "second")),
        "cuts": met["request"] + met["reply"], "stalls": met["stall"],
        "transactions": sum(w.done for w in writers), "frontiers": warehouse.frontiers + bus.frontiers,
        "lost": sum(f.lost for f in faults), "doubled": sum(f.doubled for f in faults),
        "torn": sum(f.torn for f in faults), "problems": len(problems), "seconds": round(seconds),
    }  # fmt: skip
    if scene.spark is not None:
        facts["executors"] = tally.kills["executor"]
    name = "crash_spark" if scene.spark is not None else "crash" if len(writers) == 1 else "crash2"
    write(
        f"{name}_shards" if scene.intake == "shards" else name,
        {"seed": seed, **facts, "kills_by_kind": dict(sorted(tally.kills.items())), "exits": dict(tally.exits)},
    )
    state = "failed" if problems or facts["lost"] or facts["doubled"] or facts["torn"] else "ok"
    return f"crash: {state} seed={seed} " + " ".join(f"{k}={v}" for k, v in facts.items())


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.run", description=__doc__)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--rate", type=float, default=40.0, help="transactions a second")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no act after so long")
    parser.add_argument(
        "--sources", type=int, choices=(1, 2), default=1, help="2: two banks, and a view that joins them"
    )
    parser.add_argument("--host", choices=("local", "spark"), default="local", help="where the sidecars' workers run")
    parser.add_argument(
        "--intake", choices=("driver", "shards"), default="driver", help="shards: two workers read the topics"
    )
    parser.add_argument("--folder", type=Path, help="kept afterwards; a temporary one where none is named")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-crash-") as fresh:
        folder = asked.folder or Path(fresh)
        line, problems = run(
            asked.kills, asked.seed, folder, rate=asked.rate, seconds=60 * asked.minutes, sources=asked.sources,
            host=asked.host, intake=asked.intake,
        )  # fmt: skip
    for problem in problems:
        print(problem, file=sys.stderr)
    print(line)
    sys.exit(0 if line.startswith("crash: ok") else 1)


if __name__ == "__main__":
    main()
