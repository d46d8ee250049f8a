"""What the tests' worker processes build; a process of its own finds it by name."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.engine.batch.updates import UPSERT, Upserts
from headrace.engine.dataflow import Collection, Dataflow
from headrace.engine.operators.expressions.core.ir import Aggregate, ColumnRef
from headrace.engine.schema import BIGINT, TEXT, Column, Schema
from headrace.sidecar.execution.workers.coordinator import Workers
from headrace.sidecar.execution.workers.worker import Task

ORDERS = Schema.of([Column("id", BIGINT), Column("customer", BIGINT), Column("amount", BIGINT)], ["id"])
CUSTOMERS = Schema.of([Column("id", BIGINT), Column("city", TEXT)], ["id"])
BY_CITY = Schema((Column("city", TEXT), Column("total", BIGINT), Column("least", BIGINT)))
TABLES = {"orders": ORDERS, "customers": CUSTOMERS}
VIEWS = {"by_city": BY_CITY, "all": Schema((Column("count", BIGINT),))}


def built(flow: Dataflow) -> Mapping[str, Collection]:
    """Orders summed up by the city of their customer, and counted."""
    orders, customers = (flow.table(name, schema) for name, schema in TABLES.items())
    amount = ColumnRef(0, BIGINT)
    placed = orders.join(customers, [1], [0], columns=[2, 4])
    by_city = placed.reduce([1], [Aggregate("sum", amount, BIGINT), Aggregate("min", amount, BIGINT)], BY_CITY)
    count = orders.reduce([], [Aggregate("count", None, BIGINT)], VIEWS["all"])
    return {"by_city": by_city, "all": count}


def fails(flow: Dataflow) -> Mapping[str, Collection]:
    """A build that does not come off."""
    raise RuntimeError("no plan")


def stands_still(flow: Dataflow) -> Mapping[str, Collection]:
    """As `built`, but the second worker stops before it has begun."""
    if flow.shard.index == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    return built(flow)


def orders(epoch: int, first: int, count: int) -> Upserts:
    """Orders of 50 customers."""
    ids = np.arange(first, first + count)
    return _upserts(ORDERS, epoch, [pa.array(ids), pa.array(ids % 50), pa.array(ids * 7 % 1000)])


def customers(epoch: int) -> Upserts:
    """Fifty customers in five cities."""
    ids = np.arange(50)
    return _upserts(CUSTOMERS, epoch, [pa.array(ids), pa.array([f"city {k % 5}" for k in ids], pa.large_string())])


def _upserts(schema: Schema, epoch: int, columns: list[pa.Array]) -> Upserts:
    rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    return Upserts(rows, np.full(len(rows), epoch), np.full(len(rows), UPSERT, np.uint8))


def main() -> None:
    """A driver that tells its workers' processes and waits for its end."""
    workers = Workers.start(2, Task(built, Path(sys.argv[1])), TABLES, VIEWS)
    sys.stdout.write(" ".join(str(pid) for pid in workers.pids) + "\n")
    sys.stdout.flush()
    time.sleep(600)


if __name__ == "__main__":
    main()
