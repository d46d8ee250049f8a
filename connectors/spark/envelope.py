"""What the publisher writes: the envelope around each change, and the END marker of each partition.

Always: every record of a version carries (version, attempt), and END names the attempt that counts. Called by all that
publish: whole snapshots, changes, and Spark's own writers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.connectors.spark.kafka_producer import Producer

CONNECTOR = "headrace-spark"
FORMAT_VERSION = "1"


@dataclass(frozen=True)
class TableCounts:
    """What was written for one table; `partitions`: changes in each partition, as its END tells."""

    creates: int
    updates: int
    deletes: int
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Stamp:
    """What every record of an attempt carries. `at_us`: µs since 1970 UTC, one for the whole attempt.

    `after`: the last version of each table, as the state folder has it, which its ENDs name: a reader may meet theirs
    later. `query`: the streaming query whose batch the version is. `lake`: of each table that is followed by a common clock, its
    own versions from which, and to which, this version goes.
    """

    source: str
    version: int
    attempt: int
    at_us: int
    after: Mapping[str, int] = field(default_factory=dict)
    query: str | None = None
    lake: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def around(self, table: str) -> tuple[str, str, str]:
        """The envelope's text before `after`, between it and `op`, and after `op`."""
        schema, name = table.split(".")
        source = {
            "version": FORMAT_VERSION, "connector": CONNECTOR, "name": self.source, "schema": schema, "table": name,
            "txId": self.version, "attempt": self.attempt, "ts_us": self.at_us, "snapshot": "false",
            **({"query": self.query} if self.query else {}), **self.of_lake(table),
        }  # fmt: skip
        middle = ',"source":' + json.dumps(source, separators=(",", ":"), ensure_ascii=False) + ',"op":"'
        return '{"before":null,"after":', middle, f'","ts_ms":{self.at_us // 1000},"transaction":null}}'

    def of_lake(self, table: str) -> dict[str, object]:
        """The field that tells a table's own versions, where there are any."""
        return {"lake": list(self.lake[table])} if table in self.lake else {}


def write_ends(
    producer: Producer, topics: Mapping[str, str], counts: Mapping[str, Sequence[int]], stamp: Stamp
) -> None:
    """END in every partition of every table, in one flush: a version lacks all its readers until the last is there.

    `topics`: of each table; `counts`: of each table, the changes in each partition.
    """
    tables = sorted(topics)
    key = json.dumps({"headrace.end": stamp.version}, separators=(",", ":")).encode()
    for table, topic in topics.items():
        for partition, count in enumerate(counts[table]):
            value = {
                "headrace": "end", "version": stamp.version, "attempt": stamp.attempt, "count": count,
                "partition": partition, "partitions": len(counts[table]), "table": table, "tables": tables,
                "after": dict(stamp.after), "ts_us": stamp.at_us, **({"query": stamp.query} if stamp.query else {}),
                **stamp.of_lake(table),
            }  # fmt: skip
            producer.produce(topic, partition, key, json.dumps(value, separators=(",", ":")).encode())
    producer.flush()
