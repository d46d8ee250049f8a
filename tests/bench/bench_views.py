"""Many views over the same five tables: 1, 10, 100 and 1,000 of them to install, to step, to hold and to restart.

The views are five of the demo's shop, in SQL; the others join three of its tables, and differ in a constant, or in shape.
A step is one transaction of seven rows over five tables; figures of steps are processor time. Writes build/bench/views.json.
Run it as `make bench-views`.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import Upserts
from headrace.engine.dataflow import Dataflow, Output
from headrace.views.catalog import Catalog
from headrace.views.compile import CompiledView, compile_views
from headrace.views.render import render
from headrace.views.spec import ViewSpec
from tests.bench import turns
from tests.bench.report import FOLDER, Row, publish, row

COUNTS = (1, 10, 100, 1000)
CUSTOMERS, PRODUCTS, ORDERS = 2_000, 200, 20_000
CITIES, CATEGORIES = 200, 50

FIVE = {
    "revenue_by_city": """select coalesce(c.city, '(unknown)') as city, count(*) as lines, sum(l.quantity * l.price) as revenue
        from order_lines l join orders o on o.id = l.order_id join customers c on c.id = o.customer_id
        group by coalesce(c.city, '(unknown)')""",
    "order_totals": """with lines as (
            select order_id, count(*) as lines, sum(quantity * price) as total from order_lines group by order_id)
        select o.id as order_id, o.status, o.placed_at, l.lines, l.total, l.total - p.amount as balance
        from orders o join lines l on l.order_id = o.id join payments p on p.order_id = o.id""",
    "bestsellers": """select p.id as product_id, p.name, p.category, sum(l.quantity) as sold, avg(l.price) as average_price,
            min(l.price) as lowest, max(l.price) as highest
        from products p join order_lines l on l.product_id = p.id group by p.id, p.name, p.category
        having sum(l.quantity) > 0""",
    "vip_customers": """select id, name, city, credit, joined, length(notes) as notes_length
        from customers where vip and credit is not null and credit > 0""",
    "payment_methods": """select distinct c.city, p.method
        from payments p join orders o on o.id = p.order_id join customers c on c.id = o.customer_id""",
}  # fmt: skip
"""Views of the demo, which the others stand beside."""

_JOINS = (
    "order_lines l join orders o on o.id = l.order_id join customers c on c.id = o.customer_id",
    "order_lines l join orders o on o.id = l.order_id join products p on p.id = l.product_id",
    "payments p join orders o on o.id = p.order_id join customers c on c.id = o.customer_id",
)
_GROUPS = (
    ("c.city", "c.vip", "o.status", "c.joined", "o.status, c.vip"),
    ("p.category", "p.name", "o.status", "l.line", "o.status, p.category"),
    ("c.city", "p.method", "o.status", "c.vip", "p.method, c.vip"),
)
_SUMS = (
    ("count(*)", "sum(l.quantity)", "sum(l.price)", "avg(l.price)", "sum(l.quantity * l.price)", "max(l.quantity)"),
    ("count(*)", "sum(l.quantity)", "avg(l.quantity)", "sum(l.price)", "max(l.price)", "sum(p.price)"),
    ("count(*)", "sum(p.amount)", "avg(p.amount)", "max(p.amount)", "min(p.amount)", "sum(c.credit)"),
)
_WHERES = ("o.id >= {0}", "o.customer_id > {0}", "o.id <> {0}", "o.status <> 'status {0}'")


def constants(count: int) -> Iterator[tuple[str, str]]:
    """Views of one shape: each has another city."""
    for k in range(count):
        yield (
            f"in_city_{k}",
            (
                f"select o.status, count(*) as lines, sum(l.quantity * l.price) as revenue from {_JOINS[0]} "
                f"where c.city = 'city {k % CITIES}' and l.quantity > {k // CITIES} group by o.status"
            ),
        )


def shapes(count: int) -> Iterator[tuple[str, str]]:
    """Views of which no two are alike but for a constant, while there are different ones to be had."""
    for k in range(count):
        j, rest = k % len(_JOINS), k // len(_JOINS)
        group, rest = _GROUPS[j][rest % 5], rest // 5
        aggregate, rest = _SUMS[j][rest % 6], rest // 6
        where = _WHERES[rest % 4].format(rest // 4)
        yield f"shape_{k}", f"select {group}, {aggregate} as value from {_JOINS[j]} where {where} group by {group}"


def paid(count: int) -> Iterator[tuple[str, str]]:
    """Views of one table that no view of `constants` reads."""
    for k in range(count):
        yield (
            f"paid_{k}",
            f"select method, count(*) as n, sum(amount) as total from payments where id > {k} group by method",
        )


def compiled(queries: Mapping[str, str]) -> tuple[CompiledView, ...]:
    """The views over the shop's tables."""
    specs = [ViewSpec(name, sql) for name, sql in queries.items()]
    return compile_views(specs, Catalog({name: spec.schema for name, spec in turns.shop().items()}))


