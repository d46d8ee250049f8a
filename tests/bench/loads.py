"""What the benchmarks of initial loads share: a table, its Parquet files, a Spark session, and what Spark's processes use.

Always: every side has the same rows, whose view tells by its sums that they are all there. Called by bench_spark_load and
bench_spark_jdbc.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.sidecar.config.config import load
from headrace.sidecar.lake.load import Origin, load_tables
from tests.bench.bench_memory import COLUMNS, GROUPS, PREFIX, TABLE, VIEW, amounts

FILE_ROWS, GROUP_ROWS = 5_000_000, 500_000
EVERY = 0.05
Numbers = Any


def rows_of(first: int, count: int) -> pa.Table:
    """Rows `first` … of the table."""
    ids = np.arange(first, first + count, dtype=np.int64)
    notes = pc.binary_join_element_wise("a note on item", pa.array(ids).cast(pa.string()), " ")
    return pa.table({"id": ids, "bucket": (ids % GROUPS).astype(np.int32), "amount": amounts(ids), "note": notes})


def write_parquet(folder: Path, rows: int) -> list[Path]:
    """Files of the table's first rows, each of several row groups."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number, first in enumerate(range(0, rows, FILE_ROWS)):
        path = folder / f"{number:03d}.parquet"
        count = min(FILE_ROWS, rows - first)
        with pq.ParquetWriter(path, rows_of(0, 0).schema) as writer:
            for at in range(first, first + count, GROUP_ROWS):
                writer.write_table(rows_of(at, min(GROUP_ROWS, first + count - at)))
        made.append(path)
    return made


def check(rows: int, found: Sequence[tuple[Any, ...]]) -> None:
    """Raise AssertionError unless a view's rows (bucket, n, amount) are those of so many rows."""
    assert sum(int(n) for _, n, _ in found) == rows, "not every row is there"
    assert sum(int(amount) for *_, amount in found) == int(amounts(np.arange(rows, dtype=np.int64)).sum())


def configure(folder: Path, source: dict[str, Any], bootstrap: str = "127.0.0.1:1", shards: int = 1) -> Path:
    """What a user writes. `source`: how it differs from a source of type debezium."""
    (folder / "views").mkdir(parents=True)
    view = {"name": "v", "sinks": ["s"], "sql": VIEW}
    (folder / "views" / "v.yaml").write_text(json.dumps({"version": 1, "views": [view]}))
    table = {"name": TABLE, "key": ["id"], "columns": [{"name": n, "data_type": t} for n, t in COLUMNS]}
    path = folder / "headrace.yaml"
    path.write_text(json.dumps({
        "version": 1, "name": "load", "state": "state", "kafka": {"bootstrap.servers": bootstrap}, "http": None,
        "engine": {"workers": shards},
        "sources": [{"name": PREFIX, "type": "debezium", "topic_prefix": PREFIX, "tables": [table], **source}],
        "sinks": [{"name": "s", "type": "kafka", "topic_prefix": "views."}],
    }))  # fmt: skip
    return path


def loaded(config: Path, origin: Origin, rows: int, tasks: int, spark: Any) -> float:
    """Fill an empty state, as `headrace load` does with a session that runs; its seconds. The state is gone afterwards."""
    settings = load(config, {})
    begun = time.perf_counter()
    done = load_tables(settings, [TABLE], origin, tasks=tasks, session=lambda _: spark)
    seconds = time.perf_counter() - begun
    assert done.rows == {TABLE: rows}
    shutil.rmtree(settings.state)
    return seconds


@contextmanager
def session(folder: Path, cores: int, settings: dict[str, str] | None = None) -> Iterator[Any]:
    """A session whose tasks are processes of this machine, `cores` at a time."""
    from headrace.connectors.spark.session import local_session

    spark = local_session(folder, cores=cores, log=folder / "spark.log", settings=settings)
    try:
        yield spark
    finally:
        spark.stop()


def spark_processes() -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Of this process's session: its JVM, and the Python processes that do its tasks."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    whole = psutil.Process(gateway.proc.pid)
    jvm, tasks = [whole], []
    for process in whole.children(recursive=True):
        with suppress(psutil.Error):
            (tasks if "python" in process.name() else jvm).append(process)
    return jvm, tasks


def task_seconds() -> dict[int, float]:
    """Processor time of each Python process that does tasks, so far."""
    found = {}
    for process in spark_processes()[1]:
        with suppress(psutil.Error):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def busiest(before: dict[int, float], after: dict[int, float]) -> float:
    """The processor time that the busiest of them used between two looks."""
    return max(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


class MemoryWatch:
    """Memory of Spark's processes while it is entered, mapped files apart, in MiB. `tasks`: the peak of those of its tasks
    together; `whole`: the peak of these and the JVM."""

    def __init__(self) -> None:
        self.tasks = self.whole = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            jvm, tasks = (sum(map(anonymous, some)) for some in spark_processes())
            self.tasks, self.whole = max(self.tasks, tasks), max(self.whole, jvm + tasks)


def anonymous(process: psutil.Process) -> float:
    """MiB of a process's own memory; nothing of one that has ended."""
    with suppress(OSError, KeyError, ValueError):
        told = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        return int(told["RssAnon"].split()[0]) / 1024
    return 0.0
