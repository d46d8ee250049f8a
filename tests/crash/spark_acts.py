"""What the bank meets with workers on Spark: kills of executors, workers, supervisors, machines, master and driver.

Always: a life of the sidecar meets at most three losses of workers, as the fifth in ten minutes ends it by design; after each
it must run again by itself. Half of the kills, those of drivers counted, are of executors. Called by `run` with `--host spark`.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil

from headrace.sidecar.devstack.spark import EmbeddedSpark
from tests.crash.run import Play

RUNS_SECONDS = 120.0
"""Within so long a sidecar must run, or run again: a session of Spark and its executors start with it."""
WEIGHTS = {"executor": 120, "worker": 14, "supervisor": 10, "machine": 6, "master": 6, "frozen supervisor": 4}
LAST = "restarts=4"
"""What the log says before the loss that ends a sidecar by design."""


@dataclass(frozen=True)
class Life:
    """One life of a sidecar: what is hit, seconds after it runs, and when it is killed itself after the last."""

    hits: Sequence[tuple[str, float]]
    seconds: float


def lives(draw: random.Random) -> Iterator[Life]:
    """Without end."""
    while True:
        hits = draw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=draw.randint(2, 3))
        yield Life([(hit, draw.choice((0.05, draw.uniform(0.2, 2.5)))) for hit in hits], draw.uniform(0.1, 2.0))


class SparkPlay:
    """Lives over a scene whose sidecars have their workers on Spark."""

    def __init__(self, play: Play, cluster: EmbeddedSpark, draw: random.Random) -> None:
        self._play, self._scene, self._cluster, self._draw = play, play.scene, cluster, draw
        self._frozen: list[psutil.Process] = []

    def live(self, life: Life) -> None:
        """One life."""
        tally = self._play.tally
        pid = self._play.start()
        for what, after in life.hits:
            if not self._runs(pid):
                return
            time.sleep(after)
            self._scene.mark_log()
            if self._hit(what):
                tally.kills[what] += 1
        if self._runs(pid):
            time.sleep(life.seconds)
            self._play.kill(pid, "driver")

    def _runs(self, pid: int) -> bool:
        """Wait until the sidecar has said that it runs; False where it ended."""
        end = time.monotonic() + RUNS_SECONDS
        while not self._scene.says_it_runs():
            code = self._scene.nursery.ended(pid)
            if code == 1 and LAST in self._scene.tail():
                self._play.tally.exits["1 after five losses"] += 1
                return False
            if code is not None:
                self._play.ended(code)
                return False
            if time.monotonic() > end:
                self._play.tally.problems.append(f"does not run again: {self._scene.tail(1500)}")
                self._play.kill(pid, "driver, as it did not run")
                return False
            time.sleep(0.05)
        for frozen in self._frozen:  # it wakes beside the workers that took its place
            with suppress(psutil.NoSuchProcess):
                frozen.resume()
        self._frozen = []
        return True

    def _hit(self, what: str) -> bool:
        """Whether there was anything to hit; where workers live on, the sidecar's next word need not come."""
        if what == "master":
            self._cluster.restart_master(self._draw.uniform(0.0, 1.0))
            return self._says_so_or_goes_on(12.0)
        if what == "machine":
            self._cluster.restart_worker(self._draw.randrange(2), self._draw.uniform(0.0, 1.0))
            return self._says_so_or_goes_on(6.0)
        with suppress(psutil.NoSuchProcess, StopIteration, OSError, ValueError, LookupError):
            pids = [int(w["pid"]) for w in json.loads(self._scene.get("/status"))["workers"]]
            victim = psutil.Process(self._draw.choice(pids))
            if what in ("supervisor", "frozen supervisor"):
                found = victim.parent()
                assert found is not None
                victim = found
            elif what == "executor":
                victim = next(p for p in victim.parents() if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline()))
            if what.startswith("frozen"):
                victim.suspend()
                self._frozen.append(victim)
            else:
                victim.kill()
            return True
        self._scene.unmark_log()
        return False

    def _says_so_or_goes_on(self, seconds: float) -> bool:
        """What is not of this sidecar may leave it as it is."""
        end = time.monotonic() + seconds
        while not self._scene.says("event=workers_lost"):
            if time.monotonic() > end:
                self._scene.unmark_log()
                break
            time.sleep(0.05)
        return True
