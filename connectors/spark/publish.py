"""Publish a version: freeze the datasets, find what changed, write it to Kafka, and mark its end in every partition.

Always: nothing is written before every table's rows and keys are checked; every record of a version carries (version,
attempt) and the END markers, written last, name the attempt that counts. What a Spark task repeats is byte for byte
what it wrote before, since it is made from frozen rows. Called by `headrace-publish` and by jobs of one's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.connectors.formats.topic_names import table_topic
from headrace.connectors.spark import append_only, snapshot_diff, versions
from headrace.connectors.spark.envelope import Stamp, TableCounts, write_ends
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.kafka_producer import KafkaWire, Producer, Wire
from headrace.connectors.spark.publisher_state import Manifest, State
from headrace.connectors.spark.types import check_columns

_QUERY_ID = "sql.streaming.queryId"
"""A property of threads in which Spark runs a batch of a stream."""
_COUNTED = "partition int, creates long, updates long, deletes long"


@dataclass(frozen=True)
class Dataset:
    """One table of a version: `rows` now, its name "schema.table" and key, and what it is compared with.

    `previous`: the rows at the last completed version; None leaves that to the state folder. `since`: rows are only added to the
    table, each with a greater value of this column: what is there already is not read again.
    """

    table: str
    rows: DataFrame
    key: Sequence[str]
    previous: DataFrame | None = None
    since: str | None = None


@dataclass(frozen=True)
class Target:
    """Where versions go: `topic_prefix`.schema.table on `kafka` (librdkafka settings); `partitions` of new topics."""

    topic_prefix: str
    kafka: Mapping[str, str]
    source_name: str | None = None
    partitions: int = 4
    replication: int = 1

    def topic(self, table: str) -> str:
        """The topic of a table."""
        return table_topic(self.topic_prefix, table)


@dataclass(frozen=True)
class Published:
    """A version that is whole in Kafka. `repeated`: it was already, and nothing was written now."""

    version: int
    attempt: int
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    repeated: bool = False


@dataclass(frozen=True)
class Plan:
    """One table's topic and how many partitions it has."""

    table: str
    topic: str
    partitions: int


def publish(
    spark: SparkSession,
    rows: DataFrame,
    *,
    table: str,
    key: Sequence[str],
    topic_prefix: str,
    kafka: Mapping[str, str],
    version: int | None = None,
    previous: DataFrame | None = None,
    state: str | Path | None = None,
    partitions: int = 4,
) -> Published:
    """Publish one table as a version; see `publish_version`."""
    target = Target(topic_prefix, kafka, partitions=partitions)
    return publish_version(spark, [Dataset(table, rows, key, previous)], target, version=version, state=state)


