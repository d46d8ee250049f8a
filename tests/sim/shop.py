"""A source database and its Debezium connector: transactions become events and marks, which wait until they are shown.

`states` is the naive twin: the tables after each commit, by its LSN. Events reach Kafka per partition in order and otherwise in
any order; a connector that crashes loses what it had not sent and repeats whole transactions. The LSN is its clock too:
a record's time in Kafka is when the connector gave it to its producer, however late it gets there.
"""

from __future__ import annotations

import json
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.sim.broker import Broker

CUSTOMERS, ORDERS, VISITS, STOCK = "public.customers", "public.orders", "public.visits", "depot.stock"
TABLES: dict[str, dict[str, list[str] | None]] = {
    "a": {CUSTOMERS: ["id"], ORDERS: ["id"], VISITS: None},
    "b": {STOCK: ["id"]},
}
PRICES, RATES = "public.prices", "public.rates"
LAKE: dict[str, list[str] | None] = {PRICES: ["id"], RATES: ["id"]}
"""What a Spark publisher has, in lives with one."""
PARTITIONS = {CUSTOMERS: 2, VISITS: 2, PRICES: 2}
VIEWS = """\
version: 1
views:
  - {name: customers, key: [id], sinks: [s, k], sql: "select id, v from public.customers"}
  - {name: orders, key: [id], sinks: [s], sql: "select id, v from public.orders"}
  - {name: visits, sinks: [s, k], sql: "select id, v from public.visits"}
  - name: by_city
    sinks: [s, k]
    key: [v]
    sql: select c.v, count(*) as n from public.orders o join public.customers c on c.id = o.v where c.v is not null group by c.v
  - {name: shares, key: [id], sinks: [s, k], sql: "select id, 12 / (id * v - 6) as share from public.orders"}
  - name: stocked
    sinks: [s, k]
    sql: select s.v, o.v as w from public.orders o join depot.stock s on s.id = o.v
"""
OVER = {
    "customers": {CUSTOMERS}, "orders": {ORDERS}, "visits": {VISITS}, "by_city": {CUSTOMERS, ORDERS}, "shares": {ORDERS},
    "stocked": {ORDERS, STOCK}, "weights": {CUSTOMERS}, "prices": {PRICES}, "rated": {PRICES, RATES}, "priced": {ORDERS, PRICES},
    "grades": {ORDERS},
}  # fmt: skip
"""The tables that each view reads."""

WEIGHTS = """\
  - {name: weights, key: [id], sinks: [s, k], sql: "select id, w from public.customers"}
"""
"""A view over a third column of the customers, which follows from the others (`weight`) and which some lives have."""

PRICED = """\
  - {name: prices, key: [id], sinks: [s, k], sql: "select id, v from public.prices"}
  - {name: rated, sinks: [s, k], sql: "select p.v, r.v as w from public.prices p join public.rates r on r.id = p.id"}
  - {name: priced, sinks: [s, k], sql: "select p.v, o.v as w from public.orders o join public.prices p on p.id = o.v"}
"""
"""Views over a Spark publisher's tables, alone and with a shop's."""

GRADES = """\
  - {name: grades, key: [id], sinks: [s, k], sql: "select id, GRADE as g from public.orders"}
"""
"""A view over a third column of the orders, which some lives have."""
NUMBER, TEXT, GONE = "number", "text", "gone"
"""What that column may be."""

Row = tuple[int, int]
MIDDLE = 5
"""The first id of a partitioned table's second leaf."""
BROKEN = 1 << 70
"""What a broken converter writes for a key: no bigint, so that the row is not known."""
State = dict[str, Counter[Row]]
Tables = tuple[tuple[str, State], ...]


@dataclass
class _Step:
    """What the connector sends for one transaction, in its order: (topic, partition, key, value)."""

    records: list[tuple[str, int, bytes | None, bytes | None]] = field(default_factory=list)


