"""The demo's shop: tables, first rows, and random transactions over several tables at once.

Always: amounts balance (what an order's lines cost is what is asked for by its payments when it is paid), so that a torn
transaction would show. Everything is drawn from one seeded `Random`. Called by the demo, its writer, tests and benchmarks.
"""

from __future__ import annotations

import random
from decimal import Decimal

import psycopg
from psycopg import Cursor

URL = "HEADRACE_DATABASE_URL"
"""The environment variable in which the demo's children are told their database: command lines are for all to read."""

DDL = """
create table public.customers (
  id bigint primary key, name text not null, city text, credit numeric(12,2), vip boolean not null default false,
  joined date not null, notes text);
create table public.products (
  id integer primary key, name varchar(80) not null, category text, price numeric(10,2) not null, weight double precision,
  description text, updated_at timestamptz not null default now());
create table public.orders (
  id bigint primary key, customer_id bigint not null references public.customers, status text not null,
  placed_at timestamp not null, shipped_at timestamp);
create table public.order_lines (
  order_id bigint not null references public.orders, line smallint not null,
  product_id integer not null references public.products, quantity integer not null, price numeric(10,2) not null,
  primary key (order_id, line));
create table public.payments (
  id bigint primary key, order_id bigint not null references public.orders, amount numeric(12,2) not null,
  method text, paid_at timestamptz not null);
"""
TABLES = ("public.customers", "public.products", "public.orders", "public.order_lines", "public.payments")
CITIES = ("Zürich", "Basel", "Genève", "Lausanne", "Bern", None)
CATEGORIES = ("tea", "coffee", "cocoa", "spice", None)
METHODS = ("card", "invoice", "cash", None)


def create(db: psycopg.Connection, *, customers: int, products: int, orders: int, seed: int = 1) -> None:
    """Make the tables and their first rows, in one transaction."""
    draw = random.Random(seed)  # noqa: S311 (a demo's data)
    with db.transaction(), db.cursor() as cursor:
        cursor.execute(DDL)
        with cursor.copy("copy customers from stdin") as copy:
            for i in range(1, customers + 1):
                copy.write_row(_customer(draw, i))
        with cursor.copy("copy products(id, name, category, price, weight, description) from stdin") as copy:
            for i in range(1, products + 1):
                copy.write_row(_product(draw, i))
        book = Book(draw, customers, products)
        for _ in range(orders):
            book.place(cursor)
        book.settled = []


def place_many(db: psycopg.Connection, orders: int) -> None:
    """Orders behind those that are there, of two to four lines and a payment that balances each, by one statement a table."""
    with db.transaction():
        db.execute(
            "create temp table placed on commit drop as select last + k as id from generate_series(1, %s) k,"
            " (select coalesce(max(id), 0) as last from orders)",
            (orders,),
        )
        db.execute(
            "insert into orders select id, 1 + id * 7919 % (select count(*) from customers), 'paid',"
            " timestamp '2026-01-01', null from placed"
        )
        db.execute(
            "insert into order_lines select id, line, 1 + (id * 31 + line) % (select count(*) from products),"
            " 1 + (id + line) % 9, (100 + (id * 997 + line) % 9900) / 100.0 from placed, generate_series(1, 2 + id % 3) line"
        )
        db.execute(
            "insert into payments select id, id, sum(quantity * price), (array['card', 'invoice', 'cash', null])[1 + id % 4],"
            " timestamptz '2026-01-01' from placed join order_lines on order_id = id group by id"
        )


def _customer(draw: random.Random, i: int) -> tuple[object, ...]:
    credit = None if draw.random() < 0.2 else Decimal(draw.randrange(0, 1_000_000)) / 100
    joined = f"20{draw.randrange(10, 26)}-{draw.randrange(1, 13):02}-{draw.randrange(1, 29):02}"
    notes = None if draw.random() < 0.5 else f"note {i}"
    return (i, f"customer {i}", draw.choice(CITIES), credit, draw.random() < 0.1, joined, notes)