def publish_version(
    spark: SparkSession,
    datasets: Sequence[Dataset],
    target: Target,
    *,
    version: int | None = None,
    state: str | Path | None = None,
    wire: Wire | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> Published:
    """Publish `datasets` as one version, and so as one epoch.

    `version`: None takes the next one (or the unfinished one again, as a further attempt); a version already
    completed is left alone, so that a job may be repeated. `state`: the folder that holds the last completed
    snapshots; without it each dataset's `previous` must be given, unless the topics are empty. Raises PublishError,
    and nothing is then completed.
    """
    _check_datasets(datasets, has_state=state is not None)
    for d in datasets:
        refuse_batch_of_stream(d)
    held = State(Path(state)) if state is not None else None
    through = wire or KafkaWire(target.kafka, target.replication)
    with held.locked() if held else nullcontext():
        plans = planned(through, target, [d.table for d in datasets])
        found = versions.seen(through, [(p.topic, p.partitions) for p in plans])
        manifest = versions.remembered(held, found) if held else Manifest()
        chosen = versions.choose(version, manifest, found)
        if chosen is None:
            return Published(version or found.completed, manifest.begun[1], repeated=True)
        number, attempt = chosen
        frozen, names = _freeze(datasets, held, manifest, number, attempt)
        changed = _compare(spark, datasets, plans, frozen, held, manifest, found)
        if held:
            held.begin(number, attempt, names)
        stamp = Stamp(target.source_name or target.topic_prefix, number, attempt, clock() // 1000, manifest.versions)
        counts = write_version(through, plans, changed, stamp)
        if held:
            held.complete()
    return Published(number, attempt, counts)


def _check_datasets(datasets: Sequence[Dataset], *, has_state: bool) -> None:
    if not datasets:
        raise PublishError("a version needs a table", hint="name one")
    tables = [d.table for d in datasets]
    for d in datasets:
        if d.table.count(".") != 1 or not all(d.table.split(".")):
            raise PublishError("a table is named schema.table", table=d.table)
        if tables.count(d.table) > 1:
            raise PublishError("a table stands twice in one version", table=d.table)
        check_columns(d.rows.schema, d.table, d.key)
        if d.since is not None:
            append_only.check_since(d.rows, d.table, d.since)
            if not has_state or d.previous is not None:
                raise PublishError("`since` needs a state folder, and goes without `previous`", table=d.table)
        if d.previous is not None:
            check_columns(d.previous.schema, d.table, d.key)


def refuse_batch_of_stream(dataset: Dataset) -> None:
    """Raise PublishError where the rows are those of a stream's batch: a version is the whole table, and what the batch
    lacks would be deleted."""
    rows = dataset.rows
    if rows.isStreaming:
        raise PublishError(
            "a stream is no snapshot of a table", table=dataset.table,
            hint="write it with `rows.writeStream.format('headrace')`, or its batches with `publish_changes`",
        )  # fmt: skip
    session = rows.sparkSession
    if not isinstance(session, SparkSession) or session.sparkContext.getLocalProperty(_QUERY_ID) is None:
        return
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    if any(leaves.apply(i).getClass().getSimpleName() == "LogicalRDD" for i in range(leaves.size())):
        raise PublishError(
            "the rows of one batch of a stream are not the whole table", table=dataset.table,
            hint="publish them with `publish_changes`, or write the stream with format('headrace')",
        )  # fmt: skip


def _freeze(
    datasets: Sequence[Dataset], state: State | None, manifest: Manifest, version: int, attempt: int
) -> tuple[list[DataFrame], dict[str, str]]:
    """The datasets' rows as they will not change under a repeated task, checked; and their snapshots' names."""
    frozen, names = [], {}
    for d in datasets:
        if state and d.since is not None:
            rows, mark = append_only.rows_since(d.rows, d.table, d.since, state, manifest)
            names[d.table] = f"{mark}-{version}-{attempt}"
        elif state:
            names[d.table], path = state.snapshot(d.table, version, attempt)
            d.rows.write.parquet(path.as_uri())
            rows = d.rows.sparkSession.read.schema(d.rows.schema).parquet(path.as_uri())
        else:
            rows = d.rows.localCheckpoint(eager=True)
        snapshot_diff.check_key(rows, d.table, d.key)
        frozen.append(rows)
    return frozen, names


def _compare(
    spark: SparkSession,
    datasets: Sequence[Dataset],
    plans: Sequence[Plan],
    frozen: Sequence[DataFrame],
    state: State | None,
    manifest: Manifest,
    found: versions.Seen,
) -> list[DataFrame]:
    changed = []
    for d, plan, rows in zip(datasets, plans, frozen, strict=True):
        previous = d.previous
        if previous is not None:
            previous = previous.localCheckpoint(eager=True)
            snapshot_diff.check_key(previous, d.table, d.key)
        elif found.completed > manifest.completed:
            raise PublishError(
                f"version {found.completed} is in the topic and its rows are not at hand to compare with", table=d.table,
                topic=plan.topic, hint="give them as `previous`, or the state folder that published it",
            )  # fmt: skip
        elif d.since is not None:
            previous = None
        elif state and d.table in manifest.changed:
            raise PublishError(
                "the last version was published as changes, and its rows are not at hand to compare with",
                table=d.table,
                hint="go on with `publish_changes`, or give them as `previous`",
            )
        elif state and d.table in manifest.snapshots:
            previous = spark.read.parquet(state.path(manifest.snapshots[d.table]).as_uri())
        changed.append(snapshot_diff.changes(rows, previous, d.key))
    return changed


def planned(wire: Wire, target: Target, tables: Sequence[str]) -> list[Plan]:
    """The topics of tables, made where they are missing."""
    return [Plan(t, target.topic(t), wire.ensure(target.topic(t), target.partitions)) for t in tables]


def write_version(
    wire: Wire, plans: Sequence[Plan], changed: Sequence[DataFrame], stamp: Stamp
) -> dict[str, TableCounts]:
    """Write all changes of a version, then its ENDs."""
    counts = {p.table: _write(c, p, stamp, wire) for p, c in zip(plans, changed, strict=True)}
    topics = {p.table: p.topic for p in plans}
    write_ends(wire.producer(), topics, {table: c.partitions for table, c in counts.items()}, stamp)
    return counts


def _write(changed: DataFrame, plan: Plan, stamp: Stamp, wire: Wire) -> TableCounts:
    """Write a table's changes from Spark's workers; what they counted, once for each task that succeeded."""
    head, middle, tail = (F.lit(text) for text in stamp.around(plan.table))
    after = F.coalesce("after", F.lit("null"))
    records = changed.select(
        # librdkafka's own "consistent" partitioner: the same key is always in the same partition.
        (F.crc32("key") % F.lit(plan.partitions)).cast("int").alias("partition"),
        "key",
        F.concat(head, after, middle, F.col("op"), tail).alias("value"),
        "op",
    )
    task = _Task(wire, plan.topic)
    totals = [[0, 0, 0] for _ in range(plan.partitions)]
    for row in records.mapInArrow(task, _COUNTED).collect():
        for i, n in enumerate((row["creates"], row["updates"], row["deletes"])):
            totals[row["partition"]][i] += n
    creates, updates, deletes = (sum(t[i] for t in totals) for i in range(3))
    return TableCounts(creates, updates, deletes, tuple(sum(t) for t in totals))


@dataclass(frozen=True)
class _Task:
    """What a worker runs over its share of the records; counts are given only when all of them are acknowledged."""

    wire: Wire
    topic: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        producer: Producer | None = None
        counted: dict[int, list[int]] = {}
        for batch in batches:
            producer = producer or self.wire.producer()
            partitions = batch.column("partition").to_numpy()
            for partition in np.unique(partitions).tolist():
                mine = batch.filter(pa.array(partitions == partition))
                # Spark's texts are UTF-8 already: as bytes they are passed on as they lie there
                keys, values = (mine.column(n).cast(pa.binary()).to_pylist() for n in ("key", "value"))
                producer.produce_batch(self.topic, partition, list(zip(keys, values, strict=True)))
                counts = counted.setdefault(partition, [0, 0, 0])
                for op in pc.value_counts(mine.column("op")).to_pylist():
                    counts["cud".index(op["values"])] += op["counts"]
        if producer is not None:
            producer.flush()
        order = sorted(counted)
        lists = [order, *([counted[p][i] for p in order] for i in range(3))]
        types = (pa.int32(), pa.int64(), pa.int64(), pa.int64())
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, kind) for values, kind in zip(lists, types, strict=True)],
            names=["partition", "creates", "updates", "deletes"],
        )
