"""Flink SQL as a peer: its wheel's jars and its connectors from Maven in build/, where they are looked for, and one job of it.

Always: it is no dependency of ours; nothing is fetched while a benchmark runs, and where it is not built its figures are left
out. Tuned for latency: no mini-batches, buffers sent after 2 ms, the sink's after 5 ms, checkpoints every 10 s.
`python -m tests.bench.peers.flink` fetches it (0.6 GB) and says where.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.sidecar.devstack.cache import cache_folder
from headrace.sidecar.devstack.jar_fetch import fetch
from headrace.sidecar.devstack.java import find_java

VERSION = "2.3.0"
NAME = f"Flink SQL {VERSION}, tuned"
FOLDER = Path("build/peers/flink")
CONNECTORS = (
    f"org.apache.flink:flink-sql-gateway:{VERSION}",
    f"org.apache.flink:flink-sql-gateway-api:{VERSION}",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
    "org.apache.flink:flink-connector-jdbc-core:4.0.0-2.0",
    "org.apache.flink:flink-connector-jdbc-postgres:4.0.0-2.0",
    "org.postgresql:postgresql:42.7.7",
)
"""What the client needs and the wheel has not; of the connectors the newest, as none is published for the very version."""

SETTINGS = {
    "execution.target": "local",
    "table.dml-sync": "true",
    "parallelism.default": "1",
    "table.exec.mini-batch.enabled": "false",
    "execution.buffer-timeout.interval": "2 ms",
    "execution.checkpointing.interval": "10 s",
    "table.exec.sink.not-null-enforcer": "DROP",
    "table.exec.sink.require-on-conflict": "false",
    "taskmanager.numberOfTaskSlots": "64",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "classloader.check-leaked-classloader": "false",
    "state.backend.type": "hashmap",
}
HEAP_MB = 4096

SOURCES = {
    "customers": "id BIGINT, city STRING, credit DECIMAL(12,2), vip BOOLEAN, PRIMARY KEY (id) NOT ENFORCED",
    "products": "id INT, name STRING, category STRING, price DECIMAL(10,2), PRIMARY KEY (id) NOT ENFORCED",
    "orders": "id BIGINT, customer_id BIGINT, status STRING, placed_at BIGINT, PRIMARY KEY (id) NOT ENFORCED",
    "order_lines": "order_id BIGINT, line SMALLINT, product_id INT, quantity INT, price DECIMAL(10,2), "
                   "PRIMARY KEY (order_id, line) NOT ENFORCED",
    "payments": "id BIGINT, order_id BIGINT, amount DECIMAL(12,2), `method` STRING, PRIMARY KEY (id) NOT ENFORCED",
}  # fmt: skip
_TYPES = {"bigint": "BIGINT", "text": "STRING", "numeric": "DECIMAL(38,2)", "integer": "INT"}


def jars() -> list[Path]:
    """The jars of its class path; none where it is not built."""
    found = [
        *FOLDER.glob("lib/python*/site-packages/pyflink/lib/*.jar"),
        *FOLDER.glob("lib/python*/site-packages/pyflink/opt/flink-sql-client-*.jar"),
        # the client asks for Python's part at its start
        *FOLDER.glob("lib/python*/site-packages/pyflink/opt/flink-python-*.jar"),
    ]
    return [*found, *FOLDER.glob("connectors/*.jar")] if found else []


def build() -> Path:
    """Fetch it. Raises CalledProcessError where it cannot be had."""
    venv.create(FOLDER, with_pip=True, clear=True)
    pip = [FOLDER / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "setuptools", "wheel"], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", f"apache-flink-libraries=={VERSION}"], check=True)
    connectors = FOLDER / "connectors"
    connectors.mkdir()
    fetch(CONNECTORS, connectors.absolute(), cache_folder())
    return FOLDER.absolute()


def script(bootstrap: str, prefix: str, jdbc: str, views: Mapping[str, tuple[str, Mapping[str, str], str]]) -> str:
    """The job: tables, sinks, and one statement set. `views`: key, columns with Postgres's types, and query, by name."""
    said = [f"SET '{name}' = '{value}';" for name, value in SETTINGS.items()]
    for table, columns in SOURCES.items():
        said.append(
            f"CREATE TABLE {table} ({columns}) WITH ('connector' = 'kafka', 'topic' = '{prefix}.public.{table}', "
            f"'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = 'flink-{prefix}', "
            "'scan.startup.mode' = 'earliest-offset', 'format' = 'debezium-json', "
            "'debezium-json.schema-include' = 'false');"
        )
    for name, (key, columns, _) in views.items():
        told = ", ".join(f"`{column}` {_TYPES[kind]}" for column, kind in columns.items())
        said.append(
            f"CREATE TABLE out_{name} ({told}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'jdbc', "
            f"'url' = '{jdbc}', 'table-name' = '{name}', 'sink.buffer-flush.interval' = '5 ms', "
            "'sink.buffer-flush.max-rows' = '1000');"
        )
    said.append("EXECUTE STATEMENT SET BEGIN")
    said += [f"INSERT INTO out_{name} {query};" for name, (_, _, query) in views.items()]
    return "\n".join([*said, "END;", ""])


def command(folder: Path, text: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of the job whose script is `text`, all in one process."""
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "config.yaml").write_text("\n".join(_lines(folder)))
    (folder / "job.sql").write_text(text)
    opened = [f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in ("lang", "util", "net", "io", "nio", "time")]
    line = [
        str(find_java().launcher), f"-Xmx{HEAP_MB}m", *opened, "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
        "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED", "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
        "-cp", ":".join(str(jar.absolute()) for jar in jars()), "org.apache.flink.table.client.SqlClient", "-f",
        str((folder / "job.sql").absolute()),
    ]  # fmt: skip
    return line, {"FLINK_CONF_DIR": str((folder / "conf").absolute())}


def _lines(folder: Path) -> Iterator[str]:
    # in memory, as by default, a checkpoint of more than 5 MB fails, and the job with it
    kept = {
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": (folder / "kept").absolute().as_uri(),
    }
    for name, value in (SETTINGS | kept).items():
        yield f"{name}: {value}"


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
