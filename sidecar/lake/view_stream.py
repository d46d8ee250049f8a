"""`spark.readStream.format("headrace")`: a view's changes, out of the topic that a Kafka sink keeps of it.

Always: a micro-batch is whole epochs, as it ends where a frontier record says that an epoch does; its offset holds the epoch and
where in the topic that is, so that a restart reads the same records again. A batch from which the broker has compacted records
away is refused. Called by Spark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from headrace.connectors.kafka.frontier_record import FrontierRecord, decode
from headrace.sidecar.config.config import KafkaSinkConfig, kafka_settings
from headrace.sidecar.lake.view_schema import Asked, ReadError, as_spark, from_json, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

OPERATION, EPOCH = "headrace_op", "headrace_epoch"
"""Columns beside the view's: `upsert` or `delete`, and the epoch that did it."""
_SECONDS = 60.0
_ROWS = 10_000


def stream_schema(asked: Asked) -> T.StructType:
    """The view's columns and the two of each change."""
    fields = [
        *spark_schema(asked.columns).fields,
        T.StructField(OPERATION, T.StringType()),
        T.StructField(EPOCH, T.LongType()),
    ]
    return T.StructType(fields)


class Span(InputPartition):
    """Records of one partition from `start` on and before `stop`."""

    def __init__(self, partition: int, start: int, stop: int) -> None:
        super().__init__(partition)
        self.partition_number, self.start, self.stop = partition, start, stop


