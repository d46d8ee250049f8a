"""Two workers on Spark beside Structured Streaming: a join of two streams and an aggregation of one, kept as rows come.

Rows come at one pace to all sides, few at a time, on one standalone Spark and in one session, in turns. Each side takes in what
has come since its last epoch or micro-batch, as often as it can. Ours binds each epoch durably in its log before the rows
count as out, as Spark writes its own. What the views hold in the end is compared with the same figures by numpy. Writes
build/bench/spark-streaming.json. Run it as `make bench-spark-streaming`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.kernels import warm
from headrace.engine.schema import BIGINT, Column, Schema
from headrace.sidecar.epochs.reclock import ReclockLog
from headrace.sidecar.execution.view_plans import Plans
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.pool import Maker
from headrace.sidecar.execution.workers.worker import Task
from headrace.sidecar.telemetry.metrics import quantile
from headrace.sidecar.wiring.worker_pools import make_pool, spark_session
from headrace.views.catalog import Catalog
from headrace.views.compile import compile_views
from headrace.views.spec import ViewSpec
from tests.bench.bench_epochs import binding
from tests.bench.peers.structured_streaming import STORES, Batch, Queries
from tests.bench.report import FOLDER, Row, publish, row
from tests.bench.spark_cluster import end_session, engine_on, settings_with, standalone

WORKERS, SLOTS, MEMORY_MB = 2, 4, 1024
OURS = "two workers"
DEFAULTS = {"seconds": 20.0, "warm_up": 10.0, "rounds": 2, "rows": 8, "gap_ms": 4.0}
RATE, FRESHNESS = 10.0, 0.1
"""Our epochs a second are to be so many times the peer's micro-batches, and our time from in to out such a part."""
BEHIND = 1_000
"""An order is paid so many orders later."""
CUSTOMERS = 500

ORDERS = Schema.of(
    [Column("id", BIGINT, False), Column("customer", BIGINT, False), Column("amount", BIGINT, False)], ["id"]
)
PAYMENTS = Schema.of(
    [Column("id", BIGINT, False), Column("order_id", BIGINT, False), Column("paid", BIGINT, False)], ["id"]
)
SQL = {
    "joined": "select o.id, o.customer, o.amount, p.paid from orders o join payments p on p.order_id = o.id",
    "summed": "select customer, count(*) as n, cast(sum(amount) as bigint) as total from orders group by customer",
}
WORDS = {"joined": "join", "summed": "aggregation"}
Answers = Mapping[str, tuple[int, ...]]