def _product(draw: random.Random, i: int) -> tuple[object, ...]:
    """Every fifth product has a description over 8 kB that does not compress: Postgres moves it out of line (TOAST)."""
    text = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9000)) if i % 5 == 0 else f"product {i}"
    price = Decimal(draw.randrange(100, 10_000)) / 100
    weight = None if draw.random() < 0.1 else round(draw.uniform(0.1, 9.9), 3)
    return (i, f"product {i}", draw.choice(CATEGORIES), price, weight, text)


class Book:
    """What a writer knows of the shop, to make transactions that Postgres accepts. `first`: its first order id; `steady`: from so
    many orders on about as many go as come, 0 for never."""

    def __init__(self, draw: random.Random, customers: int, products: int, first: int = 1, *, steady: int = 0) -> None:
        self.draw = draw
        self.customers = customers
        self.products = products
        self.next_order = first
        self.next_payment = first
        self.settled: list[int] = []
        self.steady = steady

    def transact(self, cursor: Cursor[tuple[object, ...]]) -> None:
        """One random transaction over up to five tables, about seven changed rows. The caller commits."""
        kind = self.draw.random()
        if self.steady and len(self.settled) > self.steady and kind < 0.40:
            self.cancel(cursor)
        elif kind < 0.70 or not self.settled:
            self.place(cursor)
        elif kind < 0.80:
            self.cancel(cursor)
        elif kind < 0.95:
            self.ship(cursor)
        else:
            self.reprice(cursor)

    def place(self, cursor: Cursor[tuple[object, ...]]) -> None:
        """An order of two to four lines, its payment, the customer's credit, and a product's new price: five tables."""
        draw, order = self.draw, self.next_order
        self.next_order += 1
        customer = draw.randrange(1, self.customers + 1)
        cursor.execute(
            "insert into orders values (%s, %s, 'paid', timestamp '2026-01-01' + %s * interval '1 minute', null)",
            (order, customer, draw.randrange(500_000)),
        )
        total = Decimal(0)
        lines = []
        for line in range(1, draw.randrange(3, 6)):
            quantity, price = draw.randrange(1, 10), Decimal(draw.randrange(100, 10_000)) / 100
            lines.append((order, line, draw.randrange(1, self.products + 1), quantity, price))
            total += quantity * price
        cursor.executemany("insert into order_lines values (%s, %s, %s, %s, %s)", lines)
        cursor.execute(
            "insert into payments values (%s, %s, %s, %s, now())", (order, order, total, draw.choice(METHODS))
        )
        cursor.execute("update customers set credit = coalesce(credit, 0) - %s where id = %s", (total, customer))
        cursor.execute(
            "update products set price = %s, updated_at = now() where id = %s",
            (Decimal(draw.randrange(100, 10_000)) / 100, draw.randrange(1, self.products + 1)),
        )
        self.settled.append(order)

    def cancel(self, cursor: Cursor[tuple[object, ...]]) -> None:
        """Delete a whole order: payment, lines, order."""
        order = self.settled.pop(self.draw.randrange(len(self.settled)))
        cursor.execute("delete from payments where order_id = %s", (order,))
        cursor.execute("delete from order_lines where order_id = %s", (order,))
        cursor.execute("delete from orders where id = %s", (order,))

    def ship(self, cursor: Cursor[tuple[object, ...]]) -> None:
        """Mark a few orders as shipped; one of them moves to another number (a primary-key change)."""
        for order in self.draw.sample(self.settled, min(3, len(self.settled))):
            cursor.execute(
                "update orders set status = 'shipped', shipped_at = placed_at + interval '1 day' where id = %s",
                (order,),
            )
        if self.draw.random() < 0.3:
            payment = self.draw.choice(self.settled)
            cursor.execute("update payments set id = -id where order_id = %s", (payment,))

    def reprice(self, cursor: Cursor[tuple[object, ...]]) -> None:
        """Change products without touching their long descriptions, and one customer's notes and city to NULL."""
        for product in self.draw.sample(range(1, self.products + 1), min(4, self.products)):
            cursor.execute("update products set price = price + 1, weight = null where id = %s", (product,))
        cursor.execute(
            "update customers set notes = null, city = null where id = %s",
            (self.draw.randrange(1, self.customers + 1),),
        )