class ViewStream(DataSourceStreamReader):
    """One view's topic. Spark calls all but `read` on the driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._asked: Asked | None = None
        self._planned: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """As it goes to tasks: they read the configuration themselves."""
        return {"_options": self._options, "_asked": None, "_planned": None}

    @property
    def asked(self) -> Asked:
        """The view, looked up once."""
        if self._asked is None:
            self._asked = Asked(self._options)
        return self._asked

    def initialOffset(self) -> dict[str, Any]:
        """See DataSourceStreamReader: before the first record, so that the first batch is the whole view."""
        return {"epoch": 0, "ends": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """All that is there: a batch cannot be cut within an epoch, and epochs between two frontier records are not told.
        Asked for from pyspark 4.2 on, which alone has the module."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # noqa: ARG002
        """See DataSourceStreamReader: where the last frontier record is. pyspark 4.1 does not say where a batch starts; that it
        may not end before is checked when it is planned."""
        topic, settings, frontier = self._place()
        standing = _last_frontier(settings, frontier, self._sink().name)
        if standing is None or standing.frontier is None:
            return start or self._planned or self.initialOffset()
        if topic in standing.errors:
            raise ReadError("the view is in error", view=self.asked.name, error=standing.errors[topic].error)
        return {
            "epoch": standing.frontier.epoch,
            "ends": {str(p): at for p, at in standing.ends.get(topic, {}).items()},
        }

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """See DataSourceStreamReader."""
        if any(end["ends"].get(p, 0) < at for p, at in start["ends"].items()):
            raise ReadError("the topic went back behind what was read of it", view=self.asked.name,
                            hint="it was made anew: start the query with another checkpoint folder")  # fmt: skip
        self._planned = end
        return [
            Span(int(p), start["ends"].get(p, 0), stop)
            for p, stop in sorted(end["ends"].items())
            if stop > start["ends"].get(p, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceStreamReader."""
        assert isinstance(partition, Span)
        topic, settings, _ = self._place()
        records = list(_between(settings, topic, partition, committed=True))
        _check_whole(settings, topic, partition, records)
        for start in range(0, len(records), _ROWS):
            yield self._batch(records[start : start + _ROWS])

    def _batch(self, records: Sequence[_Record]) -> pa.RecordBatch:
        columns = self.asked.columns
        keys = [orjson.loads(r[1] or b"{}") for r in records]
        values = [orjson.loads(r[2]) if r[2] is not None else {} for r in records]
        rows = from_json(columns, [{**k, **v} for k, v in zip(keys, values, strict=True)])
        made = as_spark(columns, rows, self.asked.name)
        ops = pa.array(["delete" if r[2] is None else "upsert" for r in records], pa.string())
        epochs = pa.array([r[3] for r in records], pa.int64())
        schema = made.schema.append(pa.field(OPERATION, pa.string())).append(pa.field(EPOCH, pa.int64()))
        return pa.RecordBatch.from_arrays([*made.columns, ops, epochs], schema=schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark keeps its offsets, and the topic keeps its records."""

    def stop(self) -> None:
        """Nothing is open."""

    def _sink(self) -> KafkaSinkConfig:
        """The Kafka sink of the view, the one that is named where it has several."""
        view, config = self.asked.view, self.asked.settings.config
        found = [s for s in config.sinks if isinstance(s, KafkaSinkConfig) and s.name in view.spec.sinks]
        if "sink" in self._options:
            found = [s for s in found if s.name == self._options["sink"]]
        if len(found) != 1:
            raise ReadError(
                "a stream reads what one Kafka sink has of a view", view=view.name,
                sinks=", ".join(s.name for s in found) or "none", hint="name one by .option('sink', …)",
            )  # fmt: skip
        if found[0].format != "json":
            raise ReadError("only topics in JSON are read", sink=found[0].name, format=found[0].format)
        if view.key is None:
            raise ReadError("only views with a key are read as a stream", view=view.name, hint="give it a key")
        return found[0]

    def _place(self) -> tuple[str, dict[str, Any], str]:
        """The view's topic, how to connect, and the topic of the frontier."""
        sink = self._sink()
        settings = dict(kafka_settings(sink.kafka or self.asked.settings.config.kafka))
        return f"{sink.topic_prefix}{self.asked.name}", settings, f"{sink.topic_prefix}frontier"


_Record = tuple[int, bytes | None, bytes | None, int]
"""Offset, key, value, epoch."""


def _consumer(settings: Mapping[str, Any], *, committed: bool) -> Any:
    from confluent_kafka import Consumer

    own = {
        "group.id": "headrace-spark-read", "enable.auto.commit": False, "enable.partition.eof": True,
        "auto.offset.reset": "error", "isolation.level": "read_committed" if committed else "read_uncommitted",
    }  # fmt: skip
    return Consumer({**settings, **own})


def _last_frontier(settings: Mapping[str, Any], topic: str, sink: str) -> FrontierRecord | None:
    """The newest frontier record of a sink that readers see."""
    from confluent_kafka import TopicPartition

    consumer, found = _consumer(settings, committed=True), None
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_SECONDS)
        for record in _until(consumer, topic, 0, max(low, high - 64), high):
            if record[1] == sink.encode() and record[2] is not None:
                found = record[2]
        if found is None and high - 64 > low:  # other sinks share the topic
            for record in _until(consumer, topic, 0, low, high):
                if record[1] == sink.encode() and record[2] is not None:
                    found = record[2]
    finally:
        consumer.close()
    return None if found is None else decode(json.loads(found))


def _between(settings: Mapping[str, Any], topic: str, span: Span, *, committed: bool) -> Iterator[_Record]:
    consumer = _consumer(settings, committed=committed)
    try:
        yield from _until(consumer, topic, span.partition_number, span.start, span.stop)
    finally:
        consumer.close()


def _until(consumer: Any, topic: str, partition: int, start: int, stop: int) -> Iterator[_Record]:
    """The records from `start` on and before `stop`. Raises ReadError where they do not come."""
    from confluent_kafka import KafkaError, TopicPartition

    if start >= stop:
        return
    consumer.assign([TopicPartition(topic, partition, start)])
    deadline = time.monotonic() + _SECONDS
    while True:
        for message in consumer.consume(1000, 0.5):
            if message.error():
                if message.error().code() != KafkaError._PARTITION_EOF:
                    raise ReadError(f"the topic cannot be read: {message.error()}", topic=topic, partition=partition,
                                    offset=start, hint="were records removed? Start with another checkpoint folder")  # fmt: skip
            elif message.offset() < stop:
                headers = dict(message.headers() or [])
                yield message.offset(), message.key(), message.value(), int(headers.get("epoch", b"0") or b"0")
        position = consumer.position([TopicPartition(topic, partition)])[0].offset
        if position >= stop:
            return
        if time.monotonic() > deadline:
            raise ReadError("the topic's records do not come", topic=topic, partition=partition, offset=position,
                            wanted=stop, hint="is Kafka reachable?")  # fmt: skip


def _check_whole(settings: Mapping[str, Any], topic: str, span: Span, records: Sequence[_Record]) -> None:
    """Raise ReadError where records are missing that were there once.

    A transaction takes one offset for the mark that ends it, and has an epoch of its own: where more offsets are empty than there
    are epochs, something was taken out. Aborted transactions, which readers do not see, are looked for only then.
    """
    missing = span.stop - span.start - len(records)
    if missing <= len({r[3] for r in records}):
        return
    there = list(_between(settings, topic, span, committed=False))
    seen = {r[0] for r in records}
    hidden = [r[0] in seen for r in there]
    aborted = sum(1 for i, shown in enumerate(hidden) if not shown and (i == 0 or hidden[i - 1]))
    if span.stop - span.start - len(there) > len({r[3] for r in records}) + aborted:
        raise ReadError(
            "records of this batch were compacted away", topic=topic, partition=span.partition_number,
            start=span.start, stop=span.stop, there=len(there),
            hint="start the query with another checkpoint folder: it reads the whole view first; or let the topic keep "
            "records longer (min.compaction.lag.ms)",
        )  # fmt: skip
