"""Records that cannot be decoded until an operator corrects the configuration, and starts again: they are dead letters by then,
and he has them replayed, which may be refused, cut short by a kill, or asked for again.

Always: such a record creates a row that nothing else touches, but for a TRUNCATE or a snapshot; it is in no view before the
correction, stays once it is, and is there in the end. What can be decoded is told by the format's double here (`_Strict`), as
a mode of the connector's that was declared wrongly would be. Not in lives in which tables are read in other ways.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from headrace.connectors.changes import Decoded, Format, MessageBatch, Undecodable
from headrace.connectors.formats.row_path import event_of
from headrace.sidecar.control.jobs import BackgroundJobs
from headrace.sidecar.operations.resync import Report, Resync, TableRead
from headrace.sidecar.wiring import intakes
from tests.sim.beside import Incremental
from tests.sim.columns import Columns
from tests.sim.kinds import Kinds
from tests.sim.oracle import Absent
from tests.sim.shop import CUSTOMERS, Shop, _Step
from tests.sim.stands import Stands

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

IDS = range(101, 106)
"""Keys of these rows."""
MARK = b'"odd":'


class _Strict:
    """A format to which the marked records are not decodable."""

    def __init__(self, inner: Format) -> None:
        self.inner = inner
        self.wants, self.topics, self.left_out = inner.wants, inner.topics, inner.left_out

    def decode(self, messages: MessageBatch) -> Decoded:
        """The others; of these, where they are."""
        odd = [MARK in (value or b"") for value in messages.values]
        if not any(odd):
            return self.inner.decode(messages)
        found = self.inner.decode(messages.at([i for i, o in enumerate(odd) if not o]))
        bad = list(found.undecodable)
        for i in np.flatnonzero(odd).tolist():
            place = (messages.topic, messages.partition, int(messages.offsets[i]))
            event, sent = event_of(orjson.loads(messages.values[i] or b"{}")), int(messages.timestamps[i])
            bad.append(Undecodable(CUSTOMERS, *place, "odd", "correct the mode", event, sent_ms=sent))
        return replace(found, undecodable=bad)


@dataclass
class Odd:
    """`rate`: how often one is written, a step. `written`: the LSN of each row's END, by key; `corrected`: how many sidecars had
    started when that was done, none of which knows it; `asked`: the run that is to replay, while it has not answered; `over`:
    all were, and so each row must be there; `stale`: letters of which was said that their table is to be read;
    `snapshots`: the LSNs of all, also of those that came to nothing."""

    draw: random.Random
    rate: float
    written: dict[int, int] = field(default_factory=dict)
    corrected: int | None = None
    asked: Process | None = None
    over: bool = False
    stale: Sequence[str] = ()
    snapshots: list[int] = field(default_factory=list)
    ends_of: Counter[str] = field(default_factory=Counter)

    def begin(self, world: World) -> None:
        """See `Fate`."""
        if any(isinstance(fate, Stands | Columns | Kinds | Incremental) for fate in world.fates):
            self.rate = 0.0
            return
        self.world = world
        world.lettered = False
        world.judge.unsure = self._unsure
        for shop in world.shops.values():
            shop.broken = 0.0
        shop: Any = self._shop
        shop.snapshot = partial(self._snapshot, shop.snapshot)
        world.patches.append(self._in_place)
        world.settled.append(lambda: self.over)

    def _in_place(self, patch: pytest.MonkeyPatch) -> None:
        real = intakes.make_format

        def made(*of: Any) -> Format:
            inner, number = real(*of), self.world.current[-1].number
            knows = self.corrected is not None and number > self.corrected
            return inner if knows else _Strict(inner)

        patch.setattr(intakes, "make_format", made)

    def _snapshot(self, real: Callable[[], None]) -> None:
        real()
        self.snapshots.append(self._shop.lsn)

    @property
    def _shop(self) -> Shop:
        return next(iter(self.world.shops.values()))

    def _unsure(self, at: tuple[int, ...]) -> Iterable[Absent]:
        """Those of a later commit; before the correction, those that no snapshot has read; and any of the others, but for what
        the last snapshot has read."""
        here = [id_ for id_, lsn in self.written.items() if lsn <= at[0]]
        read = {i for i in here if any(self.written[i] < lsn <= at[0] for lsn in self.snapshots)}
        must = {i for i in read if self.written[i] <= self._shop.read_after < at[0]} if not self.over else set(here)
        may = [i for i in here if i not in must and (self.corrected is not None or i in read)]
        lacks = {(CUSTOMERS, i) for i in IDS if i not in must and i not in may}
        for count in range(len(may), -1, -1):
            for some in combinations(may, count):
                yield frozenset(lacks | {(CUSTOMERS, i) for i in some})

    def at_door(self, world: World, process: Process) -> None:
        """See `Fate`."""

    def befall(self, world: World) -> None:
        """See `Fate`."""
        if not self.rate:
            return
        if len(self.written) < len(IDS) and self.draw.random() < self.rate:
            self._write()
        if self.corrected is None and self.written and self.draw.random() < 0.1:
            self._correct()
        if self.draw.random() < 0.3:
            self._replay()

    def _write(self) -> None:
        """A transaction with such a record, and perhaps others."""
        shop, id_ = self._shop, IDS[len(self.written)]
        step, counts = _Step(), Counter[str]()
        shop.txid += 1
        shop._mark(step, "BEGIN", {})
        order = shop._change(step, counts, 0) if self.draw.random() < 0.5 else 0
        row = (id_, self.draw.randrange(1, 6))
        shop.state[CUSTOMERS][row] += 1
        order = shop._emit(step, counts, CUSTOMERS, [("c", None, row)], order)
        *place, value = step.records[-1]
        step.records[-1] = (*place, orjson.dumps(orjson.loads(value or b"") | {"odd": True}))  # type: ignore[assignment]
        if self.draw.random() < 0.5:
            shop._change(step, counts, order)
        shop.lsn += 1
        shop._mark(step, "END", counts)
        shop._committed(step)
        self.written[id_] = shop.lsn
        self.world.trace.append(f"an odd record of {id_}")

    def _correct(self) -> None:
        self.corrected = self.world.started_count
        self.world.trace.append("the configuration is corrected")

    def _replay(self) -> None:
        """`headrace deadletters replay`, of all or of some, or the resync that was asked for instead."""
        letters = [letter for letter in self.world.letters.read() if self.draw.random() < 0.7]
        ready = [p for p in self.world.ready() if p.running is not None]
        if not letters or not ready or (self.asked is not None and not self.asked.dead):
            return
        process = ready[-1]
        assert process.running is not None, "it is ready"
        self.asked = process
        if self.stale:
            self._resync(process)
            return
        jobs = BackgroundJobs(process.running.runtime, process.running.settings, executor=process._executor("errands"))
        self.world.trace.append(f"{process.number} is to replay {len(letters)}")
        jobs.replay(letters, self._told)

    def _told(self, answer: Mapping[str, Any] | HeadraceError) -> None:
        """The command hears of it, or was ended before."""
        self.asked = None
        told: Sequence[Mapping[str, Any]] = answer["letters"] if isinstance(answer, Mapping) else ()
        self.ends_of.update(f"{x['outcome']} {x['why'][:40]}" for x in told)
        self.stale = [x["id"] for x in told if "is too old" in x["why"]]
        if not self.world.faulty or self.draw.random() < 0.8:
            self.world.letters.discard([x["id"] for x in told if x["outcome"] != "refused"])

    def _resync(self, process: Process) -> None:
        assert process.running is not None, "it is ready"
        runtime, self.stale, stale = process.running.runtime, (), self.stale
        self.world.trace.append(f"{process.number} is to resync {CUSTOMERS}")

        def told(what: Report | HeadraceError) -> None:
            self.asked = None
            self.ends_of[f"resync: {what if isinstance(what, Exception) else 'done'}"] += 1
            if isinstance(what, Report):
                self.world.letters.discard(stale)

        schema = process.running.schemas[CUSTOMERS]
        executor = process._executor("resync")
        runtime.jobs.append(Resync(CUSTOMERS, executor, told, runtime.parts.intakes[0], schema, self._read))

    def _read(self) -> TableRead:
        """The table as the source has it now."""
        rows = sorted((+self._shop.state[CUSTOMERS]).elements())
        return TableRead(self._shop.lsn, pa.array([f"{i}\t{v}" for i, v in rows], pa.large_string()))

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """Never."""
        return False

    def mend(self, world: World) -> None:
        """See `Fate`: and one more transaction, which shows that all are there."""
        if not self.rate or self.over:
            return
        if self.corrected is None:
            self._correct()
        for process in world.ready():
            if process.number <= (self.corrected or 0):
                world.end(process)
        done = self.asked is None and not self.world.letters.read() and bool(world.ready())
        if done and not self._behind():
            self.over = True
            self._shop.transact()
            self._shop.show_all()
        elif not done:
            self._replay()

    def _behind(self) -> bool:
        """Whether a sink lacks something yet that the source has, of which there may be another letter."""
        published = [self.world.judge.published.get(sink) for sink in ("s", "k")]
        name, lsn = self._shop.name, self._shop.lsn
        return any(f is None or name not in f.sources or f.sources[name].place.order < lsn for f in published)


def drawn_odd(draw: random.Random) -> Odd | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.1, 0.3])
    return Odd(draw, rate) if rate else None
