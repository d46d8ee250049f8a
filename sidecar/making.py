"""The parts of a run, each made from what the configuration says of it: formats, assemblers, sources, sinks, memory.

Always: making a part opens nothing but what it must ask to be made. Called by wiring, and by whoever needs one part alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from connectors.changes import Format
from connectors.debezium.settings import HEARTBEAT_TABLE
from connectors.durable import Reached, unwatched
from connectors.formats.debezium import DebeziumFormat
from connectors.formats.spark import SparkFormat
from connectors.formats.tables import TableSpec
from connectors.formats.topics import table_topic
from connectors.formats.wire import declared_precision
from connectors.kafka.letters import KafkaLetters
from connectors.kafka.sink import KafkaSink
from connectors.kafka.source import KafkaSource
from connectors.letters import Letters
from connectors.postgres.sink import PostgresSink
from connectors.sink import Sink
from connectors.source import Source
from engine.schema import Schema
from sidecar import VERSION
from sidecar.assembler import TransactionAssembler
from sidecar.budget import Memory
from sidecar.config import PostgresSinkConfig, Settings, SinkConfig, SourceConfig, kafka_settings
from sidecar.flow import Flow
from sidecar.lulls import Lulls
from sidecar.metrics import resident_bytes
from sidecar.preflight import encodings_of
from sidecar.spill import DEFAULT_BYTES, SHARE, Spill
from sidecar.transactions import Assembler
from sidecar.versions import VersionAssembler
from views.document import ConfigError


def program() -> str:
    """Name and version, as manifests and `--version` give it."""
    return f"headrace {VERSION}"


class Wants(Protocol):
    """What a transport must know of a format."""

    def wants(self, topic: str) -> bool:
        """Whether a topic is to be read."""


def table_specs(source: SourceConfig) -> dict[str, TableSpec] | None:
    """What a format is told of its tables; None where messages tell their columns."""
    out = {}
    for table in source.tables or ():
        schema = table.schema_of()
        if schema is None:
            return None
        precisions = {c.name: p for c in table.columns or () if (p := declared_precision(c.data_type)) != 6}
        out[table.name] = TableSpec(table.name, schema, tuple(table.partitions), precisions)
    return out or None


def make_format(source: SourceConfig, path: Path) -> Format:
    """The decoder of a source's messages. Raises ConfigError for a Spark source that does not declare its tables."""
    specs = table_specs(source)
    if source.type == "spark":
        if specs is None:
            raise ConfigError("a spark source must declare its tables with their columns", file=path, source=source.name,
                              hint="`headrace-publish --describe` prints them")  # fmt: skip
        return SparkFormat(source.name, source.topic_prefix, specs)
    return DebeziumFormat(
        source.name,
        source.topic_prefix,
        specs,
        encodings=encodings_of(source),
        notification_topic=notifications(source),
        beats=HEARTBEAT_TABLE,
        carried=specs is None,
        loses=True,
    )


def notifications(source: SourceConfig) -> str:
    """The topic in which a connector tells of its snapshots."""
    return source.notifications or f"{source.topic_prefix}.notifications"


def make_lulls(source: SourceConfig, transport: Source) -> Lulls | None:
    """Which ENDs of a source wait for its notifications; None where there are no ENDs."""
    return None if source.type == "spark" else Lulls(lambda: transport.look(notifications(source)))


def make_assembler(
    source: SourceConfig, tables: Mapping[str, Schema], *, in_order: bool = False, lulls: Lulls | None = None
) -> Assembler:
    """What makes whole transactions of a source's changes."""
    if source.type == "spark":
        return VersionAssembler({n: s.key or () for n, s in tables.items()})
    return TransactionAssembler(subscribed(source, tables), in_order=in_order, lulls=lulls, schemas=tables)


def subscribed(source: SourceConfig, tables: Mapping[str, Schema]) -> dict[str, str]:
    """Each name by which the source counts events → the table it belongs to."""
    names = {name: name for name in tables}
    for table in source.tables or ():
        names |= dict.fromkeys(table.partitions, table.name)
    return names


def tables_at(source: SourceConfig) -> dict[str, frozenset[str]]:
    """Topic → the declared tables whose records stand in it (names are sanitised, so there may be several)."""
    found: dict[str, set[str]] = {}
    for table in source.tables or ():
        for name in (table.name, *table.partitions):
            found.setdefault(table_topic(source.topic_prefix, name), set()).add(table.name)
    return {topic: frozenset(tables) for topic, tables in found.items()}


def schema_policies(source: SourceConfig, tables: Iterable[str]) -> dict[str, str]:
    """Table → what is done when its columns change in the source."""
    own = {t.name: t.schema_changes for t in source.tables or () if t.schema_changes is not None}
    return {name: own.get(name, source.schema_changes) for name in tables}


def lettered(source: SourceConfig, tables: Iterable[str]) -> frozenset[str]:
    """The tables whose undecodable records become dead letters."""
    own = {t.name: t.on_undecodable for t in source.tables or () if t.on_undecodable is not None}
    return frozenset(name for name in tables if own.get(name, source.on_undecodable) == "dead_letter")


def make_letters(settings: Settings) -> Letters:
    """Where dead letters are."""
    config = settings.config
    topic = config.dead_letters or f"headrace.{config.name}.deadletters"
    return KafkaLetters(kafka_settings(config.kafka), topic)


def make_source(settings: Settings, source: SourceConfig, format_: Wants) -> Source:
    """The transport of a source."""
    kafka = kafka_settings(settings.config.kafka)
    return KafkaSource(kafka, wants=format_.wants, name=source.name, group=f"headrace.{settings.config.name}")


def make_sink(settings: Settings, sink: SinkConfig, reached: Reached = unwatched) -> Sink:
    """One sink, not opened yet. `reached`: told each durable step."""
    if isinstance(sink, PostgresSinkConfig):
        return PostgresSink(sink.name, sink.url.get_secret_value(), sink.schema_, program=program(), reached=reached)
    kafka = kafka_settings(sink.kafka or settings.config.kafka)
    return KafkaSink(
        sink.name, kafka, sink.topic_prefix, sidecar=settings.config.name, format=sink.format, program=program(),
        reached=reached,
    )  # fmt: skip


def make_memory(settings: Settings, flow: Flow) -> Memory:
    """The budget, of all processes together."""
    mib = settings.config.memory.budget_mib
    return Memory(
        None if mib is None else mib << 20, lambda: resident_bytes(w.pid for w in flow.workers()), flow.give_back
    )


def make_spill(settings: Settings, folder: Path) -> Spill:
    """Where transactions lie that are larger than a source's share of memory."""
    mib = settings.config.memory.budget_mib
    return Spill(folder, DEFAULT_BYTES if mib is None else (mib << 20) // SHARE // len(settings.config.sources))