class Shop:
    """A dataflow of some views over the shop's tables, and its transactions."""

    def __init__(self, seed: int = 7) -> None:
        self.flow = Dataflow()
        self.schemas = {name: spec.schema for name, spec in turns.shop().items()}
        for name, schema in self.schemas.items():
            self.flow.table(name, schema)
        self.outputs: list[Output] = []
        self.random = np.random.default_rng(seed)
        self.orders = ORDERS

    def install(self, views: Sequence[CompiledView]) -> float:
        """Build these views beside those that stand, and fill them; processor seconds."""
        began = time.process_time()
        for view in views:
            self.outputs.append(render(view, self.flow, {}).output(view.name))
        self.flow.hydrate()
        return time.process_time() - began

    def push(self, table: str, *columns: Any) -> None:
        """Rows of a table at the next epoch."""
        schema = self.schemas[table].arrow
        rows = pa.record_batch([pa.array(c).cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
        size, epoch = rows.num_rows, self.flow.frontier
        self.flow.push(table, Upserts(rows, np.full(size, epoch, np.int64), np.zeros(size, np.uint8)))

    def customers(self, ids: Any, stamp: int) -> None:
        """Rows of customers; `stamp` tells versions apart."""
        n = len(ids)
        self.push(
            "public.customers", ids, [f"name {stamp} {i}" for i in ids], [f"city {i % CITIES}" for i in ids],
            self.money(n), [i % 10 == 0 for i in ids], pa.array([17000 + i % 900 for i in ids], pa.int32()).cast(pa.date32()),
            [f"note {i}" for i in ids],
        )  # fmt: skip

    def products(self, ids: Any) -> None:
        """Rows of products."""
        n = len(ids)
        self.push(
            "public.products", ids, [f"product {i}" for i in ids], [f"category {i % CATEGORIES}" for i in ids],
            self.money(n), [0.125 * (i % 40) for i in ids], [f"about product {i}" for i in ids], _stamps(ids),
        )  # fmt: skip

    def orders_of(self, ids: Any) -> None:
        """Orders, three lines of each, and a payment of each."""
        n = len(ids)
        people = self.random.integers(0, CUSTOMERS, n)
        self.push(
            "public.orders",
            ids,
            people,
            ["paid"] * n,
            _stamps(ids).cast(pa.timestamp("us")),
            pa.nulls(n, pa.timestamp("us")),
        )
        lines = np.repeat(ids, 3), np.tile([1, 2, 3], n), self.random.integers(0, PRODUCTS, 3 * n)
        self.push("public.order_lines", *lines, self.random.integers(1, 9, 3 * n), self.money(3 * n))
        self.payments(ids)

    def payments(self, ids: Any) -> None:
        """Payments of orders, of their numbers."""
        methods = [("card", "cash", "bill")[i % 3] for i in ids]
        self.push("public.payments", ids, ids, self.money(len(ids)), methods, _stamps(ids))

    def money(self, n: int) -> pa.Array:
        """Amounts."""
        return pa.array(self.random.integers(100, 99_999, n)).cast(pa.decimal128(38, 0))

    def load(self) -> None:
        """The first epoch: everything at once."""
        self.customers(np.arange(CUSTOMERS), 0)
        self.products(np.arange(PRODUCTS))
        self.orders_of(np.arange(ORDERS))
        self.step()

    def transaction(self) -> None:
        """An order placed and paid, a customer and a product changed: seven rows over five tables."""
        self.customers(self.random.integers(0, CUSTOMERS, 1), self.orders)
        self.products(self.random.integers(0, PRODUCTS, 1))
        self.orders_of(np.array([self.orders]))
        self.orders += 1

    def step(self) -> float:
        """One step and its results; processor seconds of this thread."""
        began = time.thread_time()
        self.flow.step(self.flow.frontier + 1)
        for output in self.outputs:
            output.take()
        return time.thread_time() - began

    def steps(self, count: int, change: Callable[[], None]) -> list[float]:
        """Processor seconds of so many steps."""
        found = []
        for k in range(count):
            change()
            found.append(self.step())
            if k % 8 == 7:
                self.flow.advance_since(self.flow.frontier - 1)
        return found

    @property
    def nbytes(self) -> int:
        """Of all arrangements."""
        return sum(a.nbytes for a in self.flow.arrangements().values())

    def restarted(self, views: Sequence[CompiledView]) -> float:
        """Processor seconds until another dataflow of these views goes on from the batches of this one."""
        held = {name: a.spine.batches() for name, a in self.flow.arrangements().items()}
        began = time.process_time()
        other = Shop()
        other.flow.restore(self.flow.frontier, held)
        other.install(views)
        return time.process_time() - began


def _stamps(ids: Any) -> pa.Array:
    return pa.array(1_767_225_600_000_000 + np.asarray(ids) * 60_000_000, pa.timestamp("us", "UTC"))


def loaded(queries: Mapping[str, str]) -> tuple[Shop, float, tuple[CompiledView, ...]]:
    """A loaded shop with these views, what installing them took (compiling included), and they."""
    shop = Shop()
    shop.load()
    began = time.process_time()
    views = compiled(queries)
    spent = time.process_time() - began
    return shop, spent + shop.install(views), views


def in_turns(shops: Sequence[tuple[Shop, Callable[[], None]]], steps: int) -> list[float]:
    """Milliseconds of processor time of a step of each, at the median; they take turns of ten."""
    gc.collect()
    gc.freeze()
    for shop, change in shops:
        shop.steps(30, change)
    found: list[list[float]] = [[] for _ in shops]
    for _ in range(max(1, steps // 10)):
        for k, (shop, change) in enumerate(shops):
            found[k] += shop.steps(10, change)
    return [1000 * statistics.median(some) for some in found]


def many(kind: str, others: Callable[[int], Iterator[tuple[str, str]]], counts: Sequence[int], steps: int) -> list[Row]:
    """So many views, beside five of them."""
    five, _, _ = loaded(FIVE)
    base = five.nbytes
    made: list[Row] = []
    for count in counts:
        first = dict(list(FIVE.items())[:count])
        shop, installed, views = loaded(first | dict(others(max(0, count - len(FIVE)))))
        mine, theirs = in_turns([(shop, shop.transaction), (five, five.transaction)], steps)
        goal = {100: 1.5 if kind == "constants" else 3.0}.get(count)
        name = f"{count:,} view{'s' if count > 1 else ''} that differ in {'a constant' if kind == 'constants' else 'shape'}"
        made += [
            row(f"{name}, install, of each", "ms", 1000 * installed / count),
            row(f"{name}, step of 7 rows", "ms", mine),
            row(f"{name}, step : that of five", "×", mine / theirs, goal),
            row(f"{name}, memory : that of five", "×", shop.nbytes / base),
            row(f"{name}, restart, of each", "ms", 1000 * shop.restarted(views) / count),
        ]
    return made


def touched(steps: int) -> list[Row]:
    """A step that touches the table of three of a hundred views, beside those three alone."""
    hundred, _, _ = loaded(dict(paid(3)) | dict(constants(97)))
    three, _, _ = loaded(dict(paid(3)))

    def change(shop: Shop) -> Callable[[], None]:
        return lambda: shop.payments(shop.random.integers(0, ORDERS, 7))

    mine, alone = in_turns([(hundred, change(hundred)), (three, change(three))], steps)
    return [
        row("100 views, step that touches the table of 3", "ms", mine),
        row("100 views, step that touches the table of 3 : those 3 alone", "×", mine / alone, 1.5),
    ]


def small(steps: int) -> list[Row]:
    """The step of seven rows through the five views."""
    shop, _, _ = loaded(FIVE)
    return [row("5 views, step of 7 rows, processor time", "ms", in_turns([(shop, shop.transaction)], steps)[0], 0.4)]


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--counts", type=int, nargs="*", default=list(COUNTS))
    chosen = parser.parse_args()
    rows = [*small(chosen.steps), *touched(chosen.steps)]
    for kind, others in (("constants", constants), ("shapes", shapes)):
        rows += many(kind, others, chosen.counts, chosen.steps)
    given = (
        ""
        if (chosen.steps, chosen.counts) == (200, list(COUNTS))
        else f"--steps {chosen.steps} --counts " + " ".join(map(str, chosen.counts))
    )
    publish("views", rows, folder=FOLDER / "partial" if given else FOLDER, arguments=given)


if __name__ == "__main__":
    main()