class Pace(NamedTuple):
    """`count` pieces of so many `rows` a stream, one each `gap` seconds; those before `warm` are not measured."""

    rows: int
    gap: float
    count: int
    warm: int

    def lanes(self, first: int, last: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Orders and payments of the pieces from `first` up to `last`, by column."""
        ids = np.arange(first * self.rows, last * self.rows)
        return [ids, ids * 31 % CUSTOMERS, ids * 7 % 1000], [ids, ids - BEHIND, ids % 100]

    def answers(self) -> Answers:
        """What the views hold in the end: count and sums, as `Queries.answers` tells them."""
        (ids, customers, amounts), (_, of, paid) = self.lanes(0, self.count)
        which = of >= 0
        at = of[which]
        joined = [at, customers[at], amounts[at], paid[which]]
        there = np.unique(customers)
        summed = (len(there), there.sum(), len(ids), amounts.sum())
        return {"joined": (len(at), *(int(lane.sum()) for lane in joined)), "summed": tuple(map(int, summed))}


class Seen(NamedTuple):
    """What one turn of one side gave: epochs a second while it was measured, and seconds from in to out of each piece."""

    rate: float
    latencies: list[float]


def seen(pace: Pace, sent: Sequence[float], batches: Sequence[Batch]) -> Seen:
    """Of the times at which pieces were sent, and of what epochs had ended when.

    >>> seen(Pace(1, 0.5, 4, 1), [0.0, 0.5, 1.0, 1.5], [Batch(0.25, 1), Batch(1.25, 2), Batch(2.0, 4)])
    Seen(rate=1.3333333333333333, latencies=[0.75, 1.0, 0.5])
    """
    rows = [batch.rows for batch in batches]
    out = [batches[bisect_left(rows, (k + 1) * pace.rows)].ended for k in range(pace.warm, pace.count)]
    begin, end = sent[pace.warm], out[-1]
    rate = sum(begin <= batch.ended <= end for batch in batches) / (end - begin)
    return Seen(rate, [done - came for done, came in zip(out, sent[pace.warm :], strict=True)])


def upserts(schema: Schema, epoch: int, lanes: Sequence[np.ndarray]) -> Upserts:
    """Rows that come in one epoch."""
    rows = pa.RecordBatch.from_arrays([pa.array(lane) for lane in lanes], schema=schema.arrow)
    return Upserts(rows, np.full(len(rows), epoch), np.full(len(rows), UPSERT, np.uint8))


def ours(maker: Maker, folder: Path, pace: Pace) -> Mapping[str, Seen]:
    """Our turn: every piece that is due is in the next epoch. Raises AssertionError where a view is wrong."""
    known = {"public.orders": ORDERS, "public.payments": PAYMENTS}
    views = compile_views([ViewSpec(name, sql) for name, sql in SQL.items()], Catalog(known))
    plans = Plans.of(views, known, set(SQL))
    batches: list[Batch] = []
    with ExitStack() as undo:
        workers = Workers.start(WORKERS, Task(plans, folder / "batches"), plans.tables, plans.schemas, maker=maker)
        undo.callback(workers.close)
        syncing = undo.enter_context(ThreadPoolExecutor(1))  # as the sidecar, which steps meanwhile
        log = ReclockLog(folder / "log", syncing)
        undo.callback(log.close)
        begin, done = time.monotonic() + 0.5, 0
        while done < pace.count:
            ahead = begin + done * pace.gap - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            due = min(pace.count, max(done, int((time.monotonic() - begin) / pace.gap)) + 1)
            epoch, lanes = workers.frontier, pace.lanes(done, due)
            for table, some in zip(known, lanes, strict=True):
                workers.push(table, upserts(known[table], epoch, some))
            log.append([binding(epoch + 1)])
            workers.step(epoch + 1)
            log.settle()
            for output in workers.outputs.values():
                output.take()
            batches.append(Batch(time.monotonic(), due * pace.rows))
            done = due
            workers.advance_since(epoch)
        check(OURS, _answers(workers), pace)
    sent = [begin + k * pace.gap for k in range(pace.count)]
    return dict.fromkeys(SQL, seen(pace, sent, batches))


def _answers(workers: Workers) -> Answers:
    found = {}
    for name, output in workers.outputs.items():
        rows, errors = output.snapshot(workers.frontier - 1)
        assert not len(errors), f"{name} is in error"
        sums = [int(np.sum(column.to_numpy())) for column in rows.rows.columns]
        found[name] = (len(rows), *sums)
    return found


def theirs(settings: Any, folder: Path, pace: Pace, store: str) -> Mapping[str, Seen]:
    """The peer's turn: pieces are sent when they are due, the first one before all others, as Spark compiles its plans then.
    Raises AssertionError where a view is wrong."""
    queries = Queries(spark_session(settings), folder, store)
    try:
        sent = [time.time()]
        queries.send(*(_text(lanes) for lanes in pace.lanes(0, 1)))
        queries.settle(pace.rows)
        begin = time.time()
        for k in range(1, pace.count):
            orders, payments = (_text(lanes) for lanes in pace.lanes(k, k + 1))
            ahead = begin + k * pace.gap - time.time()
            if ahead > 0:
                time.sleep(ahead)
            sent.append(time.time())
            queries.send(orders, payments)
        queries.settle(pace.count * pace.rows)
        check(store, queries.answers(), pace)
        return {name: seen(pace, sent, batches) for name, batches in queries.batches().items()}
    finally:
        queries.close()


def _text(lanes: Sequence[np.ndarray]) -> bytes:
    return "".join(
        f"{','.join(map(str, row))}\n" for row in zip(*(lane.tolist() for lane in lanes), strict=True)
    ).encode()


def check(side: str, found: Answers, pace: Pace) -> None:
    """See that the views are right."""
    assert dict(found) == dict(pace.answers()), f"{side}: {found} and not {pace.answers()}"


def measured(pace: Pace, turns: Mapping[str, Sequence[Mapping[str, Seen]]]) -> Iterator[Row]:
    """Ours beside each of the peer's queries, by state store; the goal is beside the better store."""
    peers = [side for side in turns if side != OURS]
    rate = {side: {v: sum(turn[v].rate for turn in turns[side]) / len(turns[side]) for v in SQL} for side in turns}
    waits = {side: {v: sorted(one for t in turns[side] for one in t[v].latencies) for v in SQL} for side in turns}
    for view, word in WORDS.items():
        best = max(rate[side][view] for side in peers)
        for side in peers:
            value = rate[side][view]
            yield row(f"epochs a second, beside the {word}'s micro-batches", "epochs/s", rate[OURS][view],
                      RATE * best if value == best else None, peer=_named(side), peer_value=value)  # fmt: skip
    for view, word in WORDS.items():
        for q in (0.5, 0.99):
            least = min(quantile(waits[side][view], q) for side in peers)
            for side in peers:
                value = quantile(waits[side][view], q)
                goal = 1000 * FRESHNESS * least if q == 0.5 and value == least else None
                yield row(f"rows in → out, beside the {word}, p{100 * q:g}", "ms", 1000 * quantile(waits[OURS][view], q), goal,
                          peer=_named(side), peer_value=1000 * value)  # fmt: skip
    yield row("rows that come, of both streams", "rows/s", 2 * pace.rows / pace.gap)


def _named(store: str) -> str:
    return f"Structured Streaming, {store}"


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=DEFAULTS["seconds"], help="of each turn that are measured")
    parser.add_argument("--warm-up", type=float, default=DEFAULTS["warm_up"], help="seconds of rows before them")
    parser.add_argument("--rounds", type=int, default=DEFAULTS["rounds"], help="turns of each side")
    parser.add_argument("--rows", type=int, default=DEFAULTS["rows"], help="of each stream that come at once")
    parser.add_argument("--gap-ms", type=float, default=DEFAULTS["gap_ms"], help="between two times that rows come")
    chosen = parser.parse_args()
    warm()
    gap = chosen.gap_ms / 1000
    before, measuring = (int(seconds / gap) for seconds in (chosen.warm_up, chosen.seconds))
    pace = Pace(chosen.rows, gap, before + measuring, before)
    turns: dict[str, list[Mapping[str, Seen]]] = {side: [] for side in (OURS, *STORES)}
    with tempfile.TemporaryDirectory() as text, ExitStack() as undo:
        folder = Path(text)
        master = undo.enter_context(standalone(folder, SLOTS, MEMORY_MB))
        engine = engine_on(master, WORKERS, SLOTS, MEMORY_MB, spark__default__parallelism="2")
        settings = settings_with(engine, folder)
        maker = make_pool(settings, 1)
        undo.callback(end_session)
        sides = {OURS: partial(ours, maker)} | {store: partial(theirs, settings, store=store) for store in STORES}
        for number in range(chosen.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                place = folder / f"{side.replace(' ', '-')}-{number}"
                place.mkdir()
                turns[side].append(sides[side](place, pace))
    given = " ".join(
        f"--{n.replace('_', '-')} {getattr(chosen, n):g}" for n, v in DEFAULTS.items() if getattr(chosen, n) != v
    )
    publish(
        "spark-streaming", list(measured(pace, turns)), folder=FOLDER / "partial" if given else FOLDER, arguments=given
    )


if __name__ == "__main__":
    main()