class Shop:
    """One source, `name` its topics' prefix. `lsn`: of the last commit; `states`: by LSN; `base`: where in `stream` the last
    snapshot stands, and `read_after` the LSN before it; `rowless`: the LSNs of those that found no row; `broken_at`: of
    the commits with a record that nobody can decode, by table; `partitions`: of each table's topic; `leaves`: the tables that are
    partitioned, low ids in the first one; `slow`: those of which little
    gets to Kafka. `clumsy`: it writes what the view `shares` cannot divide by, and takes it back, all the time. `broken`: how
    often a converter of the connector makes a record of an update that nobody can decode (`BROKEN`): the twin keeps the row as
    it was, as a dead letter says. `graded`: what the orders' third column is, "" where there is none."""

    def __init__(self, name: str, broker: Broker, draw: random.Random) -> None:
        self.name, self.broker, self.draw = name, broker, draw
        self.tables = TABLES[name]
        self.partitions = {table: PARTITIONS.get(table, 1) for table in self.tables}
        self.leaves: dict[str, tuple[str, ...]] = {}
        self.state: State = {t: Counter() for t in self.tables}
        self.states: dict[int, State] = {}
        self.order: list[int] = []
        self.txid, self.lsn = 600, 1000
        self.stream: list[_Step] = []
        self.base, self.read_after = 0, -1
        self.rowless: list[int] = []
        self.broken_at: dict[str, list[int]] = {t: [] for t in self.tables}
        self.queues: dict[tuple[str, int], deque[tuple[int, int, bytes | None, bytes | None]]] = {}
        self.tombstones = draw.random() < 0.5
        self.exactly_once = draw.random() < 0.4
        self.clumsy = draw.random() < 0.5
        self.broken = draw.choice([0.0, 0.0, 0.15])
        self._breaks: list[str] = []
        self.weighed: set[str] = set()
        self.graded = ""
        self.broke = dict.fromkeys(self.tables, False)
        self._writer, self._late = -1, ""
        self.slow: set[tuple[str, int]] = set()
        for table in self.tables:
            broker.create(f"{name}.{table}", self.partitions[table])
        for more in ("transaction", "notifications"):
            broker.create(f"{name}.{more}")

    def begin_again(self) -> None:
        """The connector is killed in its first snapshot, somewhere."""
        self.show(self.draw.choice([1, 3, 20]))
        self.transact()
        self.crash()

    # what happens in the database

    def snapshot(self) -> None:
        """The connector reads the tables as they stand."""
        self.lsn += 10
        self.txid += 1
        step = _Step()
        self._notify(step, "STARTED")
        for table, rows in self.state.items():
            for leaf in self.leaves.get(table, (table,)):
                found = [row for row in sorted((+rows).elements()) if leaf in self._of("r", table, row)]
                for row in found:
                    self._event(step, table, "r", None, row, None, leaf)
                self._notify(step, "TABLE_SCAN_COMPLETED", {
                    "scanned_collection": leaf, "total_rows_scanned": str(len(found)), "status": "SUCCEEDED",
                })  # fmt: skip
        self._notify(step, "COMPLETED")
        self._committed(step)
        if not any((+rows).total() for rows in self.state.values()):
            self.rowless.append(self.lsn)

    def fill(self) -> None:
        """What the tables hold before the connector comes."""
        for rows in self.state.values():
            for i in range(1, self.draw.randrange(2, 5)):
                rows[i, self.draw.randrange(1, 6)] += 1

    def transact(self) -> None:
        """A random transaction."""
        self.txid += 1
        step, counts, order = _Step(), Counter[str](), 0
        self._mark(step, "BEGIN", {})
        for _ in range(self.draw.choice([0, 1, 1, 2, 3, 6])):
            order = self._change(step, counts, order)
        if self.draw.random() < 0.1:
            counts["public.nobody_reads_it"] += 2
        self.lsn += 1
        self._mark(step, "END", counts)
        self._committed(step)

    def _change(self, step: _Step, counts: Counter[str], order: int) -> int:
        table = self.draw.choice(list(self.tables))
        held, id_, v = self.state[table], self.draw.randrange(1, 9), self.draw.randrange(1, 6)
        if self.clumsy and self.draw.random() < 0.3:
            id_, v = self.draw.choice([(2, 3), (3, 2)])
        old = next((r for r in sorted(held) if r[0] == id_ and held[r] > 0), None)
        if self.draw.random() < 0.03:
            held.clear()
            return self._emit(step, counts, table, [("t", None, None)], order)
        if old is None:
            held[id_, v] += 1
            return self._emit(step, counts, table, [("c", None, (id_, v))], order)
        if self.tables[table] is not None and self.draw.random() < self.broken:
            self._breaks.append(table)
            self.broke[table] = True
            return self._emit(step, counts, table, [("u", old, (BROKEN, v))], order)
        held[old] -= 1
        if self.draw.random() < 0.3:
            return self._emit(step, counts, table, [("d", old, None)], order)
        new = self.draw.randrange(1, 9)
        if self.draw.random() < 0.2 and not any(r[0] == new and n > 0 for r, n in held.items()):
            held[new, v] += 1
            keyed = self.tables[table] is not None
            both: list[tuple[str, Row | None, Row | None]] = [("d", old, None), ("c", None, (new, v))]
            return self._emit(step, counts, table, both if keyed else [("u", old, (new, v))], order)
        held[id_, v] += 1
        return self._emit(step, counts, table, [("u", old, (id_, v))], order)

    def _emit(
        self,
        step: _Step,
        counts: Counter[str],
        table: str,
        events: Sequence[tuple[str, Row | None, Row | None]],
        order: int,
    ) -> int:
        for op, before, after in events:
            for leaf in self._of(op, table, before or after):
                order += 1
                counts[leaf] += 1
                self.lsn += 1
                self._event(step, table, op, before, after, order, leaf)
        return order

    def _of(self, op: str, table: str, row: Row | None) -> Sequence[str]:
        """Under which names an event of a table comes."""
        leaves = self.leaves.get(table, (table,))
        return leaves if op == "t" or row is None else (leaves[0] if row[0] < MIDDLE else leaves[-1],)

    def _committed(self, step: _Step) -> None:
        self.states[self.lsn] = {t: +c for t, c in self.state.items()}
        self.order.append(self.lsn)
        for table in self._breaks:
            self.broken_at[table].append(self.lsn)
        self._breaks = []
        self.stream.append(step)
        self._queue(len(self.stream) - 1)

    # what the connector makes of it

    def _event(
        self,
        step: _Step,
        table: str,
        op: str,
        before: Row | None,
        after: Row | None,
        order: int | None,
        leaf: str,
    ) -> None:
        schema, name = leaf.split(".")
        id_ = (after or before or (0, 0))[0]
        block = None if order is None else {"id": f"{self.txid}:{self.lsn}", "total_order": order}
        value = {
            "op": op, "before": None if before is None else self.image(table, before),
            "after": None if after is None else self.image(table, after), "transaction": block, "ts_ms": self.lsn,
            "source": {"schema": schema, "table": name, "txId": self.txid, "lsn": self.lsn,
                       "ts_us": self.lsn, "snapshot": "true" if order is None else "false"},
        }  # fmt: skip
        place = (f"{self.name}.{leaf}", id_ % self.partitions[table])
        key = None if self.tables[table] is None or op == "t" else json.dumps({"id": id_}).encode()
        step.records.append((*place, key, json.dumps(value).encode()))
        if op == "d" and key is not None and self.tombstones:
            step.records.append((*place, key, None))

    def image(self, table: str, row: Row) -> dict[str, Any]:
        """A row as the connector writes it now."""
        named = dict(zip(("id", "v"), row, strict=True))
        more: dict[str, Any] = {"w": weight(row)} if table in self.weighed else {}
        if table == ORDERS and self.graded not in ("", GONE):
            more["g"] = "high" if self.graded == TEXT else weight(row)
        return named | more

    def _mark(self, step: _Step, status: str, counts: dict[str, int]) -> None:
        body: dict[str, Any] = {"status": status, "id": f"{self.txid}:{self.lsn}", "ts_ms": 2}
        if status == "END":
            body |= {
                "event_count": sum(counts.values()),
                "data_collections": [{"data_collection": t, "event_count": n} for t, n in counts.items()],
            }
        step.records.append((f"{self.name}.transaction", 0, None, json.dumps(body).encode()))

    def _notify(self, step: _Step, kind: str, data: dict[str, str] | None = None) -> None:
        body = {"aggregate_type": "Initial Snapshot", "type": kind, "timestamp": self.lsn, "additional_data": data}
        step.records.append((f"{self.name}.notifications", 0, None, json.dumps(body).encode()))

    def _queue(self, at: int) -> None:
        for topic, partition, key, value in self.stream[at].records:
            self.queues.setdefault((topic, partition), deque()).append((at, self.lsn, key, value))

    # what reaches Kafka

    @property
    def waits(self) -> bool:
        """Whether something was not sent yet."""
        return any(self.queues.values())

    def show(self, most: int) -> None:
        """Kafka takes up to `most` records of each of some partitions, mostly none of the topic that is late, nor of those
        that are slow; of a connector with exactly-once in a transaction, which may be aborted, or left open until the next."""
        if self.exactly_once and self._writer < 0:
            self._writer = self.broker.init(self.name)
        sent = []
        for place in sorted(self.queues):
            queue = self.queues[place]
            if self._late and place[0].endswith(self._late) and self.draw.random() < 0.8:
                continue
            if place in self.slow and self.draw.random() < 0.95:
                continue
            if queue and place[0].endswith(".transaction") and queue[0][0] > self._untold():
                continue
            sent += [(place, queue.popleft()) for _ in range(min(len(queue), self.draw.randint(0, most)))]
        for place, (_, at, key, value) in sent:
            if self.exactly_once:
                self.broker.send(self.name, self._writer, place, key, value, None, at=at)
            else:
                self.broker.append(place, key, value, at=at)
        if self.exactly_once and sent:
            commit = self.draw.random() < 0.8
            self.broker.end(self.name, self._writer, commit)
            if not commit:
                for place, record in reversed(sent):
                    self.queues[place].appendleft(record)

    def _untold(self) -> int:
        """Where in `stream` the first snapshot stands whose STARTED was not sent. No mark behind it gets to Kafka before that:
        a snapshot takes longer than the one is late."""
        queue = self.queues.get((f"{self.name}.notifications", 0), ())
        return next((at for at, _, _, value in queue if b"STARTED" in (value or b"")), len(self.stream))

    def show_all(self) -> None:
        """Everything is sent, and stable."""
        while self.waits:
            self.show(1000)
        if self._writer >= 0:
            self.broker.settle(self.broker.producers[self.name])

    def is_there(self, lsn: int) -> bool:
        """Whether readers see all of the transaction that ended at `lsn`."""
        step = self.stream[self.order.index(lsn)]
        rows = [r for r in step.records if r[0].removeprefix(f"{self.name}.") in self._names() and r[3] is not None]
        return all(
            any(r.value == value for r in self.broker.partition((topic, p)).read(0, 1 << 30, committed=True)[0])
            for topic, p, _, value in rows
        )

    def _names(self) -> list[str]:
        return [*self.tables, *(leaf for leaves in self.leaves.values() for leaf in leaves)]

    def undecodable(self) -> set[str]:
        """The places of the records that nobody can decode, among those that a reader sees."""
        return {
            f"{name}/{p}/{r.offset}"
            for name in (f"{self.name}.{table}" for table in self._names())
            for p, partition in enumerate(self.broker.topics[name].partitions)
            for r in partition.read(0, 1 << 30, committed=True)[0]
            if str(BROKEN).encode() in (r.value or b"")
        }

    def crash(self) -> None:
        """The connector dies: what it had not sent is lost, and is repeated from some transaction before it; a snapshot
        that was not sent whole begins again."""
        unsent = [queue[0][0] for queue in self.queues.values() if queue]
        self.queues, self._late = {}, self.draw.choice(["", "notifications", "transaction", *self.tables])
        if self.base in unsent:
            if self.base == 0:  # nobody has seen anything of it
                self.stream, self.order, self.states, self.rowless = [], [], {}, []
            self._read_anew()
            return
        back = self.draw.choice([0, 1, 2, 5])
        for at in range(max(self.base + 1, min(unsent, default=len(self.stream)) - back), len(self.stream)):
            self._queue(at)

    def _read_anew(self) -> None:
        self.read_after = self.lsn
        self.broken_at = {t: [] for t in self.tables}  # what the snapshot passes over cannot be asked for
        self.base = len(self.stream)
        self.snapshot()

    def lose_slot(self) -> None:
        """The connector is killed, and its slot is gone when it is back: it has missed what was committed meanwhile, as what
        it had not sent, and reads all tables anew."""
        for _ in range(self.draw.choice([0, 1, 3])):
            self.transact()
        self.queues, self._late = {}, self.draw.choice(["", "notifications", "transaction", *self.tables])
        self._read_anew()


