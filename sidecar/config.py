"""`headrace.yaml`: the shape of the one configuration file, strict, with its meaning beside each field.

Always: a value that passed here is usable as it is; secrets come in through `${env:…}` or `${file:…}` and are never
printed. The reference in docs/configuration.md and the JSON Schema are generated from these models.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from connectors.formats.wire import declared_precision
from engine.errors import TypeNotSupported
from engine.schema import Column, DataType, Schema
from views.document import ConfigError, read_yaml
from views.strict import StrictModel, json_schema, validate

NAME = r"^[A-Za-z_][A-Za-z0-9_-]*$"
TABLE = r"^[^.]+\.[^.].*$"

OnUndecodable = Literal["stop", "dead_letter"]
SchemaChanges = Literal["pause", "evolve", "fail"]


class ColumnConfig(StrictModel):
    """One column of a source table."""

    name: str = Field(min_length=1)
    data_type: str = Field(description="Postgres type, as format_type() prints it: bigint, numeric(12,2), text …")
    nullable: bool = Field(default=True, description="false where the column is NOT NULL or part of the key")

    @field_validator("data_type")
    @classmethod
    def _known(cls, text: str) -> str:
        try:
            DataType.parse(text)
        except TypeNotSupported as error:
            raise ValueError(str(error)) from None
        return text


class TableConfig(StrictModel):
    """One table of a source."""

    name: str = Field(pattern=TABLE, description="schema.table")
    key: list[str] | None = Field(
        default=None, description="primary key columns, in order; leave out for a keyless table"
    )
    columns: list[ColumnConfig] | None = Field(
        default=None, description="types of the columns; may be left out where messages carry their schema"
    )
    partitions: list[str] = Field(default_factory=list, description="leaf tables of a partitioned table")
    keep: bool = Field(
        default=False, description="read it even while no view does: for views and queries that come while it runs"
    )
    schema_changes: SchemaChanges | None = Field(default=None, description="as of the source, for this table")
    on_undecodable: OnUndecodable | None = Field(default=None, description="as of the source, for this table")

    @model_validator(mode="after")
    def _key_is_there(self) -> TableConfig:
        if self.key is not None and self.columns is not None:
            names = {c.name for c in self.columns}
            for column in self.key:
                if column not in names:
                    raise ValueError(f"key column {column!r} is not among the columns of {self.name}")
        return self

    def schema_of(self) -> Schema | None:
        """The table's schema, or None where messages carry it."""
        if self.columns is None:
            return None
        key = set(self.key or ())
        columns = [
            Column(
                c.name, DataType.parse(c.data_type), c.nullable and c.name not in key, declared_precision(c.data_type)
            )
            for c in self.columns
        ]
        return Schema.of(columns, self.key)


class SkipConfig(StrictModel):
    """A record that is passed over if it cannot be decoded."""

    topic: str = Field(min_length=1, description="its topic")
    partition: int = Field(ge=0, description="its partition")
    offset: int = Field(ge=0, description="its offset, as `headrace status` names it")


