"""`python -m tests.crash.fence --seconds S`: old sidecars frozen in the middle of what they do, a new one beside them, and then
the old ones go on.

Always: each old one is frozen by SIGSTOP exactly at a durable step, and the next one started while it is frozen; after `seconds`
in which the newest writes, that one is frozen too, at a moment at which it has nothing open, so that whatever changes in a
sink or in the state folder while an old one goes on was written by the old one. Each must end by itself with the named error of
fencing. Called by `make fence` and by a test, which runs a short one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from psycopg import sql

from headrace.sidecar.cli.errors import EXIT_CODES
from headrace.sidecar.wiring.failpoints import VARIABLE
from tests.crash.bank import VIEWS, Writer
from tests.crash.counts import write
from tests.crash.scene import PATIENCE, Scene, tell
from tests.crash.watch import BusWatch, WarehouseWatch

STEPS = (
    "postgres write", "postgres moved", "postgres applied", "postgres committed", "kafka begun", "kafka sent", "kafka flushed",
    "kafka committed", "reclock append", "reclock written", "batch written", "manifest written", "manifest named",
    "checkpoint swept", "offsets committed",
)  # fmt: skip
"""Where old ones are frozen: in the middle of each of the writes that a successor must not see."""
ENDS_SECONDS = 60.0
"""How long an old one may take to find out."""

State = Mapping[str, object]


@dataclass
class Old:
    """A frozen sidecar: where, and its generation's folder."""

    pid: int
    step: str
    folder: Path


