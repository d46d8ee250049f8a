"""Data tests: the rows that break them are counted with every step, through changes of views and restarts."""

from __future__ import annotations

import pytest

from headrace.sidecar.control.apply import ViewChanger
from headrace.sidecar.control.data_tests import Checks
from tests.sidecar.control.busy import meanwhile
from tests.sidecar.support.little import CUSTOMERS, ORDERS, VIEWS, Little, answers

TESTED = """\
  - name: of_orders
    sinks: [s]
    sql: select id, v as customer, case when v > 3 then null else v end as small from public.orders
    columns:
      - {name: customer, data_tests: [unique, not_null, {relationships: {to: public.customers, field: id}}]}
      - {name: small, data_tests: [not_null, {accepted_values: {}}]}
""".replace("{accepted_values: {}}", "{accepted_values: [1, 2]}")


@pytest.fixture
def checks(shop: Little) -> Checks:
    assert shop.running is not None
    found = Checks(shop.running)
    changing = ViewChanger(shop.running, found.renew)
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + TESTED)
    done = meanwhile(shop, lambda: changing.apply(drop=False), busy=False)
    assert sum(f["action"] == "added" for f in done["views"]) == 6
    return found


def failing(checks: Checks) -> dict[str, int]:
    return {t["test"].replace(" of of_orders.", " "): t["failing"] for t in checks.status()}


def test_each_kind_counts_the_rows_that_break_it(shop: Little, checks: Checks) -> None:
    none = {"unique customer": 2, "not_null customer": 0, "relationships customer": 0, "not_null small": 0,
            "accepted_values small": 0}  # fmt: skip
    assert failing(checks) == none
    shop.transact((ORDERS, "c", (7, 3)), (ORDERS, "c", (8, 9)), (ORDERS, "c", (9, 9)))
    shop.show_all()
    shop.turn()
    assert failing(checks) == {"unique customer": 4, "not_null customer": 0, "relationships customer": 3,
                               "not_null small": 2, "accepted_values small": 1}  # fmt: skip
    shop.transact((CUSTOMERS, "c", (9, 1)), (ORDERS, "d", (8, 0)), (ORDERS, "u", (7, 2)))
    shop.show_all()
    shop.turn()
    assert failing(checks) == {**none, "unique customer": 4, "not_null small": 1}
    assert set(shop.store.rows) == set(answers(shop.state)) | {"of_orders"}


def test_a_restart_counts_what_is_there(shop: Little, checks: Checks) -> None:
    shop.transact((ORDERS, "c", (8, 9)), (ORDERS, "c", (9, 9)))
    shop.show_all()
    shop.turn()
    before = failing(checks)
    shop.end()
    shop.start()
    again = Checks(shop.running)
    shop.turn(3)
    assert failing(again) == before
    assert b'headrace_data_test_failures{test="of_orders.small.not_null"} 2.0' in shop.running.metrics.render()


def test_a_dropped_view_takes_its_tests_with_it(shop: Little, checks: Checks) -> None:
    assert shop.running is not None
    changing = ViewChanger(shop.running, checks.renew)
    (shop.folder / "views" / "v.yaml").write_text(VIEWS)
    meanwhile(shop, lambda: changing.apply(drop=True), busy=False)
    assert checks.status() == []
    assert b"headrace_data_test_failures{" not in shop.running.metrics.render()


PROGRAM = """\
  - name: rules
    sinks: [s]
    datalog: |
      .input ordered(id, customer) = public.orders(id, v)
      small(i) :- ordered(i, c), c <= 3.
      .constraint never: small(i).
      .output small
"""


def test_a_program_applied_counts_each_row_of_its_constraint(shop: Little) -> None:
    assert shop.running is not None
    found = Checks(shop.running)
    changing = ViewChanger(shop.running, found.renew)
    (shop.folder / "views" / "v.yaml").write_text(VIEWS + PROGRAM)
    done = meanwhile(shop, lambda: changing.apply(drop=False), busy=False)
    assert sum(f["action"] == "added" for f in done["views"]) == 2
    [told] = found.status()
    state = next(s for s in shop.running.runtime.parts.views if s.view.name == "rules_small")
    rows, _ = state.output.snapshot(shop.running.runtime.epoch)
    assert (told["name"], told["test"], told["failing"]) == ("rules_never", "never of rules", int(rows.diffs.sum()))
    assert told["failing"] > 0