class SourceConfig(StrictModel):
    """Where changes come from: the topics of a Debezium connector, or of Spark publishers."""

    name: str = Field(pattern=NAME)
    type: Literal["debezium", "spark"]
    topic_prefix: str = Field(min_length=1, description="Debezium's topic.prefix; Spark's --topic-prefix")
    tables: list[TableConfig] | None = Field(default=None, description="subscribed tables; `headrace init` writes them")
    database: SecretStr | None = Field(
        default=None, description="libpq URL of the source's database, which `headrace audit` asks; `run` never does"
    )
    connect: str | None = Field(
        default=None, description="Kafka Connect's REST address; `run` then checks the connector"
    )
    notifications: str | None = Field(
        default=None,
        description="topic of Debezium's notifications; <topic_prefix>.notifications unless said otherwise",
    )
    unavailable_value: str = Field(
        default="__debezium_unavailable_value", description="Debezium's unavailable.value.placeholder"
    )
    time_precision_mode: Literal[
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"
    ] = Field(default="adaptive", description="Debezium's time.precision.mode, for messages without schema")
    decimal_handling_mode: Literal["precise", "string", "double"] | None = Field(
        default=None, description="Debezium's decimal.handling.mode, for messages without schema"
    )
    binary_handling_mode: Literal["bytes", "base64", "base64-url-safe", "hex"] = Field(
        default="bytes", description="Debezium's binary.handling.mode"
    )
    hstore_handling_mode: Literal["json", "map"] = Field(default="json", description="Debezium's hstore.handling.mode")
    interval_handling_mode: Literal["string", "numeric"] = Field(
        default="string", description="Debezium's interval.handling.mode"
    )

    schema_changes: SchemaChanges = Field(
        default="pause",
        description="when a column is dropped, renamed or of another type: the views that name it stand still, or a dropped "
        "one is NULL from there on, or the sidecar stops",
    )
    on_undecodable: OnUndecodable = Field(
        default="stop",
        description="what becomes of a record that cannot be decoded: its table stands still, or it is set aside as a dead "
        "letter and its table goes on without it",
    )
    skip: list[SkipConfig] = Field(
        default_factory=list,
        description="records of tables to go on without, where they cannot be decoded; their changes are lost to the views",
    )

    @model_validator(mode="after")
    def _skip_is_of_debezium(self) -> SourceConfig:
        if self.skip and self.type != "debezium":
            raise ValueError("only records of a debezium source can be skipped: publish the version again")
        aside = [self.on_undecodable, *(t.on_undecodable for t in self.tables or ())]
        if "dead_letter" in aside and self.type != "debezium":
            raise ValueError("only records of a debezium source can be dead letters: publish the version again")
        return self

    @model_validator(mode="after")
    def _tables_once(self) -> SourceConfig:
        seen: set[str] = set()
        for table in self.tables or ():
            for name in (table.name, *table.partitions):
                if name in seen:
                    raise ValueError(f"table {name} is listed twice")
                seen.add(name)
        return self


class PostgresSinkConfig(StrictModel):
    """Views as tables of a Postgres schema."""

    name: str = Field(pattern=NAME)
    type: Literal["postgres"]
    url: SecretStr = Field(description="libpq URL; TLS by sslmode=… in it")
    interval_ms: int = Field(default=0, ge=0, description="at most one write in so many milliseconds")
    detach_seconds: float = Field(
        default=60.0, gt=0, description="how long it may hold the sources up before the others go on without it"
    )
    schema_: str = Field(default="headrace", alias="schema", pattern=NAME, description="schema of the tables")

    @field_validator("url")
    @classmethod
    def _postgres(cls, url: SecretStr) -> SecretStr:
        text = url.get_secret_value()
        if not text.startswith("${") and urlsplit(text).scheme not in ("postgres", "postgresql"):
            raise ValueError("not a postgresql:// URL")
        return url


class KafkaSinkConfig(StrictModel):
    """Views as topics."""

    name: str = Field(pattern=NAME)
    type: Literal["kafka"]
    topic_prefix: str = Field(default="views.", description="put before the view's name")
    format: Literal["json"] = "json"
    interval_ms: int = Field(
        default=40,
        ge=0,
        description="at most one transaction in so many milliseconds; each costs the broker a commit a topic",
    )
    detach_seconds: float = Field(
        default=60.0, gt=0, description="how long it may hold the sources up before the others go on without it"
    )
    kafka: dict[str, str | int | float | bool] | None = Field(
        default=None, description="librdkafka keys of this sink; those of `kafka` unless given"
    )


SinkConfig = Annotated[PostgresSinkConfig | KafkaSinkConfig, Field(discriminator="type")]


class CheckpointConfig(StrictModel):
    """When checkpoints are taken."""

    interval_seconds: float = Field(default=10.0, gt=0, description="at most this long between two checkpoints")


class MemoryConfig(StrictModel):
    """How much memory the sidecar should use."""

    budget_mib: int | None = Field(
        default=None,
        ge=64,
        description="resident memory, mapped files apart, above which nothing is read while sinks or checkpoints catch up",
    )


class EngineConfig(StrictModel):
    """How the views are computed."""

    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="processes that share the tables' rows by their keys; 1: all in the sidecar's own process",
    )


