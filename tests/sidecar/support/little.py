"""A whole sidecar in one process, over topics and a sink in memory, with records that cannot be decoded at will.

The source is a shop of three tables (one of two partitions, one without a key); `states` is the naive twin: the tables
after each commit, by its LSN.
"""

from __future__ import annotations

import json
import os
import random
import select
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
import pytest

from headrace.connectors.changes import Decoded, Format, MessageBatch, Undecodable
from headrace.connectors.commands import MemoryCommands
from headrace.connectors.formats.row_path import event_of
from headrace.sidecar.config.config import load
from headrace.sidecar.intake.source_intake import Intake
from headrace.sidecar.wiring import build as wiring
from headrace.sidecar.wiring import intakes, shard_intakes, topic_reading
from headrace.sidecar.wiring.build import Running, build
from headrace.sidecar.wiring.project import Project, read_project
from tests.doubles.memory import MemoryLog, MemorySink, MemorySource, MemoryStore
from tests.sidecar.execution.workers.threads import Threads

INTAKE = os.environ.get("HEADRACE_TEST_INTAKE", "driver")
"""Who reads in all these tests: `shards` plays them with workers that do."""
PREFIX = "shop"
CUSTOMERS, ORDERS, VISITS = "public.customers", "public.orders", "public.visits"
SIGNALS = "headrace.signal"
KEYS: dict[str, list[str] | None] = {CUSTOMERS: ["id"], ORDERS: ["id"], VISITS: None}
OVER = {CUSTOMERS: {"customers", "by_city"}, ORDERS: {"orders", "by_city"}, VISITS: {"visits"}}
VIEWS = """\
version: 1
views:
  - {name: customers, key: [id], sinks: [s], sql: "select id, v from public.customers"}
  - {name: orders, key: [id], sinks: [s], sql: "select id, v from public.orders"}
  - {name: visits, sinks: [s], sql: "select id, v from public.visits"}
  - name: by_city
    sinks: [s]
    sql: select c.v, count(*) as n from public.orders o join public.customers c on c.id = o.v group by c.v
"""


