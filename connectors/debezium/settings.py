"""Every setting of the Postgres connector that we choose, with its reason and its cost beside it.

Always: `connector_config` gives exactly the settings of `SETTINGS` that apply, plus the connection's own;
docs/debezium.md is written from the same table (`python -m headrace.connectors.debezium.docs_page`). Called by `headrace init`,
the embedded stack and tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

CONNECTOR_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
HEARTBEAT_TABLE = "headrace.heartbeat"

HEARTBEAT_DDL = (
    "CREATE SCHEMA IF NOT EXISTS headrace",
    f"CREATE TABLE IF NOT EXISTS {HEARTBEAT_TABLE} "
    "(source text PRIMARY KEY, beat bigint NOT NULL, at timestamptz NOT NULL)",
    f"ALTER TABLE {HEARTBEAT_TABLE} REPLICA IDENTITY FULL",
)
"""What the source database needs for heartbeats: one table with one row a connector, each of whose changes tells what it
follows on."""


@dataclass(frozen=True)
class Setting:
    """One setting: its name, the value we give it (a template over the arguments), why, and what it costs."""

    name: str
    value: str
    why: str
    cost: str = "nothing measurable"


SETTINGS: tuple[Setting, ...] = (
    Setting("connector.class", CONNECTOR_CLASS, "the connector that this configuration is for"),
    Setting("tasks.max", "1", "a replication slot has one reader"),
    Setting("plugin.name", "pgoutput", "built into Postgres since 10: nothing to install on the server"),
    Setting(
        "slot.name",
        "{slot}",
        "the slot is the connector's memory of what it has read; a name of its own keeps two connectors apart",
        "Postgres keeps WAL for it while Connect is down: set max_slot_wal_keep_size and watch pg_replication_slots",
    ),
    Setting("publication.name", "{publication}", "a publication of its own, dropped with the connector"),
    Setting(
        "publication.autocreate.mode",
        "filtered",
        "publishes the captured tables alone, so that Postgres does not send the rest",
        "creating it needs ownership of the tables; otherwise create it by hand (init prints how)",
    ),
    Setting("table.include.list", "{tables}", "captures what headrace.yaml names, and the heartbeat table"),
    Setting(
        "publish.via.partition.root",
        "{via_root}",
        "false: the leaves are captured, so that a TRUNCATE of one leaf is seen, which Postgres does not publish under "
        "the root's name. A root listed without its leaves would then lose every change silently",
        "a partition added later has to be added to the list; with true it is captured by itself",
    ),
    Setting(
        "snapshot.mode",
        "initial",
        "the tables' present content comes first, once; a view is published when all of it is there",
        "one read of every table in one REPEATABLE READ transaction",
    ),
    Setting(
        "provide.transaction.metadata",
        "true",
        "tells where each transaction ends and how many events it has: without it none is known to be whole",
        "two small records a transaction, and about 80 bytes an event",
    ),
    Setting("skipped.operations", "none", "Debezium drops TRUNCATE by default: a view would keep the rows"),
    Setting(
        "tombstones.on.delete",
        "true",
        "a null value after each delete lets other readers of the topic compact it; Headrace passes over them",
        "one empty record a delete",
    ),
    Setting(
        "notification.enabled.channels",
        "sink",
        "says how many rows each table's snapshot had: the only sign by which an empty table, or a topic of several "
        "partitions, is known to be complete",
        "a few records a snapshot",
    ),
    Setting("notification.sink.topic.name", "{prefix}.notifications", "where the sidecar looks for them"),
    Setting("key.converter", JSON_CONVERTER, "said here, so that what is checked is what runs"),
    Setting("key.converter.schemas.enable", "{schemas}", "see value.converter.schemas.enable"),
    Setting("value.converter", JSON_CONVERTER, "said here, so that what is checked is what runs"),
    Setting(
        "value.converter.schemas.enable",
        "{schemas}",
        "the types stand in headrace.yaml, once",
        "with true an event is five times as long (3.2 kB against 0.6 kB) and Debezium four times as slow",
    ),
    Setting(
        "value.converter.replace.null.with.default",
        "false",
        "the converter's own default writes a column's DEFAULT where the row holds NULL: a wrong value, silently",
    ),
    Setting("key.converter.replace.null.with.default", "false", "as for values"),
    Setting(
        "decimal.handling.mode",
        "string",
        "digits as Postgres prints them; precise needs the schema for its scale, double rounds",
        "a few bytes a number",
    ),
    Setting(
        "time.precision.mode",
        "microseconds",
        "every time and timestamp in microseconds, whatever its declared precision (adaptive: milliseconds up to 3 "
        "digits); headrace.yaml says the same",
    ),
    Setting("interval.handling.mode", "string", "numeric turns months into an average number of microseconds"),
    Setting("hstore.handling.mode", "json", "one text, not a map"),
    Setting("binary.handling.mode", "bytes", "base64 in JSON"),
    Setting("field.name.adjustment.mode", "none", "columns keep their names"),
    Setting("schema.name.adjustment.mode", "none", "JSON needs no adjusted names; Avro would"),
    Setting("event.processing.failure.handling.mode", "fail", "an event that cannot be read stops the connector"),
    Setting(
        "event.converting.failure.handling.mode",
        "fail",
        "a value that cannot be converted stops the connector: Debezium's default writes NULL in its place and warns in "
        "its log alone",
    ),
    Setting("errors.tolerance", "none", "a record that cannot be converted stops the connector: no silent loss"),
    Setting("slot.drop.on.stop", "false", "a dropped slot loses what is committed meanwhile"),
    Setting(
        "heartbeat.interval.ms",
        "{heartbeat_ms}",
        "a quiet database still moves its frontier and frees its WAL; also the longest that wait_for waits for a "
        "commit to tables nobody captures",
        "one transaction of one row an interval",
    ),
    Setting(
        "heartbeat.action.query",
        "{heartbeat_query}",
        "a heartbeat alone carries no LSN and moves no slot: the update of a captured table does both",
        "the heartbeat table in the source database",
    ),
    Setting(
        "poll.interval.ms",
        "{poll_ms}",
        "how long the connector sleeps when its queue was empty. Commit to consumer, p50/p99 at 200 transactions/s: "
        "500 ms (Debezium's default) 302/775 ms; 100: 59/170; 10: 7.8/21; 2: 3.2/7.1",
        "idle CPU of Connect: 1.6 % of a core at 500, 12 % at 10, 35 % at 2",
    ),
    Setting("max.batch.size", "8192", "27k events/s instead of 17k with the queue below", "some MB of Connect's heap"),
    Setting("max.queue.size", "32768", "must exceed max.batch.size", "up to 32,768 events of Connect's heap"),
    Setting(
        "producer.override.linger.ms",
        "{linger_ms}",
        "the records of one poll, of all tables, leave in few requests; Connect must allow it "
        "(connector.client.config.override.policy=All). With poll.interval.ms 20, instead of 0 with 5: at 200 "
        "transactions/s on two shared cores the broker used 0.26 instead of 0.34 of a core, Connect 0.40 instead of 0.45",
        "up to 5 ms of latency; 0 where nothing else needs the processor",
    ),
    Setting(
        "producer.override.enable.idempotence",
        "true",
        "a request that is sent again, as its answer was late, writes nothing twice. Connect's own default is false, and rows "
        "that stand twice in a snapshot are counted twice: it would seem whole before it is",
    ),
    Setting("producer.override.batch.size", "262144", "large batches under load", "256 kB a partition being written"),
    Setting("producer.override.compression.type", "{compression}", "fewer bytes on disk and wire", "a little CPU"),
    Setting("topic.creation.default.partitions", "{partitions}", "the same key is always in the same partition"),
    Setting("topic.creation.default.replication.factor", "{replication}", "as many copies as the cluster should keep"),
    Setting(
        "topic.creation.default.cleanup.policy",
        "delete",
        "a compacted topic loses events of transactions, and with them the transaction's boundary",
        "disk for the retention chosen",
    ),
    Setting("topic.creation.default.retention.ms", "{retention_ms}", "how long a sidecar can start here", "disk"),
    Setting("topic.creation.groups", "marks", "the topics that must have one partition"),
    Setting(
        "topic.creation.marks.include",
        "{marks}",
        "boundaries, notifications and heartbeats have an order of their own, which several partitions lose",
    ),
    Setting("topic.creation.marks.partitions", "1", "one order"),
    Setting("topic.creation.marks.replication.factor", "{replication}", "as the tables' topics"),
    Setting("topic.creation.marks.cleanup.policy", "delete", "as the tables' topics"),
    Setting("topic.creation.marks.retention.ms", "{retention_ms}", "as the tables' topics"),
)  # fmt: skip
"""In the order in which docs/debezium.md and the written file show them."""

LEFT_OUT = (
    (
        "signal.*",
        "nothing needs them: `headrace resync` compares a table with its source. Incremental snapshots by signal are taken in "
        "beside the stream, as told below",
    ),
    ("transforms", "anything that drops, renames or unwraps events breaks the counts of transactions"),
    ("message.key.columns", "the table's own primary key orders its changes"),
)


@dataclass(frozen=True)
class Connection:
    """How Connect reaches the source database. `password`: may be a Connect placeholder (`${env:NAME}`)."""

    host: str
    port: int
    user: str
    dbname: str
    password: str = field(repr=False, default="${env:PGPASSWORD}")
    sslmode: str | None = None


@dataclass(frozen=True)
class Tuning:
    """What a user may want otherwise. Times in milliseconds; `retention_ms` -1 keeps without limit, None is the cluster's.

    `via_root`: partitioned tables come under the root's name. `heartbeat`: False leaves the heartbeat table out.
    """

    poll_ms: int = 10
    linger_ms: int = 5
    heartbeat_ms: int = 1000
    heartbeat: bool = True
    partitions: int = 1
    replication: int = 1
    retention_ms: int | None = None
    compression: str = "lz4"
    schemas: bool = False
    via_root: bool = False


def slot_name(topic_prefix: str) -> str:
    """The slot's (and publication's) name for a prefix: Postgres allows lower-case letters, digits and `_`, 63 long."""
    return ("headrace_" + re.sub(r"[^a-z0-9_]", "_", topic_prefix.lower()))[:63]


def include_list(tables: Sequence[str]) -> str:
    """`schema.table` names as Debezium's comma-separated regular expressions, each matching that one name."""
    return ",".join(re.sub(r"([^A-Za-z0-9_])", _escape, t) for t in tables)


