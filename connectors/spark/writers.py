"""Spark's own writers: `df.write.format("headrace")` and `df.writeStream.format("headrace")`, a version each time.

Always: tasks write records and count them, and only the commit writes ENDs, so what a failed job wrote does not exist for
readers. A batch of a stream is version `after` + batch + 1, in an attempt of its own; given again, it changes nothing.
Called by Spark through the data source that `headrace.spark.register` names.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.connectors.formats.topic_names import table_topic
from headrace.connectors.spark import versions
from headrace.connectors.spark.envelope import Stamp, write_ends
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.kafka_producer import KafkaWire
from headrace.connectors.spark.publisher_state import Manifest
from headrace.connectors.spark.row_json import json_texts, json_values
from headrace.connectors.spark.types import check_columns

MODES = ("append", "upsert", "changes")
_KAFKA = "kafka."
_DIGEST = 16


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote. `keys`: of each partition, the digests of its keys, one after the other."""

    version: int
    attempt: int
    keys: Mapping[int, bytes]
    at_us: int
    query: str | None = None
    before: tuple[versions.Mark, ...] = ()


@dataclass(frozen=True)
class Options:
    """What the options of a write say."""

    table: str
    key: tuple[str, ...]
    prefix: str
    kafka: Mapping[str, str]
    mode: str = "append"
    order: str | None = None
    partitions: int = 4
    replication: int = 1
    after: int = 0
    source: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], mode: str) -> Options:
        """Read Spark's options. Raises PublishError naming what is missing."""
        missing = [n for n in ("table", "key", "prefix") if not options.get(n)]
        kafka = {n[len(_KAFKA) :]: v for n, v in options.items() if n.lower().startswith(_KAFKA)}
        if "bootstrap" in options:
            kafka["bootstrap.servers"] = options["bootstrap"]
        if "bootstrap.servers" not in kafka:
            missing.append("bootstrap")
        if missing:
            raise PublishError("an option is missing", option=missing[0], format="headrace",
                               hint=f".option('{missing[0]}', …)")  # fmt: skip
        chosen = options.get("mode", mode)
        if chosen not in MODES:
            raise PublishError("no such mode", mode=chosen, hint="one of " + ", ".join(MODES))
        keys = tuple(k.strip() for k in options["key"].split(","))
        table = options["table"]
        if table.count(".") != 1 or not all(table.split(".")):
            raise PublishError("a table is named schema.table", table=table)
        numbers = {n: _number(options, n, d) for n, d in (("partitions", 4), ("replication", 1), ("after", 0))}
        return cls(table, keys, options["prefix"], kafka, chosen, options.get("order"), numbers["partitions"],
                   numbers["replication"], numbers["after"], options.get("source"))  # fmt: skip

    @property
    def topic(self) -> str:
        """Where the table goes."""
        return table_topic(self.prefix, self.table)

    @property
    def wire(self) -> KafkaWire:
        """The way there."""
        return KafkaWire(self.kafka, self.replication)

    def columns(self, schema: StructType) -> list[str]:
        """The table's columns; raises PublishError for what cannot be carried, or is not there."""
        beside = {"op"} if self.mode == "changes" else set()
        for name in sorted(beside | ({self.order} if self.order else set())):
            if name not in schema.names:
                raise PublishError("the rows have no such column", table=self.table, column=name,
                                   columns=", ".join(schema.names))  # fmt: skip
        names = [n for n in schema.names if n not in beside]
        check_columns(StructType([schema[n] for n in names]), self.table, self.key)
        return names


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal():
        raise PublishError("an option is no whole number", option=name, value=text)
    return int(text)


