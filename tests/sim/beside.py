"""Incremental snapshots by signal, beside the stream: watermarks are committed, chunks of a table are read between them, rows
that the stream changes meanwhile are left out, and the rest is sent in the middle of the second watermark's transaction.

Always: a row that no event and no snapshot has told of is in no view before a chunk that has it was sent, and is there once a
transaction is published that has an event behind it in its partition; rows of one partition come in their order. A connector
that is killed forgets the window that was open and what it had not sent of a chunk, and repeats neither.
"""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from tests.sim.oracle import NONE, Absent
from tests.sim.shop import BROKEN, CUSTOMERS, GONE, ORDERS, TEXT, Row, Shop, _Step

if TYPE_CHECKING:
    from headrace.engine.errors import HeadraceError
    from tests.sim.process import Process
    from tests.sim.world import World

SIGNALS = "headrace.signal"
Place = tuple[str, int]


@dataclass
class _Sent:
    """A row that a chunk has sent. `may`, `must`: the ENDs from which on it may be seen, and has to be (-1: not known yet)."""

    id: int
    may: int
    must: int = -1


@dataclass
class _Window:
    """Between two watermarks: what of a table is read, and which of its keys the stream changed meanwhile. `rows`: None until
    they are."""

    table: str
    ids: range
    rows: list[dict[str, int]] | None = None
    changed: set[int] = field(default_factory=set)


