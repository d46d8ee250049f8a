"""`sources:` of headrace.yaml: databases captured by Debezium and Spark publishers, with their tables and columns.

`config` has the rest of the file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from headrace.connectors.formats.encodings import declared_precision
from headrace.engine.errors import TypeNotSupported
from headrace.engine.schema import Column, DataType, Kind, Schema
from headrace.views.yaml_models import StrictModel

NAME = r"^[A-Za-z_][A-Za-z0-9_-]*$"
TABLE = r"^[^.]+\.[^.].*$"

OnUndecodable = Literal["stop", "dead_letter"]
SchemaChanges = Literal["pause", "evolve", "fail"]


class ColumnConfig(StrictModel):
    """One column of a source table."""

    name: str = Field(min_length=1)
    data_type: str = Field(description="Postgres type, as format_type() prints it: bigint, numeric(12,2), text …")
    nullable: bool = Field(default=True, description="false where the column is NOT NULL or part of the key")
    labels: list[str] | None = Field(
        default=None,
        min_length=1,
        description="of an enum: its values, in the order of the type; without them it can only be compared for equality",
    )
    renamed_from: str | None = Field(
        default=None,
        min_length=1,
        description="the name that the column had in the source before ALTER TABLE … RENAME COLUMN: its values go on under the "
        "new one, in messages too that still have the old; not for a column of the key",
    )

    @field_validator("data_type")
    @classmethod
    def _known(cls, text: str) -> str:
        try:
            DataType.parse(text)
        except TypeNotSupported as error:
            raise ValueError(str(error)) from None
        return text

    @model_validator(mode="after")
    def _labels_are_of_an_enum(self) -> ColumnConfig:
        kind = DataType.parse(self.data_type)
        if self.labels is not None and (kind.kind is not Kind.OTHER or kind.element is not None):
            raise ValueError(f"{self.data_type} is no enum: it has no labels")
        if self.labels is not None and len(set(self.labels)) < len(self.labels):
            raise ValueError(f"a label of {self.name} is listed twice")
        return self

    @property
    def type(self) -> DataType:
        """Its type; an enum's with its labels."""
        found = DataType.parse(self.data_type)
        return found if self.labels is None else replace(found, labels=tuple(self.labels))


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
        if self.key == []:
            raise ValueError(f"the key of {self.name} has no columns: leave `key` out for a table without a key")
        if self.key is not None and self.columns is not None:
            names = {c.name for c in self.columns}
            for column in self.key:
                if column not in names:
                    raise ValueError(f"key column {column!r} is not among the columns of {self.name}")
        return self

    @model_validator(mode="after")
    def _renamed_once(self) -> TableConfig:
        names = {c.name for c in self.columns or ()}
        before = [c.renamed_from for c in self.columns or () if c.renamed_from is not None]
        for column in (c for c in self.columns or () if c.renamed_from is not None):
            if column.name in (self.key or ()):
                raise ValueError(f"key column {column.name!r} has a renamed_from: leave it out and start again")
            if column.renamed_from in names:
                raise ValueError(f"{column.name!r} is renamed_from {column.renamed_from!r}, which is another column")
        if len(set(before)) < len(before):
            raise ValueError(f"two columns of {self.name} are renamed_from one")
        return self

    def schema_of(self) -> Schema | None:
        """The table's schema, or None where messages carry it."""
        if self.columns is None:
            return None
        key = set(self.key or ())
        columns = [
            Column(c.name, c.type, c.nullable and c.name not in key, declared_precision(c.data_type), c.renamed_from)
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
        default=None,
        description="libpq URL of the source's database, which `audit`, `resync` and `doctor` ask; `run` asks its catalog "
        "alone, for the doctor's checks each minute",
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
        description="when a column is dropped, renamed or of another type: the views that name it are suspended, or a dropped "
        "one is NULL from there on, or the sidecar stops",
    )
    on_undecodable: OnUndecodable = Field(
        default="stop",
        description="what becomes of a record that cannot be decoded: its table is suspended, or it is set aside as a dead "
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