@dataclass
class _Rows:
    """A task's rows, one a key: the last of each key, or the one that `order` puts last."""

    options: Options
    columns: Sequence[str]
    held: dict[bytes, tuple[bytes | None, str, Any]] = field(default_factory=dict)

    def take(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Raises PublishError for a key that is NULL, or twice where nothing may follow."""
        o = self.options
        if not batch.num_rows:
            return
        values = {n: json_values(batch.column(n)) for n in self.columns}
        keys = json_texts({n: values[n] for n in o.key}, batch.num_rows)
        images = json_texts(values, batch.num_rows)
        ops = (
            batch.column("op").to_pylist() if o.mode == "changes" else ["c" if o.mode == "append" else "u"] * len(keys)
        )
        places = batch.column(o.order).to_pylist() if o.order else [None] * len(keys)
        for name in o.key:
            if None in values[name]:
                raise PublishError("a key is NULL", table=o.table, column=name, hint="leave such rows out")
        for key, image, op, place in zip(keys, images, ops, places, strict=True):
            if op not in ("c", "u", "d", "r"):
                raise PublishError("an operation is none of c, u, d, r", table=o.table, op=op, key=key.decode())
            was = self.held.get(key)
            if was is not None and not self._later(key, was[2], place):
                continue
            self.held[key] = (None if op == "d" else image, op, place)

    def _later(self, key: bytes, was: Any, place: Any) -> bool:
        o = self.options
        if o.mode == "append":
            raise PublishError("a key stands in several rows", table=o.table, key=key.decode(),
                               hint="mode 'append' takes each key once: 'upsert' takes the last row of each")  # fmt: skip
        if o.order is None:
            return True
        if place is None or was == place:
            raise PublishError("nothing tells the order of two rows of a key", table=o.table, key=key.decode(),
                               order=o.order, hint="order by a column that differs")  # fmt: skip
        return bool(was is None or place > was)


def _write(
    options: Options, columns: Sequence[str], partitions: int, stamp: Stamp, batches: Iterator[pa.RecordBatch]
) -> dict[int, bytes]:
    """A task's work: one record a key. The digests of the keys of each partition, once all are acknowledged."""
    rows = _Rows(options, columns)
    for batch in batches:
        rows.take(batch)
    digests: dict[int, list[bytes]] = {}
    if rows.held:
        producer = options.wire.producer()
        head, middle, tail = (text.encode() for text in stamp.around(options.table))
        sent: dict[int, list[tuple[bytes, bytes]]] = {}
        for key, (image, op, _) in rows.held.items():
            partition = zlib.crc32(key) % partitions
            value = head + (image or b"null") + middle + op.encode() + tail
            sent.setdefault(partition, []).append((key, value))
            digests.setdefault(partition, []).append(blake2b(key, digest_size=_DIGEST).digest())
        for partition, records in sent.items():
            producer.produce_batch(options.topic, partition, records)
        producer.flush()
    return {p: b"".join(found) for p, found in digests.items()}


def _counts(options: Options, partitions: int, messages: Iterable[Written]) -> list[int]:
    """Keys in each partition. Raises PublishError where two tasks wrote one key: nothing tells which came later."""
    listed = list(messages)
    counts = []
    for partition in range(partitions):
        keys = b"".join(m.keys.get(partition, b"") for m in listed)
        found = [keys[i : i + _DIGEST] for i in range(0, len(keys), _DIGEST)]
        if len(set(found)) < len(found):
            raise PublishError(
                "a key was written by several tasks", table=options.table, keys=len(found) - len(set(found)),
                hint=f"bring the rows of a key together first: df.repartition({', '.join(map(repr, options.key))})",
            )  # fmt: skip
        counts.append(len(found))
    return counts


class BatchWriter(DataSourceArrowWriter):
    """One `save()`: the next version, in which what is not named stays as it was."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._columns = options, options.columns(schema)
        wire = options.wire
        self._partitions = wire.ensure(options.topic, options.partitions)
        found = versions.seen(wire, [(options.topic, self._partitions)])
        chosen = versions.choose(None, Manifest(), found)
        assert chosen is not None, "a version that is not named is a new one"
        name = options.source or options.prefix
        self._stamp = Stamp(name, *chosen, time.time_ns() // 1000)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """See DataSourceArrowWriter."""
        s = self._stamp
        keys = _write(self._options, self._columns, self._partitions, s, iterator)
        return Written(s.version, s.attempt, keys, s.at_us)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """See DataSourceWriter: the ENDs."""
        counts = _counts(self._options, self._partitions, _all(messages))
        o = self._options
        write_ends(o.wire.producer(), {o.table: o.topic}, {o.table: counts}, self._stamp)


class StreamWriter(DataSourceStreamArrowWriter):
    """The batches of one query. Spark makes one to plan a batch, from which its tasks are, and another to commit it."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options, self._columns = options, options.columns(schema)
        self._partitions = options.wire.ensure(options.topic, options.partitions)
        self._before: tuple[versions.Mark, ...] | None = None
        self._attempt = 0

    def __getstate__(self) -> dict[str, Any]:
        """As it goes to the tasks: with what the topic told before any of them wrote."""
        found = versions.seen(self._options.wire, [(self._options.topic, self._partitions)])
        return {**self.__dict__, "_before": found.marks, "_attempt": time.time_ns() // 1_000_000}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """See DataSourceStreamArrowWriter."""
        task = TaskContext.get()
        batch = task.getLocalProperty("streaming.sql.batchId") if task else None
        query = task.getLocalProperty("sql.streaming.queryId") if task else None
        if batch is None or query is None:
            raise PublishError("the task does not know its query and batch", table=self._options.table,
                               hint="use a version of Spark that this was tested with: docs/spark.md")  # fmt: skip
        version = self._options.after + int(batch) + 1
        stamp = Stamp(self._name, version, self._attempt, self._attempt * 1000, query=query)
        keys = _write(self._options, self._columns, self._partitions, stamp, iterator)
        return Written(version, self._attempt, keys, stamp.at_us, query, self._before or ())

    @property
    def _name(self) -> str:
        return self._options.source or self._options.prefix

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """See DataSourceStreamWriter: the ENDs, unless the batch has them."""
        found = _all(messages)
        if not found:
            return  # a batch of no partitions has no rows, and no version
        first, o = found[0], self._options
        if first.version != o.after + batchId + 1:
            raise PublishError("Spark commits another batch than was written", table=o.table, batch=batchId,
                               version=first.version)  # fmt: skip
        if not _is_next(o, first, self._partitions):
            return
        stamp = Stamp(self._name, first.version, first.attempt, first.at_us, query=first.query)
        write_ends(o.wire.producer(), {o.table: o.topic}, {o.table: _counts(o, self._partitions, found)}, stamp)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was written has no END, and does not exist for readers."""


def _is_next(options: Options, written: Written, partitions: int) -> bool:
    """Whether the batch is still to be ended. Raises PublishError where the topic is not as this query left it."""
    ends = [m for m in written.before if m.is_end and m.version == written.version and m.query == written.query]
    if len(ends) == partitions:
        return False
    last = max((m.version for m in written.before), default=0)
    others = [m for m in written.before if m.query != written.query and m.version > options.after]
    if others or last > written.version:
        raise PublishError(
            "the topic has versions that this query did not write: its checkpoint folder was lost, or somebody else "
            "publishes here", topic=options.topic, last=last, version=written.version,
            hint=f"restore the checkpoint folder; or go on after these versions with .option('after', {last})",
        )  # fmt: skip
    return True


def _all(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    return [m for m in messages if isinstance(m, Written)]
