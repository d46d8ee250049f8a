"""`python -m tests.crash.soak --hours H`: the bank without faults for hours, audited all the while; is anything growing?

Always: a sidecar of its own process, transfers and random DML without end, a reader of each sink, and `headrace audit` again and
again against the source's own answers. The bank keeps the newest entries of its ledger alone, so that there is not ever more to
arrange. Every few seconds the sidecar's memory (mapped files apart), files and threads are sampled. The first fifth of a run
warms up; afterwards they must be flat: the line through their samples may rise by no more than `MAY_RISE` says over the rest of
the run. What is kept up to a bound (the changes for `tail`, what the reclock log knows of its last epochs) should have reached it
by then: little is kept for `tail`, and `RATE` transactions a second are asked for.
Called by `make soak`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headrace.sidecar.devstack.processes import Child, spawn
from tests.crash.bank import Writer
from tests.crash.counts import write
from tests.crash.run import Play
from tests.crash.scene import Scene, tell
from tests.crash.watch import BusWatch, WarehouseWatch

WARM_UP = 0.2
"""The part of a run that is not judged."""
MAY_RISE = {"memory_mib": 0.1, "files": 0.02, "threads": 0.0}
"""By how much of its median a line may rise; a whole file or thread more is allowed, and 8 MiB."""
AT_LEAST = {"memory_mib": 8.0, "files": 1.5, "threads": 1.0}
KEPT = 240
"""Samples that are kept for the picture."""
WORKS, RESTS = 15.0, 5.0
"""Seconds of writing, and of rest: an audit settles only where a frontier stays for as long as it reads."""

RATE = 200.0
HISTORY_MIB = 1
ENTRIES = 5000

Sample = dict[str, float]


def sample(pid: int, since: float) -> Sample:
    """What a process has now: seconds since `since`, MiB of anonymous memory, open files, threads."""
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    memory = int(told["RssAnon"].split()[0]) / 1024
    return {
        "at": round(time.monotonic() - since, 1), "memory_mib": round(memory, 1),
        "files": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(told["Threads"]),
    }  # fmt: skip


def rises(samples: Sequence[Sample]) -> dict[str, float]:
    """By how much each figure's line (least squares, after the warm-up) rises from its begin to its end."""
    judged = [s for s in samples if s["at"] >= WARM_UP * samples[-1]["at"]]
    at = np.array([s["at"] for s in judged])
    span = float(at[-1] - at[0]) or 1.0
    return {name: float(np.polyfit(at, [s[name] for s in judged], 1)[0]) * span for name in MAY_RISE}


def grown(samples: Sequence[Sample]) -> list[str]:
    """What is not flat, in words."""
    out = []
    for name, rise in rises(samples).items():
        median = float(np.median([s[name] for s in samples]))
        if rise > max(AT_LEAST[name], MAY_RISE[name] * median):
            out.append(f"{name} rose by {rise:.1f} from a median of {median:.1f}")
    return out


def thinned(samples: Sequence[Sample]) -> list[Sample]:
    """So many of them that a picture needs, the last among them."""
    step = max(1, len(samples) // KEPT)
    return [*samples[:-1:step], samples[-1]]


class Soak:
    """A run. `audits`: rounds of the audit; `mismatches`: rows that were wrong."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.samples: list[Sample] = []
        self.audits = self.mismatches = self.unsettled = 0
        self._read = 0

    def audit(self) -> Child:
        """`headrace audit` in a process of its own, without end."""
        command = [sys.executable, "-m", "headrace.sidecar.cli.app", "audit", "--config", str(self.scene.config), "--from",
                   self.scene.source_url, "--every", "2", "--json"]  # fmt: skip
        return spawn("audit", command, self.scene.folder / "audit.log", environment=dict(os.environ))

    def read(self) -> None:
        """Take in what the audit has said since the last time."""
        with (self.scene.folder / "audit.log").open() as log:
            log.seek(self._read)
            for line in iter(log.readline, ""):
                if not line.endswith("\n"):
                    break
                self._read = log.tell()
                if line.startswith("{"):
                    body = json.loads(line)
                    self.audits += 1
                    self.mismatches += body.get("mismatches", 0)
                    self.unsettled += sum(v["state"] == "unsettled" for v in body.get("views", ()))

    def go(self, pid: int, audit: Child, seconds: float, every: float) -> None:
        """Sample until the time is over. Raises where a process has ended."""
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            time.sleep(every)
            assert self.scene.nursery.ended(pid) is None, f"the sidecar ended: {self.scene.tail()}"
            audit.check_alive()
            self.samples.append(sample(pid, begun))
            self.read()


def run(
    seconds: float, folder: Path, *, seed: int = 3, rate: float = RATE, every: float = 5.0
) -> tuple[str, list[str]]:
    """The whole of it: (the last line, what was wrong)."""
    scene = Scene(folder, history_mib=HISTORY_MIB)
    try:
        scene.start(seed)
        writer = Writer(scene.source_url, seed, rate, works=WORKS, rests=RESTS, keeps=ENTRIES)
        warehouse = WarehouseWatch(scene.sink_url)
        writer.start()
        warehouse.start()
        pid = Play(scene).last()
        bus = BusWatch(scene.stack.kafka.bootstrap, "views.")
        bus.start()
        soak = Soak(scene)
        audit = soak.audit()
        try:
            soak.go(pid, audit, seconds, every)
        finally:
            audit.stop(30)
        writer.stop()
        verdict = scene.compare(bus)
        warehouse.stop()
        code = scene.nursery.stop(pid, 60)
        faults = [*warehouse.faults.told[:5], *bus.faults.told[:5]]
        problems = [*grown(soak.samples), *verdict.differences, *faults]
        problems += [f"the audit found {soak.mismatches} wrong rows"] if soak.mismatches else []
        problems += ["no round of the audit was made"] if not soak.audits else []
        problems += [f"SIGTERM ended the sidecar with {code}"] if code != 0 else []
        facts = {"minutes": round(seconds / 60), "transactions": writer.done, "frontiers": warehouse.frontiers + bus.frontiers,
                 "audits": soak.audits, "mismatches": soak.mismatches, "unsettled": soak.unsettled,
                 "problems": len(problems)}  # fmt: skip
        levels = {name: round(float(np.median([s[name] for s in soak.samples])), 1) for name in MAY_RISE}
        risen = {name: round(rise, 2) for name, rise in rises(soak.samples).items()}
        write("soak", {**facts, "medians": levels, "rises": risen, "samples": thinned(soak.samples)})
        line = " ".join(f"{k}={v}" for k, v in {**facts, **levels}.items())
        return f"soak: {'failed' if problems else 'flat'} {line}", problems
    finally:
        scene.close()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--rate", type=float, default=RATE, help="transactions a second")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two samples")
    parser.add_argument("--folder", type=Path, help="kept afterwards; a temporary one where none is named")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-soak-") as fresh:
        folder = asked.folder or Path(fresh)
        line, problems = run(3600 * asked.hours, folder, seed=asked.seed, rate=asked.rate, every=asked.every)
    tell(line, problems)


if __name__ == "__main__":
    main()