def plays(count: int) -> Any:
    """Random histories, by seed; of every fourth the topics are read by workers too. A third of them in `make test`."""
    played = list(
        dict.fromkeys((seed, how) for seed in range(count) for how in [INTAKE, *["shards"] * (seed % 4 == 0)])
    )
    few = max(count // 3, 2)
    marked = [pytest.param(*one, marks=[pytest.mark.long] if one[0] >= few else []) for one in played]
    return pytest.mark.parametrize(("seed", "intake"), marked)


Row = tuple[int, int]
State = dict[str, Counter[Row]]
Place = tuple[str, int, int]


class Broken:
    """A format to which the records at `places` are not decodable; `readable`: but their envelopes are."""

    def __init__(self, inner: Format, places: set[Place], *, readable: bool) -> None:
        self.inner, self.places, self.readable = inner, places, readable
        self.wants, self.topics, self.left_out = inner.wants, inner.topics, inner.left_out
        self.add_table, self.add_partition = inner.add_table, inner.add_partition

    def decode(self, messages: MessageBatch) -> Decoded:
        topic, partition = messages.topic, messages.partition
        bad = [(topic, partition, o) in self.places for o in messages.offsets.tolist()]
        if not any(bad):
            return self.inner.decode(messages)
        keep = [i for i, b in enumerate(bad) if not b]
        at = np.array(keep, np.int64)
        rest = MessageBatch(
            topic, partition, messages.offsets[at], [messages.keys[i] for i in keep],
            [messages.values[i] for i in keep], messages.timestamps[at],
        )  # fmt: skip
        found = self.inner.decode(rest) if keep else Decoded()
        undecodable = list(found.undecodable)
        for i in np.flatnonzero(bad).tolist():
            doc = orjson.loads(messages.values[i] or b"{}")
            table = f"{doc['source']['schema']}.{doc['source']['table']}" if self.readable else None
            event = event_of(doc) if self.readable else None
            offset = int(messages.offsets[i])
            undecodable.append(Undecodable(table, topic, partition, offset, "broken", "mend it", event))
        return replace(found, undecodable=undecodable)


class Little:
    """`log` is what Kafka holds, `store` what the sink holds. `places`: records that cannot be decoded now; `wide`: tables whose
    topics have two partitions. `intake` "shards": workers, threads of this process, read the topics."""

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        *,
        every_turn: bool = True,
        workers: int = 1,
        intake: str = "driver",
    ) -> None:
        self.intake = intake
        self.workers = workers if intake == "driver" else max(2, workers)
        self.folder, self.log, self.store = folder, MemoryLog(), MemoryStore(keep_history=True)
        self.places: set[Place] = set()
        self.readable, self.batch, self.wide = True, 1 << 16, {CUSTOMERS}
        self.skip: list[Place] = []
        self.running: Running | None = None
        self.every_turn = every_turn
        self.state: State = {t: Counter() for t in KEYS}
        self.states: dict[int, State] = {}
        self.txid, self.lsn, self.snapshots = 600, 1000, 499
        self.clock = 0  # of Kafka
        self.queues: dict[str, list[tuple[int, bytes, bytes | None]]] = {}
        self.ends: dict[str, int] = {}
        real = intakes.make_format
        for module in (intakes, shard_intakes):
            patch.setattr(module, "make_format", lambda *a: Broken(real(*a), self.places, readable=self.readable))
        for module in (intakes, topic_reading, shard_intakes):
            patch.setattr(
                module,
                "make_source",
                lambda _s, _c, f, **mine: MemorySource(self.log, wants=f.wants, name="shop", batch=self.batch, **mine),
            )
        if intake == "shards":
            patch.setattr(wiring, "make_pool", lambda *_: Threads)
        self.commands = MemoryCommands()
        patch.setattr(wiring, "make_commands", lambda _: self.commands)
        patch.setattr(wiring, "make_sink", lambda _s, c, *_: MemorySink(c.name, self.store))
        (folder / "views").mkdir(parents=True, exist_ok=True)
        (folder / "views" / "v.yaml").write_text(VIEWS)
        for table in KEYS:
            self.log.create(f"{PREFIX}.{table}", 2 if table == CUSTOMERS else 1)
        self.log.create(f"{PREFIX}.transaction")

    @contextmanager
    def begun(self, rows: dict[str, list[Row]]) -> Iterator[Self]:
        """Running, with a snapshot of these rows read; ended afterwards where it still runs."""
        self.snapshot(rows)
        self.show_all()
        self.start()
        self.turn(2)
        yield self
        self.close()

    def queue(self, topic: str, value: dict[str, Any], partition: int = 0, key: bytes | None = None) -> Place:
        """A record that Debezium has written and Kafka does not show yet; its place."""
        queue = self.queues.setdefault(topic, [])
        place = (topic, partition, self.ends.get(f"{topic}/{partition}", 0))
        self.ends[f"{topic}/{partition}"] = place[2] + 1
        queue.append((partition, json.dumps(value).encode(), key))
        return place

    def show(self, topic: str, count: int = 1) -> None:
        """Kafka shows the next records of a topic."""
        for _ in range(count):
            partition, value, key = self.queues[topic].pop(0)
            self.log.append(topic, value, key=key, partition=partition, timestamp=self.clock)

    def show_all(self) -> None:
        for topic, queue in self.queues.items():
            self.show(topic, len(queue))

    def snapshot(self, rows: dict[str, list[Row]]) -> list[Place]:
        """An initial snapshot, told by notifications; places of its rows."""
        self.lsn += 10
        self.snapshots += 1
        notified = f"{PREFIX}.notifications"
        self.queue(notified, {"aggregate_type": "Initial Snapshot", "type": "STARTED", "timestamp": 1})
        places = []
        for table in KEYS:
            for row in rows.get(table, ()):
                places.append(self._event(table, "r", None, row, None))
                self.state[table][row] += 1
            data = {
                "scanned_collection": table,
                "total_rows_scanned": str(len(rows.get(table, ()))),
                "status": "SUCCEEDED",
            }
            self.queue(
                notified,
                {
                    "aggregate_type": "Initial Snapshot",
                    "type": "TABLE_SCAN_COMPLETED",
                    "timestamp": 1,
                    "additional_data": data,
                },
            )
        self.queue(notified, {"aggregate_type": "Initial Snapshot", "type": "COMPLETED", "timestamp": 1})
        self.states[self.lsn] = {t: Counter(c) for t, c in self.state.items()}
        self.states[0] = self.states[self.lsn]  # the LSN of a snapshot of which no row could be read is not known
        return places

    def transact(self, *changes: tuple[str, str, Row]) -> list[Place]:
        """A transaction: (table, op, row) each; for u and d the old row is found by id. Places of its events."""
        self.txid += 1
        counts: Counter[str] = Counter()
        places = []
        for order, (table, op, row) in enumerate(changes, 1):
            counts[table] += 1
            held = self.state[table]
            old = None if op == "c" else next(r for r in sorted(held) if r[0] == row[0] and held[r] > 0)
            self.lsn += 1
            places.append(self._event(table, op, old, None if op == "d" else row, order))
            if old is not None:
                held[old] -= 1
            if op != "d":
                held[row] += 1
        self._end(counts)
        return places

    def truncate(self, table: str, *more: tuple[str, str, Row]) -> None:
        """A transaction that empties a table of one partition, and creates `more` in others."""
        self.txid, self.lsn = self.txid + 1, self.lsn + 1
        schema, name = table.split(".")
        self.queue(f"{PREFIX}.{table}", {
            "op": "t", "before": None, "after": None, "transaction": {"id": f"{self.txid}:{self.lsn}", "total_order": 1},
            "source": {"schema": schema, "table": name, "txId": self.txid, "lsn": self.lsn, "ts_us": self.lsn,
                       "snapshot": "false"},
        })  # fmt: skip
        self.state[table].clear()
        counts = {table: 1}
        for order, (other, op, row) in enumerate(more, 2):
            self.lsn += 1
            self._event(other, op, None, row, order)
            self.state[other][row] += 1
            counts[other] = counts.get(other, 0) + 1
        self._end(counts)

    def present(self, table: str, ids: Iterable[int]) -> list[Row]:
        """A table's rows with these keys."""
        return [row for row, times in sorted(self.state[table].items()) if row[0] in set(ids) and times > 0]

    def watermark(self) -> None:
        """The one before rows of an incremental snapshot are read, which the stream may change until they are sent."""
        self.txid, self.lsn = self.txid + 1, self.lsn + 1
        self._end({SIGNALS: 1})

    def incremental(self, table: str, ids: Iterable[int], rows: Iterable[Row] | None = None) -> list[Place]:
        """Rows of an incremental snapshot, as they are now unless told, in the middle of the transaction that is its second
        watermark; places."""
        before = self.lsn
        self.txid, self.lsn = self.txid + 1, self.lsn + 1
        rows = self.present(table, ids) if rows is None else rows
        places = [self._event(table, "r", None, row, None, sequence=(before, self.lsn)) for row in rows]
        self._end({SIGNALS: 1})
        return places

    def _end(self, counts: Mapping[str, int]) -> None:
        """A transaction of so many events by table commits."""
        self.lsn += 1
        self.queue(f"{PREFIX}.transaction", {
            "status": "END", "id": f"{self.txid}:{self.lsn}", "event_count": sum(counts.values()), "ts_ms": 2,
            "data_collections": [{"data_collection": t, "event_count": n} for t, n in counts.items()],
        })  # fmt: skip
        self.states[self.lsn] = {t: +c for t, c in self.state.items()}

    def _event(
        self, table: str, op: str, before: Row | None, after: Row | None, order: int | None,
        sequence: tuple[int, int] | None = None,
    ) -> Place:  # fmt: skip
        schema, name = table.split(".")
        id_ = (after or before or (0, 0))[0]
        block = None if order is None else {"id": f"{self.txid}:{self.lsn}", "total_order": order}
        value: dict[str, Any] = {
            "op": op, "before": None if before is None else {"id": before[0], "v": before[1]},
            "after": None if after is None else {"id": after[0], "v": after[1]}, "transaction": block,
            "source": {"schema": schema, "table": name, "txId": self.snapshots if order is None else self.txid, "lsn": self.lsn,
                       "ts_us": self.lsn, "snapshot": "true" if order is None else "false"},
        }  # fmt: skip
        if sequence is not None:
            at = json.dumps([str(lsn) for lsn in sequence])
            value["source"] |= {"txId": None, "lsn": None, "snapshot": "incremental", "sequence": at}
        partition = id_ % 2 if table in self.wide else 0
        return self.queue(f"{PREFIX}.{table}", value, partition, json.dumps({"id": id_}).encode())

    def configure(self) -> dict[str, Any]:
        """What headrace.yaml says."""
        tables = [
            {"name": t, "columns": [{"name": "id", "data_type": "bigint"}, {"name": "v", "data_type": "bigint"}]}
            | ({"key": k} if k else {})
            for t, k in KEYS.items()
        ]
        skip = [{"topic": t, "partition": p, "offset": o} for t, p, o in self.skip]
        return {
            "version": 1, "name": "little", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "http": None,
            "sources": [{"name": "shop", "type": "debezium", "topic_prefix": PREFIX, "tables": tables, "skip": skip}],
            "sinks": [{"name": "s", "type": "postgres", "url": "postgresql://nobody@127.0.0.1:9/x"}],
            "engine": {"workers": self.workers, "intake": self.intake},
            "checkpoint": {"interval_seconds": 1e-6 if self.every_turn else 1e6},
        }  # fmt: skip

    def start(self, project: Project | None = None) -> None:
        """Run what the files say, or what was understood of them before."""
        (self.folder / "headrace.yaml").write_text(json.dumps(self.configure()))
        self.running = build(project or read_project(load(self.folder / "headrace.yaml", {})))

    def turn(self, count: int = 1) -> None:
        assert self.running is not None
        for _ in range(count):
            self.hear()
            self.running.runtime.turn(0.0)
            for writer in self.running.runtime.parts.writers:
                assert writer.drain(10), writer.detachment

    def hear(self) -> None:
        """Take in all that the topics have, where others read them."""
        assert self.running is not None
        for intake in self.running.runtime.parts.intakes if self.intake == "shards" else ():
            until = time.monotonic() + 20
            while intake.barrier or not self.is_heard(intake):
                assert time.monotonic() < until, "the workers do not read all"
                self.running.runtime.poll(0.005)
                if intake.barrier:
                    intake.barrier.advance()

    def is_heard(self, intake: Intake) -> bool:
        """Whether all that may be read was handed out."""
        here = intake.source.positions()
        wanted = ((place, log.stable) for place, log in self.log.partitions.items() if intake.format.wants(place[0]))
        return all(
            here.get(topic, {}).get(p, 0) >= end or end <= self.log.partitions[topic, p].low
            for (topic, p), end in wanted
        )

    def end(self, *, drained: bool = False) -> None:
        """Stop; unless `drained`, as a kill would."""
        assert self.running is not None
        if drained:
            self.running.runtime.drain()
        running, self.running = self.running, None
        running.close()

    def close(self) -> None:
        """Leave nothing running."""
        if self.running is not None:
            self.end()

    def stopped(self) -> list[str]:
        assert self.running is not None
        return [s.table for i in self.running.runtime.parts.intakes for s in i.assembler.stops]

    def in_error(self) -> set[str]:
        return set(self.store.errors)

    def rows(self, view: str) -> Counter[Any]:
        return self.store.rows[view]

    def random(self, draw: random.Random) -> list[Place]:
        """A random transaction."""
        changes: list[tuple[str, str, Row]] = []
        alive = {t: {r[0] for r in c if c[r] > 0} for t, c in self.state.items()}
        for _ in range(draw.randrange(0, 5)):
            table = draw.choice(list(KEYS))
            touched = {r[0] for t, _, r in changes if t == table}
            id_ = draw.choice([i for i in range(1, 12) if i not in touched])
            op = draw.choice(["u", "u", "d"]) if id_ in alive[table] else "c"
            changes.append((table, op, (id_, draw.randrange(1, 6))))
        return self.transact(*changes)


def read_ahead(shop: Little, show: Callable[[], None]) -> None:
    """The workers read what Kafka shows with `show`, and it is handed out to nobody yet."""
    assert shop.running is not None
    [intake] = shop.running.runtime.parts.intakes
    source: Any = intake.source
    intake.settle()
    show()
    source._now.ask()
    for channel in source._now.channels:
        channel.write()
        assert select.select([channel], [], [], 20)[0], "a worker does not answer"


def answers(state: State) -> dict[str, Counter[Any]]:
    """What SQL answers over a state of the tables."""
    cities: Counter[Any] = Counter()
    customers = dict(+state[CUSTOMERS])
    for (_, of), times in (+state[ORDERS]).items():
        for (id_, city), n in customers.items():
            if id_ == of:
                cities[city] += times * n
    return {
        "customers": +state[CUSTOMERS], "orders": +state[ORDERS], "visits": +state[VISITS],
        "by_city": Counter(dict.fromkeys(cities.items(), 1)),
    }  # fmt: skip