class ShutdownConfig(StrictModel):
    """What happens at SIGTERM and Ctrl-C."""

    seconds: float = Field(
        default=25.0,
        gt=0,
        description="a run that is told to stop is gone after so long, whatever hangs; what it could not write is left for "
        "the next start. Give the service's manager longer than that before it kills",
    )


class TailConfig(StrictModel):
    """What `headrace tail --from` can go back to."""

    history_mib: int = Field(default=4, ge=0, description="changes of each view that are kept in memory, at most")


class Config(StrictModel):
    """`headrace.yaml`."""

    version: Literal[1]
    name: str = Field(pattern=NAME, description="names this sidecar: consumer group, transactional ids")
    state: str = Field(default="./state", description="folder of checkpoints and reclock log")
    kafka: dict[str, str | int | float | bool] = Field(description="any librdkafka key; passed through untouched")
    sources: list[SourceConfig] = Field(min_length=1)
    sinks: list[SinkConfig] = Field(default_factory=list)
    dead_letters: str | None = Field(
        default=None, description="topic of dead letters; headrace.<name>.deadletters unless said otherwise"
    )
    views: str = Field(default="./views", description="folder (or one file) of views")
    http: str | None = Field(
        default="127.0.0.1:8088",
        description="address of /healthz, /readyz, /metrics, /status, and of what `plan`, `apply`, `query` and `tail` ask",
    )
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    engine: EngineConfig = Field(default_factory=EngineConfig)
    shutdown: ShutdownConfig = Field(default_factory=ShutdownConfig)
    tail: TailConfig = Field(default_factory=TailConfig)

    @field_validator("kafka")
    @classmethod
    def _bootstrap(cls, kafka: dict[str, Any]) -> dict[str, Any]:
        if "bootstrap.servers" not in kafka:
            raise ValueError("bootstrap.servers is missing")
        return kafka

    @field_validator("http")
    @classmethod
    def _address(cls, http: str | None) -> str | None:
        if http is not None:
            host, _, port = http.rpartition(":")
            if not host or not port.isdigit() or int(port) > 65535:
                raise ValueError("not host:port")
        return http

    @model_validator(mode="after")
    def _names_once(self) -> Config:
        for what, named in (("source", self.sources), ("sink", self.sinks)):
            seen: set[str] = set()
            for item in named:
                if item.name in seen:
                    raise ValueError(f"two {what}s are named {item.name}")
                seen.add(item.name)
        return self


class Settings:
    """A configuration and the folder its relative paths start from. `unfilled`: what of it is not known here, and why."""

    def __init__(self, config: Config, path: Path, unfilled: Sequence[str] = ()) -> None:
        self.config = config
        self.path = path
        self.unfilled = tuple(unfilled)
        self.folder = path.resolve().parent

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.folder / self.config.state

    @property
    def views(self) -> Path:
        """The folder, or file, of views."""
        return self.folder / self.config.views


def kafka_settings(kafka: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """librdkafka's keys as strings; booleans as it spells them."""
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in kafka.items()}


def load(path: Path, env: Mapping[str, str] | None = None) -> Settings:
    """Read `headrace.yaml`. Raises ConfigError naming file, line, field and value."""
    document = read_yaml(path, interpolate=True, env=os.environ if env is None else env)
    config = validate(document, Config)
    known = {s.name for s in config.sinks}
    if not known:
        raise ConfigError("no sink is declared", file=path, hint="add one under `sinks:`, or use `headrace replay`")
    return Settings(config, path)


def load_for_replay(path: Path, env: Mapping[str, str] | None = None) -> Settings:
    """As `load`, for a run without servers: sinks may be missing."""
    document = read_yaml(path, interpolate=True, env=os.environ if env is None else env)
    return Settings(validate(document, Config), path)


def load_partly(path: Path, env: Mapping[str, str] | None = None) -> Settings:
    """As `load_for_replay`, for what connects to nothing that is named there: variables and files may be missing."""
    document = read_yaml(path, interpolate=True, env=os.environ if env is None else env, partly=True)
    return Settings(validate(document, Config), path, document.unfilled)


def schema() -> dict[str, Any]:
    """The JSON Schema of `headrace.yaml`."""
    return json_schema(Config, interpolate=True)
