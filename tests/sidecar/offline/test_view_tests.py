"""`headrace test`: what passes, what fails and how that is shown, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.sidecar.cli.app import app

VIEWS = """\
version: 1
views:
  - name: paid
    sql: select id, customer, total from orders where paid
  - name: per_customer
    sql: select customer, count(*) as n, sum(total) as total, max(since) as last from paid group by customer
    tests:
      - name: adds up
        given:
          public.orders:
            - {id: 1, customer: a, total: "1.50", paid: true, since: 2024-02-29}
            - {id: 2, customer: a, total: 2, paid: true, since: "2024-03-01"}
            - {id: 3, customer: b, total: 7, paid: false}
        expect:
          - {customer: a, n: 2, total: 3.5, last: 2024-03-01}
      - name: of given views
        given: {paid: [{id: 9, customer: null, total: "0.10"}, {id: 9, customer: null, total: "0.10"}]}
        expect: [{customer: null, n: 2, total: 0.2}]
      - name: of nothing
        expect: []
  - name: shares
    sql: select id, 100 / total as share from orders
    tests:
      - {name: no division by nothing, given: {orders: [{id: 1, total: 0}]}, expect_error: division by zero}
"""
FIXED = VIEWS.replace("select id, customer, total from", "select id, customer, total, since from").replace(
    'customer: null, total: "0.10"}', 'customer: null, total: "0.10", since: 2020-01-01}'
)


def run(folder: Path, views: str, *words: str) -> tuple[int, str]:
    types = {"id": "bigint", "customer": "text", "total": "numeric(12,2)", "paid": "boolean", "since": "date"}
    table = {"name": "public.orders", "key": ["id"], "columns": [{"name": n, "data_type": t} for n, t in types.items()]}
    body = {
        "version": 1, "name": "little", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "views": "views.yaml",
        "sources": [{"name": "shop", "type": "debezium", "topic_prefix": "shop", "tables": [table]}],
    }  # fmt: skip
    (folder / "views.yaml").write_text(views)
    (folder / "headrace.yaml").write_text(json.dumps(body))
    result = CliRunner().invoke(app, ["test", "--config", str(folder / "headrace.yaml"), *words])
    return result.exit_code, result.output


def as_json(folder: Path, views: str, *words: str) -> tuple[int, Any]:
    code, output = run(folder, views, "--json", *words)
    return code, json.loads(output)


def test_tests_that_hold_pass(tmp_path: Path) -> None:
    code, found = as_json(tmp_path, FIXED)
    assert (code, found["passed"], found["failed"]) == (0, 4, 0), found
    assert found["tests"][0]["line"] == 8
    assert as_json(tmp_path, FIXED, "shares")[1]["passed"] == 1


def test_what_differs_is_shown(tmp_path: Path) -> None:
    code, found = as_json(tmp_path, FIXED.replace("n: 2, total: 3.5", "n: 3, total: 3.5"))
    assert code == 9
    (failed,) = [t for t in found["tests"] if t["status"] == "failed"]
    assert failed["missing"] == [{"customer": "a", "n": "3", "total": "3.5", "last": "2024-03-01"}]
    assert failed["extra"] == [{"customer": "a", "n": "2", "total": "3.5", "last": "2024-03-01"}]
    code, text = run(tmp_path, FIXED.replace("n: 2, total: 3.5", "n: 3, total: 3.5"))
    assert code == 9
    assert "FAILED per_customer: adds up" in text
    assert "3 passed, 1 failed" in text


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("public.orders:", "public.order:", "neither table nor view"),
        ("{id: 1, total: 0}", "{id: 1, totl: 0}", "no such column (of=public.orders, column=totl)"),
        ("{id: 1, total: 0}", "{id: 1, total: x}", 'invalid input syntax for type numeric: "x"'),
        ("{id: 1, total: 0}", "{total: 0}", "cannot be NULL has no value"),
        ("{id: 1, total: 0}", "{id: 1, total: 0}, {id: 1, total: 2}", "two given rows have one key"),
        ("{id: 1, total: 0}", "{id: 1, total: 5}", "'division by zero' was expected, got: none"),
        ("n: 2, total: 0.2", "m: 2, total: 0.2", "the view has no such column"),
    ],
)
def test_what_is_written_wrongly_is_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in FIXED
    code, found = as_json(tmp_path, FIXED.replace(old, new))
    assert code == 9
    assert [told in (t["error"] or "") for t in found["tests"]].count(True) == 1, found


def test_a_view_that_does_not_compile_is_refused(tmp_path: Path) -> None:
    code, found = as_json(tmp_path, VIEWS)
    assert (code, found["error"]["code"]) == (4, "view")
    assert as_json(tmp_path, FIXED, "nobody")[0] == 9