@dataclass
class _Beside:
    """Of one source. `late`: the table that the connector captures only after its first snapshot, "" for none,
    as `captured`, which stays so; `untold`: what
    was in it then, by table and key: the END of the first event that told of it, -1 for none yet."""

    shop: Shop
    late: str
    captured: str = field(init=False)
    window: _Window | None = None
    untold: dict[tuple[str, int], int] = field(default_factory=dict)
    sent: dict[Place, list[_Sent]] = field(default_factory=dict)
    touched: list[tuple[str, int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.captured = self.late

    def wrap(self) -> None:
        """What the source does is noted."""
        shop: Any = self.shop
        shop.snapshot = partial(self._snapshot, shop.snapshot)
        shop._event = partial(self._event, shop._event)
        shop._committed = partial(self._committed, shop._committed)
        shop.crash = partial(self._killed, shop.crash)
        shop.lose_slot = partial(self._lost, shop.lose_slot)

    def _snapshot(self, real: Callable[[], None]) -> None:
        """Its rows are not read before the table is captured, and tell of all afterwards."""
        shop, table = self.shop, self.late
        held = shop.state.get(table, Counter())
        if table:
            shop.state[table] = Counter()
        real()
        if table:
            shop.state[table] = held
            shop.states[shop.lsn][table] = +held
            self.untold = dict.fromkeys(((table, id_) for id_, _ in +held), -1)
        else:
            self._told(shop.lsn, self.untold)
        self.touched = []

    def _told(self, lsn: int, rows: Iterable[tuple[str, int]]) -> None:
        self.untold |= {row: lsn for row in rows if self.untold.get(row) == -1}

    def _event(
        self, real: Callable[..., None], step: _Step, table: str, op: str, before: Any, after: Any, *of: Any
    ) -> None:
        real(step, table, op, before, after, *of)
        ids = [row[0] for row in (before, after) if row is not None and row[0] != BROKEN]
        if self.window is not None and table == self.window.table:
            self.window.changed |= set(ids)  # of a TRUNCATE, Debezium says nothing there
        if after is None or after[0] != BROKEN:
            self.touched += [(table, id_) for id_ in ids or (None,)]

    def _committed(self, real: Callable[[_Step], None], step: _Step) -> None:
        shop, touched = self.shop, self.touched
        self.touched = []
        emptied = {table for table, id_ in touched if id_ is None}
        self._told(shop.lsn, (row for row in self.untold if row[0] in emptied or row in touched))
        for topic, partition, _, _ in step.records:
            for sent in self.sent.get((topic, partition), ()):
                sent.must = shop.lsn if sent.must < 0 else sent.must
        real(step)

    def _killed(self, real: Callable[[], None]) -> None:
        self.window = None
        for place, queue in self.shop.queues.items():
            lost = sum(b'"incremental"' in (value or b"") for _, _, _, value in queue)
            self.sent[place] = self.sent.get(place, [])[: -lost or None]
        real()

    def _lost(self, real: Callable[[], None]) -> None:
        self.late = ""  # the snapshot before counts, and this one reads all
        self._killed(real)

    # what the connector does

    def go_on(self, draw: random.Random) -> None:
        """The next of: a watermark, a chunk is read, a watermark."""
        if self.window is None:
            tables = [t for t, key in self.shop.tables.items() if key is not None]
            low = draw.choice([1, 1, draw.randrange(1, 9)])
            self.open(draw.choice(tables), range(low, low + draw.choice([2, 4, 9])))
        elif self.window.rows is None:
            self.read()
        else:
            self.close()

    def open(self, table: str, ids: range) -> None:
        """The first watermark."""
        self.window = None
        self._watermark(_Step())
        self.window = _Window(table, ids)

    def read(self) -> None:
        """The table as it stands."""
        assert self.window is not None, "only what is open is read"
        table, ids = self.window.table, self.window.ids
        rows = sorted((+self.shop.state[table]).elements())
        self.window.rows = [self.shop.image(table, row) for row in rows if row[0] in ids]

    def close(self) -> None:
        """The second watermark, before which the rows are sent."""
        window = self.window
        assert window is not None, "only what is open is closed"
        assert window.rows is not None, "it was read"
        self.window = None
        self._watermark(_Step(), [(window.table, row) for row in window.rows if row["id"] not in window.changed])

    def _watermark(self, step: _Step, rows: Iterable[tuple[str, dict[str, int]]] = ()) -> None:
        """A transaction of one event that nobody reads; a chunk is not of `step`, which may be repeated."""
        shop = self.shop
        last = shop.order[-1]
        shop.txid, shop.lsn = shop.txid + 1, shop.lsn + 1
        shop._mark(step, "BEGIN", {})
        for table, row in rows:
            value, place = self._row(table, row, last), (f"{shop.name}.{table}", row["id"] % shop.partitions[table])
            key = json.dumps({"id": row["id"]}).encode()
            shop.queues.setdefault(place, deque()).append((len(shop.stream), shop.lsn, key, value))
            self.sent.setdefault(place, []).append(_Sent(row["id"], shop.lsn + 1))
        shop.lsn += 1
        shop._mark(step, "END", {SIGNALS: 1})
        shop._committed(step)

    def _row(self, table: str, row: dict[str, int], last: int) -> bytes:
        schema, name = table.split(".")
        at = json.dumps([str(last), str(self.shop.lsn)])
        return json.dumps({
            "op": "r", "before": None, "after": row, "transaction": None, "ts_ms": self.shop.lsn,
            "source": {"schema": schema, "table": name, "txId": None, "lsn": None, "ts_us": self.shop.lsn,
                       "snapshot": "incremental", "sequence": at},
        }).encode()  # fmt: skip

    # what the judge must know

    def absent(self, lsn: int) -> Iterator[Absent]:
        """What may be missing where the source stands so: what was not told, but for the first rows sent in each partition; all
        of it where nothing of the source is there."""
        untold = frozenset(row for row, told in self.untold.items() if lsn < 0 or not -1 < told <= lsn)
        if lsn < 0 or not untold:
            return iter((untold,))
        of_each = [
            self._shown(place, lsn) for place in sorted(self.sent) if place[0] == f"{self.shop.name}.{self.captured}"
        ]
        return (untold.difference(*chosen) for chosen in product(*of_each))

    def _shown(self, place: Place, lsn: int) -> set[Absent]:
        """Which rows of a partition may be seen: those sent up to the last that must be, and any more up to the last that may."""
        sent = self.sent[place]
        first = sum(-1 < s.must <= lsn for s in sent)
        last = sum(s.may <= lsn for s in sent)
        return {frozenset((self.captured, s.id) for s in sent[:n]) for n in range(first, last + 1)}


@dataclass
class Incremental:
    """`rate`: how often a window goes on, a step."""

    draw: random.Random
    rate: float
    late: bool
    of: list[_Beside] = field(default_factory=list)
    over: bool = False

    def begin(self, world: World) -> None:
        """See `ViewAction`; a publisher is behind these shops, and has none."""
        for shop in world.shops.values():
            # what a resync reads is told by none of this
            third = {ORDERS, *shop.weighed} if shop.graded else shop.weighed
            tables = [t for t, key in shop.tables.items() if key is not None and t not in third]
            self.of.append(_Beside(shop, self.draw.choice(tables) if self.late and tables else ""))
            self.of[-1].wrap()
        world.judge.unsure = self._unsure

    def _unsure(self, at: tuple[int, ...]) -> Iterable[Absent]:
        of_each = (b.absent(lsn) for b, lsn in zip(self.of, at, strict=False))
        return [NONE.union(*chosen) for chosen in product(*of_each)]

    def at_door(self, world: World, process: Process) -> None:
        """See `ViewAction`."""

    def befall(self, world: World) -> None:
        """See `ViewAction`."""
        for beside in self.of:
            beside.late = ""  # the connector captures it from here on
            self._lacks(world, beside)
            if self.draw.random() < self.rate:
                beside.go_on(self.draw)

    def _lacks(self, world: World, beside: _Beside) -> None:
        """A table whose columns change while it is read is read again."""
        changes = {CUSTOMERS} if world.told.get("weighed") and not beside.shop.weighed else set()
        changes |= {ORDERS} if beside.shop.graded in (TEXT, GONE) else set()
        if beside.window is not None and beside.window.table in changes:
            beside.window = None

    def ends(self, world: World, process: Process, error: HeadraceError) -> bool:
        """Never."""
        return False

    def mend(self, world: World) -> None:
        """All is read once more, and every row of it is passed by the stream."""
        if self.over:
            return
        self.over = True
        for beside in self.of:
            shop = beside.shop
            for table in (t for t, key in shop.tables.items() if key is not None):
                beside.open(table, range(1, 10))
                beside.read()
                beside.close()
                self._pass(shop, table)
            shop.show_all()

    @staticmethod
    def _pass(shop: Shop, table: str) -> None:
        """A transaction with an event in each partition of a table, which changes little."""
        step, counts, held = _Step(), Counter[str](), shop.state[table]
        shop.txid += 1
        shop._mark(step, "BEGIN", {})
        for order, id_ in enumerate(range(1, shop.partitions[table] + 1)):
            old: Row | None = next((r for r in sorted(held) if r[0] == id_ and held[r] > 0), None)
            held[id_, 4] += old is None
            shop._emit(step, counts, table, [("c", None, (id_, 4)) if old is None else ("u", old, old)], order)
        shop.lsn += 1
        shop._mark(step, "END", counts)
        shop._committed(step)


def drawn_incremental(draw: random.Random) -> Incremental | None:
    """Of one life, if it has this."""
    rate = draw.choice([0.0, 0.0, 0.0, 0.0, 0.3, 0.7])
    return Incremental(draw, rate, draw.random() < 0.5) if rate else None
