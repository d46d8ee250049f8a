"""A Spark publisher beside Debezium, in one view with it: jobs that compare a dataset with its last version and publish what
changed, of one table or of both, as a version.

Always: as `connectors/spark/publish.py` does it. Rows first, in any order; once all are acknowledged an END in each partition, in
any order, which names what was completed before; a job that dies is begun anew as the next attempt, of the dataset as it is
then; its tasks, and copies of tasks that Spark repeats, may write what they have at any time later. `states` is the naive
twin, by version: a version is whole with its last END.
"""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.broker import Broker, Place
from tests.sim.shop import LAKE, PARTITIONS, Row, State

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

Written = tuple[Place, bytes, bytes]


@dataclass
class _Job:
    """A version under way. `rows`: what was not acknowledged yet; `ends`: likewise, None until the rows are."""

    version: int
    attempt: int
    after: State
    tables: tuple[str, ...]
    rows: deque[Written]
    counts: Mapping[Place, int]
    ends: deque[Written] | None = None


class Lake:
    """The publisher and its dataset, as a shop: what the world and the judge ask of one. `late`: what tasks still write."""

    def __init__(self, broker: Broker, draw: random.Random) -> None:
        self.name, self.broker, self.draw = "lake", broker, draw
        self.tables = LAKE
        self.state: State = {t: Counter() for t in LAKE}
        self.states: dict[int, State] = {}
        self.order: list[int] = []
        self.rowless: list[int] = []
        self.broke = dict.fromkeys(LAKE, False)
        self.broken_at: dict[str, list[int]] = {t: [] for t in LAKE}
        self.base, self.lsn = 0, 0
        self.late: list[Written] = []
        self._job: _Job | None = None
        self._begun = (0, 0)
        self._last: dict[str, int] = {}

    def fill(self) -> None:
        """What is published first."""
        self._write()

    def _write(self) -> None:
        """The dataset changes, between two versions."""
        for _ in range(self.draw.choice([1, 3, 6])):
            rows, id_ = self.state[self.draw.choice(list(LAKE))], self.draw.randrange(1, 9)
            for row in [r for r in rows if r[0] == id_]:
                del rows[row]
            if self.draw.random() < 0.7:
                rows[id_, self.draw.randrange(1, 6)] += 1

    def snapshot(self) -> None:
        """Its first version is like any other."""

    begin_again = lose_slot = snapshot

    def transact(self) -> None:
        """The dataset changes, and a job begins where none is under way."""
        self._write()
        if self._job is None:
            self._begin()

    def _begin(self) -> None:
        version, attempt = self._begun
        version, attempt = (version, attempt + 1) if version > self.lsn else (self.lsn + 1, 1)
        self._begun = version, attempt
        tables = tuple(sorted(self.draw.choice([list(LAKE), *([t] for t in LAKE)])))
        before = self.states.get(self.lsn, {})
        after = {t: +(self.state if t in tables else before).get(t, Counter()) for t in LAKE}
        rows: list[Written] = []
        for table in tables:
            self.broker.create(f"lake.{table}", PARTITIONS.get(table, 1))
            rows += self._changes(table, before.get(table, Counter()), after[table], version, attempt)
        self.draw.shuffle(rows)
        self._job = _Job(version, attempt, after, tables, deque(rows), Counter(place for place, _, _ in rows))

    def _changes(self, table: str, old: Counter[Row], new: Counter[Row], version: int, attempt: int) -> list[Written]:
        out = []
        were, are = dict(old), dict(new)
        for id_ in sorted({row[0] for row in (old - new) + (new - old)}):
            row = next((r for r in are if r[0] == id_), None)
            op = "d" if row is None else "u" if any(r[0] == id_ for r in were) else "c"
            schema, name = table.split(".")
            key = json.dumps({"id": id_}).encode()
            value = {
                "before": None, "after": None if row is None else {"id": row[0], "v": row[1]}, "op": op, "ts_ms": version,
                "transaction": None, "source": {"schema": schema, "table": name, "txId": version, "attempt": attempt,
                                                "ts_us": version, "snapshot": "false"},
            }  # fmt: skip
            place = (f"lake.{table}", zlib.crc32(key) % PARTITIONS.get(table, 1))
            out.append((place, key, json.dumps(value).encode()))
        return out

    def _ends(self, job: _Job) -> deque[Written]:
        ends = []
        for table in job.tables:
            count = PARTITIONS.get(table, 1)
            for partition in range(count):
                place = (f"lake.{table}", partition)
                value = {
                    "headrace": "end", "version": job.version, "attempt": job.attempt, "count": job.counts.get(place, 0),
                    "partition": partition, "partitions": count, "table": table, "tables": job.tables,
                    "after": self._last, "ts_us": job.version,
                }  # fmt: skip
                key = json.dumps({"headrace.end": job.version}, separators=(",", ":")).encode()
                ends.append((place, key, json.dumps(value).encode()))
        self.draw.shuffle(ends)
        return deque(ends)

    # what reaches Kafka

    def show(self, most: int) -> None:
        """Kafka takes up to `most` records of the job, and perhaps some of tasks that nobody waits for."""
        while self.late and self.draw.random() < 0.2:
            self._send(self.late.pop(self.draw.randrange(len(self.late))))
        for _ in range(self.draw.randint(0, most)):
            self._go_on()

    def _go_on(self) -> None:
        job = self._job
        if job is None:
            return
        if job.rows:
            written = job.rows.popleft()
            self._send(written)
            if self.draw.random() < 0.1:
                self.late.append(written)
        elif job.ends is None:
            job.ends = self._ends(job)
        else:
            self._send(job.ends.popleft())
        if job.ends is not None and not job.ends:
            self.states[job.version] = job.after
            self.order.append(job.version)
            self._last |= dict.fromkeys(job.tables, job.version)
            self.lsn, self._job = job.version, None

    def _send(self, written: Written) -> None:
        place, key, value = written
        self.broker.append(place, key, value, at=self.lsn)

    def show_all(self) -> None:
        """A job that is under way ends, and so do all tasks."""
        while self._job is not None:
            self._go_on()
        while self.late:
            self._send(self.late.pop())

    def crash(self) -> None:
        """The job dies: some of its tasks may go on for a while."""
        if self._job is not None:
            self.late += [written for written in self._job.rows if self.draw.random() < 0.3]
            self._job = None

    def undecodable(self) -> set[str]:
        """None."""
        return set()


@dataclass
class Publisher:
    """`crashes`: how often a job dies, a step."""

    draw: random.Random
    crashes: float
    lake: Lake | None = field(default=None)

    def begin(self, world: World) -> None:
        """See `Fate`."""
        self.lake = Lake(world.broker, self.draw)
        world.shops["lake"] = self.lake  # type: ignore[assignment]
        world.tell(lake=True)

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""
        assert self.lake is not None, "it has begun"
        self.lake.show(3)
        if self.draw.random() < 0.3:
            self.lake.transact()
        if self.draw.random() < self.crashes:
            world.trace.append("a job dies")
            self.lake.crash()

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """Never."""
        return False

    def mend(self, world: World) -> None:
        """See `Fate`."""


def drawn_publisher(draw: random.Random) -> Publisher | None:
    """Of one life, if it has this."""
    crashes = draw.choice([None, None, None, None, 0.05, 0.2])
    return None if crashes is None else Publisher(draw, crashes)
