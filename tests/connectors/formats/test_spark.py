"""The Spark publisher's records: versions, attempts, and the markers that end them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from headrace.connectors.changes import VersionEnd
from headrace.connectors.formats.spark import SparkFormat
from headrace.engine.batch.updates import DELETE, UPSERT
from tests.connectors.formats.events import messages, table

SPEC = table("public.prices", {"sku": "text", "price": "numeric(12,2)", "at": "timestamp", "z": "timestamptz"}, ["sku"])


def record(op: str, before: Any, after: Any, attempt: int = 2) -> dict[str, Any]:
    block = {
        "version": "0.1.0", "connector": "headrace-spark", "name": "supplier", "schema": "public", "table": "prices",
        "txId": 7, "attempt": attempt, "ts_us": 1700000000000000, "snapshot": "false",
    }  # fmt: skip
    return {"before": before, "after": after, "source": block, "op": op, "ts_ms": 1700000000000, "transaction": None}


def end(**more: Any) -> dict[str, Any]:
    return {
        "headrace": "end", "version": 7, "attempt": 2, "count": 3, "partition": 3, "partitions": 4,
        "table": "public.prices", "tables": ["public.prices"], "ts_us": 5, **more,
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 20, 100])
def test_a_version_and_its_end(count: int) -> None:
    form = SparkFormat("supplier", "supplier", {SPEC.name: SPEC})
    row = {"sku": "a", "price": "1.50", "at": 5, "z": "2024-01-01T00:00:00.000001Z"}
    values = [record("c", None, row)] * count + [
        record("d", {"sku": "b"}, None),
        end(after={"public.other": 6}),
        end(partition=1),
    ]
    keys = [{"sku": "a"}] * count + [{"sku": "b"}, {"headrace.end": 7}, {"headrace.end": 7}]
    decoded = form.decode(messages(values, keys, "supplier.public.prices"))
    (changes,) = decoded.changes
    assert changes.kinds.tolist() == [UPSERT] * count + [DELETE]
    assert set(changes.transactions.tolist()) == {7}
    assert set(changes.attempts.tolist()) == {2}
    assert set(changes.orders.tolist()) == set(changes.lsns.tolist()) == {-1}
    assert not changes.metadata.any()
    assert changes.rows.column(1)[0].as_py() == Decimal("1.50")
    at = 101 + count
    assert decoded.marks == [
        VersionEnd(
            "public.prices", 7, 2, 3, 4, ("public.prices",), 5, "supplier.public.prices", 3, at, {"public.other": 6}
        )
    ]
    assert [u.offset for u in decoded.undecodable] == [at + 1]


def test_a_record_without_its_attempt_is_refused() -> None:
    form = SparkFormat("supplier", "supplier", {SPEC.name: SPEC})
    value = record("d", {"sku": "b"}, None)
    del value["source"]["attempt"]
    assert form.decode(messages([value])).undecodable
