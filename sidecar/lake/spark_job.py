"""The Spark job of a load: its tasks read shares of tables, and write them as batches.

Always: rows go through no shuffle of Spark's; what a task raised is raised here, without what Spark adds. Called by `load` and
`load_beside`.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.connectors.spark.errors import cause
from headrace.engine.schema import Schema
from headrace.sidecar.config.config import Settings
from headrace.sidecar.execution.table_traces import table_traces
from headrace.sidecar.lake.inputs import Share
from headrace.sidecar.lake.runs import SHOWN, Filled, LoadError, Runs, checked, conformed, ended
from headrace.sidecar.state.batch_places import Batches
from headrace.sidecar.state.batch_store import BatchFile


def make_session(settings: Settings) -> Any:
    """The session that the configuration names for its workers, or one of this machine's threads."""
    if settings.config.engine.host == "spark":
        from headrace.sidecar.wiring.worker_pools import spark_session

        return spark_session(settings)
    from headrace.connectors.spark.session import local_session

    folder = settings.state / "spark"
    return local_session(folder, cores=os.cpu_count() or 1, log=folder / "spark.log")


TELL_SECONDS = 0.5
_GROUP = "headrace load"
Tell = Callable[[str, int, int], None]
"""Hears of a table how many tasks are done, and how many there are."""


def unheard(table: str, done: int, of: int) -> None:
    """Nobody is told."""
    del table, done, of


@dataclass(frozen=True)
class Query:
    """Rows that a query of Spark's SQL gives, in as many tasks as Spark takes for it."""

    text: str


@dataclass(frozen=True)
class LoadJob:
    """Spark's tasks, which fill one state: batches go to `place`, in one write of this number. `tell` hears, every half second,
    how many of a table's tasks are done."""

    spark: Any
    place: Batches
    shards: int
    write: int
    tell: Tell = unheard

    def fill(
        self, table: str, schema: Schema, rows: Sequence[Share] | Query
    ) -> tuple[dict[str, list[BatchFile]], int]:  # fmt: skip
        """The batch files of a table's two arrangements, and its rows. Raises LoadError for keys that do not identify a row."""
        (rows_name, layout), (errors_name, errors_layout) = table_traces(table, schema)
        files, count = self.read(table, schema, rows)
        ends = [ended(layout, self.place, shard, self.write) for shard in range(self.shards)]
        errors = [ended(errors_layout, self.place, shard, self.write) for shard in range(self.shards)]
        return {rows_name: [*files, *ends], errors_name: errors}, count

    def read(self, table: str, schema: Schema, rows: Sequence[Share] | Query) -> tuple[list[BatchFile], int]:
        """The batch files of a table's rows, and how many these are. Raises LoadError for keys that do not identify a row."""
        (_, layout), _ = table_traces(table, schema)
        runs = Runs(table, schema, layout, self.place, self.shards, self.write)
        with self._telling(table):
            made = self._of_query(runs, rows) if isinstance(rows, Query) else self._each(partial(_run, runs), rows)
        _refuse(table, made)
        files = [f for m in made for f in m.files]
        if schema.key is not None:
            several = [mine for k in range(self.shards) if len(mine := [f for f in files if f.shard == k]) > 1]
            _refuse(table, self._each(partial(checked, layout, schema, self.place), several))
        return files, sum(m.rows for m in made)

    def _of_query(self, runs: Runs, query: Query) -> list[Filled]:
        """What the tasks of a query make of its rows, which come as Arrow batches."""
        self._named()
        frame = self.spark.sql(query.text).mapInArrow(partial(_run_frame, runs), "filled binary")
        return [pickle.loads(row.filled) for row in frame.collect()]  # noqa: S301 - our own tasks wrote it

    def _named(self) -> None:
        self.spark.sparkContext.setJobGroup(_GROUP, _GROUP, False)

    @contextmanager
    def _telling(self, table: str) -> Iterator[None]:
        """Tell how far the newest job is meanwhile."""
        ended = threading.Event()

        def run() -> None:
            tracker = self.spark.sparkContext.statusTracker()
            while not ended.wait(TELL_SECONDS):
                self.tell(table, *_tasks(tracker))

        teller = threading.Thread(target=run, name="load-progress", daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()

    def _each(self, task: Callable[[Any], Filled], items: Sequence[Any]) -> list[Filled]:
        """A Spark task for each."""
        if not items:
            return []
        self._named()
        spread = self.spark.sparkContext.parallelize(list(items), len(items))
        found: list[Filled] = spread.mapPartitions(partial(_all, task)).collect()
        return found


def _tasks(tracker: Any) -> tuple[int, int]:
    """How many tasks of the newest job are done, and how many it has so far."""
    job = tracker.getJobInfo(max(tracker.getJobIdsForGroup(_GROUP), default=-1))
    stages = [tracker.getStageInfo(stage) for stage in (() if job is None else job.stageIds)]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


def _all(task: Callable[[Any], Filled], items: Iterator[Any]) -> Iterator[Filled]:
    return map(task, items)


def _run(runs: Runs, share: Share) -> Filled:
    return runs.fresh().fill(share.batches(runs.table, runs.schema))


def _run_frame(runs: Runs, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    filled = runs.fresh().fill(conformed(runs.table, runs.schema, batches))
    yield pa.RecordBatch.from_pydict({"filled": [pickle.dumps(filled)]})


def _refuse(table: str, made: Sequence[Filled]) -> None:
    bad = [m for m in made if m.why]
    if bad:
        keys = [k for m in bad if m.why == bad[0].why for k in m.keys]
        raise LoadError(
            f"{bad[0].why}: {'; '.join(keys[:SHOWN])}", table=table, hint="nothing was written: mend the data"
        )


def as_load_error(error: BaseException) -> BaseException:
    """What a task raised, as it raised it; what Spark adds is left out."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    if isinstance(error, AnalysisException):
        return LoadError(
            f"Spark refuses the query: {str(error).splitlines()[0]}", hint="nothing was written: mend the query"
        )
    if isinstance(error, PySparkException | Py4JError):
        return LoadError(f"a task failed: {cause(str(error))}", hint="nothing was written")
    return error
