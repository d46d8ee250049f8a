"""The parts of a run, each made from what the configuration says of it: formats, assemblers, sources, sinks, memory.

Always: making a part opens nothing but what it must ask to be made. Called by wiring, and by whoever needs one part alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import Executor
from pathlib import Path
from typing import Protocol

from headrace.connectors.changes import Format
from headrace.connectors.commands import Commands
from headrace.connectors.dead_letters import DeadLetterQueue
from headrace.connectors.debezium.settings import HEARTBEAT_TABLE
from headrace.connectors.formats.debezium import DebeziumFormat
from headrace.connectors.formats.encodings import declared_precision
from headrace.connectors.formats.spark import SparkFormat
from headrace.connectors.formats.table_specs import TableSpec
from headrace.connectors.formats.topic_names import table_topic
from headrace.connectors.kafka.commands import KafkaCommands
from headrace.connectors.kafka.dead_letters import KafkaDeadLetterQueue
from headrace.connectors.kafka.epoch_topic import KafkaEpochTopic
from headrace.connectors.kafka.sink import KafkaSink
from headrace.connectors.kafka.source import KafkaSource
from headrace.connectors.postgres.sink import PostgresSink
from headrace.connectors.sink import Sink
from headrace.connectors.source import Source
from headrace.connectors.step_hooks import Reached, unwatched
from headrace.engine.schema import Schema
from headrace.sidecar import VERSION
from headrace.sidecar.config.config import PostgresSinkConfig, Settings, SinkConfig, kafka_settings
from headrace.sidecar.config.sources import SourceConfig
from headrace.sidecar.epochs.log_index import EpochLog
from headrace.sidecar.epochs.topic_log import TopicLog
from headrace.sidecar.execution.dataflow_host import Flow
from headrace.sidecar.intake.connector_preflight import encodings_of
from headrace.sidecar.state.checkpoint import manifest_of
from headrace.sidecar.state.command_log import CommandLog
from headrace.sidecar.state.filesystem import Disk
from headrace.sidecar.state.generation import RunState, StateError
from headrace.sidecar.state.spill import DEFAULT_BYTES, SHARE, Spill
from headrace.sidecar.telemetry.memory_budget import Memory
from headrace.sidecar.telemetry.metrics import resident_bytes
from headrace.sidecar.transactions.debezium import TransactionAssembler
from headrace.sidecar.transactions.model import Assembler
from headrace.sidecar.transactions.snapshot_barrier import SnapshotBarrier
from headrace.sidecar.transactions.spark import VersionAssembler
from headrace.sidecar.wiring.run_states import newest_run
from headrace.views.yaml_reader import ConfigError

LOG_PATIENCE = 60.0
"""Seconds for which a broker that takes no epochs is asked again; then the run ends, and nothing of them was published."""


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


def make_barrier(source: SourceConfig, transport: Source) -> SnapshotBarrier | None:
    """Which ENDs of a source wait for its notifications; None where there are no ENDs."""
    return None if source.type == "spark" else SnapshotBarrier(lambda: transport.look(notifications(source)))


def make_assembler(
    source: SourceConfig,
    tables: Mapping[str, Schema],
    *,
    in_order: bool = False,
    barrier: SnapshotBarrier | None = None,
) -> Assembler:
    """What makes whole transactions of a source's changes."""
    if source.type == "spark":
        return VersionAssembler({n: s.key or () for n, s in tables.items()})
    return TransactionAssembler(subscribed(source, tables), in_order=in_order, barrier=barrier, schemas=tables)


def with_partitions(source: SourceConfig, commands: CommandLog, *, captured: bool = False) -> SourceConfig:
    """A source with the partitions that were taken in while it ran. `captured`: only those that its connector captures."""
    more = commands.partitions(source.name, captured=captured)
    if source.tables is None or not more:
        return source
    tables = [
        t.model_copy(update={"partitions": list(dict.fromkeys((*t.partitions, *more.get(t.name, ()))))})
        for t in source.tables
    ]
    return source.model_copy(update={"tables": tables})


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


