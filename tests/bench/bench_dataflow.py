"""Latency of one step of a small transaction through five views, and the rate of one large step.

Writes build/bench/dataflow.json. Run it as `python -m tests.bench.bench_dataflow`.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Upserts
from headrace.engine.dataflow import Dataflow, Output
from headrace.engine.operators.expressions.core.ir import Aggregate, Call, ColumnRef, Literal
from headrace.engine.schema import BIGINT, BOOLEAN, INTEGER, NUMERIC, TEXT, TIMESTAMP, Column, DataType, Kind, Schema
from tests.bench.report import publish, row

MONEY = DataType.parse("numeric(12,2)")
SUM = DataType(Kind.NUMERIC, scale=2)
CUSTOMERS = Schema.of([Column("id", BIGINT), Column("name", TEXT), Column("city", TEXT)], ["id"])
PRODUCTS = Schema.of([Column("id", BIGINT), Column("name", TEXT), Column("price", MONEY)], ["id"])
ORDERS = Schema.of(
    [Column("id", BIGINT), Column("customer", BIGINT), Column("status", TEXT), Column("placed", TIMESTAMP)], ["id"]
)
LINES = Schema.of(
    [Column("order", BIGINT), Column("line", INTEGER), Column("product", BIGINT), Column("amount", MONEY)],
    ["order", "line"],
)
PAYMENTS = Schema.of([Column("id", BIGINT), Column("order", BIGINT), Column("paid", MONEY)], ["id"])
TABLES = {"customers": CUSTOMERS, "products": PRODUCTS, "orders": ORDERS, "lines": LINES, "payments": PAYMENTS}


def views(flow: Dataflow) -> list[Output]:
    """Five views of a shop: two joins with sums, a count, a distinct and an extreme."""
    customers, products, orders, lines, payments = (flow.table(n, s) for n, s in TABLES.items())
    count = Aggregate("count", None, BIGINT)

    def total(column: int) -> Aggregate:
        return Aggregate("sum", ColumnRef(column, MONEY), SUM)

    placed = orders.join(customers, [1], [0])
    detailed = placed.join(lines, [0], [0])
    revenue = detailed.reduce(
        [1, 5], [count, total(10)],
        Schema((Column("customer", BIGINT), Column("name", TEXT), Column("n", BIGINT), Column("total", SUM))),
    )  # fmt: skip
    by_product = lines.join(products, [2], [0]).reduce(
        [2, 5], [count, total(3), Aggregate("avg", ColumnRef(3, MONEY), NUMERIC)],
        Schema(
            (Column("id", BIGINT), Column("name", TEXT), Column("n", BIGINT), Column("s", SUM), Column("a", NUMERIC))
        ),
    )  # fmt: skip
    open_orders = orders.filter(Call("=(text,text)", (ColumnRef(2, TEXT), Literal("open", TEXT)), BOOLEAN)).reduce(
        [], [count], Schema((Column("n", BIGINT),))
    )
    cities = placed.project([ColumnRef(6, TEXT)], Schema((Column("city", TEXT),))).distinct()
    paid = payments.join(orders, [1], [0]).reduce(
        [4], [total(2), Aggregate("max", ColumnRef(2, MONEY), MONEY)],
        Schema((Column("customer", BIGINT), Column("paid", SUM), Column("top", MONEY))),
    )  # fmt: skip
    made = {"revenue": revenue, "by_product": by_product, "open": open_orders, "cities": cities, "paid": paid}
    return [view.output(name) for name, view in made.items()]


class Shop:
    """Transactions of seven rows over five tables."""

    def __init__(self, flow: Dataflow, orders: int) -> None:
        self.flow = flow
        self.rng = np.random.default_rng(7)
        self.orders = orders
        self.people = max(orders // 10, 1)

    def push(self, table: str, epoch: int, *columns: object) -> None:
        schema = TABLES[table]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema.arrow, strict=True)]
        n = len(arrays[0])
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)
        self.flow.push(table, Upserts(rows, np.full(n, epoch, np.int64), np.zeros(n, np.uint8)))

    def load(self) -> int:
        """The first epoch: everything at once. Returns the rows."""
        n, people = self.orders, self.people
        ids = np.arange(n)
        self.push(
            "customers",
            0,
            np.arange(people),
            [f"name {i}" for i in range(people)],
            [f"city {i % 50}" for i in range(people)],
        )
        self.push("products", 0, np.arange(500), [f"product {i}" for i in range(500)], self._money(500))
        self.push("orders", 0, ids, ids % people, ["open", "done"] * (n // 2), ids)
        self.push(
            "lines", 0, np.repeat(ids, 2), np.tile([0, 1], n), self.rng.integers(0, 500, 2 * n), self._money(2 * n)
        )
        self.push("payments", 0, ids, ids, self._money(n))
        return people + 500 + 4 * n

    def transaction(self, epoch: int) -> None:
        """A customer renamed, an order with three lines placed and paid, an old order changed."""
        new, old = self.orders, int(self.rng.integers(0, self.orders))
        self.orders += 1
        who = int(self.rng.integers(0, self.people))
        self.push("customers", epoch, [who], [f"name {epoch}"], [f"city {who % 50}"])
        self.push("orders", epoch, [new, old], [who, old % self.people], ["open", "done"], [epoch, epoch])
        self.push("lines", epoch, [new] * 3, [0, 1, 2], self.rng.integers(0, 500, 3), self._money(3))
        self.push("payments", epoch, [new], [new], self._money(1))

    def _money(self, n: int) -> pa.Array:
        return pa.array(self.rng.integers(100, 99999, n)).cast(pa.decimal128(38, 0)).cast(MONEY.arrow)


def measure(orders: int, steps: int, profile: Callable[[Callable[[], None]], None] | None = None) -> dict[str, float]:
    """Milliseconds of small steps over a shop of `orders` orders, and rows a second of the first, large one."""
    flow = Dataflow()
    outputs = views(flow)
    shop = Shop(flow, orders)
    rows = shop.load()
    start = time.perf_counter()
    flow.step(1)
    large = rows / (time.perf_counter() - start)
    for output in outputs:
        output.take()
    taken: list[float] = []
    busy: list[float] = []
    epoch = 1

    def run() -> None:
        nonlocal epoch
        for _ in range(steps):
            shop.transaction(epoch)
            begin, used = time.perf_counter(), time.thread_time()
            flow.step(epoch + 1)
            for output in outputs:
                output.take()
            busy.append((time.thread_time() - used) * 1000)
            taken.append((time.perf_counter() - begin) * 1000)
            if epoch % 20 == 0:
                flow.advance_since(epoch)
            epoch += 1

    gc.freeze()
    run()
    taken.clear()
    busy.clear()
    if profile:
        profile(run)
    else:
        run()
    ordered = sorted(taken)
    return {
        "p50": statistics.median(ordered),
        "p99": ordered[int(len(ordered) * 0.99)],
        "rate": large,
        "cpu": statistics.median(busy),
    }


def warm_start() -> float:
    """Seconds until a new process has every kernel, from the cache, numba's and numpy's own import included."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", "from headrace.engine.kernels import warm; warm()"], check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Print and write the figures."""
    rounds = [measure(20_000, 150) for _ in range(3)]
    p50, p99, rate, cpu = (statistics.median(r[k] for r in rounds) for k in ("p50", "p99", "rate", "cpu"))
    warm_start()
    loaded = statistics.median(warm_start() for _ in range(5))
    publish(
        "dataflow",
        [
            row("step of 7 rows, five views, p50", "ms", p50, 3.0),
            row("step of 7 rows, five views, p99", "ms", p99, 10.0),
            row("step of 7 rows, five views, processor time, p50", "ms", cpu, 3.0),
            row("first step, five views", "rows/s", rate, 100_000.0),
            row("start of a process with all kernels, from the cache", "s", loaded, 2.0),
        ],
    )


if __name__ == "__main__":
    main()