def weight(row: Row) -> int:
    """What stands in a third column."""
    return row[0] + 10 * row[1]


def answers(state: State) -> dict[str, Counter[Any] | None]:
    """What SQL answers over a state of the tables, by view; None where it answers with an error."""
    customers, orders = dict(+state.get(CUSTOMERS, Counter())), +state.get(ORDERS, Counter())
    stock = +state.get(STOCK, Counter())
    prices, rates = (dict((+state.get(t, Counter())).keys()) for t in (PRICES, RATES))
    cities: Counter[Any] = Counter()
    stocked: Counter[Any] = Counter()
    for (_, of), times in orders.items():
        for (id_, city), n in customers.items():
            if id_ == of:
                cities[city] += times * n
        for (id_, v), n in stock.items():
            if id_ == of:
                stocked[v, of] += times * n
    return {
        "customers": Counter(customers), "orders": orders, "visits": +state.get(VISITS, Counter()),
        "shares": None if any(i * v == 6 for i, v in orders) else Counter((i, int(12 / (i * v - 6))) for i, v in orders),
        "weights": Counter((row[0], weight(row)) for row in customers),
        "grades": Counter((row[0], weight(row)) for row in orders),
        "by_city": Counter(dict.fromkeys(cities.items(), 1)), "stocked": stocked, "prices": Counter(prices.items()),
        "rated": Counter((v, rates[id_]) for id_, v in prices.items() if id_ in rates),
        "priced": Counter((prices[of], of) for _, of in orders if of in prices),
    }  # fmt: skip