class Fence:
    """The play. `problems`: what was wrong; `ended`: how each old one ended, by step."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.problems: list[str] = []
        self.ended: dict[str, str] = {}
        self._topics = [f"views.{name}" for name in VIEWS] + ["views.frontier"]
        self._admin = AdminClient({"bootstrap.servers": scene.stack.kafka.bootstrap})

    def freeze(self, step: str, warehouse: WarehouseWatch) -> Old:
        """A sidecar that freezes at a step, some writes after its start."""
        count = 1 if "manifest" in step or "checkpoint" in step or "offsets" in step else 3
        self.scene.mark_log()
        quiet = self.scene.folder / "old.yaml"  # a frozen one keeps its HTTP port, as it would on another machine
        quiet.write_text(json.dumps({**json.loads(self.scene.config.read_text()), "http": None}))
        pid = self.scene.nursery.start(quiet, self.scene.log, {VARIABLE: f"{step}:{count}:stop"})
        end = time.monotonic() + PATIENCE
        while stat(pid) != "T":
            assert self.scene.nursery.ended(pid) is None, f"ended before {step}: {self.scene.tail()}"
            assert time.monotonic() < end, (
                f"{step} is not reached ({warehouse.frontiers} frontiers): {self.scene.tail()}"
            )
            time.sleep(0.02)
        return Old(pid, step, max((self.scene.folder / "state" / "generations").iterdir()))

    def fresh(self) -> int:
        """The newest sidecar, caught up."""
        pid = self.scene.nursery.start(self.scene.config, self.scene.log, {VARIABLE: ""})
        end = time.monotonic() + PATIENCE
        while not self.scene.ready():
            assert self.scene.nursery.ended(pid) is None, f"the newest ended: {self.scene.tail()}"
            assert time.monotonic() < end, f"the newest does not become ready: {self.scene.tail()}"
            time.sleep(0.05)
        return pid

    def hold(self, pid: int) -> None:
        """Freeze the newest where no transaction of its is open, in neither sink."""
        end = time.monotonic() + PATIENCE
        while True:
            os.kill(pid, signal.SIGSTOP)
            while stat(pid) != "T":
                time.sleep(0.001)
            time.sleep(0.05)  # what it had sent is answered
            if not self._open():
                return
            os.kill(pid, signal.SIGCONT)
            assert time.monotonic() < end, "the newest is never without a transaction"
            time.sleep(0.02)

    def _open(self) -> bool:
        with psycopg.connect(self.scene.sink_url) as db:
            busy = db.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
                "and application_name like 'headrace%' and (xact_start is not null or state <> 'idle')"
            ).fetchone()
        assert busy is not None, "an aggregate has a row"
        return bool(busy[0]) or self._ends(committed=False) != self._ends(committed=True)

    def _ends(self, *, committed: bool) -> dict[str, int]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(t, 0): OffsetSpec.latest() for t in self._topics}
        found = self._admin.list_offsets(asked, isolation_level=level)
        return {at.topic: one.result(30).offset for at, one in found.items()}

    def look(self, olds: Sequence[Old]) -> State:
        """All that an old one could write to: both sinks, the committed offsets, and the state folder but for its own part."""
        out: dict[str, object] = dict(self._ends(committed=False))
        with psycopg.connect(self.scene.sink_url) as db:
            names = db.execute("select tablename from pg_tables where schemaname = 'headrace' order by 1").fetchall()
            for (name,) in names:
                text = "select coalesce(md5(string_agg(t::text || xmin::text, '|' order by t::text)), '') from {} t"
                found = db.execute(sql.SQL(text).format(sql.Identifier("headrace", name))).fetchone()
                out[f"table {name}"] = found
        state = self.scene.folder / "state"
        theirs = [old.folder for old in olds]
        for path in sorted(state.rglob("*")):
            if path.is_file() and not any(path.is_relative_to(folder) for folder in theirs):
                out[str(path.relative_to(state))] = hashlib.blake2b(path.read_bytes()).hexdigest()
        return out

    def go_on(self, old: Old, olds: Sequence[Old]) -> None:
        """Let an old one go on until it ends, and compare."""
        before, at = self.look(olds), self.scene.log.stat().st_size
        os.kill(old.pid, signal.SIGCONT)
        end = time.monotonic() + ENDS_SECONDS
        while (code := self.scene.nursery.ended(old.pid)) is None and time.monotonic() < end:
            time.sleep(0.05)
        told = self.scene.log.read_bytes()[at:].decode(errors="replace")
        after = self.look(olds)
        changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
        if changed:
            self.problems.append(f"frozen at {old.step}, an old sidecar wrote to {', '.join(changed)}")
        if code != EXIT_CODES["fenced"]:
            self.problems.append(f"frozen at {old.step}, an old sidecar ended with {code}: {told[-1500:]}")
            if code is None:
                self.scene.nursery.kill(old.pid)
        self.ended[old.step] = told.strip().splitlines()[-1] if told.strip() else ""


def stat(pid: int) -> str:
    """A process's state: T where it is frozen."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def run(seconds: float, folder: Path, steps: Sequence[str] = STEPS, seed: int = 5) -> tuple[str, list[str]]:
    """The whole of it: (the last line, what was wrong)."""
    began = time.monotonic()
    scene = Scene(folder)
    olds: list[Old] = []
    try:
        scene.start(seed)
        writer, warehouse = Writer(scene.source_url, seed, 40.0), WarehouseWatch(scene.sink_url)
        writer.start()
        warehouse.start()
        fence = Fence(scene)
        olds.extend(fence.freeze(step, warehouse) for step in steps)
        bus = BusWatch(scene.stack.kafka.bootstrap, "views.")
        newest = fence.fresh()
        bus.start()
        time.sleep(seconds)
        first = warehouse.frontiers
        fence.hold(newest)
        for old in olds:
            fence.go_on(old, olds)
        os.kill(newest, signal.SIGCONT)
        end = time.monotonic() + PATIENCE
        while warehouse.frontiers <= first + 3:
            assert scene.nursery.ended(newest) is None, f"the newest ended: {scene.tail()}"
            assert time.monotonic() < end, f"the newest publishes nothing any more: {scene.tail()}"
            time.sleep(0.05)
        writer.stop()
        verdict = scene.compare(bus)
        warehouse.stop()
        code = scene.nursery.stop(newest, 60)
        told = [*warehouse.faults.told[:5], *bus.faults.told[:5]]
        problems = [*fence.problems, *verdict.differences, *told]
        if code != 0:
            problems.append(f"SIGTERM ended the newest with {code}: {scene.tail(1500)}")
        if "Traceback" in scene.log.read_text():
            problems.append("a bare exception: see the log")
        facts = {"frozen": len(olds), "pause_seconds": round(seconds), "stale_writes": len(fence.problems),
                 "transactions": writer.done, "frontiers": warehouse.frontiers + bus.frontiers, "problems": len(problems),
                 "seconds": round(time.monotonic() - began)}  # fmt: skip
        write("fence", {**facts, "ended": fence.ended})
        line = " ".join(f"{k}={v}" for k, v in facts.items())
        return f"fence: {'failed' if problems else 'ok'} {line}", problems
    finally:
        for old in olds:
            scene.nursery.kill(old.pid)
        scene.close()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.fence", description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long the old ones stay frozen beside the new one"
    )
    parser.add_argument("--folder", type=Path, help="kept afterwards; a temporary one where none is named")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-fence-") as fresh:
        line, problems = run(asked.seconds, asked.folder or Path(fresh))
    tell(line, problems)


if __name__ == "__main__":
    main()
