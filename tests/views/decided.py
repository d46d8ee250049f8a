"""Where Postgres fails and a view has rows: the one exception to "what Postgres answers is the answer" (decision 39).

Always: each is shown by tests/oracle/test_found.py over a real Postgres, which fails there, and is listed in docs/sql.md.
"""

from __future__ import annotations

from typing import NamedTuple

ROWS = """
insert into orders (id, status, total, discount) values (1, 'open', 40, 0), (2, 'paid', 90, 3), (3, 'open', null, 0);
insert into customers (id, name, region) values (1, '7', 'n'), (2, 'x', 's');
insert into visits (customer_id) values (1);
"""
"""What the tables of the shop hold for them."""


class Decided(NamedTuple):
    """A SELECT for which Postgres fails, with what it says."""

    feature: str
    sql: str
    error: str


DECIDED = (
    Decided("A false operand of AND behind one that fails", "select id, 100 / discount > 40 and discount <> 0 as b from orders",
            "division by zero"),
    Decided("A true operand of OR behind one that fails", "select id from orders where 100 / discount > 40 or discount = 0",
            "division by zero"),
    Decided("A condition of WHERE that Postgres tries first",
            "select id from orders where 100 / discount > 20 and abs(discount) + abs(discount) > 0", "division by zero"),
    Decided("A condition of HAVING that Postgres tries first",
            "select id from orders group by id having 100 / max(discount) > 20 and abs(max(discount)) + max(discount) > 0",
            "division by zero"),
    Decided("A subquery that keeps the row out",
            "select id from customers where name::int > 3 and exists (select from visits v where v.customer_id = customers.id)",
            'invalid input syntax for type integer: "x"'),
)  # fmt: skip