def begun_sources(settings: Settings, disk: Disk) -> Set[str]:
    """The sources whose tables the last checkpoint has."""
    run = newest_run(settings, disk)
    manifest = None if run is None else manifest_of(run)
    return frozenset() if manifest is None else manifest.sources.keys()


def lettered(source: SourceConfig, tables: Iterable[str]) -> frozenset[str]:
    """The tables whose undecodable records become dead letters."""
    own = {t.name: t.on_undecodable for t in source.tables or () if t.on_undecodable is not None}
    return frozenset(name for name in tables if own.get(name, source.on_undecodable) == "dead_letter")


def make_dead_letters(settings: Settings) -> DeadLetterQueue:
    """Where dead letters are."""
    config = settings.config
    topic = config.dead_letters or f"headrace.{config.name}.deadletters"
    return KafkaDeadLetterQueue(kafka_settings(config.kafka), topic)


def make_epoch_topic(settings: Settings, reached: Reached = unwatched) -> KafkaEpochTopic:
    """The topic of epochs, not opened yet."""
    name = settings.config.name
    return KafkaEpochTopic(
        kafka_settings(settings.config.kafka),
        f"headrace.{name}.epochs",
        sidecar=name,
        patience=LOG_PATIENCE,
        reached=reached,
    )


def make_epoch_log(settings: Settings, run: RunState, executor: Executor, reached: Reached, before: int) -> EpochLog:
    """The log of epochs in a topic, taken over from whoever had it. Raises SourceError, StateError, Fenced."""
    topic = make_epoch_topic(settings, reached)
    log = TopicLog(topic, executor, reached, before)
    try:
        run.check_newest()  # whoever began after us has the log now, and notices
    except StateError:
        log.close()
        raise
    return log


def make_commands(settings: Settings) -> Commands:
    """Where the command log is."""
    config = settings.config
    return KafkaCommands(kafka_settings(config.kafka), config.commands or f"headrace.{config.name}.commands")


def make_source(
    settings: Settings, source: SourceConfig, format_: Wants, mine: Callable[[str, int], bool] | None = None
) -> Source:
    """The transport of a source. `mine`: which partitions it reads, by topic and number; all of them unless given."""
    kafka, group = kafka_settings(settings.config.kafka), f"headrace.{settings.config.name}"
    return KafkaSource(kafka, wants=format_.wants, name=source.name, group=group, mine=mine)


def make_sink(settings: Settings, sink: SinkConfig, reached: Reached = unwatched) -> Sink:
    """One sink, not opened yet. `reached`: told each durable step."""
    if isinstance(sink, PostgresSinkConfig):
        return PostgresSink(sink.name, sink.url.get_secret_value(), sink.schema_, program=program(), reached=reached)
    kafka = kafka_settings(sink.kafka or settings.config.kafka)
    return KafkaSink(
        sink.name, kafka, sink.topic_prefix, sidecar=settings.config.name, format=sink.format, program=program(),
        each=sink.granularity == "transaction", reached=reached,
    )  # fmt: skip


def make_memory(settings: Settings, flow: Flow) -> Memory:
    """The budget, of all processes together."""
    mib = settings.config.memory.budget_mib
    return Memory(
        None if mib is None else mib << 20, lambda: resident_bytes(w.memory for w in flow.workers()), flow.give_back
    )


def make_spill(settings: Settings, folder: Path) -> Spill:
    """Where transactions lie that are larger than a source's share of memory."""
    return Spill(folder, spill_bytes(settings))


def spill_bytes(settings: Settings) -> int:
    """What of a source may wait in memory."""
    mib = settings.config.memory.budget_mib
    return DEFAULT_BYTES if mib is None else (mib << 20) // SHARE // len(settings.config.sources)