def _escape(match: re.Match[str]) -> str:
    # A comma separates expressions in Debezium's list, so it is written as its code.
    return "\\x2c" if match[1] == "," else "\\" + match[1]


def connector_config(
    topic_prefix: str,
    connection: Connection,
    tables: Sequence[str],
    *,
    tuning: Tuning | None = None,
    slot: str | None = None,
    publication: str | None = None,
    overrides: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The connector's configuration, ready for Connect's REST.

    `tables`: "schema.table" of everything captured: leaves of partitioned tables, or roots with `tuning.via_root`.
    `overrides` win, and may add any setting; check the result with `check`.
    """
    t = tuning or Tuning()
    captured = [*tables, *([HEARTBEAT_TABLE] if t.heartbeat and HEARTBEAT_TABLE not in tables else [])]
    source = topic_prefix.replace("'", "''")
    marked = re.escape(topic_prefix)
    values = {
        "prefix": topic_prefix,
        "slot": slot or slot_name(topic_prefix),
        "publication": publication or slot_name(topic_prefix),
        "tables": include_list(captured),
        "schemas": str(t.schemas).lower(),
        "via_root": str(t.via_root).lower(),
        "heartbeat_ms": str(t.heartbeat_ms),
        "heartbeat_query": (
            f"INSERT INTO {HEARTBEAT_TABLE} AS h (source, beat, at) VALUES ('{source}', 1, clock_timestamp()) "  # noqa: S608 (a constant table; the prefix is quoted)
            "ON CONFLICT (source) DO UPDATE SET beat = h.beat + 1, at = excluded.at"
        ),
        "poll_ms": str(t.poll_ms),
        "linger_ms": str(t.linger_ms),
        "compression": t.compression,
        "partitions": str(t.partitions),
        "replication": str(t.replication),
        "retention_ms": str(t.retention_ms),
        "marks": rf"{marked}\.(transaction|notifications),__debezium-heartbeat\.{marked}",
    }
    config = {s.name: s.value.format_map(values) for s in SETTINGS if _applies(s, t)}
    config |= {
        "topic.prefix": topic_prefix,
        "database.hostname": connection.host,
        "database.port": str(connection.port),
        "database.user": connection.user,
        "database.password": connection.password,
        "database.dbname": connection.dbname,
    }
    if connection.sslmode:
        config["database.sslmode"] = connection.sslmode
    return config | dict(overrides or {})


def _applies(setting: Setting, tuning: Tuning) -> bool:
    if setting.name == "heartbeat.action.query":
        return tuning.heartbeat
    if setting.name.endswith(".retention.ms"):
        return tuning.retention_ms is not None
    return True
