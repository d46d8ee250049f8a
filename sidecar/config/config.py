"""`headrace.yaml`: the shape of the one configuration file, strict, with its meaning beside each field.

Always: a value that was accepted here can be used as it is. Secrets come from `${env:…}` or `${file:…}` and are never
printed. The reference in docs/configuration.md and the JSON Schema are generated from these models.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from headrace.sidecar.config.hosting import EngineConfig, StoreConfig
from headrace.sidecar.config.sources import NAME, SourceConfig
from headrace.views.yaml_models import StrictModel, json_schema, validate
from headrace.views.yaml_reader import ConfigError, Document, read_yaml


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
    granularity: Literal["step", "transaction"] = Field(
        default="step",
        description="step: transactions that are taken in together give one record a key; transaction: each gives its own, "
        "for which all sinks pay with finer steps",
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
    state: str = Field(
        default="./state",
        description="folder of checkpoints and reclock log; or s3://bucket/prefix or file:///folder: a store of objects that "
        "survives this machine",
    )
    store: StoreConfig = Field(default_factory=StoreConfig)
    reclock: Literal["file", "kafka"] = Field(
        default="file",
        description="where the log of epochs lies: a file of the state folder, or the topic headrace.<name>.epochs, which "
        "survives this machine",
    )
    kafka: dict[str, str | int | float | bool] = Field(description="any librdkafka key; passed through untouched")
    sources: list[SourceConfig] = Field(min_length=1)
    sinks: list[SinkConfig] = Field(default_factory=list)
    dead_letters: str | None = Field(
        default=None, description="topic of dead letters; headrace.<name>.deadletters unless said otherwise"
    )
    commands: str | None = Field(
        default=None,
        description="topic of the command log, which a lost state folder does not take; headrace.<name>.commands unless "
        "said otherwise",
    )
    views: str = Field(default="./views", description="folder (or one file) of views")
    http: str | None = Field(
        default="127.0.0.1:8088",
        description="address of the probes, /metrics and /status, and of what `plan`, `apply`, `query` and `tail` ask",
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

    @field_validator("state")
    @classmethod
    def _place(cls, state: str) -> str:
        if "://" in state:
            url = urlsplit(state)
            if url.scheme not in ("s3", "file") or not (url.netloc if url.scheme == "s3" else url.path.strip("/")):
                raise ValueError("neither a folder nor s3://bucket/prefix nor file:///folder")
        return state

    @model_validator(mode="after")
    def _log_survives(self) -> Config:
        if "://" in self.state and self.reclock != "kafka":
            raise ValueError(f"state: {self.state} needs reclock: kafka: nothing can be appended to an object")
        return self

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
    """A configuration and the folder from which relative paths start. `unfilled`: the values not known here, and why."""

    def __init__(self, config: Config, path: Path, unfilled: Sequence[str] = ()) -> None:
        self.config = config
        self.path = path
        self.unfilled = tuple(unfilled)
        self.folder = path.resolve().parent

    def with_workers(self, count: int) -> Settings:
        """The same, with another count of workers."""
        engine = self.config.engine.model_copy(update={"workers": count})
        return Settings(self.config.model_copy(update={"engine": engine}), self.path, self.unfilled)

    @property
    def state(self) -> Path:
        """The state folder; this machine's part of it where the state lies in a store."""
        return self.folder / (self.config.store.folder if self.store is not None else self.config.state)

    @property
    def store(self) -> str | None:
        """The URL of the store that the state lies in; None where it is a folder."""
        return self.config.state if "://" in self.config.state else None

    @property
    def views(self) -> Path:
        """The folder, or file, of views."""
        return self.folder / self.config.views


def kafka_settings(kafka: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """librdkafka's keys as strings; booleans as it spells them."""
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in kafka.items()}


def load(path: Path, env: Mapping[str, str] | None = None) -> Settings:
    """Read `headrace.yaml`. Raises ConfigError naming file, line, field and value."""
    document = _read(path, env)
    config = validate(document, Config)
    known = {s.name for s in config.sinks}
    if not known:
        raise ConfigError("no sink is declared", file=path, hint="add one under `sinks:`, or use `headrace replay`")
    return Settings(config, path)


def load_for_replay(path: Path, env: Mapping[str, str] | None = None) -> Settings:
    """As `load`, for a run without servers: sinks may be missing."""
    return Settings(validate(_read(path, env), Config), path)


def load_partly(path: Path, env: Mapping[str, str] | None = None) -> Settings:
    """As `load_for_replay`, for what connects to nothing that is named there: variables and files may be missing."""
    document = _read(path, env, partly=True)
    return Settings(validate(document, Config), path, document.unfilled)


def _read(path: Path, env: Mapping[str, str] | None, *, partly: bool = False) -> Document:
    if not path.exists():
        hint = "`headrace init --from postgresql://user@host/database` writes one; --config names another"
        raise ConfigError("there is no such configuration file", file=path, hint=hint)
    return read_yaml(path, interpolate=True, env=os.environ if env is None else env, partly=partly)


def schema() -> dict[str, Any]:
    """The JSON Schema of `headrace.yaml`."""
    return json_schema(Config, interpolate=True)
