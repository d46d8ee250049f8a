"""Everything the stack needs that can be had beforehand: jars in the cache, Kafka's format, the JVMs' class archives.

A training run starts the stack once, sends a few rows through Debezium, and lets both JVMs write down at their end what
they loaded; later starts take half the time. It always holds that preparing twice does nothing. Called by `make jars`,
as `python -m headrace.sidecar.devstack.warm_cache`; nothing depends on it having been called.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import psycopg

from headrace.sidecar.devstack.jvm import Toolbox
from headrace.sidecar.devstack.stack import Stack

_TRAINING_ROWS = 100


def prepare() -> Toolbox:
    """Fetch the jars and train both JVMs, each only if it was not done yet (a minute in all)."""
    toolbox = Toolbox.find()
    if not toolbox.trained:
        print("headrace: writing the class archives of Kafka and Connect", file=sys.stderr, flush=True)  # noqa: T201
        _train(Toolbox(toolbox.java, toolbox.jars, toolbox.cache, training=True))
    return toolbox


def training_connector(address: tuple[str, int], dbname: str, user: str, password: str) -> dict[str, str]:
    """A plain Debezium connector on every table of `dbname`, for the training run and the stack's own tests.

    `address` is the stack's `postgres_address`; topic prefix, slot and publication are named `dbname` too.
    """
    host, port = address
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": host,
        "database.port": str(port),
        "database.user": user,
        "database.password": password,
        "database.dbname": dbname,
        "topic.prefix": dbname,
        "plugin.name": "pgoutput",
        "slot.name": dbname,
        "publication.name": dbname,
        "provide.transaction.metadata": "true",
        "skipped.operations": "none",
        "decimal.handling.mode": "string",
        "poll.interval.ms": "10",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
    }


def _train(toolbox: Toolbox) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="headrace-training-") as name,
        Stack(Path(name), toolbox=toolbox) as stack,
        psycopg.connect(stack.postgres.url(), autocommit=True) as admin,
    ):
        admin.execute("create table t (id int primary key, amount numeric(12,2), name text, at timestamptz)")
        rows = "select i, i, 'x' || i, now() from generate_series(%s::int, %s::int) i"
        admin.execute(f"insert into t {rows}", (1, _TRAINING_ROWS))
        config = training_connector(stack.postgres_address, "postgres", "postgres", stack.postgres.password)
        stack.connect.put("training", config)
        stack.connect.wait_running("training", slot="postgres")
        admin.execute(f"insert into t {rows}", (_TRAINING_ROWS + 1, 2 * _TRAINING_ROWS))
        admin.execute("update t set amount = amount + 1")
        admin.execute("delete from t where id % 2 = 0")
        time.sleep(2.0)  # long enough for the rows to have gone through; nothing is read back here


def main() -> None:
    """Prepare and print where the jars are."""
    print(prepare().jars)  # noqa: T201


if __name__ == "__main__":
    main()
