"""Publish a version: freeze the datasets, find what changed, write it to Kafka, and mark its end in every partition.

Always: nothing is written before every table's rows and keys are checked; every record of a version carries (version,
attempt) and the END markers, written last, name the attempt that counts. What a Spark task repeats is byte for byte
what it wrote before, since it is made from frozen rows. Called by `headrace-publish` and by jobs of one's own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.formats.topics import table_topic
from connectors.spark import compare
from connectors.spark.columns import check_columns
from connectors.spark.errors import PublishError
from connectors.spark.state import Manifest, State
from connectors.spark.wire import KafkaWire, Producer, Wire

CONNECTOR = "headrace-spark"
FORMAT_VERSION = "1"
_COUNTED = "partition int, creates long, updates long, deletes long"


@dataclass(frozen=True)
class Dataset:
    """One table of a version: `rows` now, its name "schema.table" and key, and what it is compared with.

    `previous`: the rows at the last completed version; None leaves that to the state folder.
    """

    table: str
    rows: DataFrame
    key: Sequence[str]
    previous: DataFrame | None = None


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
class TableCounts:
    """What was written for one table; `partitions`: changes in each partition, as its END tells."""

    creates: int
    updates: int
    deletes: int
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Published:
    """A version that is whole in Kafka. `repeated`: it was already, and nothing was written now."""

    version: int
    attempt: int
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    repeated: bool = False


@dataclass(frozen=True)
class _Plan:
    """One table's topic and how many partitions it has."""

    dataset: Dataset
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
    _check_datasets(datasets)
    held = State(Path(state)) if state is not None else None
    through = wire or KafkaWire(target.kafka, target.replication)
    with held.locked() if held else nullcontext():
        plans = [_Plan(d, t, through.ensure(t, target.partitions)) for d in datasets for t in [target.topic(d.table)]]
        seen = _seen(through, plans)
        manifest = _remembered(held, seen) if held else Manifest()
        chosen = _choose(version, manifest, seen)
        if chosen is None:
            return Published(version or seen.completed, manifest.begun[1], repeated=True)
        number, attempt = chosen
        frozen, names = _freeze(datasets, held, number, attempt)
        changed = _compare(spark, plans, frozen, held, manifest, seen)
        if held:
            held.begin(number, attempt, names)
        stamp = _Stamp(target.source_name or target.topic_prefix, number, attempt, clock() // 1000, manifest.versions)
        counts = {p.dataset.table: _write(c, p, stamp, through) for p, c in zip(plans, changed, strict=True)}
        _end(through, plans, counts, stamp)
        if held:
            held.complete()
    return Published(number, attempt, counts)


def _check_datasets(datasets: Sequence[Dataset]) -> None:
    if not datasets:
        raise PublishError("a version needs a table", hint="name one")
    tables = [d.table for d in datasets]
    for d in datasets:
        if d.table.count(".") != 1 or not all(d.table.split(".")):
            raise PublishError("a table is named schema.table", table=d.table)
        if tables.count(d.table) > 1:
            raise PublishError("a table stands twice in one version", table=d.table)
        check_columns(d.rows.schema, d.table, d.key)
        if d.previous is not None:
            check_columns(d.previous.schema, d.table, d.key)


@dataclass(frozen=True)
class _Seen:
    """What the last records tell: the last version whole in every partition, the greatest (version, attempt) begun."""

    completed: int
    begun: tuple[int, int]


def _seen(wire: Wire, plans: Sequence[_Plan]) -> _Seen:
    marks: list[tuple[int, int, bool]] = []
    empty = False
    for plan in plans:
        for record in wire.tails(plan.topic, plan.partitions):
            mark = _mark(record)
            empty = empty or mark is None
            if mark:
                marks.append(mark)
    if not marks:
        return _Seen(0, (0, 0))
    begun = max(m[:2] for m in marks)
    whole = {m[:2] for m in marks} == {begun} and all(m[2] for m in marks) and not empty
    ended = max((m[0] for m in marks if m[2]), default=0)
    # An END is written after all records of its version: where another partition lacks it, the version is unfinished.
    return _Seen(begun[0] if whole else min(ended, begun[0] - 1), begun)


def _remembered(state: State, seen: _Seen) -> Manifest:
    """The manifest; completed first when the process died between the last END and the note of it."""
    held = state.read()
    if seen.completed > held.completed and held.begun == seen.begun and held.begun[0] == seen.completed:
        return state.complete()
    return held


def _mark(record: tuple[bytes | None, bytes | None] | None) -> tuple[int, int, bool] | None:
    """(version, attempt, is it an END) of one of our records; None for anything else."""
    if record is None or record[1] is None:
        return None
    try:
        value = json.loads(record[1])
        if value.get("headrace") == "end":
            return int(value["version"]), int(value["attempt"]), True
        return int(value["source"]["txId"]), int(value["source"]["attempt"]), False
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _choose(version: int | None, manifest: Manifest, seen: _Seen) -> tuple[int, int] | None:
    """Version and attempt to publish; None when that version is already whole."""
    completed = max(manifest.completed, seen.completed)
    begun = max(manifest.begun, seen.begun)
    if version is None:
        version = max(completed + 1, begun[0])
    if version < 1:
        raise PublishError("a version is a whole number from 1 on", version=version)
    if version == completed:
        return None
    if version < max(completed, begun[0]):
        raise PublishError(
            f"version {max(completed, begun[0])} has been published or begun", version=version,
            hint="versions only grow: give a greater one, or none",
        )  # fmt: skip
    return version, (begun[1] + 1 if begun[0] == version else 1)


def _freeze(
    datasets: Sequence[Dataset], state: State | None, version: int, attempt: int
) -> tuple[list[DataFrame], dict[str, str]]:
    """The datasets' rows as they will not change under a repeated task, checked; and their snapshots' names."""
    frozen, names = [], {}
    for d in datasets:
        if state:
            names[d.table], path = state.snapshot(d.table, version, attempt)
            d.rows.write.parquet(path.as_uri())
            rows = d.rows.sparkSession.read.schema(d.rows.schema).parquet(path.as_uri())
        else:
            rows = d.rows.localCheckpoint(eager=True)
        compare.check_key(rows, d.table, d.key)
        frozen.append(rows)
    return frozen, names


def _compare(
    spark: SparkSession,
    plans: Sequence[_Plan],
    frozen: Sequence[DataFrame],
    state: State | None,
    manifest: Manifest,
    seen: _Seen,
) -> list[DataFrame]:
    changed = []
    for plan, rows in zip(plans, frozen, strict=True):
        d = plan.dataset
        previous = d.previous
        if previous is not None:
            previous = previous.localCheckpoint(eager=True)
            compare.check_key(previous, d.table, d.key)
        elif seen.completed > manifest.completed:
            raise PublishError(
                f"version {seen.completed} is in the topic and its rows are not at hand to compare with", table=d.table,
                topic=plan.topic, hint="give them as `previous`, or the state folder that published it",
            )  # fmt: skip
        elif state and d.table in manifest.snapshots:
            previous = spark.read.parquet(state.path(manifest.snapshots[d.table]).as_uri())
        changed.append(compare.changes(rows, previous, d.key))
    return changed


@dataclass(frozen=True)
class _Stamp:
    """What every record of an attempt carries. `at_us`: µs since 1970 UTC, one for the whole attempt. `after`: the last version
    of each table, as the state folder has it, which its ENDs name: a reader may meet theirs later."""

    source: str
    version: int
    attempt: int
    at_us: int
    after: Mapping[str, int]

    def around(self, table: str) -> tuple[str, str, str]:
        """The envelope's text before `after`, between it and `op`, and after `op`."""
        schema, name = table.split(".")
        source = {
            "version": FORMAT_VERSION, "connector": CONNECTOR, "name": self.source, "schema": schema, "table": name,
            "txId": self.version, "attempt": self.attempt, "ts_us": self.at_us, "snapshot": "false",
        }  # fmt: skip
        middle = ',"source":' + json.dumps(source, separators=(",", ":"), ensure_ascii=False) + ',"op":"'
        return '{"before":null,"after":', middle, f'","ts_ms":{self.at_us // 1000},"transaction":null}}'


def _write(changed: DataFrame, plan: _Plan, stamp: _Stamp, wire: Wire) -> TableCounts:
    """Write a table's changes from Spark's workers; what they counted, once for each task that succeeded."""
    head, middle, tail = (F.lit(text) for text in stamp.around(plan.dataset.table))
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
            lanes = (batch.column(name).to_pylist() for name in ("partition", "key", "value", "op"))
            for partition, key, value, op in zip(*lanes, strict=True):
                producer.produce(self.topic, partition, key.encode(), value.encode())
                counted.setdefault(partition, [0, 0, 0])["cud".index(op)] += 1
        if producer is not None:
            producer.flush()
        order = sorted(counted)
        lists = [order, *([counted[p][i] for p in order] for i in range(3))]
        types = (pa.int32(), pa.int64(), pa.int64(), pa.int64())
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, kind) for values, kind in zip(lists, types, strict=True)],
            names=["partition", "creates", "updates", "deletes"],
        )


def _end(wire: Wire, plans: Sequence[_Plan], counts: Mapping[str, TableCounts], stamp: _Stamp) -> None:
    """END in every partition of every table, in one flush: a version lacks all its readers until the last is there."""
    producer = wire.producer()
    tables = sorted(p.dataset.table for p in plans)
    key = json.dumps({"headrace.end": stamp.version}, separators=(",", ":")).encode()
    for plan in plans:
        table = plan.dataset.table
        for partition in range(plan.partitions):
            value = {
                "headrace": "end", "version": stamp.version, "attempt": stamp.attempt,
                "count": counts[table].partitions[partition], "partition": partition, "partitions": plan.partitions,
                "table": table, "tables": tables, "after": dict(stamp.after), "ts_us": stamp.at_us,
            }  # fmt: skip
            producer.produce(plan.topic, partition, key, json.dumps(value, separators=(",", ":")).encode())
    producer.flush()
